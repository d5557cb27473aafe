#!/usr/bin/env python3
"""Draws the validation matrix: configurations that cover all pairs of factors, before anything is measured.

    python3 tests/matrix/draw.py            draws again with the committed seed and fails if tests/matrix/drawn.jsonl differs
    python3 tests/matrix/draw.py --write    writes it

Factors are what is exchanged or trained, the algorithm, the place, the strategy and how samples come. `lockstep sim predict` and
`sim collective` say which combinations there are: what they refuse is drawn nowhere. A greedy cover: each row is the best of many that are
filled at random (AETG, Cohen et al. 1997), until every pair that some row can have is in one.
"""

import itertools
import json
import pathlib
import random
import subprocess
import sys

from factors import FACTORS, INPUTS, PLACES, STRATEGIES

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOCKSTEP = ROOT / "target" / "release" / "lockstep"
DRAWN = ROOT / "tests" / "matrix" / "drawn.jsonl"
SEED = 1
# Rows that are filled at random for each that is taken.
CANDIDATES = 40

known = {}


def serves(row):
    """Whether lockstep predicts such a row on hosts on Ethernet, and whether its parts belong together."""
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
    key = (row["load"], row["algorithm"], ranks, row["strategy"], row["input"])
    if key not in known:
        at = ["--cluster", f"ethernet-4:{max(ranks, 4)}", "--ranks", str(ranks), "--algorithm", row["algorithm"]]
        if alone:
            words = ["sim", "collective", "--bytes", row["load"], *at]
        else:
            flags = STRATEGIES[row["strategy"]] + INPUTS[row["input"]]
            words = ["sim", "predict", "--model", row["load"], "--batch-per-rank", "16", *at, *flags]
        known[key] = subprocess.run([LOCKSTEP, *words], cwd=ROOT, capture_output=True).returncode == 0
    return known[key]


def pairs(row):
    """The pairs of values that a row has."""
    return {tuple(sorted([(a, row[a]), (b, row[b])])) for a, b in itertools.combinations(FACTORS, 2)}


def filled(fixed, chance, wanted):
    """A row with the `fixed` values and others at random, those that cover more of `wanted` first; none if there is no such row."""
    row = dict(fixed)
    order = [factor for factor in FACTORS if factor not in row]
    chance.shuffle(order)

    def search(left):
        if not left:
            return dict(row) if serves(row) else None
        factor, values = left[0], list(FACTORS[left[0]])
        chance.shuffle(values)
        new = lambda value: sum(tuple(sorted([(factor, value), (of, row[of])])) in wanted for of in row)
        values.sort(key=new, reverse=True)
        for value in values:
            row[factor] = value
            found = search(left[1:]) if plausible(row) else None
            if found:
                return found
            del row[factor]
        return None

    return search(order)


def plausible(row):
    """Whether a part of a row may still become one."""
    alone = [row[factor] == "none" for factor in ("strategy", "input") if factor in row]
    if "load" in row:
        alone.append(row["load"][0].isdigit())
    return len(set(alone)) <= 1


def drawn():
    """The rows, in the order in which they are measured."""
    chance = random.Random(SEED)
    left = set()
    for a, b in itertools.combinations(FACTORS, 2):
        for one, other in itertools.product(FACTORS[a], FACTORS[b]):
            # A pair that no row can have is none to cover.
            if filled({a: one, b: other}, chance, set()):
                left.add(tuple(sorted([(a, one), (b, other)])))
    count = len(left)
    rows = []
    while left:
        first = min(left)
        candidates = [filled(dict(first), chance, left) for _ in range(CANDIDATES)]
        best = max((row for row in candidates if row), key=lambda row: len(pairs(row) & left))
        rows.append(best)
        left -= pairs(best)
    chance.shuffle(rows)
    return [{"number": number, **{factor: row[factor] for factor in FACTORS}} for number, row in enumerate(rows)], count


def main():
    """Writes the rows, or holds the committed ones to them."""
    rows, count = drawn()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    print(f"seed {SEED}: {len(rows)} configurations cover {count} pairs of {len(FACTORS)} factors", file=sys.stderr)
    if "--write" in sys.argv:
        DRAWN.write_text(text)
    elif DRAWN.read_text() != text:
        sys.exit(f"{DRAWN.relative_to(ROOT)} is not what the seed draws: what lockstep serves has changed; draw again with --write")


main()
