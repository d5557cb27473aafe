"""The figures of a paper as lockstep predicts them, drawn by matplotlib; and the command that every notebook asks for rows.

What a figure shows (its lines, axes, published points) is in experiments/papers/NAME.figures.toml; the page of
`lockstep papers --html` draws the same.
"""

import json
import math
import os
import pathlib
import subprocess

import matplotlib.pyplot as plt
from IPython.display import Markdown, display

root = next(folder for folder in pathlib.Path(__file__).resolve().parents if (folder / "Cargo.lock").exists())
pictures = root / "out" / "notebooks"
pictures.mkdir(parents=True, exist_ok=True)
plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})

# Colours that most eyes tell apart (Okabe and Ito 2008).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"]
MARKS, STROKES = "os^Dv", ["-", (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 2, 2)), (0, (10, 2)), (0, (10, 2, 2, 2)), (0, (2, 4))]
SOURCE = "points: numbers in the paper's text, by the names of their rows; nothing is read off an image"
# Where a point's name may stand, in points from it.
OFFSETS = [(6, 4), (-6, 4), (6, -12), (-6, -12), (6, 16), (-6, 16), (6, -24), (-6, -24), (6, 28), (-6, 28)]


def report(*arguments):
    """What a command of lockstep prints as JSON."""
    command = [os.environ.get("LOCKSTEP", str(root / "target" / "release" / "lockstep")), *map(str, arguments), "--format", "json"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    assert answer["version"] == 1, "another version of the JSON form"
    return answer


def lockstep(*arguments):
    """The rows of it."""
    return report(*arguments)["rows"]


def look(number):
    """Colour, mark and stroke of the line with this number: no two of 245 are alike."""
    turn = number // len(COLOURS)
    return COLOURS[number % len(COLOURS)], MARKS[turn % len(MARKS)], STROKES[turn % len(STROKES)]


class Paper:
    """Every figure of a paper, predicted once."""

    def __init__(self, name):
        self.name = name
        answer = report("papers", name, "--figures")
        self.rows = answer["rows"]
        starts = {row["figure"]: f"{name} {row['figure']}: " for row in self.rows}
        self.captions = {
            figure: next(note for note in answer["notes"] if note.startswith(start))[len(start) :]
            for figure, start in starts.items()
        }

    def draw(self, *names):
        """These figures side by side, and below them what bounds their lines."""
        figure, axes = plt.subplots(1, len(names), figsize=(5.6 * len(names), 4.4), layout="constrained", squeeze=False)
        for axis, name in zip(axes[0], names):
            rows = [row for row in self.rows if row["figure"] == name]
            assert rows, f"{self.name} has no figure {name}"
            draw_lines(axis, rows)
        figure.text(0.005, -0.005, SOURCE, va="top", fontsize=8, color="#666666")
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axis, name in zip(axes[0], names):
            draw_points(axis, [row for row in self.rows if row["figure"] == name])
        figure.savefig(pictures / f"{self.name}-{'-'.join(names)}.png", bbox_inches="tight")
        plt.show()
        titles = {row["figure"]: row["title"] for row in self.rows}
        display(Markdown("\n\n".join(f"*{titles[name]}.* {self.captions[name]}" for name in names)))

    def table(self):
        """Every published point beside what is predicted there."""
        lines = ["| row | the paper says | figure | published | predicted | |", "|---|---|---|--:|--:|--:|"]
        for point in (row for row in self.rows if row["source"] == "published"):
            ours = next(row["y"] for row in self.rows if row["source"] == "predicted" and same_place(row, point))
            off = f"{(ours / point['y'] - 1) * 100:+.1f} %" if point["counted"] else "does not count"
            lines.append(
                f"| {point['row']} | {point['says']} | {point['figure']}, {point['unit']} "
                f"| {point['y']:.4g} | {ours:.4g} | {off} |"
            )
        display(Markdown("\n".join(lines)))


def same_place(row, point):
    return all(row[key] == point[key] for key in ("figure", "line", "x"))


def draw_lines(axis, rows):
    """Axes, predictions, and perfect scaling dotted."""
    first = rows[0]
    ticks = {row["x"]: row["x_name"] or f"{row['x']:g}" for row in rows}
    if first["x_log"]:
        axis.set_xscale("log", base=2)
    axis.set_xticks(list(ticks), spaced(ticks, first["x_log"]))
    axis.minorticks_off()
    lines = list(dict.fromkeys(row["line"] for row in rows))
    values = [row["y"] for row in rows if row["source"] != "perfect"]
    predictions = {
        line: [row for row in rows if row["line"] == line and row["source"] == "predicted"] for line in lines
    }
    for number, line in enumerate(lines):
        (colour, mark, stroke), predicted = look(number), predictions[line]
        # A line on which others lie shows on both sides of them.
        wide = 1 + sum(lies_on(predicted, predictions[other], max(values)) for other in lines[number + 1 :])
        style = {"ms": 3.5, "lw": 1.5 * wide, "color": colour, "label": line, "marker": mark, "ls": stroke}
        axis.plot([row["x"] for row in predicted], [row["y"] for row in predicted], **style)
        perfect = [row for row in rows if row["line"] == line and row["source"] == "perfect"]
        if perfect:
            across, up = [row["x"] for row in perfect], [row["y"] for row in perfect]
            axis.plot(across, up, ":", lw=1, color=colour, label=f"{line}, perfect scaling")
    if first["y_log"]:
        axis.set_yscale("log")
        low, high = min(values) / 1.25, max(values) * 1.25
        steps = [step * 10.0**power for power in range(-9, 10) for step in (1, 2, 5) if low <= step * 10.0**power <= high]
        axis.set_yticks(steps, [f"{step:g}" for step in steps])
        axis.minorticks_off()
        axis.set_ylim(low, high)
    else:
        axis.set_ylim(first["y_from"], 1.08 * max(values))
    axis.set_title(f"{first['title']} (paper: {first['like']})", fontsize=9, loc="left")
    axis.set_xlabel(first["x_label"])
    axis.set_ylabel(first["y_label"])
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def spaced(ticks, is_log):
    """The names of ticks, empty where they would lie on the last one shown."""
    places = {value: math.log(value) if is_log else value for value in ticks}
    least, last, names = 0.055 * (max(places.values()) - min(places.values())), None, []
    for value, name in ticks.items():
        shown = last is None or places[value] - last >= least
        last = places[value] if shown else last
        names.append(name if shown else "")
    return names


def lies_on(ours, theirs, most):
    return all(abs(one["y"] - other["y"]) < 0.01 * most for one, other in zip(ours, theirs))


def draw_points(axis, rows):
    """Published numbers, hollow where the row does not count, each with its name where there is room."""
    lines = list(dict.fromkeys(row["line"] for row in rows))
    points = [row for row in rows if row["source"].startswith("published")]
    renderer = axis.figure.canvas.get_renderer()
    taken = []
    for point in points:
        colour, _, _ = look(lines.index(point["line"]))
        fill = colour if point["counted"] else "white"
        (mark,) = axis.plot(point["x"], point["y"], "D", ms=6, mfc=fill, mec=colour, zorder=3)
        taken.append(mark.get_window_extent(renderer))
    for point in points:
        for right, up in OFFSETS:
            side = "left" if right > 0 else "right"
            where = {"xytext": (right, up), "textcoords": "offset points", "ha": side, "fontsize": 8}
            name = axis.annotate(point["row"], (point["x"], point["y"]), **where)
            box = name.get_window_extent(renderer)
            inside = axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and axis.bbox.y0 <= box.y0
            if inside and not any(box.overlaps(other) for other in taken):
                break
            # Where there is no space the table names the point.
            name.remove()
        else:
            continue
        taken.append(box)
