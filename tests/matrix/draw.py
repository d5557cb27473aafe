#!/usr/bin/env python3
"""Draws the validation matrix: configurations that cover pairs of factors, before anything is measured.

    python3 tests/matrix/draw.py            draws again with the committed seeds and fails if tests/matrix/drawn.jsonl differs
    python3 tests/matrix/draw.py --write    writes it

`lockstep sim predict` and `sim collective` say which combinations there are: what they refuse is drawn nowhere. A greedy cover: each row is
the best of many that are filled at random (AETG, Cohen et al. 1997), until every pair that some row can have is in one.

The first drawing has what is exchanged or trained, the algorithm, the place, the strategy and how samples come, and covers all pairs. The
second, with its own seed and numbers behind the first's, has further strategies. It covers their pairs with load, algorithm and kind of place
(threads, processes, lab), and the pairs of places with loads and algorithms. The third has decoders, with AdamW: it covers the pairs of
strategies with loads, kinds of place and what runs again in backward passes. LOCKSTEP names the program.
"""

import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import typing

from factors import ADAMW, BATCH, FACTORS, FIRST_BATCH, FLAGS, INPUTS, KINDS, PLACES, RECOMPUTE, SECOND, THIRD

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP", ROOT / "target/release/lockstep")).resolve()
DRAWN = ROOT / "tests" / "matrix" / "drawn.jsonl"
# Rows that are filled at random for each that is taken.
CANDIDATES = 40


class Drawing(typing.NamedTuple):
    """What is drawn, and with which seed."""

    seed: int
    # Values of each factor.
    factors: dict
    # Factors of which rows must have every pair of values.
    covered: list
    # Whether a part of a row may still become one, and whether a whole row is one.
    plausible: typing.Callable
    serves: typing.Callable
    # The row as it is written.
    written: typing.Callable


known = {}


def predicted(row, ranks, batch, sampling):
    """Whether lockstep predicts a training, or a collective, on hosts on Ethernet."""
    key = (row["load"], row["algorithm"], ranks, row["strategy"], batch, *sampling)
    if key not in known:
        at = ["--cluster", f"ethernet-4:{max(ranks, 4)}", "--algorithm", row["algorithm"]]
        if row["strategy"] == "none":
            words = ["sim", "collective", "--bytes", row["load"], *at, "--ranks", str(ranks)]
        else:
            flags = [*FLAGS[row["strategy"]], *sampling]
            words = ["sim", "predict", "--model", row["load"], "--batch-per-rank", str(batch), *at, "--ranks", str(ranks), *flags]
        known[key] = subprocess.run([LOCKSTEP, *words], cwd=ROOT, capture_output=True).returncode == 0
    return known[key]


def serves_first(row):
    """Whether lockstep predicts such a row, and whether its parts belong together."""
    alone = row["load"][0].isdigit()
    if alone != (row["strategy"] == "none") or alone != (row["input"] == "none"):
        return False
    ranks = PLACES[row["place"]]
    # A library needs its processes; packed files hold images of LeNet's size.
    if row["algorithm"] == "library:mpi" and row["place"].startswith("threads"):
        return False
    if row["input"] == "packed file" and row["load"] != "lenet":
        return False
    if ranks == 1:
        # A single rank exchanges nothing: one algorithm is enough.
        return not alone and row["algorithm"] == "ring" and row["strategy"] in ("ssgd", "ssgd, accumulate 2")
    return predicted(row, ranks, FIRST_BATCH, INPUTS[row["input"]])


def plausible_first(row):
    """Whether collectives alone have no strategy and no input, and trainings have both."""
    alone = [row[factor] == "none" for factor in ("strategy", "input") if factor in row]
    if "load" in row:
        alone.append(row["load"][0].isdigit())
    return len(set(alone)) <= 1


def serves_second(row):
    """As `serves_first`. On one rank only several learners exchange anything."""
    ranks = PLACES[row["place"]]
    return (ranks > 1 or "--learners" in FLAGS[row["strategy"]]) and predicted(row, ranks, BATCH[row["load"]], [])


