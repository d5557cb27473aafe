"""Labs of the validation matrix: their cluster files, and bringing them up."""

import contextlib
import os
import pathlib
import re
import subprocess

CPU = """
[host.cpu]
cores = {cores}
flops_per_core = "30GFLOP/s"
memory_bandwidth = "10GB/s"
memory = "2GiB"
message_latency = "1us"
message_bandwidth = "8GB/s"
"""
LATENCY = "20us"


def cluster(place):
    """The cluster file of a place such as `lab-3-1Gbit`, `lab-4-1Gbit-one-slow` (one link a tenth as fast), or `lab-2+2-1Gbit-2to1` (two racks whose
    uplink is as fast as one host)."""
    hosts, rate, kind = re.fullmatch(r"lab-([0-9+]+)-([0-9]+[MG]bit)(-.*)?", place).groups()
    rate = rate.replace("bit", "bit/s")
    cpu = CPU.format(cores=os.cpu_count())
    lines = [f'name = "{place.replace("+", "-")}"', 'provenance = "assumed"', "shared_cores = true"]
    link = '[[link]]\nkind = "ethernet"\nbetween = ["{}", "{}"]\nlatency = "{}"\nbandwidth = "{}"'

    def add(name, count):
        lines.append(f'[[host]]\nname = "{name}"\ncount = {count}\n{cpu}')

    if "+" in hosts:
        counts = [int(count) for count in hosts.split("+")]
        for rack, count in enumerate(counts):
            add(f"rack{rack}n", count)
        lines += ['[[switch]]\nname = "leaf"\ncount = {}'.format(len(counts))]
        lines += [link.format(f"rack{rack}n*.cpu", f"leaf{rack}", LATENCY, rate) for rack in range(len(counts))]
        lines.append(link.format("leaf0", "leaf1", LATENCY, rate))
    else:
        count = int(hosts)
        lines.append('[[switch]]\nname = "switch"')
        slow = kind == "-one-slow"
        add("node", count - slow)
        lines.append(link.format("node*.cpu", "switch", LATENCY, rate))
        if slow:
            add("slow", 1)
            lines.append(link.format("slow0.cpu", "switch", LATENCY, "100Mbit/s"))
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def up(lockstep, place, folder):
    """Brings the lab of a place up and gives its name and cluster file; it is gone behind the block."""
    file = pathlib.Path(folder) / f"{place}.toml"
    file.write_text(cluster(place))
    name = f"m{os.getpid() % 10000}"
    subprocess.run([lockstep, "lab", "up", file, "--name", name], check=True, capture_output=True, text=True)
    try:
        yield name, file
    finally:
        subprocess.run([lockstep, "lab", "down", name], check=True, capture_output=True, text=True)
