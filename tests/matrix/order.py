#!/usr/bin/env python3
"""Measures every algorithm of the matrix in the same places, so that their predicted order can be compared with the measured one.

    python3 tests/matrix/order.py              needs root; adds to tests/matrix/order.jsonl what is not there
    python3 tests/matrix/order.py --predict    predicts again, from the last calibration

`tests/matrix/report.py` counts the pairs. LOCKSTEP names the program, built with `--features mpi`.
"""

import json
import sys

from factors import ALGORITHMS
from measure import LOCKSTEP, WORK, lab_links, measured, predicted_again
import lab
import store

ORDER = store.ROOT / "tests" / "matrix" / "order.jsonl"
# Loads that take each algorithm at most some seconds.
CASES = {"lab-4-100Mbit": ["64KiB", "1MiB"], "lab-6-100Mbit": ["1MiB"], "lab-4-1Gbit": ["1MiB", "25MiB"], "lab-7-1Gbit": ["1MiB"]}


def main():
    rows = list(map(json.loads, ORDER.read_text().splitlines())) if ORDER.exists() else []
    if "--predict" in sys.argv:
        store.save(ORDER, map(predicted_again, rows))
        return
    known = {(row["place"], row["load"], row["algorithm"]) for row in rows if "measured_s" in row}
    for place, loads in CASES.items():
        missing = [(load, algorithm) for load in loads for algorithm in ALGORITHMS if (place, load, algorithm) not in known]
        if not missing:
            continue
        with lab.up(LOCKSTEP, place, WORK, *lab_links()) as site:
            for load, algorithm in missing:
                row = {"number": len(rows) + 1, "load": load, "algorithm": algorithm, "place": place, "strategy": "none", "input": "none"}
                rows.append(measured(row, site))
                print(place, load, algorithm, rows[-1].get("failed") or f"{rows[-1]['error_pct']:+.1f} %", flush=True)
                store.save(ORDER, rows)


if __name__ == "__main__":
    main()
