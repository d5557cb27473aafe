"""Images per second of LeNet's training step in PyTorch on the CPU, the yardstick of lenet.sh.

The model, the optimizer and the random images are those of exec/examples/kernel_bench.rs: 5x5 convolutions of 32 and 64 with
ReLU and 2x2 max pooling, dense 1024 and 10, 1,111,946 parameters, SGD with momentum 0.9.
"""

import argparse
import time

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layout", choices=["nchw", "channels-last"], default="nchw")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    layout = torch.channels_last if arguments.layout == "channels-last" else torch.contiguous_format
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10),
    ).to(memory_format=layout)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_111_946
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    images = torch.randn(arguments.batch, 1, 28, 28).contiguous(memory_format=layout)
    labels = torch.arange(arguments.batch) % 10

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(images), labels).backward()
        optimizer.step()

    for _ in range(10):
        step()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < arguments.seconds:
        step()
        steps += 1
    print(f"{steps * arguments.batch / (time.perf_counter() - start):.0f}")


if __name__ == "__main__":
    main()
