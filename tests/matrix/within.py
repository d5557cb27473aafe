#!/usr/bin/env python3
"""Runs a comparison and fails where a prediction is off by more than a factor of two.

    python3 tests/matrix/within.py COMPARISON.json COMMAND ...    the command prints the comparison as JSON, which is kept in the file

Where a prediction is off, the command is run again, twice at most. If another program used the machine in each attempt, nothing was
checked: the exit code is then 77.
"""

import json
import pathlib
import subprocess
import sys

from busy import NOT_CHECKED, attempts
from reduced import ATTEMPTS, FACTOR, is_within


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, command = pathlib.Path(sys.argv[1]), sys.argv[2:]

    def check(_):
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        part = path.with_suffix(".tmp")
        part.write_text(text)
        part.replace(path)
        rows = json.loads(text)["rows"]
        wrong = [row for row in rows if not is_within(row["predicted_step_time_s"], row["step_time_s"])]
        for row in wrong:
            print(f"off by more than a factor of {FACTOR:g}: {json.dumps(row)}", flush=True)
        return bool(rows) and not wrong

    try:
        found = attempts(check, ATTEMPTS)
    except subprocess.CalledProcessError as failure:
        sys.exit(f"{' '.join(command)}: exit code {failure.returncode}")
    if found is None:
        print("SKIPPED: not checked: other programs used the machine in each attempt")
        sys.exit(NOT_CHECKED)
    sys.exit(0 if found else 1)


if __name__ == "__main__":
    main()
