"""A few training steps of ResNet-50 in PyTorch on the CPU, the yardstick of memory.sh.

The model is that of models/zoo/resnet-50.toml: strides in the 3x3 convolutions, 25,557,032 parameters, ReLU in place as in
torchvision, SGD with momentum 0.9.
"""

import argparse

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )
        self.project = None
        if inputs != 4 * width or stride != 1:
            self.project = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        out += x if self.project is None else self.project(x)
        return self.relu(out)


def resnet_50() -> nn.Module:
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = resnet_50()
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    images = torch.randn(2 * arguments.batch, 3, 224, 224)
    labels = torch.arange(2 * arguments.batch) % 1000
    for step in range(arguments.steps):
        part = slice(step % 2 * arguments.batch, (step % 2 + 1) * arguments.batch)
        optimizer.zero_grad(set_to_none=True)
        loss(model(images[part]), labels[part]).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
