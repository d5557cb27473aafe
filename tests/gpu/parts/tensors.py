"""Tensors of the parts' own: images that are drawn and written as IDX files, and what a checkpoint holds."""

import array
import json
import math
import pathlib
import random
import struct

try:
    import numpy
except ImportError:  # A rehearsal is content with Python alone.
    numpy = None


def write_images(folder: pathlib.Path, shape: list[int], classes: int, samples: int, seed: int) -> None:
    """A folder for `--data`: `samples` random images of `shape` (channels, height, width) to train on, as many classes as the bytes
    of IDX files can name at most, and two images held out."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    for prefix, count in (("train", samples), ("t10k", 2)):
        write_idx(folder / f"{prefix}-images-idx4-ubyte", [count, *shape], draw.randbytes(count * math.prod(shape)))
        labels = bytes(draw.randrange(min(classes, 256)) for _ in range(count))
        if prefix == "train":
            # The classes are those up to the largest label, which the held-out ones must not exceed.
            labels = bytes([min(classes, 256) - 1]) + labels[1:]
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", [count], labels)


def write_idx(path: pathlib.Path, dims: list[int], values: bytes) -> None:
    path.write_bytes(bytes([0, 0, 8, len(dims)]) + b"".join(struct.pack(">I", size) for size in dims) + values)


def checkpoint(folder: pathlib.Path) -> dict:
    """The latest checkpoint in a folder: a flat tensor for each name, `names` of the parameters in the model's order, and `shapes`."""
    files = sorted(folder.glob("step-*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no checkpoint in {folder}")
    data = files[-1].read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    about = json.loads(header.pop("__metadata__")["lockstep"])
    tensors = {name: floats(body[slice(*one["data_offsets"])]) for name, one in header.items() if one["dtype"] == "F32"}
    return {**tensors, "names": about["parameters"], "shapes": {name: one["shape"] for name, one in header.items()}}


def floats(data):
    """32-bit numbers, little-endian as this machine's are."""
    if numpy is not None:
        return numpy.frombuffer(data, dtype="<f4")
    values = array.array("f")
    values.frombytes(bytes(data))
    return values


def weights(folder: pathlib.Path):
    """All trained parameters of the latest checkpoint as one vector."""
    held = checkpoint(folder)
    if numpy is not None:
        return numpy.concatenate([held[name] for name in held["names"]])
    joined = array.array("f")
    for name in held["names"]:
        joined.extend(held[name])
    return joined


def distance(found, true) -> float:
    """The norm of the difference relative to the norm of what is true; 0 where both are nothing, infinite where a number is none."""
    if len(found) != len(true):
        return math.inf
    if numpy is not None:
        found, true = numpy.asarray(found, dtype=numpy.float64), numpy.asarray(true, dtype=numpy.float64)
        difference, norm = float(numpy.linalg.norm(found - true)), float(numpy.linalg.norm(true))
    else:
        difference = math.sqrt(math.fsum((a - b) * (a - b) for a, b in zip(found, true)))
        norm = math.sqrt(math.fsum(b * b for b in true))
    if not math.isfinite(difference):
        return math.inf
    return difference / norm if norm > 0 else (0.0 if difference == 0 else math.inf)
