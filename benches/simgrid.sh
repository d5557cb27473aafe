#!/bin/sh
# Compares lockstep with SimGrid on this machine: medians of alternating repetitions, the ratio of the times, and each
# one's peak memory. They alternate so that a busy minute of the machine affects both. The simulated times must agree; a
# row shows the agreement.
#
#   benches/simgrid.sh [REPETITIONS [LOAD COUNT]...]      3 repetitions; without loads, those below
#   benches/simgrid.sh 1 ring 4096                        one of them
#
# Loads: `ring`, an allreduce of 100 MiB on a star in rank order, each rank's link up to 1 % off; `even-ring`, the same
# with equal links; `tree`, the ring with ranks at random on a 2:1 tree; `halving-doubling` on a star; `flows`, COUNT
# flows at once between 432 hosts. Needs g++ and SimGrid (`bash tests/run system`), which takes minutes for some.
set -eu
cd "$(dirname "$0")/.."
repetitions=${1:-3}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- even-ring 1024 ring 1024 tree 1024 flows 20000 halving-doubling 4096

mkdir -p target/tools
g++ -std=c++17 -O2 -o target/tools/simgrid-bench benches/simgrid.cpp -lsimgrid
cargo build --quiet --release -p lockstep-benches --bin scale_bench

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
while [ $# -ge 2 ]; do
    for _ in $(seq "$repetitions"); do
        target/release/scale_bench "$1" "$2" >>"$rows"
        target/tools/simgrid-bench "$1" "$2" >>"$rows"
    done
    shift 2
done

python3 - "$rows" <<'PYTHON'
import collections, statistics, sys

runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    tool, load, count, wall, simulated, memory = line.split(",")
    runs[load, int(count), tool].append((float(wall), float(simulated), int(memory) / 1024))
print("wall_s: medians (lowest to highest); memory_MiB: highest; off: of the simulated times")
print(f"{'load':<17} {'count':>6} {'lockstep wall_s':>24} {'simgrid wall_s':>24} {'ratio':>6}"
      f" {'lockstep_MiB':>12} {'simgrid_MiB':>12} {'ratio':>6} {'off':>8}")
for load, count in dict.fromkeys((load, count) for load, count, _ in runs):
    cells, walls, memories, ends = [], [], [], []
    for tool in ("lockstep", "simgrid"):
        wall, simulated, memory = zip(*runs[load, count, tool])
        walls.append(statistics.median(wall))
        memories.append(max(memory))
        ends.append(simulated[0])
        cells.append(f"{walls[-1]:.3f} ({min(wall):.3f} to {max(wall):.3f})")
    print(f"{load:<17} {count:>6} " + " ".join(f"{cell:>24}" for cell in cells) + f" {walls[1] / walls[0]:>6.1f}"
          f" {memories[0]:>12.0f} {memories[1]:>12.0f} {memories[1] / memories[0]:>6.1f} {abs(ends[0] / ends[1] - 1):>8.1e}")
PYTHON