def serves_third(row):
    """As `serves_first`. On one rank nothing is exchanged: one strategy is enough."""
    ranks = PLACES[row["place"]]
    further = [*RECOMPUTE[row["recompute"]], *ADAMW]
    return (ranks > 1 or (row["strategy"], row["algorithm"]) == ("ssgd", "ring")) and predicted(row, ranks, BATCH[row["load"]], further)


def plausible_second(row):
    """Whether the place is of the kind."""
    return "kind" not in row or "place" not in row or row["place"] in KINDS[row["kind"]]


def written_second(row):
    """The row without its kind, and with the samples of each rank."""
    return {factor: row[factor] for factor in FACTORS if factor != "input"} | {"input": "memory", "batch_per_rank": BATCH[row["load"]]}


def written_third(row):
    """The row of the second drawing with what runs again."""
    return {**written_second(row), "recompute": row["recompute"]}


FIRST_DRAWING = Drawing(1, FACTORS, list(itertools.combinations(FACTORS, 2)), plausible_first, serves_first, lambda row: {factor: row[factor] for factor in FACTORS})
SECOND_DRAWING = Drawing(
    2, SECOND, [pair for pair in itertools.combinations(SECOND, 2) if pair not in (("kind", "place"), ("place", "strategy"))],
    plausible_second, serves_second, written_second,
)
THIRD_DRAWING = Drawing(
    3, THIRD, [("strategy", factor) for factor in ("load", "kind", "recompute")] + [("place", "recompute")],
    plausible_second, serves_third, written_third,
)


def pair(row, of):
    """The values that a row has of two factors."""
    return tuple(sorted((factor, row[factor]) for factor in of))


def pairs(row, drawing):
    """The pairs of values that a row has."""
    return {pair(row, of) for of in drawing.covered}


def filled(fixed, chance, wanted, drawing):
    """A row with the `fixed` values and others at random, those that cover more of `wanted` first; none if there is no such row."""
    row = dict(fixed)
    order = [factor for factor in drawing.factors if factor not in row]
    chance.shuffle(order)

    def search(left):
        if not left:
            return dict(row) if drawing.serves(row) else None
        factor, values = left[0], list(drawing.factors[left[0]])
        chance.shuffle(values)
        new = lambda value: sum(tuple(sorted([(factor, value), (of, row[of])])) in wanted for of in row)
        values.sort(key=new, reverse=True)
        for value in values:
            row[factor] = value
            found = search(left[1:]) if drawing.plausible(row) else None
            if found:
                return found
            del row[factor]
        return None

    return search(order)


def drawn(drawing, first):
    """The rows, in the order in which they are measured, with numbers from `first`; and the number of pairs that they cover."""
    chance = random.Random(drawing.seed)
    left = set()
    for a, b in drawing.covered:
        for one, other in itertools.product(drawing.factors[a], drawing.factors[b]):
            # A pair that no row can have is none to cover.
            if filled({a: one, b: other}, chance, set(), drawing):
                left.add(pair({a: one, b: other}, (a, b)))
    count = len(left)
    rows = []
    while left:
        start = min(left)
        candidates = [filled(dict(start), chance, left, drawing) for _ in range(CANDIDATES)]
        best = max((row for row in candidates if row), key=lambda row: len(pairs(row, drawing) & left))
        rows.append(best)
        left -= pairs(best, drawing)
    chance.shuffle(rows)
    return [{"number": number, **drawing.written(row)} for number, row in enumerate(rows, first)], count


def main():
    """Writes the rows, or holds the committed ones to them."""
    rows = []
    for drawing in (FIRST_DRAWING, SECOND_DRAWING, THIRD_DRAWING):
        more, count = drawn(drawing, len(rows))
        print(f"seed {drawing.seed}: {len(more)} configurations cover {count} pairs of {len(drawing.factors)} factors", file=sys.stderr)
        rows += more
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if "--write" in sys.argv:
        DRAWN.write_text(text)
    elif DRAWN.read_text() != text:
        sys.exit(f"{DRAWN.relative_to(ROOT)} is not what the seeds draw: what lockstep serves has changed; draw again with --write")


main()
