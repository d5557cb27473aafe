"""The part `train`: models learn on a GPU what they learn elsewhere."""

import json
import os
import pathlib
from functools import partial

from machine import Failed, Machine, Skipped
from result import Result

FASHION = "/usr/share/datasets/fashion-mnist"
RECIPE = ["--learning-rate", 0.05, "--momentum", 0.9, "--weight-decay", 0.0005, "--decay", "cosine"]


def run(machine: Machine, result: Result, work: pathlib.Path) -> None:
    devices = ["cuda"] if machine.null else ["cuda", "cuda:tf32", "cuda:bf16"]
    for device in devices:
        result.case(f"lenet on digits, {device}", partial(digits, machine, device), needs_s=30)
    result.case("lenet on Fashion-MNIST, cuda:tf32", partial(fashion, machine), needs_s=120)
    batch, steps = (2, 3) if machine.null else (128, 300)
    for device in devices:
        result.case(f"resnet-32 steps, {device}", partial(falls, machine, work, "resnet-32", batch, steps, device, 0.5), needs_s=60)
    for device in devices:
        result.case(f"resnet-50 steps, {device}", partial(large, machine, work, device), needs_s=60)


def digits(machine: Machine, device: str) -> dict:
    """97 % of the held-out digits that ship with the project; a rehearsal trains a few steps and asks for nothing."""
    what = ["--data", "mnist:64+20", "--steps", 4] if machine.null else ["--data", "mnist", "--epochs", 20]
    return accurate(machine, what, 8 if machine.null else 32, device, 0.97)


def fashion(machine: Machine) -> dict:
    """90 % of the 10,000 held-out images of Fashion-MNIST, whose folder FASHION_MNIST may name."""
    folder = os.environ.get("FASHION_MNIST", FASHION)
    if machine.null:
        raise Skipped("a rehearsal has shown the same with digits")
    if not pathlib.Path(folder).is_dir():
        raise Skipped(f"no Fashion-MNIST in {folder}: FASHION_MNIST names another folder (Debian: dataset-fashion-mnist)")
    return accurate(machine, ["--data", folder, "--epochs", 15], 64, "cuda:tf32", 0.90)


def accurate(machine: Machine, what: list, batch: int, device: str, least: float) -> dict:
    row = machine.row("--model", "lenet", *what, "--batch-per-rank", batch, *RECIPE, "--device", device, limit=300)
    figures = {key: row[key] for key in ("accuracy", "train_loss", "held_out_loss", "steps", "images_per_s", "seconds", "command")}
    figures["least"] = 0.0 if machine.null else least
    if not row["accuracy"] >= figures["least"]:
        raise Failed(f"{row['accuracy']:.2%} of the held-out images, and {least:.0%} is asked for", **figures)
    return figures


def large(machine: Machine, work: pathlib.Path, device: str) -> dict:
    """ResNet-50 on images of a thousand classes, of which a hundred steps learn little by heart."""
    if machine.null:
        raise Skipped("a rehearsal has shown the same with resnet-32, and would take a minute a step")
    return falls(machine, work, "resnet-50", 64, 100, device, 0.9)


def falls(machine: Machine, work: pathlib.Path, model: str, batch: int, steps: int, device: str, most: float) -> dict:
    """The loss of synthetic images falls to a share of at most `most`; a rehearsal only asks that there is one."""
    metrics = work / f"{model}-{device}.jsonl".replace(":", "-")
    row = machine.row(
        "--model", model, "--data", f"synthetic:{4 * batch}", "--batch-per-rank", batch, "--steps", steps, "--learning-rate",
        0.01, "--momentum", 0.9, "--weight-decay", 0.0001, "--device", device, "--metrics", metrics, limit=300,
    )
    losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
    if len(losses) != steps or None in losses:
        raise Failed(f"{len(losses)} losses after {steps} steps: {losses[:10]}", command=row["command"])
    tenth = max(steps // 10, 1)
    first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
    figures = {"first_loss": first, "last_loss": last, "images_per_s": row["images_per_s"], "steps": steps, "command": row["command"]}
    if not machine.null and not last < most * first:
        raise Failed(f"the loss of images that can be learnt by heart has not fallen to {most} of what it was", **figures)
    return figures
