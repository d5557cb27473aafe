"""Labs of the validation matrix: their cluster files, and bringing them up."""

import contextlib
import json
import os
import pathlib
import re
import subprocess

CPU = """
[host.cpu]
cores = {cores}
flops_per_core = "{flops_per_core_s:.0f}FLOP/s"
memory_bandwidth = "{memory_bandwidth:.0f}B/s"
memory = "2GiB"
message_latency = "{message_latency_ns:.1f}ns"
message_bandwidth = "{message_bandwidth:.0f}B/s"
"""


def figures(profile):
    """Figures of `[host.cpu]` from a profile of this machine."""
    profile = json.loads(pathlib.Path(profile).read_text())
    memory = profile["memory"]
    return {
        "cores": os.cpu_count(),
        "flops_per_core_s": profile["flops_per_core_s"],
        "memory_bandwidth": profile["memory_bandwidth"],
        "message_latency_ns": 1e9 * memory["latency"]["value"],
        "message_bandwidth": 1 / memory["copy"]["value"],
    }


def latency_s(lockstep, host, folder):
    """Latency of a lab's links, which the kernel does not let it choose: of a sum of 8 bytes by two ranks on two hosts, which sends one message
    after the other over two links each, what a prediction without latency does not explain."""
    place = "lab-2-1Gbit"
    flags = ["--ranks", "2", "--algorithm", "ring", "--bytes", "8", "--transport", "mpi", "--format", "json"]
    time = lambda words: json.loads(subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout)["rows"][0]["time_us"] * 1e-6
    with up(lockstep, place, folder, host, 1e-9) as (name, file):
        times = sorted(time([lockstep, "lab", "run", name, "--", lockstep, "exec", "collective", *flags]) for _ in range(5))
        return max(times[2] - time([lockstep, "sim", "collective", "--cluster", file, *flags]), 0.0) / 4


def cluster(place, host, latency_s):
    """The cluster file of a place such as `lab-3-1Gbit`, `lab-4-1Gbit-one-slow` (one link a tenth as fast), or `lab-2+2-1Gbit-2to1` (two racks whose
    uplink is as fast as one host)."""
    hosts, rate, kind = re.fullmatch(r"lab-([0-9+]+)-([0-9]+[MG]bit)(-.*)?", place).groups()
    rate = rate.replace("bit", "bit/s")
    cpu, latency = CPU.format(**host), f"{1e9 * latency_s:.1f}ns"
    lines = [f'name = "{place.replace("+", "-")}"', 'provenance = "assumed"', "shared_cores = true"]
    link = '[[link]]\nkind = "ethernet"\nbetween = ["{}", "{}"]\nlatency = "{}"\nbandwidth = "{}"'

    def add(name, count):
        lines.append(f'[[host]]\nname = "{name}"\ncount = {count}\n{cpu}')

    if "+" in hosts:
        counts = [int(count) for count in hosts.split("+")]
        for rack, count in enumerate(counts):
            add(f"rack{rack}n", count)
        lines += ['[[switch]]\nname = "leaf"\ncount = {}'.format(len(counts))]
        lines += [link.format(f"rack{rack}n*.cpu", f"leaf{rack}", latency, rate) for rack in range(len(counts))]
        lines.append(link.format("leaf0", "leaf1", latency, rate))
    else:
        count = int(hosts)
        lines.append('[[switch]]\nname = "switch"')
        slow = kind == "-one-slow"
        add("node", count - slow)
        lines.append(link.format("node*.cpu", "switch", latency, rate))
        if slow:
            add("slow", 1)
            lines.append(link.format("slow0.cpu", "switch", latency, "100Mbit/s"))
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def up(lockstep, place, folder, host, latency_s):
    """Brings the lab of a place up and gives its name and cluster file; it is gone behind the block."""
    file = pathlib.Path(folder) / f"{place}.toml"
    file.write_text(cluster(place, host, latency_s))
    name = f"m{os.getpid() % 10000}"
    subprocess.run([lockstep, "lab", "up", file, "--name", name], check=True, capture_output=True, text=True)
    try:
        yield name, file
    finally:
        subprocess.run([lockstep, "lab", "down", name], check=True, capture_output=True, text=True)
