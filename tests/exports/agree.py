"""Exports networks of torchvision and timm with PyTorch's exporters and compares what lockstep reads with PyTorch's counts.

    python agree.py LOCKSTEP FOLDER [PATTERN ...]     else every network of torchvision and timm that has no attention

Prints a line for each network and exporter, and exits with 1 if one that is read has other parameters than PyTorch counts.
Refusals are listed: layers that lockstep lacks.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import warnings

import timm
import torch
import torchvision

# Networks of attention, which are no models here yet.
ATTENTION = re.compile("vit|swin|deit|beit|former|mixer|cait|coat|xcit|eva|levit|volo|twins|sam|cvt|botnet|halo|lambda|nest|clip")


def networks(patterns: list[str]):
    """Names and makers."""
    listed = [(f"torchvision-{name}", lambda name=name: torchvision.models.get_model(name, weights=None))
              for name in torchvision.models.list_models(module=torchvision.models)]
    listed += [(f"timm-{name}", lambda name=name: timm.create_model(name)) for name in timm.list_models()]
    for name, make in listed:
        if not ATTENTION.search(name) and (not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)):
            yield name, make


def export(model: torch.nn.Module, mode: str, path: pathlib.Path) -> None:
    side = 299 if "inception" in path.name else 224
    samples = torch.randn(2, 3, side, side)
    if mode == "train":
        training = torch.onnx.TrainingMode.TRAINING
        torch.onnx.export(model.train(), samples, path, dynamo=False, training=training, do_constant_folding=False)
    else:
        torch.onnx.export(model.eval(), (samples,), path, dynamo=True, external_data=False, verbose=False)


def read(lockstep: str, file: str) -> tuple[int | None, str]:
    """The parameters that lockstep reads, or its refusal."""
    ran = subprocess.run([lockstep, "models", "show", file, "--format", "json"], capture_output=True, text=True)
    if ran.returncode:
        return None, ran.stderr.strip()
    return sum(layer["parameters"] for layer in json.loads(ran.stdout)["rows"]), ran.stderr


def main() -> None:
    warnings.filterwarnings("ignore")
    lockstep, folder, patterns = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name, make in networks(patterns):
        model = make()
        # Parameters that are all zero would be left out by the exporter.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * torch.rand_like(parameter))
        count = sum(parameter.numel() for parameter in model.parameters())
        for mode in ("train", "dynamo"):
            path = folder / f"{name}.{mode}.onnx"
            try:
                export(model, mode, path)
            except Exception as error:  # PyTorch cannot export everything.
                print(f"{name} {mode}: not exported: {type(error).__name__}")
                continue
            found, said = read(lockstep, str(path))
            if "folded into" in said:
                found, said = read(lockstep, f"{path}:unfold")
            verdict = "refused" if found is None else "equal" if found == count else "differs"
            wrong += verdict == "differs" and mode == "train"
            print(f"{name} {mode}: {verdict}, {found} of {count} {said.splitlines()[0][:200] if said else ''}", flush=True)
            path.unlink()
    sys.exit(wrong > 0)


main()
