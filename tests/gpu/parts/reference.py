"""PyTorch's losses and gradients of a model on a GPU, in 64 bits and in the precisions that lockstep has.

`reference.py KERNEL_SERVER MODEL FOLDER SETS` reads in `FOLDER/0`, `FOLDER/1`, … the images and the parameters that `gradients.py`
left there, writes the gradient of 64 bits, rounded, beside them, and prints how far gradients and losses of PyTorch's own other steps
are from those of 64 bits.
"""

import contextlib
import json
import math
import pathlib
import sys

import numpy
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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


def rounded(values: torch.Tensor) -> torch.Tensor:
    """The nearest numbers with TF32's 10 bits of fraction."""
    return ((values.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class RoundedProduct(torch.autograd.Function):
    """A convolution or a product whose factors are rounded to TF32, in the forward pass and in both gradients."""

    @staticmethod
    def forward(context, call, x, weight, bias):
        context.call, context.has_bias = call, bias is not None
        context.save_for_backward(x, weight)
        return call(rounded(x), rounded(weight), bias)

    @staticmethod
    def backward(context, gradient):
        factors = [rounded(one).requires_grad_() for one in context.saved_tensors]
        with torch.enable_grad():
            result = context.call(*factors, None)
        d_x, d_weight = torch.autograd.grad(result, factors, rounded(gradient))
        places = [axis for axis in range(gradient.dim()) if axis != 1]
        return None, d_x, d_weight, gradient.sum(places) if context.has_bias else None


class RoundedFactors(TorchFunctionMode):
    """Every convolution and product of what is called within rounds its factors."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        if function is functional.conv2d:
            x, weight, bias, *window = arguments
            return RoundedProduct.apply(lambda x, weight, bias: CONV2D(x, weight, bias, *window), x, weight, bias)
        if function is functional.linear:
            x, weight, bias = (*arguments, None)[:3]
            return RoundedProduct.apply(LINEAR, x, weight, bias)
        return function(*arguments, **named)


CONV2D, LINEAR = functional.conv2d, functional.linear


def gradient(layers, values, pictures, labels, dtype, tf32=False, bf16=False, rounds=False) -> tuple[torch.Tensor, float]:
    """The gradient of all parameters and the loss."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    network = Network(layers, [[one.to(dtype) for one in of] for of in values]).to("cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16), RoundedFactors() if rounds else contextlib.nullcontext():
        total = network(pictures.to("cuda", dtype), labels.to("cuda"))
    gradients = torch.autograd.grad(total, list(network.held))
    return torch.cat([one.flatten() for one in gradients]).double(), float(total.detach())


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
        true, loss = gradient(layers, values, pictures, labels, torch.float64)
        (place / "float64").write_bytes(true.float().cpu().numpy().astype("<f4").tobytes())
        ways = {"float32": {}, "tf32": {"tf32": True}, "rounded": {"rounds": True}, "bf16": {"bf16": True}}
        steps = {name: gradient(layers, values, pictures, labels, torch.float32, **how) for name, how in ways.items()}
        far.append({
            name: {"gradient": float((step - true).norm() / true.norm()), "loss": abs(own / loss - 1)}
            for name, (step, own) in steps.items()
        })
    print(json.dumps(far))


if __name__ == "__main__":
    main()
