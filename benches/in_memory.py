"""Draws what memory gains over files on slow storage, predicted beside measured: benches/in_memory.py IN_MEMORY.csv PLOT.svg.

Left seconds of a step by the rate of the storage, from the file and from memory; right how many times faster memory is.
"""

import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plot

COLOURS = {"file": "#d55e00", "memory": "#0072b2"}
# The paper's gain.
LOW, HIGH = 1.25, 1.33


def main(table, picture):
    with open(table, newline="") as file:
        rows = {row["storage_MBps"]: row for row in csv.DictReader(file)}
    memory = rows.pop("")
    rates = sorted(map(float, rows))
    rows = {float(rate): row for rate, row in rows.items()}

    def seconds(source, side):
        key = f"{side}_step_s"
        return [float((memory if source == "memory" else rows[rate])[key]) for rate in rates]

    plain = {"svg.hashsalt": "lockstep", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    matplotlib.rcParams.update(plain)
    figure, (left, right) = plot.subplots(1, 2, figsize=(9.2, 3.6))
    for source, colour in COLOURS.items():
        left.plot(rates, seconds(source, "predicted"), color=colour, linestyle="--", marker="o", fillstyle="none", label=f"{source}, predicted")
        left.plot(rates, seconds(source, "measured"), color=colour, marker="o", label=f"{source}, measured")
    left.set_ylabel("time of a step, seconds")
    left.legend(frameon=False)
    for side, stroke, fill in [("predicted", "--", "none"), ("measured", "-", "full")]:
        gains = [file / memory for file, memory in zip(seconds("file", side), seconds("memory", side))]
        right.plot(rates, gains, color="#444444", linestyle=stroke, fillstyle=fill, marker="o", label=side)
    right.axhspan(LOW, HIGH, color="#009e73", alpha=0.25, linewidth=0, label="Kumar et al.: 1.25 to 1.33")
    right.set_ylabel("step from file over memory, ratio")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="rate of the storage, megabytes per second", ylim=(0, None))
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.minorticks_off()
        axes.grid(color="#ececec", linewidth=0.6)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
