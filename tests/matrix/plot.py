#!/usr/bin/env python3
"""Draws docs/validation.svg from tests/matrix/measured: the errors of all rows as a histogram, and by measured time.

    .venv/bin/python tests/matrix/plot.py
"""

import statistics

import matplotlib

import store
from report import PAGE, oversubscribed

matplotlib.use("svg")
import matplotlib.pyplot as plt

# The picture's bytes follow from its data.
plt.rcParams.update({"svg.hashsalt": "lockstep", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
# Names of kinds of places, what their names begin or end with, and colours that most eyes tell apart (Okabe and Ito 2008).
KINDS = {
    "threads": (lambda place: place.startswith("threads"), "#0072b2"),
    "MPI, one host": (lambda place: place.startswith("mpi"), "#009e73"),
    "hosts at 100 Mbit/s": (lambda place: "100Mbit" in place, "#e69f00"),
    "hosts at 1 Gbit/s": (lambda place: "1Gbit" in place, "#d55e00"),
}
# Errors beyond these ends are drawn at them.
END = 60
# Percent of a bin.
BIN = 5


def histogram(axis, rows):
    """How many rows have which error: those with cores of their own below, those that share cores above."""
    edges = list(range(-END, END + BIN, BIN))
    errors = [[max(-END, min(END - 0.1, row["error_pct"])) for row in rows if oversubscribed(row) == shared] for shared in (False, True)]
    axis.hist(errors, edges, stacked=True, color=["#0072b2", "#9ecae9"], edgecolor="white", linewidth=0.5,
              label=[f"{name} ({len(of)})" for name, of in zip(("ranks with cores of their own", "ranks share cores"), errors)])
    middle = statistics.median(abs(row["error_pct"]) for row in rows)
    axis.set(xlabel="error: predicted / measured - 1, percent", ylabel="number of configurations", title=f"Half of {len(rows)} errors are below {middle:.1f} %")
    axis.set_ylim(top=1.2 * axis.get_ylim()[1])


def by_time(axis, rows):
    """The error by measured time, a colour for each kind of place; hollow where ranks share cores."""
    for name, (belongs, colour) in KINDS.items():
        for shared in (False, True):
            of = [row for row in rows if belongs(row["place"]) and oversubscribed(row) == shared]
            if of:
                x, y = [1e3 * row["measured_s"] for row in of], [max(-END, min(END, row["error_pct"])) for row in of]
                axis.scatter(x, y, s=14, facecolors="none" if shared else colour, edgecolors=colour, linewidths=0.9,
                             label=f"{name}{', sharing cores' if shared else ''} ({len(of)})")
    axis.axhline(0, color="#666666", linewidth=0.8)
    beyond = sum(abs(row["error_pct"]) > END for row in rows)
    axis.set(xscale="log", ylim=(-1.08 * END, 1.08 * END), xlabel="measured time of a step or a collective, milliseconds", ylabel="error, percent",
             title=f"Errors by measured time; {beyond} beyond {END} % at the edge")


def main():
    rows = [row for row in store.every() if "measured_s" in row]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4), width_ratios=[1, 1.35], layout="constrained")
    histogram(left, rows)
    by_time(right, rows)
    for axis in (left, right):
        axis.grid(which="major", linewidth=0.3)
        axis.set_axisbelow(True)
    left.legend(frameon=False, loc="upper left", fontsize=8)
    figure.legend(*right.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(PAGE.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
