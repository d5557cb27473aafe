#!/bin/sh
# Training LeNet beside PyTorch on this machine's CPU: medians of alternating repetitions, and the ratio to PyTorch's faster
# layout. Alternating, so that a busy minute of the machine falls on both.
#
#   benches/lenet.sh [REPETITIONS [SECONDS [PYTHON]]]     7 repetitions of 2 seconds; PYTHON is one that has torch
#
# Without PYTHON it makes .venv/bench and installs torch there (5 GB).
set -eu
cd "$(dirname "$0")/.."
repetitions=${1:-7}
seconds=${2:-2}
python=${3:-.venv/bench/bin/python}

if [ $# -lt 3 ] && ! "$python" -c 'import torch' 2>/dev/null; then
    python3 -m venv .venv/bench
    .venv/bench/bin/pip install --quiet torch numpy
fi
cargo build --quiet --release -p lockstep-exec --example kernel_bench

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
for batch in 64 16; do
    for threads in 1 2; do
        for _ in $(seq "$repetitions"); do
            ours=$(target/release/examples/kernel_bench "$batch" "$threads" "$seconds" quiet | sed 's/.*: \([0-9]*\) .*/\1/')
            printf '%s %s lockstep %s\n' "$batch" "$threads" "$ours" >>"$rows"
            for layout in nchw channels-last; do
                theirs=$("$python" benches/pytorch_cpu.py --batch "$batch" --threads "$threads" --layout "$layout" \
                    --seconds "$seconds")
                printf '%s %s %s %s\n' "$batch" "$threads" "$layout" "$theirs" >>"$rows"
            done
        done
    done
done

python3 - "$rows" <<'PYTHON'
import collections, statistics, sys

rates = collections.defaultdict(list)
for line in open(sys.argv[1]):
    batch, threads, what, rate = line.split()
    rates[batch, threads, what].append(float(rate))
print("images_per_s, medians (lowest to highest)")
print(f"{'batch':>5} {'threads':>7} {'lockstep':>22} {'pytorch nchw':>22} {'pytorch channels-last':>22} {'ratio':>6}")
for batch, threads in dict.fromkeys((batch, threads) for batch, threads, _ in rates):
    cells, medians = [], []
    for what in ("lockstep", "nchw", "channels-last"):
        values = rates[batch, threads, what]
        medians.append(statistics.median(values))
        cells.append(f"{medians[-1]:.0f} ({min(values):.0f} to {max(values):.0f})")
    ratio = medians[0] / max(medians[1:])
    print(f"{batch:>5} {threads:>7} " + " ".join(f"{cell:>22}" for cell in cells) + f" {ratio:>6.2f}")
PYTHON
