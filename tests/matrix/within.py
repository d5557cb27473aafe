#!/usr/bin/env python3
"""Fails where a prediction of a comparison is off by more than a factor of two: `python3 tests/matrix/within.py COMPARISON.json`."""

import json
import pathlib
import sys

from reduced import FACTOR, is_within


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = json.loads(pathlib.Path(sys.argv[1]).read_text())["rows"]
    wrong = [row for row in rows if not is_within(row["predicted_step_time_s"], row["step_time_s"])]
    for row in wrong:
        print(f"off by more than a factor of {FACTOR:g}: {json.dumps(row)}")
    sys.exit(1 if wrong or not rows else 0)


if __name__ == "__main__":
    main()
