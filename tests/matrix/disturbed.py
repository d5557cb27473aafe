"""Compares predictions with measurements on a quiet machine and with other programs beside the calibration: the error of the latter
is at most twice that of the former.

    python3 tests/matrix/disturbed.py [PAIRS]

Each pair of runs is a quiet one and a disturbed one of LeNet on one and two ranks. The load is a busy process for each core, from the
beginning until the predictions are written. The medians over pairs of the mean absolute errors are compared. LOCKSTEP names the program.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP", "target/release/lockstep")).resolve()
FACTOR = 2.0
# Predictions of a quiet machine are off by this much, in percent, so a smaller error of the quiet runs is chance.
LEAST = 5.0
EXPERIMENT = """name = "disturbed"
model = "lenet"
data = "mnist"
ranks = [1, 2]
batch_per_rank = [16, 64]
bucket = "25MiB"
steps = 60
seed = 1
"""


def mean_error(load):
    """The mean absolute error in percent of a comparison whose calibration shares the cores with `load` busy processes."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "disturbed.toml").write_text(EXPERIMENT)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
        try:
            command = [LOCKSTEP, "compare", "disturbed.toml", "--format", "json"]
            run = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for line in run.stderr:
                if "predictions written" in line:
                    while busy:
                        process = busy.pop()
                        process.kill()
                        process.wait()
            rows = json.loads(run.stdout.read())["rows"]
            if run.wait():
                sys.exit(f"{command} failed")
        finally:
            for process in busy:
                process.kill()
        return statistics.mean(abs(row["error_pct"]) for row in rows)


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    quiet, disturbed = [], []
    for _ in range(pairs):
        quiet.append(mean_error(0))
        disturbed.append(mean_error(os.cpu_count()))
        print(f"mean absolute error: quiet {quiet[-1]:.1f} %, with {os.cpu_count()} busy processes {disturbed[-1]:.1f} %", flush=True)
    allowed = FACTOR * max(statistics.median(quiet), LEAST)
    print(f"medians: {statistics.median(quiet):.1f} and {statistics.median(disturbed):.1f} %, at most {allowed:.1f} % allowed")
    if statistics.median(disturbed) > allowed:
        sys.exit("other programs beside the calibration change predictions")


if __name__ == "__main__":
    main()
