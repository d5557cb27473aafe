"""Gradients of whole models: those of the GPU beside those of the CPU device and of PyTorch in 64 bits.

One step over the whole of a small set of random images, with a momentum but no weight decay and a rate that changes nothing, leaves
the gradient in the checkpoint's momentum buffer and the initial parameters beside it. PyTorch takes the same parameters and images
(`reference.py`). Distances are of all gradients as one vector, relative to its norm. A gradient jumps wherever a ReLU or a maximum falls
on the other side by a rounding error: by luck once in some sets of images and programs, in large models in all. So the closest of
several sets tells of small models, the median of large ones, and what is right passes by one of the two.
"""

import json
import pathlib
import re
import statistics
import sys

from machine import BIN, Failed, Machine, run
from result import Result
from tensors import checkpoint, distance, floats, write_images

DEVICES = ("cpu", "cuda", "cuda:tf32", "cuda:bf16")
# Where there is a reference: a distance from it may be TIMES times that of the CPU device, or in TF32 and bf16 of PyTorch's own step in
# that precision on that GPU, or the least that is asked for, whichever is more.
TIMES = 3.0
LEAST = {"cuda": 1e-6, "cuda:tf32": 1e-3, "cuda:bf16": 1e-2}
# Where there is none: distances from the CPU device. What changes numbers by a share u turns about such a share of the ReLUs, each layer
# adding to it, and a gradient by the root of that: much in TF32 and bf16 (u of 5e-4 and 4e-3), where this finds what is broken and
# no more. What single operations may differ by is held by the executor's own tests.
FROM_CPU = {"cuda": 1e-3, "cuda:tf32": 0.3, "cuda:bf16": 0.8}
# What losses, which have no such jumps, may differ by from the CPU device's: this, or TIMES PyTorch's own distance in that precision.
LOSS = {"cuda": 1e-5, "cuda:tf32": 2e-3, "cuda:bf16": 3e-2}
# PyTorch's step that has a device's precision: of TF32 one in which all factors are rounded, as cuDNN does not for every size.
PEERS = {"cuda": "float32", "cuda:tf32": "rounded", "cuda:bf16": "bf16"}
# PyTorch's steps that are only told beside these.
TOLD = ("tf32",)
# Model, samples, and sets of images. Of models with dropout, the elements that PyTorch drops are others: theirs drop nothing.
MODELS = [
    ("resnet-50", 4, 2), ("alexnet", 4, 2), ("vgg-16-cifar", 16, 7), ("googlenet", 4, 4), ("resnet-32", 16, 7), ("lenet", 16, 7),
    ("mlp", 16, 7),
]
NULL_MODELS = [("lenet", 2, 1), ("resnet-32", 2, 1)]
ZOO = pathlib.Path("models/zoo")


def cases(machine: Machine, result: Result, work: pathlib.Path) -> None:
    for model, samples, sets in NULL_MODELS if machine.null else MODELS:
        def play(model=model, samples=samples, sets=sets):
            return compared(machine, model, (samples, sets), result.head["seed"], work / "gradients" / model)

        result.case(f"gradients {model} x {samples}", play, needs_s=60)


def without_dropout(model: str, folder: pathlib.Path) -> str:
    """The model's file with a rate of 0 instead of every other, or the model's name where it has no dropout."""
    text = (ZOO / f"{model}.toml").read_text()
    changed = re.sub(r"\brate = [0-9.]+", "rate = 0.0", text)
    if changed == text:
        return model
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{model}.toml"
    file.write_text(changed)
    return str(file)


