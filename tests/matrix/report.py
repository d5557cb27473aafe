#!/usr/bin/env python3
"""Writes docs/validation.md from tests/matrix/measured: errors by factor, the worst rows with causes (tests/matrix/causes.json), and all rows.

    python3 tests/matrix/report.py            fails if docs/validation.md or docs/validation-matrix.html is another
    python3 tests/matrix/report.py --write    writes both
    python3 tests/matrix/report.py --html matrix.html    writes the rows as a page with charts and a table that filters and sorts
"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys

import pages
import store
from factors import FACTORS, PLACES, VALUES
from store import ROOT

ORDER = ROOT / "tests" / "matrix" / "order.jsonl"
CAUSES = ROOT / "tests" / "matrix" / "causes.json"
PAGE = ROOT / "docs" / "validation.md"
HTML = ROOT / "docs" / "validation-matrix.html"
WORST = 10
# Pairs of algorithms whose times differ by less have no order.
ORDERED = 0.05


def error(row):
    """|predicted / measured - 1| in percent."""
    return abs(row["error_pct"])


def within(row):
    """Whether the prediction lies between the measured 10th and 90th percentile."""
    return row["measured_p10_s"] <= row["predicted_s"] <= row["measured_p90_s"]


def oversubscribed(row):
    """Whether ranks share cores, and the predicted bound is neither a link (`A > B`) nor waiting for messages in flight."""
    return PLACES[row["place"]] > row["cores"] and " > " not in row["bound"] and row["bound"] != "waiting: latency"


def ninth(errors):
    """The 90th percentile."""
    return sorted(errors)[min(len(errors) - 1, int(0.9 * len(errors)))]


def figures(rows):
    """Cells of a table: rows, median and 90th percentile of the error, the share within the measured range."""
    errors = list(map(error, rows))
    return f"{len(rows)} | {statistics.median(errors):.1f} | {ninth(errors):.1f} | {100 * sum(map(within, rows)) / len(rows):.0f}"


def table(title, groups):
    """Lines of a table with a line for each group that has rows."""
    yield from [f"| {title} | rows | median error, % | 90th percentile, % | within p10 to p90, % |", "|---|---|---|---|---|"]
    yield from (f"| {name} | {figures(rows)} |" for name, rows in groups if rows)
    yield ""


def repeated(row):
    """|time of the run before / measured - 1| in percent: how well an earlier measurement predicts the row."""
    return abs(100 * (row["earlier_s"] / row["measured_s"] - 1))


def second_run(groups):
    """Lines on rows that were measured twice on one machine."""
    groups = [(name, [row for row in rows if "earlier_s" in row]) for name, rows in groups]
    dates = sorted(row["earlier_date"] for _, rows in groups for row in rows)
    yield from [
        "## Rows measured twice",
        "",
        f"These rows were also measured in an earlier run on the same kind of machine, from {dates[0]} to {dates[-1]}.",
        "The table compares the prediction with another one: the time that the earlier run measured. Its error shows how far the machine's",
        "speed changed between the two runs.",
        "",
        "| ranks | rows | earlier measurement: median error, % | 90th percentile, % | prediction: median error, % | 90th percentile, % |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in [(name, rows) for name, rows in groups if rows]:
        cells = [f"{statistics.median(of):.1f} | {ninth(of):.1f}" for of in ([repeated(row) for row in rows], [error(row) for row in rows])]
        yield f"| {name} | {len(rows)} | {' | '.join(cells)} |"
    yield ""


def order(rows):
    """Pairs of rows that differ by more than 5 % in time, and how many are predicted in that order."""
    pairs = right = 0
    for one, two in itertools.combinations(rows, 2):
        if abs(one["measured_s"] - two["measured_s"]) <= ORDERED * min(one["measured_s"], two["measured_s"]):
            continue
        pairs += 1
        right += (one["measured_s"] < two["measured_s"]) == (one["predicted_s"] < two["predicted_s"])
    return pairs, right


def order_table(rows):
    """Lines on rows of `order.py`, which measures all algorithms in the same places."""
    cases = {}
    for row in rows:
        cases.setdefault((row["place"], row["load"]), []).append(row)
    counted = {case: order(of) for case, of in cases.items()}
    pairs, right = map(sum, zip(*counted.values()))
    yield from [
        "## Order of algorithms",
        "",
        f"`python3 tests/matrix/order.py` measures every algorithm in the same places. Of {pairs} pairs whose times differ by more than",
        f"{100 * ORDERED:.0f} %, {right} ({100 * right / pairs:.0f} %) are predicted in the measured order.",
        "",
        *again_lines(rows),
        "| place | load | pairs | in order | median error, % | fastest measured | fastest predicted |",
        "|---|---|---|---|---|---|---|",
    ]
    for (place, load), of in cases.items():
        fastest = [min(of, key=lambda row: row[key])["algorithm"] for key in ("measured_s", "predicted_s")]
        yield f"| {place} | {load} | {counted[place, load][0]} | {counted[place, load][1]} | {statistics.median(map(error, of)):.1f} | {' | '.join(fastest)} |"
    yield ""


def row_line(row):
    name = ", ".join(row[factor] for factor in FACTORS if row[factor] != "none")
    if row.get("recompute", "none") != "none":
        name += f", recompute {row['recompute']}"
    times = " | ".join(f"{1e3 * row[key]:.4g}" for key in ("predicted_s", "measured_s", "measured_p10_s", "measured_p90_s"))
    return f"| {row['number']} | {row['machine']} | {name} | {times} | {row['error_pct']:+.1f} |"


def groups_of(rows):
    """Rows whose ranks have cores of their own, rows whose ranks share cores, and all."""
    own, shared = ([row for row in rows if oversubscribed(row) == of] for of in (False, True))
    return [("with cores of their own, or bounded by communication", own), ("sharing cores", shared), ("all", rows)]


def again_lines(rows):
    """Lines on rows whose predictions are later than their measurements."""
    again = sorted(row["predicted_again"] for row in rows if "predicted_again" in row)
    if again:
        yield from [
            f"{len(again)} of these {len(rows)}, on labs, were measured first: their predictions are from {again[-1]}, from a calibration of that day.",
            "The simulator had been changed in between, with these measurements known. So these errors are not those of predictions made in advance.",
            "",
        ]


def machine_lines(name, rows):
    """Lines on the rows of one kind of machine."""
    dates = sorted(row["date"] for row in rows)
    [kind] = {f"{row['cpu']}, {row['cores']} cores" for row in rows}
    yield from [f"`{name}` ({kind}): {len(rows)} configurations, measured between {dates[0]} and {dates[-1]}.", ""]
    yield from again_lines(rows)
    yield from table("ranks", groups_of(rows))


def ranges(numbers):
    """Ascending numbers in words such as `4, 253-323`."""
    # Neighbours differ from their place in the list by the same.
    runs = [[number for _, number in run] for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def page():
    """The text of the page."""
    known, drawn = store.every(), store.drawn()
    second, third = (next(row["number"] for row in drawn if key in row) for key in ("batch_per_rank", "recompute"))
    rows = [row for row in known if "measured_s" in row]
    failed = [row for row in known if "failed" in row]
    yield from [
        "# Predicted and measured: the validation matrix",
        "",
        f"The matrix has {len(drawn)} configurations, which `tests/matrix/draw.py` draws with three seeds. {drawn[0]['number']} to {second - 1} cover all pairs of load,",
        f"algorithm, place, strategy and input. {second} to {third - 1} have further strategies, and cover their pairs with load, algorithm and kind of",
        f"place. {third} to {drawn[-1]['number']} have decoders with AdamW, and cover pairs of strategies with loads, kinds of place and recomputation. Each drawing",
        "was made before any of its rows was measured, and after those of the drawing before had been.",
        "`python3 tests/matrix/measure.py` measures rows, `python3 tests/matrix/report.py --write` writes this page. An error is",
        "predicted / measured - 1. Calibration knows single layers and messages, none of these configurations.",
        "",
        "The 12 rows of learners that claim batches (`first come`, `round robin`) were measured twice: row 307 took 26 % longer than predicted,",
        "since each claim was a message that queued behind the exchange. Now a process assigns its own learners' batches, and these rows are",
        "of that program.",
        "",
        "![errors of all rows as a histogram, and by measured time](validation.svg)",
        "",
        "`.venv/bin/python tests/matrix/plot.py` draws the picture. [validation-matrix.html](validation-matrix.html) has all rows with charts, filters and a",
        "table that sorts: open it in a browser.",
        "",
    ]
    machines = {name: [row for row in rows if row["machine"] == name] for name in sorted({row["machine"] for row in rows})}
    for name, of in machines.items():
        yield from machine_lines(name, of)
    missing = [place for place in PLACES if all(row["place"] != place for row in rows)]
    if missing:
        yield from [f"Not measured yet: {', '.join(missing)}.", ""]
    measured = {row["number"] for row in rows}
    waiting = [row["number"] for row in drawn if row["number"] not in measured]
    if waiting:
        yield from [f"Rows not measured yet: {ranges(waiting)}.", ""]
    if len(machines) > 1:
        yield from ["The tables below have the rows of all machines.", ""]
    if any("earlier_s" in row for row in rows):
        yield from second_run(groups_of(rows))
    for factor in FACTORS:
        yield f"## By {factor}"
        yield ""
        yield from table(factor, [(value, [row for row in rows if row[factor] == value]) for value in VALUES[factor]])
    if ORDER.exists():
        yield from order_table([row for row in map(json.loads, ORDER.read_text().splitlines()) if "measured_s" in row])
    head = ["| row | machine | configuration | predicted, ms | measured, ms | p10, ms | p90, ms | error, % |", "|---|---|---|---|---|---|---|---|"]
    causes = json.loads(CAUSES.read_text())
    yield from [f"## The {WORST} largest errors", "", head[0] + " cause |", head[1] + "---|"]
    for row in sorted(rows, key=error, reverse=True)[:WORST]:
        cause = causes.get(f"{row['machine']} {row['number']}", "not known")
        yield f"{row_line(row)} {cause} |"
    if failed:
        yield from ["", "## Failed", "", "| row | machine | reason |", "|---|---|---|"]
        yield from (f"| {row['number']} | {row['machine']} | {row['failed']} |" for row in failed)
    yield from ["", "## All rows", "", *head]
    yield from map(row_line, rows)


def html():
    """The text of the page with charts."""
    rows = [{**row, "ranks_share_cores": oversubscribed(row)} for row in store.every() if "measured_s" in row]
    return pages.text(rows, [f"{len(rows)} measurements of {len(store.drawn())} configurations, by tests/matrix/measure.py"])


def main():
    flags = argparse.ArgumentParser(description="Reports what the validation matrix measured.")
    flags.add_argument("--write", action="store_true", help="write both pages instead of comparing them")
    flags.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write the rows as a page")
    flags = flags.parse_args()
    if flags.html:
        flags.html.write_text(html())
        return
    for path, text in [(PAGE, "\n".join(page()) + "\n"), (HTML, html())]:
        if flags.write:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.relative_to(ROOT)} is not what tests/matrix/measured says: write it with --write")


if __name__ == "__main__":
    main()
