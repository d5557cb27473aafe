"""Reads and writes measured rows of the validation matrix: a file of tests/matrix/measured for each kind of machine."""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests"))
import machine

DRAWN = ROOT / "tests" / "matrix" / "drawn.jsonl"
MEASURED = ROOT / "tests" / "matrix" / "measured"


def drawn():
    """The drawn configurations."""
    return list(map(json.loads, DRAWN.read_text().splitlines()))


def here():
    """The name of this kind of machine: its processor, and its cores, by which rows are predicted and measured."""
    return f"{machine.kind()}-{len(os.sched_getaffinity(0))}-cores"


def of(name):
    """The rows of a kind of machine, by number."""
    path = MEASURED / f"{name}.jsonl"
    return {row["number"]: row for row in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def every():
    """The rows of all kinds of machines, each with its machine's name."""
    return [{**row, "machine": path.stem} for path in sorted(MEASURED.glob("*.jsonl")) for row in of(path.stem).values()]


def save(path, rows):
    """Writes all rows, whole or not at all."""
    part = path.with_suffix(".tmp")
    part.parent.mkdir(exist_ok=True)
    part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part.replace(path)
