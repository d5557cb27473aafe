"""Draws how time and memory of a simulation grow with its ranks: benches/scaling.py SCALING.csv FOLDING.csv PLOT.svg.

Left the wall clock, right the peak memory, both from 64 ranks to a million. Colour says who simulates, the mark what:
100 MiB added up by lockstep and SimGrid with every rank, on a star (benches/scaling.sh), and by lockstep with folding, on
three levels of switches with eight GPUs a host (benches/fold_bench.rs), where most of both is the cluster's.
"""

import collections
import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plot

SIMGRID, UNFOLDED, FOLDED = "SimGrid 3.32, every rank", "lockstep, every rank", "lockstep, folded"
COLOURS = {SIMGRID: "#d55e00", UNFOLDED: "#0072b2", FOLDED: "#009e73"}
# The loads: name, marker, and line style.
LOADS = {
    "ring": ("ring allreduce", "o", "-"),
    "halving-doubling": ("halving-doubling", "s", "--"),
    "hierarchical": ("hierarchical halving-doubling", "D", "--"),
    "step": ("training step of ResNet-32", "^", ":"),
}
TICKS = [64, 1024, 16_384, 131_072, 1_048_576]
# Reference lines across the plot: seconds and MiB with their labels.
LINES = [{60: "1 min", 1: "1 s"}, {1024: "1 GiB"}]


def rows(path):
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


def read(scaling, folding):
    """(who, load) → points of (ranks, seconds, MiB), by ranks."""
    lines = collections.defaultdict(list)
    for row in rows(scaling):
        who = SIMGRID if row["tool"] == "simgrid" else UNFOLDED
        lines[who, row["load"]].append((int(row["ranks"]), float(row["wall_s"]), float(row["memory_KiB"]) / 1024))
    for row in rows(folding):
        point = (int(row["gpus"]), float(row["wall_s"]), float(row["peak_kib"]) / 1024)
        lines[FOLDED, row["load"]].append(point)
    return {key: sorted(points) for key, points in lines.items()}


def key(colour="#444444", **look):
    """An entry of a legend."""
    return plot.Line2D([], [], color=colour, markersize=4.5, linewidth=1.4, **look)


def main(scaling, folding, picture):
    lines = read(scaling, folding)
    plain = {"svg.hashsalt": "lockstep", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    matplotlib.rcParams.update(plain)
    figure, panels = plot.subplots(1, 2, figsize=(9.2, 4.7))
    axis_names = ("wall clock, seconds", "peak memory, mebibytes")
    for column, (axes, axis_name) in enumerate(zip(panels, axis_names), start=1):
        for who in COLOURS:
            for load, (_, mark, stroke) in LOADS.items():
                points = lines.get((who, load))
                if points:
                    axes.plot(
                        [point[0] for point in points],
                        [point[column] for point in points],
                        color=COLOURS[who],
                        marker=mark,
                        linestyle=stroke,
                        markersize=4.5,
                        linewidth=1.4,
                    )
        for value, name in LINES[column - 1].items():
            axes.axhline(value, color="#999999", linewidth=0.7, linestyle=(0, (1, 3)))
            axes.text(52, value * 1.15, name, color="#777777", fontsize=8)
        axes.set(xscale="log", yscale="log", xlim=(48, 1_500_000), xlabel="number of ranks", ylabel=axis_name)
        axes.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.grid(color="#ececec", linewidth=0.6)
    who = [key(colour, label=name) for name, colour in COLOURS.items()]
    used = [load for load in LOADS if any(load == other for _, other in lines)]
    what = [key(label=LOADS[load][0], marker=LOADS[load][1], linestyle=LOADS[load][2]) for load in used]
    look = dict(loc="lower center", frameon=False, columnspacing=1.6)
    figure.add_artist(figure.legend(handles=who, ncols=len(who), bbox_to_anchor=(0.5, 0.045), **look))
    figure.legend(handles=what, ncols=len(what), bbox_to_anchor=(0.5, 0.0), **look)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