def compared(machine: Machine, name: str, size: tuple[int, int], seed: int, folder: pathlib.Path) -> dict:
    """The figures of a model on `size`, samples and sets; fails where a bound is exceeded."""
    samples, sets = size
    model = without_dropout(name, folder)
    layers = machine.run("models", "show", model, "--format", "json", limit=60).rows()
    shape = [int(size) for size in layers[0]["output"].split("×")]
    scores = next(layer for layer in layers if layer["layer"] == layers[-1]["inputs"][0])
    classes = int(scores["output"].split("×")[0])
    found: list[dict] = []
    losses: list[dict] = []
    for number in range(sets):
        data = folder / str(number)
        write_images(data, shape, classes, samples, seed + number)
        steps = {device: step(machine, model, samples, seed + number, data, device) for device in DEVICES}
        found.append({device: one for device, (one, _) in steps.items()})
        losses.append({device: loss for device, (_, loss) in steps.items()})
    figures = {"samples": samples, "sets": sets}
    for device in DEVICES[1:]:
        figures[f"{device} from cpu"] = statistics.median(distance(one[device], one["cpu"]) for one in found)
        figures[f"{device} loss from cpu"] = max(abs(one[device] / one["cpu"] - 1) for one in losses)
    if machine.torch is None or not (BIN / "kernel_server").is_file():
        figures["reference"] = "none, the CPU device instead"
        wrong = [device for device in DEVICES[1:] if not figures[f"{device} from cpu"] <= FROM_CPU[device]]
        bounds, of_losses = FROM_CPU, LOSS
    else:
        bounds, of_losses = against_reference(machine, model, folder, found, figures)
        wrong = [device for device in DEVICES[1:] if not within(figures, device, bounds)]
    wrong += [f"{device} (loss)" for device in DEVICES[1:] if not figures[f"{device} loss from cpu"] <= of_losses[device]]
    figures["bounds"], figures["bounds_of_losses"] = dict(bounds), dict(of_losses)
    if wrong:
        raise Failed(f"too far with {', '.join(wrong)}", **figures)
    return figures


def step(machine: Machine, model: str, samples: int, seed: int, data: pathlib.Path, device: str):
    """The gradient of all parameters and the loss; in `data` the checkpoint."""
    kept = data / device
    row = machine.row(
        "--model", model, "--data", data, "--ranks", 1, "--batch-per-rank", samples, "--steps", 1, "--seed", seed,
        "--learning-rate", "1e-30", "--momentum", 0.9, "--weight-decay", 0, "--checkpoint", kept, "--device", device,
        "--threads-per-rank", 1 if machine.null or device != "cpu" else 8, limit=200,
    )
    return checkpoint(kept)["optimizer_velocity"], row["train_loss"]


def against_reference(machine: Machine, model: str, folder: pathlib.Path, found: list[dict], figures: dict) -> tuple[dict, dict]:
    """Adds the distances from PyTorch in 64 bits, and returns the bounds that follow: of gradients, for the median and for the closest
    set, and of losses, for the farthest."""
    script = pathlib.Path(__file__).resolve().parent / "reference.py"
    command = [sys.executable, str(script), str((BIN / "kernel_server").resolve()), model, str(folder), str(len(found))]
    done = run(command, machine.environment, limit=240)
    if done.code != 0:
        raise Failed(f"{script.name}: {done.last_line()}", **figures)
    theirs = json.loads(done.out)
    far = {f"PyTorch {peer}": [one[peer]["gradient"] for one in theirs] for peer in [*PEERS.values(), *TOLD]}
    for device in DEVICES:
        true = (floats((folder / str(at) / "float64").read_bytes()) for at in range(len(found)))
        far[device] = [distance(one[device], reference) for one, reference in zip(found, true)]
    for name, distances in far.items():
        figures[f"{name} from float64"], figures[f"{name}, closest"] = statistics.median(distances), min(distances)
    bounds, of_losses = {}, {}
    for device, peer in PEERS.items():
        figures[f"PyTorch {peer} loss from float64"] = max(one[peer]["loss"] for one in theirs)
        of_losses[device] = max(TIMES * figures[f"PyTorch {peer} loss from float64"], LOSS[device])
        scale = "cpu" if device == "cuda" else f"PyTorch {peer}"
        bounds[device] = [max(TIMES * figures[scale + how], LEAST[device]) for how in (" from float64", ", closest")]
    return bounds, of_losses


def within(figures: dict, device: str, bounds: dict) -> bool:
    median, closest = bounds[device]
    return figures[f"{device} from float64"] <= median or figures[f"{device}, closest"] <= closest
