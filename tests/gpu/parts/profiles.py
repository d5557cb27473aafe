"""The part `profile`: what a profile of the GPU's single layers predicts for whole steps, beside those steps."""

import json
import pathlib

from machine import Failed, Machine, Skipped
from result import Result

# Model, batches of the profile, batches between them that it does not know, numbers of learners on the GPU.
GRID = [
    ("lenet", (16, 64, 256), (32, 128), (1, 2, 4)), ("resnet-32", (16, 64, 256), (32, 128), (1, 2, 4)),
    ("vgg-16", (16, 64), (32,), (1, 2)), ("resnet-50", (16, 64, 256), (32, 128), (1, 2)),
]
NULL_GRID = [("lenet", (2, 4), (3,), (1,))]
DEVICES = ("cuda:tf32", "cuda:bf16")


def run(machine: Machine, result: Result, work: pathlib.Path) -> None:
    for device in DEVICES[:1] if machine.null else DEVICES:
        for model, batches, between, learners in NULL_GRID if machine.null else GRID:
            profile = work / f"{model}-{device}.json".replace(":", "-")
            name = f"{model}, {device}"

            def layers():
                return measured(machine, model, batches, learners, device, profile)

            result.case(f"profile of {name}", layers, "measured", needs_s=60)
            for count in learners:
                def play(count=count):
                    if not profile.is_file():
                        restore(result, f"profile of {name}", profile)
                    return compared(machine, model, (batches, between), count, device, profile)

                result.case(f"predicted and measured: {name}, {count} learner(s)", play, "measured", needs_s=30)


def measured(machine: Machine, model: str, batches: tuple, learners: tuple, device: str, profile: pathlib.Path) -> dict:
    """Writes the profile of a model's layers, and of what learners that share the GPU cost each other."""
    if not machine.has("exec", "profile"):
        raise Skipped("this binary has no `exec profile`")
    sizes, shared = (",".join(map(str, numbers)) for numbers in (batches, learners))
    steps = ["--steps", 2, "--patience", 0.1] if machine.null else []
    done = machine.run(
        "exec", "profile", "--model", model, "--device", device, "--batch-per-rank", sizes, "--learners", shared, *steps, "-o", profile,
        limit=300,
    )
    if done.code != 0 or not profile.is_file():
        raise Failed(f"exit code {done.code}: {done.last_line()}", command=done.command)
    return {"seconds": done.seconds, "command": done.command, "profile": json.loads(profile.read_text())}


def restore(result: Result, name: str, profile: pathlib.Path) -> None:
    """Writes the profile that a case has left in the result file, in this call or an earlier one."""
    found = [case["figures"]["profile"] for case in result.cases if case["name"] == name and case["status"] == "measured"]
    if not found:
        raise Skipped(f"there is no {name}")
    profile.write_text(json.dumps(found[0]))


def compared(machine: Machine, model: str, batches: tuple, learners: int, device: str, profile: pathlib.Path) -> dict:
    """Predicted and measured step times of one number of learners, a row a batch: those of the profile, and those between."""
    known, between = batches
    experiment = profile.with_suffix(".toml")
    experiment.write_text(written(machine, model, tuple(sorted(known + between)), learners, device))
    done = machine.run("compare", experiment, "--profile", profile, "--format", "json", limit=300)
    if done.code != 0:
        raise Failed(f"exit code {done.code}: {done.last_line()}", command=done.command)
    keys = ("batch_per_rank", "learners", "predicted_step_time_s", "step_time_s", "error_pct")
    rows = [{key: row.get(key) for key in keys} for row in done.rows()]
    figures: dict = {}
    for name, own in (("", known + between), (" of batches that were not profiled", between)):
        errors = [abs(row["error_pct"]) for row in rows if row["batch_per_rank"] in own]
        figures |= {f"mean_error_pct{name}": sum(errors) / len(errors), f"worst_error_pct{name}": max(errors)}
    return figures | {"rows": rows, "command": done.command}


def written(machine: Machine, model: str, batches: tuple, learners: int, device: str) -> str:
    """The experiment; its rate changes next to nothing, so that no loss overflows."""
    several = f'strategy = "sma"\nlearners = {learners}\n' if learners > 1 else ""
    return (
        f'name = "{model}-{learners}"\nmodel = "{model}"\ndata = "synthetic:{max(2 * max(batches) * learners, 4)}"\ncluster = "this-machine"\nranks = [1]\n'
        f'batch_per_rank = {list(batches)}\ndevice = "{device}"\nsteps = {3 if machine.null else 60}\n{several}'
        "[optimizer]\nlearning_rate = 0.000001\nmomentum = 0.9\n"
    )
