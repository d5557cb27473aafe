#!/bin/sh
# Compares training steps of a model with PyTorch on this machine's CPU: medians of alternating repetitions, and the
# ratio to PyTorch's fastest mode. They alternate so that a busy minute of the machine affects all.
#
#   benches/pytorch.sh [MODEL [BATCH [THREADS [RANKS [REPETITIONS [SECONDS]]]]]]     lenet 64 1 1 5 3
#
# Several ranks are threads of one process here, and processes of DistributedDataParallel over gloo in PyTorch; BATCH
# and THREADS are per rank. WAYS names PyTorch's modes, by default all of "nchw channels-last compiled"; compiling takes
# a minute each time and needs g++. PYTHON names an interpreter with torch; without it torch is installed into
# .venv-torch (5 GB). BINARIES names a folder that holds lockstep and kernel_server; without it they are built. BASE names
# another build of lockstep, measured beside the rest.
set -eu
cd "$(dirname "$0")/.."
model=${1:-lenet} batch=${2:-64} threads=${3:-1} ranks=${4:-1} repetitions=${5:-5} seconds=${6:-3}
ways=${WAYS:-nchw channels-last compiled}
python=${PYTHON:-.venv-torch/bin/python}
binaries=${BINARIES:-target/release}

if [ -z "${PYTHON:-}" ] && ! "$python" -c 'import torch' 2>/dev/null; then
    python3 -m venv .venv-torch
    .venv-torch/bin/pip install --quiet --disable-pip-version-check torch numpy
fi
[ -n "${BINARIES:-}" ] || cargo build --quiet --release --workspace --bin lockstep --bin kernel_server

theirs() {
    case $1 in
        compiled) set -- channels-last --compile ;;
        *) set -- "$1" ;;
    esac
    layout=$1
    shift
    "$python" benches/pytorch_step.py "$binaries/kernel_server" "$model" --batch "$batch" \
        --threads "$threads" --ranks "$ranks" --seconds "$seconds" --layout "$layout" "$@" 2>/dev/null
}

# Images per second of a build over as many steps.
ours() {
    "$1" exec run --model "$model" --data "synthetic:$((2 * batch * ranks))" --ranks "$ranks" \
        --batch-per-rank "$batch" --threads-per-rank "$threads" --steps "$2" --learning-rate 0.000001 --format json 2>/dev/null |
        "$python" -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["images_per_s"])'
}

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
for _ in $(seq "$repetitions"); do
    for way in $ways; do
        rate=$(theirs "$way")
        printf '%s %s\n' "$way" "$rate" >>"$rows"
    done
    steps=$("$python" -c "print(max(5, int($seconds * $rate / $batch / $ranks)))")
    printf 'lockstep %s\n' "$(ours "$binaries/lockstep" "$steps")" >>"$rows"
    [ -z "${BASE:-}" ] || printf 'base %s\n' "$(ours "$BASE" "$steps")" >>"$rows"
done

"$python" - "$rows" "$model" "$batch" "$threads" "$ranks" <<'PYTHON'
import collections, statistics, sys

rates = collections.defaultdict(list)
for line in open(sys.argv[1]):
    way, rate = line.split()
    rates[way].append(float(rate))
medians = {way: statistics.median(values) for way, values in rates.items()}
model, batch, threads, ranks = sys.argv[2:]
print(f"{model}, batch {batch}, {threads} thread(s), {ranks} rank(s): images/s, medians (lowest to highest)")
for way, values in rates.items():
    ratio = f"{medians['lockstep'] / medians[way]:6.2f}" if way != "lockstep" else ""
    print(f"{way:>14} {medians[way]:9.2f} ({min(values):.2f} to {max(values):.2f}) {ratio}")
best = max(rate for way, rate in medians.items() if way not in ("lockstep", "base"))
print(f"lockstep / PyTorch's fastest: {medians['lockstep'] / best:.2f}")
PYTHON
