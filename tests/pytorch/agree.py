"""Holds lockstep's kernels beside PyTorch: each layer alone, and whole models.

Each layer gets what PyTorch's own layer got in a 32-bit step, its inputs and the gradient of its output; everything that it
returns must be within 1e-5 of PyTorch's answer, relative to the norm, and of the same layer in 64 bits. Whole models start
from one set of images; distances of scores and of all gradients from PyTorch's 64-bit step are medians over several inputs,
and ours must be at most max(3 times PyTorch's own 32-bit distance, 1e-4). The 64-bit step decides at each ReLU and maximum as
the step did that is held beside it: a gradient jumps there, so one rounding error would hide all others. Exits with 1 where a
bound is exceeded.
"""

import argparse
import csv
import math
import statistics
import sys

import torch
from torch.nn import functional

from network import Network, Server, is_loss, loss, operation

LAYER_BOUND = 1e-5
MODEL_BOUND = 1e-4
TIMES_OWN = 3


def distance(found: torch.Tensor, true: torch.Tensor) -> float:
    """The norm of the difference relative to the norm of what is true; 0 where both are nothing."""
    found, true = found.double().flatten(), true.double().flatten()
    difference, norm = (found - true).norm().item(), true.norm().item()
    return difference / norm if norm > 0 else (0.0 if difference == 0 else float("inf"))


def fitting_samples(path: str, model: str) -> int:
    """Sixteen where layers are small; fewer where the 64-bit step would take gigabytes, and minutes."""
    server = Server(path, model, 1)
    elements = sum(math.prod(layer["output"]) for layer in server.layers)
    server.close()
    return 16 if elements < 1 << 21 else 4 if elements < 1 << 25 else 2


