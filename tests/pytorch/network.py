"""A network in PyTorch, built from the description that lockstep's kernel_server gives of a model.

Layers are called one by one in the model's order, so that a new model needs no new code here. Dropout passes everything.
"""

import itertools
import json
import math
import subprocess
import tomllib
from collections.abc import Callable

import numpy
import torch
from torch import nn
from torch.nn import functional


class Server:
    """A kernel_server of ours that answers for one model and number of samples."""

    def __init__(self, path: str, model: str, samples: int):
        self.process = subprocess.Popen([path, model, str(samples)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.send("describe")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{path} {model}: no answer")
        self.description = json.loads(line)
        for layer in self.layers:
            settings = tomllib.loads("layer = { " + layer["settings"] + " }")["layer"]
            layer.update({key: value for key, value in settings.items() if key not in layer})

    def send(self, command: str, *tensors: torch.Tensor) -> None:
        self.process.stdin.write(command.encode() + b"\n")
        for tensor in tensors:
            kind = numpy.uint32 if tensor.dtype == torch.int64 else numpy.float32
            self.process.stdin.write(numpy.ascontiguousarray(tensor.detach().numpy().astype(kind)).tobytes())
        self.process.stdin.flush()

    def receive(self, *shape: int) -> torch.Tensor:
        """A tensor of this shape from the server."""
        data = self.process.stdout.read(4 * math.prod(shape))
        if len(data) < 4 * math.prod(shape):
            raise SystemExit("the kernel server ended early")
        return torch.from_numpy(numpy.frombuffer(data, dtype="<f4").copy()).reshape(shape)

    def parameters(self) -> list[list[torch.Tensor]]:
        """All learnable parameters, as lists by layer."""
        self.send("parameters")
        return [[self.receive(*parameter["dims"]) for parameter in layer["parameters"]] for layer in self.layers]

    @property
    def layers(self) -> list[dict]:
        return self.description["layers"]

    def close(self) -> None:
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("the kernel server failed")


def operation(layer: dict) -> Callable[..., torch.Tensor]:
    """What computes the output of a layer that is no loss from its inputs, its parameters and, of batch norm, the running
    mean and variance, which it updates in place: `operation(layer)(inputs, parameters, statistics)`."""
    match layer["kind"]:
        case "conv2d":
            window = [tuple(layer[key]) for key in ("stride", "padding", "dilation")] + [layer["groups"]]
            return lambda xs, ps, *_: functional.conv2d(xs[0], ps[0], ps[1] if len(ps) > 1 else None, *window)
        case "dense":
            return lambda xs, ps, *_: functional.linear(xs[0].flatten(1), *ps)[:, :, None, None]
        case "batch_norm":
            momentum, epsilon = 1 - layer["momentum"], layer["epsilon"]
            return lambda xs, ps, running=(None, None): functional.batch_norm(
                xs[0], *running, *ps, training=True, momentum=momentum, eps=epsilon
            )
        case "scale":
            column = (slice(None), None, None)
            return lambda xs, ps, *_: xs[0] * ps[0][column] + (ps[1][column] if len(ps) > 1 else 0)
        case "bias":
            return lambda xs, ps, *_: xs[0] + ps[0][:, None, None]
        case "relu":
            return lambda xs, *_: functional.relu(xs[0])
        case "silu":
            return lambda xs, *_: torch.nn.functional.silu(xs[0])
        case "gelu":
            return lambda xs, *_: torch.nn.functional.gelu(xs[0], approximate="tanh")
        case "exact_gelu":
            return lambda xs, *_: torch.nn.functional.gelu(xs[0])
        case "relu6":
            return lambda xs, *_: functional.relu6(xs[0])
        case "leaky_relu":
            return lambda xs, *_: functional.leaky_relu(xs[0], layer["slope"])
        case "hard_sigmoid":
            return lambda xs, *_: functional.hardsigmoid(xs[0])
        case "hard_swish":
            return lambda xs, *_: functional.hardswish(xs[0])
        case "affine":
            return lambda xs, *_: layer["factor"] * xs[0] + layer["shift"]
        case "layer_norm" if len(layer["output"]) == 2:
            return lambda xs, ps, *_: functional.layer_norm(xs[0], xs[0].shape[2:], *ps, eps=layer["epsilon"])
        case "rms_norm":

            def normalised(xs, ps, *_):
                weight = ps[0] + 1 if layer["unit_offset"] else ps[0]
                heads = xs[0].unflatten(-1, (layer["heads"], -1))
                return functional.rms_norm(heads, heads.shape[-1:], weight, eps=layer["epsilon"]).flatten(-2)

            return normalised
        case "rotary":
            return lambda xs, *_: turned(layer, xs[0])
        case "embedding":
            return lambda xs, ps, *_: functional.embedding(xs[0], ps[0])
        case "position_embedding":
            return lambda xs, ps, *_: xs[0] + ps[0]
        case "linear":
            return lambda xs, ps, *_: functional.linear(xs[0], *ps)
        case "attention":
            return lambda xs, *_: attended(layer, *xs)
        case "layer_norm":
            return lambda xs, ps, *_: functional.layer_norm(
                xs[0].permute(0, 2, 3, 1), xs[0].shape[1:2], *ps, eps=layer["epsilon"]
            ).permute(0, 3, 1, 2)
        case "product":
            return lambda xs, *_: xs[0] * xs[1]
        case "select":
            first, channels, groups = layer["first"], layer["channels"], layer["groups"]
            return lambda xs, *_: functional.channel_shuffle(xs[0][:, first : first + channels], groups)
        case "border":
            (above, left), (below, right) = layer["before"], layer["after"]
            mode = "reflect" if layer.get("reflect") else "constant"
            return lambda xs, *_: functional.pad(xs[0], (left, right, above, below), mode=mode)
        case "blur_pool":
            row = torch.tensor([math.comb(layer["kernel"] - 1, at) for at in range(layer["kernel"])]) / 2 ** (layer["kernel"] - 1)
            window = [tuple(layer[key]) for key in ("stride", "padding")]
            return lambda xs, *_: functional.conv2d(
                xs[0], torch.outer(row, row).expand(xs[0].shape[1], 1, -1, -1), None, *window, groups=xs[0].shape[1]
            )
        case "resize":
            return lambda xs, *_: functional.interpolate(xs[0], (layer["height"], layer["width"]), mode="nearest")
        case "reshape":
            return lambda xs, *_: xs[0].reshape(-1, layer["channels"], layer["height"], layer["width"])
        case "softmax":
            return lambda xs, *_: xs[0].unflatten(1, (layer["parts"], -1)).softmax(1).flatten(1, 2)
        case "square":
            return lambda xs, *_: xs[0].square()
        case "group_norm":
            return lambda xs, ps, *_: functional.group_norm(xs[0], layer["groups"], *ps, eps=layer["epsilon"])
        case "global_response_norm":

            def scaled(xs, ps, *_):
                norms = xs[0].norm(dim=(2, 3), keepdim=True)
                shares = norms / (norms.mean(1, keepdim=True) + layer["epsilon"])
                gamma, beta = (tensor[:, None, None] for tensor in ps)
                return gamma * xs[0] * shares + beta + xs[0]

            return scaled
        case "sigmoid":
            return lambda xs, *_: torch.sigmoid(xs[0])
        case "tanh":
            return lambda xs, *_: torch.tanh(xs[0])
        case "local_response_norm":
            # PyTorch divides alpha by the size of the window.
            size, beta, k = layer["size"], layer["beta"], layer["k"]
            alpha = layer["alpha"] * size
            return lambda xs, *_: functional.local_response_norm(xs[0], size, alpha, beta, k)
        case "dropout":
            return lambda xs, *_: xs[0].clone()
        case "max_pool" | "average_pool" as kind:
            window = [tuple(layer[key]) for key in ("kernel", "stride", "padding")]
            ceil = layer["ceil"]
            if kind == "max_pool":
                return lambda xs, *_: functional.max_pool2d(xs[0], *window, ceil_mode=ceil)
            counted = layer.get("count_padding", False)
            return lambda xs, *_: functional.avg_pool2d(xs[0], *window, ceil_mode=ceil, count_include_pad=counted)
        case "global_pool":
            return lambda xs, *_: xs[0].mean((2, 3), keepdim=True)
        case "add":
            return lambda xs, *_: sum(xs[1:], start=xs[0])
        case "concat":
            return lambda xs, *_: torch.cat(xs, 1)
        case "flatten":
            return lambda xs, *_: xs[0].flatten(1)[:, :, None, None]
        case kind:
            raise SystemExit(f"the layer {layer['name']} is a {kind}, which this script does not know")


def turned(layer: dict, x: torch.Tensor) -> torch.Tensor:
    """Rotary positions as `transformers` computes them, with angles in 64 bits."""
    heads = x.unflatten(2, (layer["heads"], -1))
    count = int(heads.shape[3] * layer["fraction"])
    pairs = torch.arange(0, count, 2, dtype=torch.float64)
    frequencies, magnitude = layer["theta"] ** (-pairs / count), 1.0
    length, factor = layer.get("original_max_position_embeddings"), layer.get("factor")
    match layer["scaling"]:
        case "linear":
            frequencies = frequencies / factor
        case "llama3":
            low, high = layer["low_freq_factor"], layer["high_freq_factor"]
            smooth = (length * frequencies / (2 * math.pi) - low) / (high - low)
            frequencies = frequencies * (smooth.clamp(0, 1) + (1 - smooth.clamp(0, 1)) / factor)
        case "yarn":
            pair = lambda turns: count * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(layer["theta"]))
            low, high = max(math.floor(pair(layer["beta_fast"])), 0), min(math.ceil(pair(layer["beta_slow"])), count - 1)
            ramp = ((pairs / 2 - low) / max(high - low, 0.001)).clamp(0, 1)
            frequencies, magnitude = frequencies * (ramp / factor + 1 - ramp), 0.1 * math.log(factor) + 1
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies
    cosine, sine = (magnitude * of(angles)[None, :, None].to(x.dtype) for of in (torch.cos, torch.sin))
    part, rest = heads[..., :count], heads[..., count:]
    if layer["pairing"] == "halves":
        a, b = part.chunk(2, 3)
        part = torch.cat([a * cosine - b * sine, b * cosine + a * sine], 3)
    else:
        a, b = part[..., ::2], part[..., 1::2]
        part = torch.stack([a * cosine - b * sine, b * cosine + a * sine], 4).flatten(3)
    return torch.cat([part, rest], 3).flatten(2)


def attended(layer: dict, *inputs: torch.Tensor) -> torch.Tensor:
    """Attention by its definition: all scores at once."""
    counts = (layer["heads"], layer["key_heads"], layer["key_heads"])
    q, k, v = (one.unflatten(2, (heads, -1)).transpose(1, 2) for one, heads in zip(inputs, counts))
    k, v = (one.repeat_interleave(layer["heads"] // layer["key_heads"], 1) for one in (k, v))
    scores = q @ k.transpose(2, 3) * layer.get("scale", q.shape[3] ** -0.5)
    if "soft_cap" in layer:
        scores = layer["soft_cap"] * torch.tanh(scores / layer["soft_cap"])
    if layer["causal"]:
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
        seen = (distance >= 0) & (distance < layer.get("window", q.shape[2]))
        scores = scores.masked_fill(~seen, -math.inf)
    return (scores.softmax(3) @ v).transpose(1, 2).flatten(2)


def loss(layer: dict, scores: torch.Tensor, labels: torch.Tensor, parameters: list[torch.Tensor] = ()) -> torch.Tensor:
    """What training counts of a loss: its mean over the samples times its weight."""
    if layer["kind"] == "linear_cross_entropy":
        scores = functional.linear(scores, *parameters)
        if "soft_cap" in layer:
            scores = layer["soft_cap"] * torch.tanh(scores / layer["soft_cap"])
    if labels.dim() == 2:
        return layer["weight"] * functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
    scores = scores.flatten(1)
    if layer["kind"] == "logistic_cross_entropy":
        wanted = functional.one_hot(labels, scores.shape[1]).to(scores.dtype)
        return layer["weight"] * functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / len(labels)
    return layer["weight"] * functional.cross_entropy(scores, labels)


def is_loss(layer: dict) -> bool:
    return layer["kind"].endswith("cross_entropy")


class Network(nn.Module):
    """The whole model: images and labels in, the sum of its losses out."""

    def __init__(self, layers: list[dict], parameters: list[list[torch.Tensor]]):
        super().__init__()
        self.layers = layers
        self.operations = [None if is_loss(layer) or not layer["inputs"] else operation(layer) for layer in layers]
        self.held = nn.ParameterList(nn.Parameter(one.clone()) for of in parameters for one in of)
        ends = list(itertools.accumulate(map(len, parameters)))
        self.ranges = list(zip([0, *ends], ends))
        for index, layer in enumerate(layers):
            if layer["tied_to"] is not None:
                self.ranges[index] = self.ranges[layer["tied_to"]]

    def forward(self, images: torch.Tensor, labels: torch.Tensor, outputs: list | None = None) -> torch.Tensor:
        """`outputs`, if given, gets the output of each layer, and nothing of a loss."""
        found, total = [images], 0.0
        for index, layer in enumerate(self.layers[1:], 1):
            inputs, parameters = [found[at] for at in layer["inputs"]], [self.held[at] for at in range(*self.ranges[index])]
            if self.operations[index] is None:
                total = total + loss(layer, inputs[0], labels, parameters)
                found.append(None)
            else:
                found.append(self.operations[index](inputs, parameters))
        if outputs is not None:
            outputs.extend(found)
        return total
