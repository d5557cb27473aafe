"""Draws the ledger: benches/ledger.py LEDGER.csv PLOT.svg.

A line for each bench, its ratio to the peer along it; right of 1 this build is better. The latest row of each kind of machine is
filled, earlier ones are hollow. Colour says who the peer is.
"""

import collections
import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plot

COLOURS = {"simgrid": "#d55e00", "pytorch": "#0072b2", "mpi": "#009e73", "plain": "#cc79a7", "parent": "#777777", "commit": "#222222"}
NAMES = {"simgrid": "SimGrid", "plain": "plain files", "pytorch": "PyTorch's fastest way", "mpi": "the MPI library", "parent": "the parent commit", "commit": "an earlier commit"}
MARKS = "osD^v"


def main(ledger, picture):
    with open(ledger, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["peer"] = row["peer"] if row["peer"] in COLOURS else "commit"
    order = list(COLOURS)
    benches = sorted(dict.fromkeys((row["peer"], row["bench"]) for row in rows), key=lambda key: order.index(key[0]))
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    series = collections.defaultdict(list)
    for row in rows:
        series[row["peer"], row["bench"], row["machine"]].append(float(row["ratio"]))
    matplotlib.rcParams.update({"svg.hashsalt": "lockstep", "font.size": 8.5})
    figure, axes = plot.subplots(figsize=(9.2, 1.2 + 0.2 * len(benches)))
    for place, (peer, bench) in enumerate(reversed(benches)):
        for machine, mark in zip(machines, MARKS * len(machines)):
            ratios = series.get((peer, bench, machine), [])
            look = dict(marker=mark, linestyle="none", color=COLOURS[peer], markersize=5)
            axes.plot(ratios[:-1], [place] * len(ratios[:-1]), markerfacecolor="none", alpha=0.5, **look)
            axes.plot(ratios[-1:], [place] * len(ratios[-1:]), **look)
    axes.axvline(1, color="#444444", linewidth=0.8)
    axes.set_yticks(range(len(benches)), [bench for _, bench in reversed(benches)])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="speed over the peer's, as a ratio: right of 1 is better", ylabel="bench")
    axes.set_ylim(-0.7, len(benches) - 0.3)
    axes.grid(axis="x", color="#ececec", linewidth=0.6)
    for side in ["top", "right", "left"]:
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    used = [peer for peer in COLOURS if any(peer == of for of, _ in benches)]
    handles = [plot.Line2D([], [], color=COLOURS[peer], marker="o", linestyle="none", label=NAMES[peer]) for peer in used]
    handles += [plot.Line2D([], [], color="#444444", marker=mark, linestyle="none", label=machine) for machine, mark in zip(machines, MARKS)]
    figure.legend(handles=handles, loc="lower center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0.04 + 0.02 * len(handles) / 2, 1, 1))
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
