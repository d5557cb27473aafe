"""Batches of random crops from JPEG files by PyTorch's DataLoader with torchvision's decoder; prints images per second.

    pytorch_loader.py FOLDER --batch 64 --workers 2 --seconds 10 [--plain]     a folder for each class

Crops of random area and aspect ratio become 224 x 224 pixels, half of them mirrored, normalised in fp32. With --plain the crop is
interpolated between pixels, without a filter before it, as lockstep does.
"""

import argparse
import pathlib
import time

import torch
import torchvision
from torchvision.transforms import v2

said = argparse.ArgumentParser()
said.add_argument("folder", type=pathlib.Path)
said.add_argument("--batch", type=int, default=64)
said.add_argument("--workers", type=int, default=2)
said.add_argument("--seconds", type=float, default=10)
said.add_argument("--plain", action="store_true")
said = said.parse_args()


class Images(torch.utils.data.Dataset):
    def __init__(self, folder, plain):
        classes = sorted(path for path in folder.iterdir() if path.is_dir())
        self.files = [(str(file), label) for label, path in enumerate(classes) for file in sorted(path.iterdir())]
        self.change = v2.Compose([
            v2.RandomResizedCrop(224, antialias=not plain),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file, label = self.files[index]
        data = torchvision.io.read_file(file)
        return self.change(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB)), label


loader = torch.utils.data.DataLoader(
    Images(said.folder, said.plain), batch_size=said.batch, shuffle=True, drop_last=True, num_workers=said.workers, persistent_workers=True
)


def batches():
    while True:
        yield from loader


# Workers are started, and have their first batches ready, before timing begins.
endless = batches()
for _ in range(2 * said.workers):
    next(endless)
begun, count = time.perf_counter(), 0
while time.perf_counter() - begun < said.seconds:
    next(endless)
    count += 1
print(count * said.batch / (time.perf_counter() - begun))
