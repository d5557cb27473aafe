"""Exports networks of torchvision and timm with PyTorch's exporters and compares what lockstep reads with PyTorch's counts.

    python agree.py LOCKSTEP FOLDER [PATTERN ...]

Networks whose names (torchvision-resnet18, timm-*) match a pattern; without one, the smallest for each set of kinds of modules that
networks of torchvision and timm have, if it has at most 64 million parameters and no attention. Prints a line for each network and
exporter, and a summary; exits with 1 if one that is read has other parameters than PyTorch counts, or if lockstep neither reads nor
refuses it. Refusals are listed: layers that lockstep lacks.
"""

import collections
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
MOST_PARAMETERS = 64_000_000


def networks():
    """Names and makers."""
    listed = [(f"torchvision-{name}", lambda name=name: torchvision.models.get_model(name, weights=None))
              for name in torchvision.models.list_models(module=torchvision.models)]
    listed += [(f"timm-{name}", lambda name=name: timm.create_model(name)) for name in timm.list_models()]
    return listed


def parameters(model: torch.nn.Module, mode: str = "train") -> int:
    """The number of parameters; in eval mode torchvision's auxiliary classifiers, aux1 and AuxLogits, do not run."""
    own = [parameter.numel() for name, parameter in model.named_parameters() if mode == "train" or name[:3].lower() != "aux"]
    return sum(own)


def representatives():
    """Of all networks without attention that have the same kinds of modules, the smallest."""
    smallest = {}
    for name, make in networks():
        if ATTENTION.search(name):
            continue
        try:
            with torch.device("meta"):
                model = make()
        except NotImplementedError:  # torchvision's RegNets compute their widths with tensors.
            if "128gf" in name:
                continue
            model = make()
        kinds = frozenset(type(module).__qualname__ for module in model.modules())
        count = parameters(model)
        if count <= MOST_PARAMETERS and (kinds not in smallest or count < smallest[kinds][0]):
            smallest[kinds] = (count, name, make)
    return sorted((name, make) for _, name, make in smallest.values())


def export(model: torch.nn.Module, mode: str, path: pathlib.Path) -> None:
    side = getattr(model, "default_cfg", {}).get("input_size", (3, 299 if "inception" in path.name else 224))[-1]
    samples = torch.randn(2, 3, side, side)
    if mode == "train":
        training = torch.onnx.TrainingMode.TRAINING
        torch.onnx.export(model.train(), samples, path, dynamo=False, training=training, do_constant_folding=False)
    else:
        torch.onnx.export(model.eval(), (samples,), path, dynamo=True, external_data=False, verbose=False)


def read(lockstep: str, file: str) -> tuple[str, int | None, str]:
    """Whether lockstep reads the file, the parameters, and what it says of it."""
    ran = subprocess.run([lockstep, "models", "show", file, "--format", "json"], capture_output=True, text=True)
    if ran.returncode:
        return "refused" if ran.returncode == 2 else "failed", None, ran.stderr.strip()
    shown = json.loads(ran.stdout)
    return "read", sum(layer["parameters"] for layer in shown["rows"]), "; ".join(shown["notes"])


def main() -> None:
    warnings.filterwarnings("ignore")
    lockstep, folder, patterns = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    verdicts = collections.Counter()
    named = [(name, make) for name, make in networks() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    chosen = named if patterns else representatives()
    for name, make in chosen:
        torch.manual_seed(1)
        model = make()
        # Parameters that are all zero would be left out by the exporter.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * torch.rand_like(parameter))
        for mode in ("train", "dynamo"):
            count = parameters(model, mode)
            path = folder / f"{name}.{mode}.onnx"
            try:
                export(model, mode, path)
            except Exception as error:  # PyTorch cannot export everything.
                verdicts[f"{mode} not exported"] += 1
                print(f"{name} {mode}: not exported: {type(error).__name__}", flush=True)
                continue
            verdict, found, said = read(lockstep, str(path))
            if "folded into" in said:
                verdict, found, said = read(lockstep, f"{path}:unfold")
            # An export in eval mode may also have folded parameters into weights.
            counted = re.findall(r"(\d+|\ba) (?:parameters from which weights|single numbers? that training)", said)
            left_out = sum(1 if left == "a" else int(left) for left in counted)
            if verdict == "read" and found == count:
                verdict = "equal"
            elif verdict == "read":
                noted = left_out and (found + left_out == count or mode == "dynamo" and found + left_out < count)
                verdict = "equal with those that a note counts" if noted else "differs"
            verdicts[f"{mode} {verdict}"] += 1
            print(f"{name} {mode}: {verdict}, {found} of {count} {said[:300].splitlines()[0] if said else ''}", flush=True)
            path.unlink()
    print(f"{len(chosen)} networks: " + ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items())))
    sys.exit(any(verdict.endswith(("differs", "failed")) for verdict in verdicts))


main()
