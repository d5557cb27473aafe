"""The part `check`: what a GPU computes is what it should be.

Operations are held against the CPU device by the executor's own tests, whole models by their gradients, strategies by the equalities
that they promise, and runs by what they do when they are killed or do not fit.
"""

import pathlib
import shutil
import signal
import subprocess
import time
from functools import partial

import gradients
from machine import BIN, Failed, Machine, Skipped
from result import Result
from tensors import distance, weights

# Sums of four ranks' gradients have another order than four micro-batches': a few roundings of 32 bits, over a few steps. After more
# steps a ReLU turns by one of them: on CPUs two orders are 2e-9 apart after 5 steps, 6e-6 after 10 and 2e-4 after 20.
CLOSE, CLOSE_STEPS = 1e-5, 4
# Learners on a GPU beside learners on the CPU: roundings, and the ReLUs that they turn.
LEARNERS_CLOSE = 1e-3


def run(machine: Machine, result: Result, work: pathlib.Path) -> None:
    gradients.cases(machine, result, work)
    operations(machine, result)
    for device in ("cuda", "cuda:tf32", "cuda:bf16"):
        result.case(f"the same bits twice, {device}", partial(same_bits, machine, device))
    result.case("two ranks on a GPU are two micro-batches", partial(accumulated, machine, work / "two", 2))
    result.case("four ranks on a GPU are four micro-batches", partial(accumulated, machine, work / "four", 4))
    for learners in (1, 3) if machine.null else range(1, 9):
        result.case(f"sma with {learners} learners", partial(averaged, machine, work / f"sma{learners}", learners))
    result.case("killed and resumed", partial(resumed, machine, work / "killed"), needs_s=60)
    result.case("a batch that does not fit", partial(too_large, machine), needs_s=60)


def setting(machine: Machine) -> list:
    """LeNet on a few digits, so that what is judged on them takes no time."""
    batch = 4 if machine.null else 16
    return ["--model", "lenet", "--data", "mnist:256+20", "--seed", 7, "--batch-per-rank", batch]


def operations(machine: Machine, result: Result) -> None:
    """The executor's tests of a rank on a GPU (`exec/cuda/tests/rank`), a case each, played on the GPU that is there. Each has a process of
    its own, as over the pretend libraries: an error of the device outlives its test."""
    if machine.null:
        return
    program = BIN / "rank"
    if not program.is_file():
        raise SystemExit(f"{program} is not there: bash tests/gpu/run build")
    listed = machine.run("--list", program=program.resolve(), limit=30).out.splitlines()
    for name in (line.removesuffix(": test") for line in listed if line.endswith(": test")):
        result.case(f"operations: {name}", partial(operation, machine, program.resolve(), name), needs_s=60)


def operation(machine: Machine, program: pathlib.Path, name: str) -> dict:
    done = machine.run(name, "--exact", "--nocapture", program=program, limit=240, extra={"LOCKSTEP_GPU": "1"})
    left_out = [line for line in done.error.splitlines() if line.startswith("SKIPPED")]
    if done.code == 0 and left_out:
        raise Skipped(left_out[0])
    if done.code != 0:
        said = [*done.error[:2000].splitlines(), "…", *(done.out + done.error)[-2000:].splitlines()]
        raise Failed(f"exit code {done.code}", said=said)
    return {}


def same_bits(machine: Machine, device: str) -> dict:
    """A run, the same again, and without graphs."""
    steps = 3 if machine.null else 50
    rows = [
        machine.row(*setting(machine), "--steps", steps, "--device", device, limit=120, extra=extra)
        for extra in ({}, {}, {"LOCKSTEP_NO_GRAPHS": "1"})
    ]
    states = [row["state_sha256"] for row in rows]
    figures = {"steps": steps, "train_loss": rows[0]["train_loss"], "state_sha256": states, "command": rows[0]["command"]}
    if len(set(states)) != 1:
        raise Failed("states differ", **figures)
    return figures


