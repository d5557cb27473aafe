#!/usr/bin/env python3
"""Allreduce between hosts of a lab: lockstep's algorithms beside the MPI library's default, the best of the library's own, and one TCP stream.

    python3 benches/lab_allreduce.py                                   4 hosts at 1 Gbit/s, 25 MiB
    python3 benches/lab_allreduce.py --hosts 3,6,7 --bytes 4KiB,1MiB   others

It needs root, Open MPI, and lockstep built with `--features mpi` (LOCKSTEP names it). Each figure is the median of `--repetitions` jobs, in turn. The
library's default runs with its own eager limit, 64 KiB; its best is the fastest of its algorithms, chosen for each size. busbw is
2(p - 1)/p of the buffer over the time; its share is of the payload rate of one TCP stream between two of the hosts.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "matrix"))
import lab

LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP", ROOT / "target" / "release" / "lockstep")).resolve()
OURS = ["ring", "rings:2", "halving-doubling", "swing", "recursive-halving", "direct", "double-tree:4", "binomial-tree", "tree:3",
        "parameter-server:1"]
DEFAULT = {"OMPI_MCA_btl_tcp_eager_limit": "65536", "OMPI_MCA_btl_tcp_rndv_eager_limit": "65536"}
# Numbers of `coll_tuned_allreduce_algorithm`.
LIBRARY = {"doubling": 3, "ring": 4, "segmented ring": 5, "rabenseifner": 6}
# Figures of hosts do not matter for what is measured.
HOST = {"cores": os.cpu_count(), "flops_per_core_s": 1e9, "memory_bandwidth": 1e9, "message_latency_ns": 1e3, "message_bandwidth": 1e9}


def seconds(name, hosts, algorithm, size, environment):
    words = [LOCKSTEP, "lab", "run", name, "--", LOCKSTEP, "exec", "collective", "--ranks", str(hosts), "--algorithm", algorithm, "--bytes", size,
             "--transport", "mpi", "--format", "json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    [row] = json.loads(done.stdout)["rows"]
    return 1e-6 * row["time_us"], row["bytes"]


def stream_bytes_s(name):
    """The payload rate of one TCP stream between two hosts."""
    words = [LOCKSTEP, "lab", "run", name, "--each", "--hosts", "2", "--", sys.executable, ROOT / "benches" / "lab_stream.py", "one"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return max(float(word) for word in said.split() if word.replace(".", "", 1).isdigit()) * 1e6 / 8


def main():
    flags = argparse.ArgumentParser(description="Measures allreduces between hosts of a lab.")
    flags.add_argument("--hosts", default="4", help="numbers of hosts [default: 4]")
    flags.add_argument("--bytes", default="25MiB", help="sizes [default: 25MiB]")
    flags.add_argument("--rate", default="1Gbit", help="rate of the hosts' links [default: 1Gbit]")
    flags.add_argument("--repetitions", type=int, default=3, help="jobs of each [default: 3]")
    flags = flags.parse_args()
    work = ROOT / "target" / "lab-allreduce"
    work.mkdir(parents=True, exist_ok=True)
    print("hosts  bytes   lockstep                    ms     default ms   best of the library  ms     default/ours  best/ours  share of a stream")
    for hosts in map(int, flags.hosts.split(",")):
        with lab.up(LOCKSTEP, f"lab-{hosts}-{flags.rate}", work, HOST, lab.FREE) as (name, _):
            stream = stream_bytes_s(name)
            for size in flags.bytes.split(","):
                ways = {("ours", own): (own, {}) for own in OURS}
                ways["default", "default"] = "library:mpi", DEFAULT
                for own, number in LIBRARY.items():
                    chosen = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number)}
                    ways["library", own] = "library:mpi", {**DEFAULT, **chosen}
                times = {way: [] for way in ways}
                for _ in range(flags.repetitions):
                    for way, (algorithm, environment) in ways.items():
                        took, count = seconds(name, hosts, algorithm, size, environment)
                        times[way].append(took)
                medians = {way: statistics.median(all_times) for way, all_times in times.items()}
                best = {side: min((took, own) for (of, own), took in medians.items() if of == side) for side in ("ours", "default", "library")}
                (ours, own), (default, _), (library, other) = best["ours"], best["default"], best["library"]
                busbw = 2 * (hosts - 1) / hosts * count / ours
                print(f"{hosts:5}  {size:6}  {own:24} {1e3 * ours:8.2f}  {1e3 * default:10.2f}   {other:17} {1e3 * library:8.2f}  "
                      f"{default / ours:12.2f}  {library / ours:9.2f}  {busbw / stream:17.3f}", flush=True)


if __name__ == "__main__":
    main()
