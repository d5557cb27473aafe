"""PyTorch's gradients of a model on a GPU, in 64 bits and in the precisions that lockstep has.

`reference.py KERNEL_SERVER MODEL FOLDER SETS` reads in `FOLDER/0`, `FOLDER/1`, … the images and the parameters that `gradients.py`
left there, writes the gradient of 64 bits, rounded, beside them, and prints how far PyTorch's own other steps are from it.
"""

import json
import math
import pathlib
import sys

import numpy
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "pytorch")]
from network import Network, Server  # noqa: E402
from tensors import checkpoint  # noqa: E402


def images(folder: pathlib.Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, each channel of mean 0 and variance 1 over all of them as lockstep normalises them, and labels."""
    data = (folder / "train-images-idx4-ubyte").read_bytes()
    dims = [int.from_bytes(data[at : at + 4], "big") for at in range(4, 20, 4)]
    pixels = numpy.frombuffer(data[20:], dtype=numpy.uint8).reshape(dims).astype(numpy.float64)
    mean, deviation = pixels.mean((0, 2, 3), keepdims=True), pixels.std((0, 2, 3), keepdims=True)
    labels = numpy.frombuffer((folder / "train-labels-idx1-ubyte").read_bytes()[8:], dtype=numpy.uint8).astype(numpy.int64)
    return torch.from_numpy(((pixels - mean) / deviation).astype(numpy.float32)), torch.from_numpy(labels)


def parameters(layers: list[dict], folder: pathlib.Path) -> list[list[torch.Tensor]]:
    """The checkpoint's parameters as lists by layer."""
    held = checkpoint(folder)
    names = iter(held["names"])
    found = []
    for layer in layers:
        of_layer = []
        for parameter in layer["parameters"]:
            name = next(names)
            if math.prod(held["shapes"][name]) != math.prod(parameter["dims"]):
                raise SystemExit(f"{name} is {held['shapes'][name]}, and {parameter['dims']} was expected")
            of_layer.append(torch.from_numpy(held[name].copy()).reshape(parameter["dims"]))
        found.append(of_layer)
    return found


def gradient(layers, values, pictures, labels, dtype, tf32=False, bf16=False) -> torch.Tensor:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    network = Network(layers, [[one.to(dtype) for one in of] for of in values]).to("cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        total = network(pictures.to("cuda", dtype), labels.to("cuda"))
    gradients = torch.autograd.grad(total, list(network.held))
    return torch.cat([one.flatten() for one in gradients]).double()


def main() -> None:
    path, model, folder, sets = sys.argv[1:]
    server = Server(path, model, 1)
    layers = server.layers
    server.close()
    far = []
    for number in range(int(sets)):
        place = pathlib.Path(folder) / str(number)
        pictures, labels = images(place)
        values = parameters(layers, place / "cpu")
        true = gradient(layers, values, pictures, labels, torch.float64)
        (place / "float64").write_bytes(true.float().cpu().numpy().astype("<f4").tobytes())
        ways = {"float32": {}, "tf32": {"tf32": True}, "bf16": {"bf16": True}}
        steps = {name: gradient(layers, values, pictures, labels, torch.float32, **how) for name, how in ways.items()}
        far.append({name: float((step - true).norm() / true.norm()) for name, step in steps.items()})
    print(json.dumps(far))


if __name__ == "__main__":
    main()
