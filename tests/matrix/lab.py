"""Labs of the validation matrix: their cluster files, and bringing them up."""

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import typing

CPU = """
[host.cpu]
cores = {cores}
flops_per_core = "{flops_per_core_s:.0f}FLOP/s"
memory_bandwidth = "{memory_bandwidth:.0f}B/s"
memory = "2GiB"
message_latency = "{message_latency_ns:.1f}ns"
message_bandwidth = "{message_bandwidth:.0f}B/s"
message_wake = "{wake_ns:.1f}ns"
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


class Links(typing.NamedTuple):
    """Figures of a lab's links and ranks that the kernel does not let it choose."""

    # Of a link, in seconds.
    latency_s: float
    # Bytes per second that a core sends or receives.
    core_bytes_s: float
    # CPU time of a message, in seconds.
    message_s: float = 0.0
    # What a message waits for each other rank on its receiver's core, in seconds.
    wake_s: float = 0.0


# A prediction without what is to be found.
FREE = Links(1e-9, 1e15)
# Hosts for each core of this machine that calibrate what sharing cores costs, and the bytes that they sum: no load of the matrix. Short messages cost
# their number, long ones their bytes, and that many links at 1 Gbit/s carry more than the cores send and receive.
CROWD_PER_CORE, SHORT, LONG = 4, "4KiB", "2MiB"
# Times that each is measured, one after the other, so that all see the same pace of the machine.
ROUNDS = 5


def _allreduce(ranks, algorithm, size):
    return ["--ranks", str(ranks), "--algorithm", algorithm, "--transport", "mpi", "--format", "json", "--bytes", size]


def _time(words, folder):
    """Seconds of the collective that a command predicts or measures."""
    return json.loads(subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout)["rows"][0]["time_us"] * 1e-6


def _predicted(lockstep, file, flags, folder):
    return _time([lockstep, "sim", "collective", "--cluster", file, *flags], folder)


def _measured(lockstep, name, cases, folder):
    """The median of each case."""
    rounds = [[_time([lockstep, "lab", "run", name, "--", lockstep, "exec", "collective", *flags], folder) for flags in cases] for _ in range(ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds)]


def _solve(predicted, measured, least, most):
    """The value between two with which a prediction, which grows with it, takes as long as measured."""
    while most / least > 1.01:
        middle = (least * most) ** 0.5
        least, most = (middle, most) if predicted(middle) < measured else (least, middle)
    return most


def links(lockstep, host, folder):
    """Figures of a lab's links, from collectives that are no rows of the matrix.

    The latency is that of a sum of 8 bytes by two ranks on two hosts, which sends one message after the other over two links each, less what a
    prediction without latency says. The others come from sums by more hosts than there are cores, all messages at once (`direct`) and one after the
    other (`ring`): the rate of a core is the one with which predictions take as long as long sums of both kinds together, the CPU time of a message
    and the wait for other ranks' turns those with which they take as long as short sums, at once and in turn."""
    pair = _allreduce(2, "ring", "8")
    with up(lockstep, "lab-2-1Gbit", folder, host, FREE) as (name, file):
        [measured_s] = _measured(lockstep, name, [pair], folder)
        latency_s = max(measured_s - _predicted(lockstep, file, pair, folder), 0.0) / 4
    crowd = CROWD_PER_CORE * host["cores"]
    place, file = f"lab-{crowd}-1Gbit", folder / f"lab-{crowd}-1Gbit.toml"
    at_once, in_turn, *long = cases = [_allreduce(crowd, algorithm, size) for size in (SHORT, LONG) for algorithm in ("direct", "ring")]
    with up(lockstep, place, folder, host, FREE) as (name, _):
        at_once_s, in_turn_s, *long_s = _measured(lockstep, name, cases, folder)

    def solved(cases, measured_s, change, least, most):
        """The figures with the one that `change` sets, fitted to the measured seconds of all cases together."""

        def predicted_s(value):
            file.write_text(cluster(place, host, change(value)))
            return sum(_predicted(lockstep, file, flags, folder) for flags in cases)

        return change(_solve(predicted_s, measured_s, least, most))

    found = Links(latency_s, 1e9)
    for _ in range(3):
        # A larger rate takes less time.
        found = solved(long, sum(long_s), lambda byte_s: found._replace(core_bytes_s=1 / byte_s), 1e-11, 1e-7)
        # The latency contains the CPU time of one message.
        found = solved([at_once], at_once_s, lambda seconds: found._replace(message_s=seconds, latency_s=max(latency_s - seconds / 2, 0.0)), 1e-7, 1e-3)
        found = solved([in_turn], in_turn_s, lambda seconds: found._replace(wake_s=seconds), 1e-7, 1e-3)
    return found


# The line rate of a slow host.
SLOW = "100Mbit/s"


def burst(rate):
    """Keys of a link's burst: as `lab up` shapes a link without them."""
    number, unit = re.fullmatch(r"([0-9]+)([MG])bit/s", rate).groups()
    bits_s = int(number) * {"M": 1e6, "G": 1e9}[unit]
    bytes_s = bits_s / 8 * 1448 / 1538
    packet = min(max(134e-6 * bytes_s * 1514 / 1448, 8192), 16384)
    at_once = packet + 1448 + 134e-6 * bytes_s
    return f'burst = "{max(2e-3 * bytes_s, at_once):.0f}B"\nburst_bandwidth = "{1.1 * bits_s / 1e6:.0f}Mbit/s"\nburst_at_once = "{at_once:.0f}B"'


def cluster(place, host, links):
    """The cluster file of a place such as `lab-3-1Gbit`, `lab-4-1Gbit-one-slow` (one link a tenth as fast), or `lab-2+2-1Gbit-2to1` (two racks whose
    uplink is as fast as one host)."""
    hosts, rate, kind = re.fullmatch(r"lab-([0-9+]+)-([0-9]+[MG]bit)(-.*)?", place).groups()
    rate = rate.replace("bit", "bit/s")
    cpu, latency = CPU.format(**host, wake_ns=1e9 * links.wake_s), f"{1e9 * links.latency_s:.1f}ns"
    lines = [f'name = "{place.replace("+", "-")}"', 'provenance = "assumed"', "shared_cores = true"]
    link = f'[[link]]\nkind = "ethernet"\nbetween = ["{{}}", "{{}}"]\nlatency = "{{}}"\nbandwidth = "{{}}"\ncore_bandwidth = "{links.core_bytes_s:.0f}B/s"\nreceive_overhead = "{1e9 * links.message_s:.1f}ns"\ntransmit_queue = "10ms"\n{{}}'

    def add(name, count):
        lines.append(f'[[host]]\nname = "{name}"\ncount = {count}\n{cpu}')

    if "+" in hosts:
        counts = [int(count) for count in hosts.split("+")]
        for rack, count in enumerate(counts):
            add(f"rack{rack}n", count)
        lines += ['[[switch]]\nname = "leaf"\ncount = {}'.format(len(counts))]
        lines += [link.format(f"rack{rack}n*.cpu", f"leaf{rack}", latency, rate, burst(rate)) for rack in range(len(counts))]
        lines.append(link.format("leaf0", "leaf1", latency, rate, burst(rate)))
    else:
        count = int(hosts)
        lines.append('[[switch]]\nname = "switch"')
        slow = kind == "-one-slow"
        add("node", count - slow)
        lines.append(link.format("node*.cpu", "switch", latency, rate, burst(rate)))
        if slow:
            add("slow", 1)
            lines.append(link.format("slow0.cpu", "switch", latency, SLOW, burst(SLOW)))
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
