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


# A prediction without what is to be found.
NO_LATENCY_S, FREE_BYTES_S = 1e-9, 1e15
ALLREDUCE = ["--ranks", "2", "--algorithm", "ring", "--transport", "mpi", "--format", "json", "--bytes"]


def _time(words, folder):
    """Seconds of the collective that a command predicts or measures."""
    return json.loads(subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout)["rows"][0]["time_us"] * 1e-6


def _predicted(lockstep, file, size, folder):
    return _time([lockstep, "sim", "collective", "--cluster", file, *ALLREDUCE, size], folder)


def _measured(lockstep, name, size, folder):
    """The median of five."""
    return sorted(_time([lockstep, "lab", "run", name, "--", lockstep, "exec", "collective", *ALLREDUCE, size], folder) for _ in range(5))[2]


def links(lockstep, host, folder):
    """Figures of a lab's links that the kernel does not let it choose: the latency, in seconds, and the bytes per second that a core sends or receives.

    The latency is that of a sum of 8 bytes by two ranks on two hosts, which sends one message after the other over two links each, less what a
    prediction without latency says. The rate of a core is the one with which a prediction takes as long as a sum of 25 MiB over links that are
    faster than cores."""
    with up(lockstep, "lab-2-1Gbit", folder, host, (NO_LATENCY_S, FREE_BYTES_S)) as (name, file):
        latency_s = max(_measured(lockstep, name, "8", folder) - _predicted(lockstep, file, "8", folder), 0.0) / 4
    place = "lab-2-5Gbit"
    with up(lockstep, place, folder, host, (latency_s, FREE_BYTES_S)) as (name, file):
        measured = _measured(lockstep, name, "25MiB", folder)
        slow, fast = 1e7, 1e11
        while fast / slow > 1.01:
            middle = (slow * fast) ** 0.5
            file.write_text(cluster(place, host, (latency_s, middle)))
            slow, fast = (middle, fast) if _predicted(lockstep, file, "25MiB", folder) > measured else (slow, middle)
    return latency_s, fast


def cluster(place, host, links):
    """The cluster file of a place such as `lab-3-1Gbit`, `lab-4-1Gbit-one-slow` (one link a tenth as fast), or `lab-2+2-1Gbit-2to1` (two racks whose
    uplink is as fast as one host)."""
    hosts, rate, kind = re.fullmatch(r"lab-([0-9+]+)-([0-9]+[MG]bit)(-.*)?", place).groups()
    rate = rate.replace("bit", "bit/s")
    latency_s, core_bytes_s = links
    cpu, latency = CPU.format(**host), f"{1e9 * latency_s:.1f}ns"
    lines = [f'name = "{place.replace("+", "-")}"', 'provenance = "assumed"', "shared_cores = true"]
    link = f'[[link]]\nkind = "ethernet"\nbetween = ["{{}}", "{{}}"]\nlatency = "{{}}"\nbandwidth = "{{}}"\ncore_bandwidth = "{core_bytes_s:.0f}B/s"\ntransmit_queue = "10ms"'

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
def up(lockstep, place, folder, host, links):
    """Brings the lab of a place up and gives its name and cluster file; it is gone behind the block."""
    file = pathlib.Path(folder) / f"{place}.toml"
    file.write_text(cluster(place, host, links))
    name = f"m{os.getpid() % 10000}"
    subprocess.run([lockstep, "lab", "up", file, "--name", name], check=True, capture_output=True, text=True)
    try:
        yield name, file
    finally:
        subprocess.run([lockstep, "lab", "down", name], check=True, capture_output=True, text=True)
