#!/bin/sh
# Adds rows to docs/scaling.csv, one for each number of ranks, and draws docs/scaling.svg from all of them and from
# docs/folding.csv.
#
#   benches/scaling.sh lockstep ring 64 128 256           by benches/scale_bench.rs
#   benches/scaling.sh simgrid halving-doubling 64 256    by benches/simgrid.cpp
#   benches/scaling.sh                                    draws only
#
# A row is `tool,load,ranks,wall_s,simulated_s,memory_KiB`, the medians of three runs (one, if a run takes over 10 s);
# it replaces an older one of the same tool, load and ranks. A line in the plot is a tool and a load.
set -eu
cd "$(dirname "$0")/.."
data=docs/scaling.csv

if [ $# -gt 0 ]; then
    tool=$1 load=$2
    shift 2
    case $tool in
    lockstep)
        cargo build --quiet --release -p lockstep-benches --bin scale_bench
        program=target/release/scale_bench
        ;;
    simgrid)
        mkdir -p target/tools
        g++ -std=c++17 -O2 -o target/tools/simgrid-bench benches/simgrid.cpp -lsimgrid
        program=target/tools/simgrid-bench
        ;;
    *)
        echo "no tool $tool; there are lockstep and simgrid" >&2
        exit 2
        ;;
    esac
    [ -e "$data" ] || echo "tool,load,ranks,wall_s,simulated_s,memory_KiB" >"$data"
    for ranks in "$@"; do
        row=$("$program" "$load" "$ranks")
        if [ "$(echo "$row" | cut -d, -f4 | cut -d. -f1)" -lt 10 ]; then
            row=$({ echo "$row" && "$program" "$load" "$ranks" && "$program" "$load" "$ranks"; } |
                sort -t, -k4,4g | sed -n 2p)
        fi
        echo "$row"
        { head -1 "$data" && { sed 1d "$data" | grep -v "^$tool,$load,$ranks," || true; echo "$row"; } |
            sort -t, -k1,2 -k3,3n; } >"$data.tmp"
        mv "$data.tmp" "$data"
    done
fi
"${PYTHON:-.venv/bin/python}" benches/scaling.py "$data" docs/folding.csv docs/scaling.svg