def accumulated(machine: Machine, folder: pathlib.Path, ranks: int) -> dict:
    """Ranks on one GPU against as many micro-batches of one; sums of two have one reduction order, so their bits are the same."""
    steps = 2 if machine.null else 20 if ranks == 2 else CLOSE_STEPS
    found = []
    for name, how in (("ranks", ["--ranks", ranks]), ("micro-batches", ["--ranks", 1, "--accumulate", ranks])):
        kept = folder / name
        row = machine.row(*setting(machine), *how, "--steps", steps, "--device", "cuda", "--checkpoint", kept, limit=120)
        found.append((weights(kept), row))
    (of_ranks, one), (of_batches, other) = found
    far = distance(of_ranks, of_batches)
    same = one["weights_sha256"] == other["weights_sha256"]
    figures = {"steps": steps, "distance": far, "same_bits": same, "bound": 0.0 if ranks == 2 else CLOSE, "command": one["command"]}
    if not (same if ranks == 2 else far <= CLOSE):
        raise Failed("weights differ", **figures)
    return figures


def averaged(machine: Machine, folder: pathlib.Path, learners: int) -> dict:
    """Learners on one GPU against learners on the CPU."""
    steps = 2 if machine.null else 10
    of_learners = [*setting(machine), "--strategy", "sma", "--learners", learners, "--steps", steps]
    found = []
    for device in ("cpu", "cuda"):
        row = machine.row(*of_learners, "--device", device, "--checkpoint", folder / device, limit=200)
        found.append((weights(folder / device), row))
    (expected, cpu), (average, gpu) = found
    far = distance(average, expected)
    figures = {
        "steps": steps, "distance": far, "bound": LEARNERS_CLOSE, "train_loss": gpu["train_loss"],
        "train_loss on the cpu": cpu["train_loss"], "images_per_s": gpu["images_per_s"], "command": gpu["command"],
    }
    if not far <= LEARNERS_CLOSE:
        raise Failed("average models differ", **figures)
    return figures


def resumed(machine: Machine, folder: pathlib.Path) -> dict:
    """A run that is killed after a checkpoint and resumes ends with the state of one that was left alone."""
    steps, every = (12, 2) if machine.null else (20_000, 500)
    base = [*setting(machine), "--steps", steps, "--device", "cuda"]
    whole = machine.row(*base, limit=200)
    shutil.rmtree(folder, ignore_errors=True)
    keeps = ["--checkpoint", folder, "--checkpoint-every", every]
    command = [machine.binary, "exec", "run", *base, *keeps]
    quiet = subprocess.DEVNULL
    job = subprocess.Popen([str(one) for one in command], env=machine.environment, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        ends = time.monotonic() + 120
        while not any(folder.glob("step-*.safetensors")) and job.poll() is None and time.monotonic() < ends:
            time.sleep(0.002)
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    done = [int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.safetensors")]
    if not done or max(done) >= steps:
        raise Failed(f"not killed in the middle: checkpoints after steps {done} of {steps}")
    row = machine.row(*base, *keeps, "--resume", folder, limit=200)
    figures = {
        "killed_after_checkpoint_of_step": max(done), "steps": steps, "command": row["command"],
        "state_sha256": [whole["state_sha256"], row["state_sha256"]],
    }
    if whole["state_sha256"] != row["state_sha256"]:
        raise Failed("states differ", **figures)
    return figures


def too_large(machine: Machine) -> dict:
    """A batch that no GPU holds is refused in one line that says how many samples would fit."""
    if machine.null:
        what, extra = ["--model", "lenet", "--data", "mnist", "--batch-per-rank", 2000], {"PRETEND_MEMORY_BYTES": str(64 << 20)}
    else:
        # 0.1 GB a sample.
        what, extra = ["--model", "resnet-50", "--data", "synthetic:4096", "--batch-per-rank", 4096], {}
    done = machine.run("exec", "run", *what, "--steps", 1, "--device", "cuda", limit=200, extra=extra)
    said = done.last_line()
    lines = [line for line in done.error.splitlines() if "memory" in line]
    figures = {"code": done.code, "said": said, "command": done.command}
    if done.code not in (1, 2) or len(lines) != 1 or "samples per rank fit" not in said or "panicked" in done.error:
        raise Failed("no single clear message", **figures, error=done.error[-2000:].splitlines())
    return figures
