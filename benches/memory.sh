#!/bin/sh
# Measures peak resident memory of training ResNet-50 on this machine's CPU, beside PyTorch's and the memory plan's
# figure.
#
#   benches/memory.sh [BATCH [STEPS]]     3 steps of batch 8
#
# PYTHON names an interpreter with torch; without it torch is installed into .venv-torch (5 GB).
set -eu
cd "$(dirname "$0")/.."
batch=${1:-8}
steps=${2:-3}
python=${PYTHON:-.venv-torch/bin/python}

if [ -z "${PYTHON:-}" ] && ! "$python" -c 'import torch' 2>/dev/null; then
    python3 -m venv .venv-torch
    .venv-torch/bin/pip install --quiet --disable-pip-version-check torch numpy
fi
cargo build --quiet --release

peak() {
    python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' "$@"
}

ours=$(peak target/release/lockstep exec run --model resnet-50 --data "synthetic:$((2 * batch))" --ranks 1 \
    --batch-per-rank "$batch" --steps "$steps")
theirs=$(peak "$python" benches/pytorch_memory.py --batch "$batch" --steps "$steps")
library=$(peak "$python" -c 'import torch')
target/release/lockstep models show resnet-50 --memory --batch "$batch"
printf 'peak resident memory, batch %s, MiB: lockstep %s, pytorch %s (of it %s once it is imported), ratio %s\n' \
    "$batch" "$ours" "$theirs" "$library" "$(python3 -c "print(f'{$ours / $theirs:.2f}')")"
