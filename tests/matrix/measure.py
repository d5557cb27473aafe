#!/usr/bin/env python3
"""Predicts and measures configurations of the validation matrix, one after the other, and adds each to a file of
tests/matrix/measured.

    python3 tests/matrix/measure.py                     all rows of the places that this machine has, those already measured left out
    python3 tests/matrix/measure.py --rows 4,17 --again these rows, also where they were measured; keeps the earlier times beside the new ones
    python3 tests/matrix/measure.py --rows 253-323 --places threads,mpi,lab    the second drawing; hosts of a lab need root
    python3 tests/matrix/measure.py --predict           predicts rows of labs again, from the last calibration

Trainings go through `lockstep compare`, which predicts first; collectives through `lockstep exec collective` beside `lockstep sim
collective`. Calibration runs single layers and messages, never a row. Interrupted, it resumes behind the last row. Nothing else should use the
machine meanwhile. LOCKSTEP names the program, built with `--features mpi`.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

import lab
import store
from factors import ADAMW, DECODERS, FIRST_BATCH, FLAGS, INPUTS, PLACES, RECOMPUTE
from store import ROOT, machine

LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP", ROOT / "target/release/lockstep")).resolve()
# Profiles and experiments of the rows.
WORK = ROOT / "target" / "matrix"
# Samples of each load, where its set is generated.
DATA = {"lenet": "mnist", "mlp": "mnist", "resnet-32": "synthetic:1024+64"}
# Samples of the MLP in the second drawing: four ranks take four batches each in a step.
DIGITS = 16384
# Steps of each of a comparison's rounds: where a step takes microseconds, so many that a round lasts long enough to be timed.
STEPS = {"lenet": 50, "resnet-32": 20, "mlp": 1000}
# The same on hosts of a lab, and where these have links of 100 Mbit/s.
LAB_STEPS = {"lenet": 20, "resnet-32": 10, "mlp": 50}
SLOW_LAB_STEPS = {"lenet": 5, "resnet-32": 5, "mlp": 20}
# Steps of ssgd in each round of the second drawing, whose steps take milliseconds: about two seconds. A step of several batches takes as many times as long.
SECOND_STEPS = {"threads": 40, "mpi": 40, "lab": 12, "slow lab": 6}
# The median, and the ends of the range, as keys name them.
AT = ["", "_p10", "_p90"]
# A row that takes longer hangs.
LIMIT_S = 900
# Seconds for which figures of this machine are kept: the pace of a shared one changes within minutes.
KEPT_S = 180
PROFILE = WORK / "out" / "this-machine.json"


def drop_old(profile):
    """Removes figures that are older than KEPT_S, so that they are measured again; whether there are none."""
    begun = profile.with_suffix(".begun")
    if not profile.exists() or not begun.exists() or time.time() - begun.stat().st_mtime > KEPT_S:
        profile.unlink(missing_ok=True)
        begun.parent.mkdir(exist_ok=True)
        begun.write_text("")
    return not profile.exists()


def profile_of(row):
    """The profile with the layers of a lab row's model."""
    size = f"-{row['batch_per_rank']}" if "batch_per_rank" in row else ""
    return WORK / "out" / f"{row['place']}-{row['load']}{size}.json"


def batch(row):
    """Samples of each rank and micro-batch."""
    return row.get("batch_per_rank", FIRST_BATCH)


def calibrate(load, samples, profile):
    """Measures the layers of a model, and this machine."""
    words = [LOCKSTEP, "calibrate", "--model", load, "--batch-per-rank", str(samples), "--profile", profile]
    subprocess.run(words, cwd=WORK, check=True, capture_output=True)


