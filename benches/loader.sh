#!/bin/sh
# Compares batches of random 224 x 224 crops of JPEG files with PyTorch's DataLoader and torchvision's decoder: medians
# of alternating repetitions, and the median of the ratios of neighbours in time.
#
#   benches/loader.sh [THREADS [BATCH [REPETITIONS [SECONDS]]]]     2 64 5 10
#
# THREADS decode here, in a training whose model is one pooling layer; PyTorch has as many workers, whose batches are
# discarded. PYTHON names an interpreter with torch and torchvision; without it they are installed into .venv-torch (5
# GB). IMAGES names an existing folder.
set -eu
cd "$(dirname "$0")/.."
threads=${1:-2} batch=${2:-64} repetitions=${3:-5} seconds=${4:-10}
python=${PYTHON:-.venv-torch/bin/python}

if [ -z "${PYTHON:-}" ] && ! "$python" -c 'import torch, torchvision' 2>/dev/null; then
    python3 -m venv .venv-torch
    .venv-torch/bin/pip install --quiet --disable-pip-version-check torch torchvision numpy
fi
lockstep=${LOCKSTEP:-target/release/lockstep}
[ -n "${LOCKSTEP:-}" ] || cargo build --quiet --release --bin lockstep

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
images=${IMAGES:-$work/images}
[ -n "${IMAGES:-}" ] || "$lockstep" data generate --shape imagenet --samples 2000 --classes 10 --seed 1 --out "$images" >/dev/null
"$lockstep" data pack "$images" --out "$work/train.pack" --shuffle-seed 1 >/dev/null
cat >"$work/probe.toml" <<'MODEL'
name = "probe"
input = [3, 224, 224]
layer = [
    { name = "pool", kind = "max_pool", kernel = 32, stride = 32 },
    { name = "scores", kind = "dense", out_features = 10 },
    { name = "loss", kind = "softmax_cross_entropy" },
]
MODEL

ours() {
    "$lockstep" exec run --model "$work/probe.toml" --data "$work/train.pack" --augment scale,flip --ranks 1 --batch-per-rank "$batch" \
        --decode-threads "$threads" --steps "$1" --learning-rate 0.000001 --format json 2>"$work/log" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["images_per_s"])'
}

steps=20
for _ in $(seq "$repetitions"); do
    rate=$(ours "$steps")
    steps=$(python3 -c "print(max(10, int($seconds * $rate / $batch)))")
    printf '%s %s %s\n' "$rate" \
        "$("$python" benches/pytorch_loader.py "$images" --batch "$batch" --workers "$threads" --seconds "$seconds")" \
        "$("$python" benches/pytorch_loader.py "$images" --batch "$batch" --workers "$threads" --seconds "$seconds" --plain)" \
        >>"$work/rows"
done
python3 - "$work/rows" "$threads" "$batch" <<'PYTHON'
import statistics, sys

rows = [[float(word) for word in line.split()] for line in open(sys.argv[1])]
threads, batch = sys.argv[2:]
print(f"224 x 224 crops, {threads} thread(s), batch {batch}: images/s, medians (lowest to highest)")
for name, values in zip(["lockstep", "pytorch, filtered", "pytorch, plain"], zip(*rows)):
    print(f"  {name:<18} {statistics.median(values):8.1f} ({min(values):.1f} to {max(values):.1f})")
print(f"ratio to the filtered one {statistics.median(ours / theirs for ours, theirs, _ in rows):.3f}")
print(f"ratio to the plain one {statistics.median(ours / theirs for ours, _, theirs in rows):.3f}")
PYTHON
