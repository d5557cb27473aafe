"""Runs the parts that are asked for, one after the other, and says in a line each how they went."""

import argparse
import os
import pathlib
import secrets
import shlex
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench  # noqa: E402
import check  # noqa: E402
import profiles  # noqa: E402
import sanitize  # noqa: E402
import train  # noqa: E402
from machine import Machine  # noqa: E402
from result import Result  # noqa: E402

PARTS = {"check": check, "profile": profiles, "train": train, "bench": bench, "sanitize": sanitize}
# Parts whose cases may run side by side, since nothing is asked of their times.
TIMELESS = {"check", "train", "sanitize"}
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
# A rehearsal is the same each time, so that a failure is always of the change.
NULL_SEED = 2017


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description="The checks that need a GPU.")
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "all"], metavar="PART", help=", ".join([*PARTS, "all"]))
    parser.add_argument("--null", action="store_true", help="rehearse over the pretend libraries: no measurement")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the result files, else tests/gpu/results")
    parser.add_argument("--seed", type=int, help="of inputs that are drawn; else a fresh one")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this text")
    parser.add_argument("--minutes", type=float, default=8.5, help="after which a part begins no further case")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="cases side by side, of parts that time nothing")
    parser.add_argument("--binary", type=pathlib.Path, help="else tests/gpu/bin/lockstep; with --null target/debug/lockstep")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    os.chdir(ROOT)
    work = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu-"))
    try:
        sys.exit(run(asked, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run(asked: argparse.Namespace, work: pathlib.Path) -> int:
    """1 where something failed, 3 where time ended before the last case did, else 0."""
    machine = Machine.find(asked.null, asked.binary, work)
    seed = asked.seed if asked.seed is not None else NULL_SEED if asked.null else secrets.randbelow(1 << 31)
    folder = asked.out or (work / "results" if asked.null else ROOT / "tests/gpu/results")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{machine.device}, {machine.driver}; commit {machine.commit}; seed {seed}", flush=True)
    if asked.null:
        print("a rehearsal over pretend libraries: what it writes are no measurements", flush=True)
    results = []
    for name in PARTS if "all" in asked.parts else dict.fromkeys(asked.parts):
        command = f"bash tests/gpu/run {name}{' --null' if asked.null else ''} --seed {seed}"
        command += f" --only {shlex.quote(asked.only)}" if asked.only else ""
        at_once = asked.at_once if name in TIMELESS else 1
        result = Result.begin(folder, name, machine, seed, command, asked.only, 60 * asked.minutes, at_once)
        print(f"\n== {name}", flush=True)
        PARTS[name].run(machine, result, work)
        result.end()
        results.append(result)
    print()
    for result in results:
        print(result.summary(), flush=True)
    if not all(result.passed() for result in results):
        return 1
    return 0 if all(result.complete() for result in results) else 3


if __name__ == "__main__":
    main()
