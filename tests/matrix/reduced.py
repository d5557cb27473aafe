#!/usr/bin/env python3
"""Measures a few rows of the validation matrix on threads and fails where a prediction is off by more than a factor of two.

    python3 tests/matrix/reduced.py             four rows, as in the test command
    python3 tests/matrix/reduced.py --others    eight others, as in tests/nightly

A row that is off is calibrated and measured again, twice at most. A row that stays off although others left the machine alone in one of its
attempts fails. A row that others disturbed in each attempt was not checked: it is listed, and without rows that fail the exit code is 77.
LOCKSTEP names the program. The whole matrix is measured by `measure.py`.
"""

import argparse
import sys

import store
from busy import NOT_CHECKED, attempts
from measure import PROFILE, WORK, measured

# LeNet and the MLP with each kind of strategy on one and two threads, and a collective of at least 25 MiB, which is predicted from messages
# that the trainings before it had measured. Shorter ones depend on how near the hypervisor puts two cores.
ROWS = [9, 42, 216, 41]
OTHERS = [88, 190, 92, 223, 214, 59, 243, 72]
# A training on two threads whose calibration is short.
TRAINING = 9
FACTOR = 2.0
ATTEMPTS = 3


def is_within(predicted_s, measured_s):
    """Whether a prediction is off by the factor at most."""
    return 1 / FACTOR <= predicted_s / measured_s <= FACTOR


def is_off(found):
    """Whether a row failed, or its prediction is off by more than the factor."""
    return "failed" in found or not is_within(found["predicted_s"], found["measured_s"])


def main(others):
    WORK.mkdir(parents=True, exist_ok=True)
    drawn = {row["number"]: row for row in store.drawn()}
    errors, wrong, unchecked = [], [], []
    rows = OTHERS if others else ROWS
    for number in rows:
        row = drawn[number]
        name = f"row {number}: {row['load']}, {row['algorithm']}, {row['place']}, {row['strategy']}, {row['input']}"

        def check(attempt):
            if attempt > 1:
                PROFILE.unlink(missing_ok=True)
                if row["strategy"] == "none":
                    # A training measures the messages from which a collective is predicted.
                    measured(drawn[TRAINING], None)
            found = measured(row, None)
            told = found.get("failed") or f"predicted {found['predicted_s']:.6f} s, measured {found['measured_s']:.6f} s, {found['error_pct']:+.1f} %"
            print(f"{name}: {told}{f', attempt {attempt}' if attempt > 1 else ''}", flush=True)
            if not is_off(found):
                errors.append(abs(found["error_pct"]))
            # A command that fails does so whoever else runs.
            elif "failed" in found and attempt == ATTEMPTS:
                wrong.append(name)
            return not is_off(found)

        passed = attempts(check, ATTEMPTS)
        if not passed and name not in wrong:
            (unchecked if passed is None else wrong).append(name)
    if errors:
        print(f"{len(errors)} of {len(rows)} rows within a factor of {FACTOR:g}: median error {sorted(errors)[len(errors) // 2]:.1f} %, worst {max(errors):.1f} %")
    if unchecked:
        print(f"SKIPPED: {len(unchecked)} of {len(rows)} rows not checked: other programs used the machine in each attempt", *unchecked, sep="\n")
    if wrong:
        sys.exit("off by more than a factor of two in each of three attempts:\n" + "\n".join(wrong))
    if unchecked:
        sys.exit(NOT_CHECKED)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", action="store_true", help="those that the test command leaves out")
    main(parser.parse_args().others)
