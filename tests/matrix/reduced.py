#!/usr/bin/env python3
"""Measures twelve rows of the validation matrix on threads and fails where a prediction is off by more than a factor of two.

    python3 tests/matrix/reduced.py

A row that is off is calibrated and measured again, twice at most, for another program may have disturbed either; the output says so. Where more runs than
the machine has cores, a row that stays off is listed and does not fail. LOCKSTEP names the program. The whole matrix is measured by `measure.py`.
"""

import os
import sys

import store
from measure import PROFILE, WORK, measured

# LeNet and the MLP with each kind of strategy and input on one and two threads, and collectives of 25 and 100 MiB, which are predicted from
# messages that the trainings before them had measured. Shorter ones depend on how near the hypervisor puts two cores.
ROWS = [88, 190, 9, 92, 223, 42, 214, 216, 59, 243, 41, 72]
# A training on two threads whose calibration is short.
TRAINING = 9
FACTOR = 2.0
ATTEMPTS = 3
# Runnable threads for each core, over a minute, beyond which others use the machine: a row has a thread a core.
BUSY = 1.5


def is_within(predicted_s, measured_s):
    """Whether a prediction is off by the factor at most."""
    return 1 / FACTOR <= predicted_s / measured_s <= FACTOR


def is_off(found):
    """Whether a row failed, or its prediction is off by more than the factor."""
    return "failed" in found or not is_within(found["predicted_s"], found["measured_s"])


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    drawn = {row["number"]: row for row in store.drawn()}
    errors, wrong = [], []
    for number in ROWS:
        row = drawn[number]
        for attempt in range(1, ATTEMPTS + 1):
            if attempt > 1:
                PROFILE.unlink(missing_ok=True)
                if row["strategy"] == "none":
                    # A training measures the messages from which a collective is predicted.
                    measured(drawn[TRAINING], None)
            found = measured(row, None)
            if not is_off(found):
                break
        name = f"row {number}: {row['load']}, {row['algorithm']}, {row['place']}, {row['strategy']}, {row['input']}"
        told = found.get("failed") or f"predicted {found['predicted_s']:.6f} s, measured {found['measured_s']:.6f} s, {found['error_pct']:+.1f} %"
        print(f"{name}: {told}{f', attempt {attempt}' if attempt > 1 else ''}", flush=True)
        if is_off(found):
            wrong.append(name)
        else:
            errors.append(abs(found["error_pct"]))
    if errors:
        print(f"{len(errors)} of {len(ROWS)} rows within a factor of {FACTOR:g}: median error {sorted(errors)[len(errors) // 2]:.1f} %, worst {max(errors):.1f} %")
    if wrong and os.getloadavg()[0] > BUSY * os.cpu_count():
        print("off, while other programs used the machine:", *wrong, sep="\n")
    elif wrong:
        sys.exit("off by more than a factor of two in each of three attempts:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
