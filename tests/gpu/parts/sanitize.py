"""The part `sanitize`: a few steps under compute-sanitizer's memcheck and racecheck."""

import pathlib
import shutil
from functools import partial

from machine import Failed, Machine, Skipped
from result import Result

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer", "/opt/cuda/bin")
# Parts of the names of NVIDIA's own kernels.
THEIRS = "kns=cudnn,kns=cutlass,kns=cublas,kns=gemm,kns=xmma"
# Its exit code where it found something, which is none of lockstep's.
FOUND = 99
# LeNet has every kernel of pooling and dense layers, ResNet-32 those of batch norm and additions; learners share a device.
RUNS = {
    "lenet": ["--model", "lenet", "--data", "mnist:64+8", "--batch-per-rank", 8, "--steps", 3],
    "resnet-32": ["--model", "resnet-32", "--data", "synthetic:16", "--batch-per-rank", 2, "--steps", 2],
    "two learners": ["--model", "lenet", "--data", "mnist:64+8", "--batch-per-rank", 4, "--steps", 2, "--strategy", "sma", "--learners", 2],
    "bf16": ["--model", "lenet", "--data", "mnist:64+8", "--batch-per-rank", 8, "--steps", 2, "--device", "cuda:bf16"],
}


def run(machine: Machine, result: Result, work: pathlib.Path) -> None:
    for tool in ("memcheck", "racecheck"):
        for name, training in RUNS.items():
            if machine.null and (tool, name) not in (("memcheck", "lenet"), ("racecheck", "two learners")):
                continue
            result.case(f"{tool}, {name}", partial(sanitized, machine, tool, training), needs_s=30)


def sanitized(machine: Machine, tool: str, training: list) -> dict:
    sanitizer = shutil.which("compute-sanitizer", path=":".join([machine.environment["PATH"], *PLACES]))
    device = [] if "--device" in training else ["--device", "cuda"]
    command = ["exec", "run", *training, *device, "--format", "json"]
    if machine.null:
        # The sanitizer would not know a pretend driver; that the run itself goes well is seen.
        done = machine.run(*command, limit=120)
        if done.code != 0:
            raise Failed(f"exit code {done.code}: {done.last_line()}", command=done.command)
        raise Skipped("a rehearsal has no device that compute-sanitizer knows; the run itself went well without it")
    if sanitizer is None:
        raise Skipped(f"no compute-sanitizer in PATH nor in {', '.join(PLACES)}: it comes with the CUDA toolkit")
    options = ["--tool", tool, "--error-exitcode", FOUND, "--print-limit", 20]
    # Kernels of NVIDIA's own libraries share memory between warps in ways that racecheck takes for races.
    options += ["--kernel-name-exclude", THEIRS] if tool == "racecheck" else []
    done = machine.run(*options, machine.binary, *command, program=pathlib.Path(sanitizer), limit=300)
    said = [line for line in (done.out + done.error).splitlines() if line.startswith("=========")]
    if "Device not supported" in done.out + done.error:
        raise Skipped("compute-sanitizer does not support the device here: " + said[-1] if said else "no reason given")
    figures = {"code": done.code, "summary": said[-1] if said else "", "command": f"compute-sanitizer {' '.join(map(str, options))}"}
    if done.code != 0:
        raise Failed(f"exit code {done.code}", **figures, said=said[:60])
    return figures
