"""Layers of sequences beside PyTorch's on the CPU: milliseconds forward and backward, and how many times faster ours are.

    python benches/pytorch_layers.py target/release/sequence_bench [--threads 1] [--rounds 3] [--seconds 2] [LAYER ...]

Both measure medians, in alternating rounds, so that a busy minute of the machine affects both; the median of the rounds counts.
"""

import argparse
import statistics
import subprocess
import time

import torch
from torch.nn import functional

SAMPLES, POSITIONS, FEATURES, HEADS, CLASSES = 4, 512, 768, 12, 50257


def attention(**how):
    def run(q, k, v):
        heads = (one.unflatten(2, (HEADS, -1)).transpose(1, 2) for one in (q, k, v))
        return functional.scaled_dot_product_attention(*heads, **how).transpose(1, 2).flatten(2)

    return run


def window(size: int):
    at = torch.arange(POSITIONS)
    distance = at[:, None] - at
    return attention(attn_mask=(distance >= 0) & (distance < size))


def rotary(x):
    angles = torch.arange(POSITIONS)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)
    cosines, sines = (torch.cat([of(angles)] * 2, 1)[None, :, None] for of in (torch.cos, torch.sin))
    heads = x.unflatten(2, (HEADS, -1))
    first, second = heads.chunk(2, 3)
    return (heads * cosines + torch.cat([-second, first], 3) * sines).flatten(2)


LAYERS = {
    "attention": (attention(is_causal=True), 3, FEATURES, []),
    "attention-full": (attention(), 3, FEATURES, []),
    "attention-window": (window(128), 3, FEATURES, []),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (FEATURES,), w, b), 1, FEATURES, [(FEATURES,), (FEATURES,)]),
    "rms_norm": (lambda x, w: functional.rms_norm(x, (FEATURES,), w, 1e-5), 1, FEATURES, [(FEATURES,)]),
    "rotary": (rotary, 1, FEATURES, []),
    "gelu": (lambda x: functional.gelu(x, approximate="tanh"), 1, 4 * FEATURES, []),
    "silu": (functional.silu, 1, 4 * FEATURES, []),
    "linear": (functional.linear, 1, FEATURES, [(4 * FEATURES, FEATURES), (4 * FEATURES,)]),
    "linear_cross_entropy": (
        lambda x, w: functional.cross_entropy(functional.linear(x, w).flatten(0, 1), LABELS),
        1,
        FEATURES,
        [(CLASSES, FEATURES)],
    ),
}
LABELS = torch.arange(SAMPLES * POSITIONS) * 31 % CLASSES


def theirs(name: str, seconds: float) -> tuple[float, float]:
    run, inputs, features, parameters = LAYERS[name]
    shapes = [(SAMPLES, POSITIONS, features)] * inputs + parameters
    tensors = [(torch.rand(shape) * 2 - 1).requires_grad_() for shape in shapes]
    d_output, times, start = None, ([], []), time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 4:
        began = time.perf_counter()
        output = run(*tensors)
        times[0].append(time.perf_counter() - began)
        d_output = torch.rand_like(output) if d_output is None else d_output
        began = time.perf_counter()
        torch.autograd.grad(output, tensors, d_output)
        times[1].append(time.perf_counter() - began)
    return tuple(statistics.median(of[1:]) * 1e3 for of in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="path of sequence_bench")
    parser.add_argument("layers", nargs="*", metavar="LAYER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a layer in a round")
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(arguments.threads)
    print(f"PyTorch {torch.__version__}, {arguments.threads} thread(s); milliseconds forward, backward, and the ratio of both")
    for name in arguments.layers or LAYERS:
        ours, others = [], []
        for _ in range(arguments.rounds):
            others.append(theirs(name, arguments.seconds))
            command = [arguments.server, str(arguments.threads), str(arguments.seconds), name]
            ours.append(tuple(map(float, subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()[1:])))
        medians = [[statistics.median(column) for column in zip(*rows)] for rows in (ours, others)]
        (forward, backward), (their_forward, their_backward) = medians
        ratio = (their_forward + their_backward) / (forward + backward)
        print(f"{name:<22} {forward:8.2f} {backward:8.2f}   PyTorch {their_forward:8.2f} {their_backward:8.2f}   {ratio:5.2f}", flush=True)


if __name__ == "__main__":
    main()