def run(words, row, site):
    """The JSON answer of a command on the row's place; `site` is its lab and cluster file, if it is one."""
    if site:
        words = [LOCKSTEP, "lab", "run", site[0], "--", *words]
    elif row["place"].startswith("mpi"):
        ranks = PLACES[row["place"]]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        words = ["mpirun", *root, "--oversubscribe", "-n", str(processes(row, ranks)), *words]
    done = subprocess.run(words, cwd=WORK, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        # The launcher frames its own words with lines of dashes.
        said = [line for line in done.stderr.splitlines() if line.strip("- ")]
        raise RuntimeError(said[0] if said else f"exit code {done.returncode}")
    return json.loads(done.stdout)


def processes(row, ranks):
    """Processes of a row: in a training a dedicated server is one beside the workers, of a collective it is one of the ranks."""
    return ranks + (1 if row["algorithm"].endswith(":dedicated") and row["strategy"] != "none" else 0)


def predict(words):
    """The JSON answer of a prediction."""
    return json.loads(subprocess.run(words, cwd=WORK, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout)


def transport(row):
    return "threads" if row["place"].startswith("threads") else "mpi"


def collective_flags(row):
    return ["--ranks", str(PLACES[row["place"]]), "--algorithm", row["algorithm"], "--bytes", row["load"], "--transport", transport(row), "--format", "json"]


def predicted_collective(row, site):
    """Predicted seconds of a collective, and what bounds it."""
    [predicted] = predict([LOCKSTEP, "sim", "collective", "--cluster", site[1] if site else "this-machine", *collective_flags(row)])["rows"]
    return {"predicted_s": predicted["time_us"] / 1e6, "bound": predicted["bound"]}


def collective(row, site):
    """Figures of a collective: predicted and measured seconds, the range from the 10th to the 90th percentile, and the predicted bound."""
    predicted = predicted_collective(row, site)
    pace = [] if site else ["--pace-of", PROFILE]
    [measured] = run([LOCKSTEP, "exec", "collective", *collective_flags(row), *pace], row, site)["rows"]
    return predicted | {f"measured{at}_s": measured[f"time{at}_us"] / 1e6 for at in AT}


def settings(flags):
    """Lines of an experiment from flags of a command."""
    words = iter([word for flag in flags for word in (flag.split("=", 1) if flag.startswith("--") else [flag])])
    for flag in words:
        key, value = flag.removeprefix("--").replace("-", "_"), next(words)
        yield f"{key} = {value if value.isdigit() or value in ('true', 'false') else json.dumps(value)}"


def batches(flags):
    """Batches of each rank of `--ranks` in a step: micro-batches, or those of its learners."""
    told = dict(zip(flags, flags[1:]))
    tau = [int(word.removeprefix("tau=")) for word in told.get("--strategy", "").split(":") if word.startswith("tau=")]
    return int(told.get("--accumulate", 1)) * int(told.get("--learners", 1)) * (tau or [1])[0]


def steps(row):
    """Steps of a row in each of a comparison's rounds."""
    if "batch_per_rank" in row:
        place = "slow lab" if "100Mbit" in row["place"] else row["place"].split("-")[0]
        return max(SECOND_STEPS[place] // batches(FLAGS[row["strategy"]]), 3)
    of_place = STEPS if not row["place"].startswith("lab") else SLOW_LAB_STEPS if "100Mbit" in row["place"] else LAB_STEPS
    return of_place[row["load"]]


def generate(samples, folder):
    """Generates a set like MNIST in a new folder."""
    words = ["generate", "--shape", "mnist", "--samples", str(samples), "--seed", "1", "--out", folder]
    subprocess.run([LOCKSTEP, "data", *words], check=True, capture_output=True)


def experiment(row, site):
    """The path of a row's experiment."""
    # Decoders train on the text of their tokens.
    data = DATA.get(row["load"])
    if row["load"] == "mlp" and "batch_per_rank" in row:
        data = WORK / "digits"
        if not data.exists():
            generate(DIGITS, data)
    if row["input"] == "packed file":
        pack = WORK / "images.pack"
        if not pack.exists():
            made = WORK / "images"
            generate(5000, made)
            subprocess.run([LOCKSTEP, "data", "pack", made, "--out", pack], check=True, capture_output=True)
        data = str(pack)
    flags = FLAGS[row["strategy"]] + INPUTS[row["input"]]
    if row["load"] in DECODERS:
        flags = flags + RECOMPUTE[row["recompute"]] + ADAMW
    lines = [
        f'name = "row-{row["number"]}"', f'model = "{row["load"]}"', f"batch_per_rank = {batch(row)}", f"steps = {steps(row)}",
        f'algorithm = "{row["algorithm"]}"', f'transport = "{transport(row)}"', *settings(flags),
    ]
    if data:
        lines.append(f'data = "{data}"')
    if site:
        lines.append(f'cluster = "{site[1]}"')
    if "--mesh" not in flags:
        # A dedicated server is one of a lab's hosts.
        served = processes(row, 0) if site else 0
        lines.append(f'ranks = {PLACES[row["place"]] - served}')
    path = WORK / f"row-{row['number']}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def training(row, site):
    """As `collective`, of a training step."""
    path = experiment(row, site)
    profile = ["--profile", profile_of(row)] if site else []
    if not site:
        drop_old(PROFILE)
    elif drop_old(profile_of(row)):
        calibrate(row["load"], batch(row), profile_of(row))
    [found] = run([LOCKSTEP, "compare", "--quiet", path, *profile, "--format", "json"], row, site)["rows"]
    predicted = {"predicted_s": found["predicted_step_time_s"], "bound": found["bound"]}
    return predicted | {f"measured{at}_s": found[f"step_time{at}_s"] for at in AT}


def measured(row, site):
    """The row with its figures, or with what went wrong."""
    try:
        figures = (collective if row["strategy"] == "none" else training)(row, site)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        # The row's own files; where the checkout lies is of no interest.
        return {**row, "failed": str(failure).replace(f"{WORK}/", "")}
    error_pct = 100 * (figures["predicted_s"] / figures["measured_s"] - 1)
    return {**row, **figures, "error_pct": error_pct, "cores": len(os.sched_getaffinity(0)), "cpu": machine.field("model name"), "date": now()}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def predicted_again(row):
    """A measured row of a lab with a new prediction."""
    site = None, WORK / f"{row['place']}.toml"
    if row["strategy"] == "none":
        figures = predicted_collective(row, site)
    else:
        [predicted] = predict([LOCKSTEP, "sim", "predict", experiment(row, site), "--profile", profile_of(row), "--format", "json"])["rows"]
        figures = {"predicted_s": predicted["step_time_s"], "bound": predicted["bound"]}
    return {**row, **figures, "error_pct": 100 * (figures["predicted_s"] / row["measured_s"] - 1), "predicted_again": now()}


def lab_links():
    """Calibrates this machine: figures of a lab's hosts, and of its links."""
    profile = WORK / "out" / "host.json"
    profile.unlink(missing_ok=True)
    calibrate("mlp", FIRST_BATCH, profile)
    host = lab.figures(profile)
    links = lab.links(LOCKSTEP, host, WORK)
    figures = f"latency {1e6 * links.latency_s:.1f} us, {1e-9 * links.core_bytes_s:.2f} GB/s a core, {1e6 * links.message_s:.1f} us a message"
    print(f"a lab's links: {figures}, {1e6 * links.wake_s:.1f} us for a turn of another rank", flush=True)
    return host, links


def placed(rows, where):
    """Each row with its lab, if it is on one, and its place in the order."""
    count = itertools.count(1)
    for place, group in itertools.groupby(rows, where):
        with lab.up(LOCKSTEP, place, WORK, *lab_links()) if place else contextlib.nullcontext() as site:
            yield from ((row, site, next(count)) for row in group)


def numbers(text):
    """The numbers of a list such as `4,17,253-323`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main():
    flags = argparse.ArgumentParser(description="Measures rows of the validation matrix.")
    flags.add_argument("--rows", help="numbers of rows and ranges of them, with commas between them")
    flags.add_argument("--places", default="threads,mpi", help="beginnings of places, with commas between them [default: threads,mpi]")
    flags.add_argument("--predict", action="store_true", help="predict measured rows of labs again, and measure nothing")
    flags.add_argument("--again", action="store_true", help="measure rows again that were measured")
    flags = flags.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    rows = store.drawn()
    here = store.here()
    known = store.of(here)
    save = lambda: store.save(store.MEASURED / f"{here}.jsonl", [known[number] for number in sorted(known)])
    if flags.predict:
        # Profiles and cluster files are those with which this checkout measured each lab.
        known = {number: predicted_again(row) if "measured_s" in row and row["place"].startswith("lab") else row for number, row in known.items()}
        save()
        return
    chosen = set(numbers(flags.rows)) if flags.rows else {row["number"] for row in rows}
    rows = [row for row in rows if row["number"] in chosen and row["place"].startswith(tuple(flags.places.split(",")))]
    if not flags.again:
        rows = [row for row in rows if "measured_s" not in known.get(row["number"], {})]
    # Trainings between processes measure their messages; collectives between processes are predicted from these.
    # A lab stays up for all of its rows; figures of its links are measured before the first of them.
    where = lambda row: row["place"] if row["place"].startswith("lab") else ""
    rows.sort(key=lambda row: (where(row), transport(row), row["strategy"] == "none", row["number"]))
    failed = 0
    for row, site, done in placed(rows, where):
        found = measured(row, site)
        failed += "failed" in found
        before = known.get(row["number"], {})
        if "measured_s" in before and "measured_s" in found:
            found |= {"earlier_s": before["measured_s"], "earlier_date": before["date"]}
        known[row["number"]] = found
        told = found.get("failed") or f"predicted {found['predicted_s']:.6f} s, measured {found['measured_s']:.6f} s, {found['error_pct']:+.1f} %"
        print(f"{done}/{len(rows)} row {row['number']}: {row['load']}, {row['algorithm']}, {row['place']}, {row['strategy']}, {row['input']}: {told}", flush=True)
        save()
    if failed:
        sys.exit(f"{failed} of {len(rows)} rows failed")


if __name__ == "__main__":
    main()