def images(description: dict, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images, or tokens, and labels."""
    random = torch.Generator().manual_seed(seed)
    layers = description["layers"]
    shape = (description["samples"], *layers[0]["output"])
    if "tokens" in layers[0]:
        draw = lambda: torch.randint(layers[0]["tokens"], shape, generator=random)
        return draw(), draw()
    classes = layers[layers[-1]["inputs"][0]]["output"][0]
    return torch.randn(shape, generator=random), torch.randint(classes, (shape[0],), generator=random)


def torch_layer(layer, inputs, parameters, d_output, dtype):
    """Output, gradients of inputs and parameters, and running statistics of a layer of PyTorch."""
    values = [one for one in inputs if one.is_floating_point()]
    inputs = [one.detach().to(dtype).requires_grad_() if one.is_floating_point() else one for one in inputs]
    parameters = [one.detach().to(dtype).requires_grad_() for one in parameters]
    channels, running = layer["output"][0], ()
    if layer["kind"] == "batch_norm":
        running = (torch.zeros(channels, dtype=dtype), torch.ones(channels, dtype=dtype))
    output = operation(layer)(inputs, parameters, *([running] if running else []))
    gradients = torch.autograd.grad(output, inputs[: len(values)] + parameters, d_output.to(dtype))
    return [output.detach(), *gradients, *running]


def compare_layers(server: Server, parameters: list[list[torch.Tensor]]) -> list[tuple[str, float, float]]:
    """For each layer: its kind, the largest distance from PyTorch's layer in 64 bits, and in 32."""
    description = server.description
    pictures, labels = images(description, seed=0)
    network, outputs = Network(server.layers, parameters), []
    total = network(pictures.requires_grad_() if pictures.is_floating_point() else pictures, labels, outputs)
    kept = [output for output in outputs if output is not None and output.requires_grad]
    found = dict(zip(map(id, kept), torch.autograd.grad(total, kept, allow_unused=True)))
    rows = []
    for index, layer in enumerate(server.layers[1:], 1):
        inputs = [outputs[at].detach() for at in layer["inputs"]]
        own = parameters[index] if layer["tied_to"] is None else parameters[layer["tied_to"]][:1]
        if is_loss(layer):
            server.send(f"layer {index}", inputs[0], labels)
            ours, answers = [server.receive(*one.shape) for one in [inputs[0], *own]], []
            for dtype in (torch.float64, torch.float32):
                tensors = [one.detach().to(dtype).requires_grad_() for one in [inputs[0], *own]]
                answers.append(torch.autograd.grad(loss(layer, tensors[0], labels, tensors[1:]), tensors))
        else:
            d_output = found[id(outputs[index])]
            server.send(f"layer {index}", *inputs, d_output)
            answers = [torch_layer(layer, inputs, own, d_output, dtype) for dtype in (torch.float64, torch.float32)]
            ours = [server.receive(*one.shape) for one in answers[0]]
        far = [max(distance(mine, theirs) for mine, theirs in zip(ours, answer)) for answer in answers]
        rows.append((layer["kind"], layer["name"], *far))
    return rows


def on_the_side_of(layer: dict, output: torch.Tensor, source: torch.Tensor, counts: list[int]):
    """A ReLU or maximum that decides as the layer did which made `output` from `source`; counts where it would not itself."""
    if layer["kind"] == "relu":
        passes = output > 0

        def relu(xs, *_):
            counts[0] += int(((xs[0] > 0) != passes).sum())
            return xs[0] * passes

        return relu
    window = {key: layer[key] for key in ("stride", "padding")}

    def largest(x):
        return functional.max_pool2d(x, layer["kernel"], **window, ceil_mode=layer["ceil"], return_indices=True)[1].flatten(2)

    places = largest(source)

    def max_pool(xs, *_):
        values = xs[0].flatten(2)
        taken, own = values.gather(2, places), values.gather(2, largest(xs[0]))
        counts[0] += int((taken != own).sum())
        return taken.reshape(output.shape)

    return max_pool


def step(server: Server, parameters, pictures, labels, dtype, outputs=None):
    """PyTorch's step: scores of the last loss, the gradient of all parameters, and the outputs of all layers. With `outputs`
    of another step it falls on their side of every ReLU and maximum; the last value says how often it would not have."""
    network, found, counts = Network(server.layers, [[one.to(dtype) for one in of] for of in parameters]), [], [0]
    for index, layer in enumerate(server.layers):
        if outputs and layer["kind"] in ("relu", "max_pool"):
            network.operations[index] = on_the_side_of(layer, outputs[index], outputs[layer["inputs"][0]], counts)
    total = network(pictures.to(dtype) if pictures.is_floating_point() else pictures, labels, found)
    gradients = torch.autograd.grad(total, list(network.held))
    scores = found[server.layers[-1]["inputs"][0]].detach().flatten()
    detached = [None if output is None else output.detach() for output in found]
    return scores, torch.cat([gradient.flatten() for gradient in gradients]), detached, counts[0]


def our_step(server: Server, pictures, labels, scores: int, gradients: int):
    """The same of ours."""
    server.send("step", pictures, labels)
    results = server.receive(scores), server.receive(gradients)
    server.send("outputs", pictures)
    shape = (len(labels),)
    outputs = [None if is_loss(layer) else server.receive(*shape, *layer["output"]) for layer in server.layers[1:]]
    return *results, [pictures, *outputs]


def compare_model(server: Server, parameters, inputs: int) -> list[list[float]]:
    """Medians over inputs for ours and for PyTorch's 32-bit step: the distances of scores and gradients from the 64-bit step on
    the same side of every kink, and the number of kinks where the 64-bit step would have taken the other."""
    found = [[], []]
    for seed in range(inputs):
        pictures, labels = images(server.description, seed)
        own = step(server, parameters, pictures, labels, torch.float32)
        mine = our_step(server, pictures, labels, len(own[0]), len(own[1]))
        for rows, (scores, gradients, outputs, *_) in zip(found, (mine, own)):
            true = step(server, parameters, pictures, labels, torch.float64, outputs)
            rows.append((distance(scores, true[0]), distance(gradients, true[1]), true[3]))
    return [[statistics.median(column) for column in zip(*rows)] for rows in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="path of kernel_server")
    parser.add_argument("models", nargs="+", metavar="MODEL[@SAMPLES]")
    parser.add_argument("--inputs", type=int, default=5, help="sets of images that whole models are compared on")
    parser.add_argument("--csv", help="file that gets the rows of whole models")
    parser.add_argument("--layers", action="store_true", help="print every layer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print(f"PyTorch {torch.__version__}; distances relative to the norm\n")
    head = ["model", "samples", "layers", "worst layer", "its kind", "from 64 bits", "from 32 bits"]
    head += ["scores, ours", "PyTorch's", "gradients, ours", "PyTorch's", "kinks, ours", "PyTorch's", "within"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    rows, failed = [], False
    for text in arguments.models:
        name, _, samples = text.partition("@")
        server = Server(arguments.server, name, int(samples or fitting_samples(arguments.server, name)))
        parameters = server.parameters()
        layers = compare_layers(server, parameters)
        ours, theirs = compare_model(server, parameters, arguments.inputs)
        server.close()
        kind, worst, _, _ = max(layers, key=lambda row: max(row[2:]))
        far = [max(row[2] for row in layers), max(row[3] for row in layers)]
        good = max(far) <= LAYER_BOUND
        good &= all(mine <= max(TIMES_OWN * own, MODEL_BOUND) for mine, own in list(zip(ours, theirs))[:2])
        failed |= not good
        figures = [*far, ours[0], theirs[0], ours[1], theirs[1]]
        row = [name, server.description["samples"], len(layers), worst, kind, *(f"{figure:.1e}" for figure in figures)]
        rows.append([*row, f"{ours[2]:.0f}", f"{theirs[2]:.0f}", "yes" if good else "NO"])
        print("| " + " | ".join(map(str, rows[-1])) + " |", flush=True)
        for kind, layer, *both in layers if arguments.layers else []:
            print(f"    {layer:<24} {kind:<20} {both[0]:.1e} {both[1]:.1e}", flush=True)
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows])
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
