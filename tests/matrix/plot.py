#!/usr/bin/env python3
"""Draws docs/validation.svg from tests/matrix/measured: predicted by measured time of every row.

    .venv/bin/python tests/matrix/plot.py
"""

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
BAND = 0.1


def main():
    rows = [row for row in store.every() if "measured_s" in row]
    figure, axis = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    times = [1e3 * row[key] for row in rows for key in ("measured_s", "predicted_s")]
    ends = [min(times) / 1.5, max(times) * 1.5]
    axis.fill_between(ends, [(1 - BAND) * end for end in ends], [(1 + BAND) * end for end in ends], color="#999999", alpha=0.25, linewidth=0,
                      label=f"within {100 * BAND:.0f} %")
    axis.plot(ends, ends, color="#666666", linewidth=0.8)
    for name, (belongs, colour) in KINDS.items():
        for shared in (False, True):
            of = [row for row in rows if belongs(row["place"]) and oversubscribed(row) == shared]
            if of:
                x, y = ([1e3 * row[key] for row in of] for key in ("measured_s", "predicted_s"))
                axis.scatter(x, y, s=22, facecolors="none" if shared else colour, edgecolors=colour, linewidths=1,
                             label=f"{name}{', ranks share cores' if shared else ''} ({len(of)})")
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, ms", ylabel="predicted, ms",
             title=f"Time of a training step or a collective, {len(rows)} measurements")
    axis.grid(which="major", linewidth=0.3)
    axis.legend(frameon=False, loc="upper left", fontsize=8)
    figure.savefig(PAGE.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
