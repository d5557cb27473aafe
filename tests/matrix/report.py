#!/usr/bin/env python3
"""Writes docs/validation.md from tests/matrix/measured.jsonl: errors by factor, the worst rows, and all rows.

    python3 tests/matrix/report.py            fails if docs/validation.md is another
    python3 tests/matrix/report.py --write    writes it
"""

import itertools
import json
import pathlib
import statistics
import sys

from factors import FACTORS, PLACES

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DRAWN = ROOT / "tests" / "matrix" / "drawn.jsonl"
MEASURED = ROOT / "tests" / "matrix" / "measured.jsonl"
PAGE = ROOT / "docs" / "validation.md"
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
    """Whether ranks share cores."""
    return PLACES[row["place"]] > row["cores"]


def figures(rows):
    """Cells of a table: rows, median and 90th percentile of the error, the share within the measured range."""
    errors = sorted(map(error, rows))
    ninth = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return f"{len(rows)} | {statistics.median(errors):.1f} | {ninth:.1f} | {100 * sum(map(within, rows)) / len(rows):.0f}"


def table(title, groups):
    """Lines of a table with a line for each group that has rows."""
    yield from [f"| {title} | rows | median error, % | 90th percentile, % | within p10 to p90, % |", "|---|---|---|---|---|"]
    yield from (f"| {name} | {figures(rows)} |" for name, rows in groups if rows)
    yield ""


def order(rows):
    """Pairs of rows that differ in nothing but the algorithm and by more than 5 % in time, and how many are predicted in that order."""
    pairs = right = 0
    others = [factor for factor in FACTORS if factor != "algorithm"]
    for one, two in itertools.combinations(rows, 2):
        if any(one[factor] != two[factor] for factor in others):
            continue
        if abs(one["measured_s"] - two["measured_s"]) <= ORDERED * min(one["measured_s"], two["measured_s"]):
            continue
        pairs += 1
        right += (one["measured_s"] < two["measured_s"]) == (one["predicted_s"] < two["predicted_s"])
    return pairs, right


def row_line(row):
    name = ", ".join(row[factor] for factor in FACTORS if row[factor] != "none")
    times = " | ".join(f"{1e3 * row[key]:.4g}" for key in ("predicted_s", "measured_s", "measured_p10_s", "measured_p90_s"))
    return f"| {row['number']} | {name} | {times} | {row['error_pct']:+.1f} |"


def page():
    """The text of the page."""
    drawn = len(DRAWN.read_text().splitlines())
    known = list(map(json.loads, MEASURED.read_text().splitlines()))
    rows = [row for row in known if "measured_s" in row]
    failed = [row for row in known if "failed" in row]
    machines = sorted({f"{row['cpu']}, {row['cores']} cores" for row in rows})
    dates = sorted(row["date"] for row in rows)
    own, shared = [row for row in rows if not oversubscribed(row)], [row for row in rows if oversubscribed(row)]
    pairs, right = order(rows)
    yield from [
        "# Predicted and measured: the validation matrix",
        "",
        f"Of {drawn} configurations, which cover all pairs of load, algorithm, place, strategy and input and were drawn before anything was",
        f"measured (`tests/matrix/draw.py`), {len(rows)} have been measured: between {dates[0]} and {dates[-1]} on {'; '.join(machines)}.",
        "`python3 tests/matrix/measure.py` measures them, `python3 tests/matrix/report.py --write` writes this page. An error is",
        "predicted / measured - 1. Calibration knows single layers and messages, none of these configurations.",
        "",
    ]
    missing = [place for place in PLACES if all(row["place"] != place for row in rows)]
    if missing:
        yield from [f"Not measured yet: {', '.join(missing)}.", ""]
    yield from table("ranks", [("with cores of their own", own), ("sharing cores", shared), ("all", rows)])
    if pairs:
        yield f"Of {pairs} pairs that differ in the algorithm alone and by more than 5 % in time, {right} are predicted in the measured order."
        yield ""
    for factor in FACTORS:
        yield f"## By {factor}"
        yield ""
        yield from table(factor, [(value, [row for row in rows if row[factor] == value]) for value in FACTORS[factor]])
    head = ["| row | configuration | predicted, ms | measured, ms | p10, ms | p90, ms | error, % |", "|---|---|---|---|---|---|---|"]
    yield from [f"## The {WORST} largest errors", "", *head]
    yield from map(row_line, sorted(rows, key=error, reverse=True)[:WORST])
    if failed:
        yield from ["", "## Failed", "", "| row | reason |", "|---|---|"]
        yield from (f"| {row['number']} | {row['failed']} |" for row in failed)
    yield from ["", "## All rows", "", *head]
    yield from map(row_line, rows)


def main():
    text = "\n".join(page()) + "\n"
    if "--write" in sys.argv:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what tests/matrix/measured.jsonl says: write it with --write")


if __name__ == "__main__":
    main()
