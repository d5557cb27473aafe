"""Draws how time and memory of a simulation grow with its ranks: benches/scaling.py DATA.csv PLOT.svg.

One line for each tool and load of the data that benches/scaling.sh gathers.
"""

import collections
import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plot

COLOURS = {"lockstep": "#1b6ca8", "simgrid": "#c8553d"}
MARKS = {"ring": "o", "halving-doubling": "s"}
NAMES = {"lockstep": "lockstep", "simgrid": "SimGrid 3.32"}


def main(data, picture):
    lines = collections.defaultdict(list)
    with open(data, newline="") as file:
        for row in csv.DictReader(file):
            memory_mib = float(row["memory_KiB"]) / 1024
            lines[row["load"], row["tool"]].append((int(row["ranks"]), float(row["wall_s"]), memory_mib))

    matplotlib.rcParams.update({"svg.hashsalt": "lockstep", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (time, memory) = plot.subplots(1, 2, figsize=(8.6, 3.7))
    for (load, tool), points in sorted(lines.items()):
        ranks, walls, memories = zip(*sorted(points))
        look = dict(color=COLOURS.get(tool, "#555555"), marker=MARKS.get(load, "^"), markersize=4, linewidth=1.3,
                    linestyle="-" if load == "ring" else "--", label=f"{NAMES.get(tool, tool)}, {load}")
        time.plot(ranks, walls, **look)
        memory.plot(ranks, memories, **look)
    ticks = [64, 1024, 16_384, 131_072, 1_000_000]
    for axes, title in ((time, "wall clock in s"), (memory, "peak memory in MiB")):
        axes.set(xscale="log", yscale="log", xlim=(50, 1_300_000), xlabel="ranks")
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(color="#e4e4e4", linewidth=0.6)
    figure.legend(*time.get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
