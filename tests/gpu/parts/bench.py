"""The part `bench`: training steps beside PyTorch's on the same GPU in the same minutes, and what a timeline says of the GPU's time."""

import concurrent.futures
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time
from functools import partial

import timeline
from machine import BIN, Failed, Machine, Skipped
from result import Result

REPETITIONS = 3
# Seconds of one measurement.
SECONDS = 1.5
# Processes of PyTorch that compile side by side.
COMPILERS = 6
# PyTorch's ways; the best of them is what a ratio is of.
WAYS = ("nchw", "channels-last", "compiled", "compiled-graphs")
CASES = [
    ("resnet-50", batch, device, []) for batch in (64, 256, 32) for device in ("cuda:tf32", "cuda:bf16")
] + [
    ("resnet-32", 64, device, ["--strategy", "sma", "--learners", "auto"]) for device in ("cuda:tf32", "cuda:bf16")
] + [
    ("lenet", 16, device, ["--strategy", "sma", "--learners", "auto"]) for device in ("cuda:tf32", "cuda:bf16")
]
NULL_CASES = [("lenet", 2, "cuda:tf32", []), ("lenet", 2, "cuda:tf32", ["--strategy", "sma", "--learners", "auto"])]


def run(machine: Machine, result: Result, work: pathlib.Path) -> None:
    bandwidth = {}

    def copies() -> dict:
        bandwidth.update(measured_bandwidth(machine))
        return bandwidth

    result.case("PyTorch compiles what is timed", partial(compiled, machine), "measured", needs_s=100)
    result.case("copy bandwidth", copies, "measured")
    for model, batch, device, how in NULL_CASES if machine.null else CASES:
        learners = ", --learners auto" if how else ""
        name = f"{model} x {batch}, {device}{learners}"
        result.case(name, partial(beside, machine, model, batch, device, how), "measured", needs_s=100)
        if not how:
            def play():
                known = bandwidth.get("bytes_per_s") or kept_bandwidth(result)
                return timeline.account(machine, model, batch, device, work / "trace.json", known)

            result.case(f"timeline of {name}", play, "measured", needs_s=20)


def compiled(machine: Machine) -> dict:
    """Fills PyTorch's cache of compiled networks, so that each case's process loads its own in seconds."""
    machine.need_torch()
    wanted = list(dict.fromkeys((model, batch, device.removeprefix("cuda:")) for model, batch, device, _ in CASES))

    def play(network: tuple) -> dict:
        failed = {}
        with Yardstick(machine, *network) as yardstick:
            for way in WAYS:
                if way.startswith("compiled"):
                    try:
                        yardstick.ask(way, 0.0)
                    except Failed as one:
                        failed[way] = str(one)
        return failed

    with concurrent.futures.ThreadPoolExecutor(COMPILERS) as pool:
        outcomes = list(pool.map(play, wanted))
    failed = {" x ".join(map(str, network)): one for network, one in zip(wanted, outcomes) if one}
    return {"networks": len(wanted), "failed": failed}


def kept_bandwidth(result: Result) -> float | None:
    """That of an earlier call of the same machine."""
    found = [case["figures"] for case in result.cases if case["name"] == "copy bandwidth" and case["status"] == "measured"]
    return found[0].get("bytes_per_s") if found else None


def measured_bandwidth(machine: Machine) -> dict:
    """Of copies inside the GPU's memory, bytes read and written."""
    machine.need_torch()
    with Yardstick(machine, "lenet", 16, "tf32") as yardstick:
        return {"bytes_per_s": yardstick.ask("copy", 0.0), "counted": "bytes read and bytes written"}


def beside(machine: Machine, model: str, batch: int, device: str, how: list) -> dict:
    """Images per second of ours and of each of PyTorch's ways: medians of alternating repetitions."""
    repetitions = 1 if machine.null else REPETITIONS
    rates: dict[str, list[float]] = {"lockstep": []}
    failed: dict[str, str] = {}
    learners, command = learners_of(machine, model, batch, device, how)
    began = time.monotonic()

    def progress(way: str, rate) -> None:
        """A case takes minutes: what has been measured is seen where it is cut off."""
        print(f"         {time.monotonic() - began:6.1f} s  {way}: {rate}", flush=True)

    with contextlib.ExitStack() as stack:
        yardstick = None
        if machine.torch is not None:
            yardstick = stack.enter_context(Yardstick(machine, model, batch, device.removeprefix("cuda:")))
        for _ in range(repetitions):
            for way in WAYS if yardstick else ():
                if way in failed:
                    continue
                try:
                    rates.setdefault(way, []).append(yardstick.ask(way, SECONDS))
                    progress(way, rates[way][-1])
                except Failed as one:
                    failed[way] = str(one)
                    progress(way, one)
            last = rates["lockstep"][-1] if rates["lockstep"] else None
            steps = 3 if machine.null else 30 if last is None else max(30, int(SECONDS * last / batch / learners))
            row = machine.row(*training(model, batch, device, learners), "--steps", steps, limit=120)
            rates["lockstep"].append(row["images_per_s"])
            progress("lockstep", rates["lockstep"][-1])
    try:
        how = [*training(model, batch, device, learners), "--steps", steps]
        first = machine.row(*how, limit=120, extra={"LOCKSTEP_CHANNELS": "first"})["images_per_s"]
    except Failed as one:
        first = str(one)
    medians = {way: statistics.median(values) for way, values in rates.items()}
    theirs = {way: rate for way, rate in medians.items() if way != "lockstep"}
    figures = {
        "images_per_s": medians["lockstep"], "learners": learners, "repetitions": repetitions, "rates": rates, "medians": medians,
        "images_per_s with channels first, once": first,
        "ways_that_failed": failed, "command": command or row["command"],
    }
    if theirs:
        best = max(theirs, key=theirs.get)
        figures.update({"pytorch_images_per_s": theirs[best], "pytorch_way": best, "ratio": medians["lockstep"] / theirs[best]})
    else:
        figures["pytorch"] = "no PyTorch: a rehearsal leaves it out" if machine.null else "no PyTorch that sees the GPU"
    return figures


def training(model: str, batch: int, device: str, learners: int) -> list:
    """A run of `learners` learners on the GPU; the rate is too small to change anything that could overflow."""
    several = [] if learners == 1 else ["--strategy", "sma", "--learners", learners]
    return [
        "--model", model, "--data", f"synthetic:{max(2 * batch * learners, 4)}", "--batch-per-rank", batch, *several, "--device", device,
        "--learning-rate", "0.000001", "--momentum", 0.9, "--weight-decay", 0.0001,
    ]


def learners_of(machine: Machine, model: str, batch: int, device: str, how: list) -> tuple[int, str | None]:
    """How many learners the tuner settles on, and the command that asked it; one where none is asked for."""
    if not how:
        return 1, None
    data, steps = ("synthetic:64", 12) if machine.null else ("synthetic:4096", 400)
    what = ["--model", model, "--data", data, "--batch-per-rank", batch, *how, "--device", device, "--steps", steps]
    row = machine.row(*what, limit=200)
    return int(row["learners"]), row["command"]


class Yardstick:
    """PyTorch in a process of its own, which keeps what it compiled (`yardstick.py`)."""

    def __init__(self, machine: Machine, model: str, batch: int, precision: str):
        server = BIN / "kernel_server"
        if not server.is_file():
            raise Skipped(f"{server} is not there: it tells PyTorch what a model is")
        script = pathlib.Path(__file__).resolve().parent / "yardstick.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(server.resolve()), model, str(batch), precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=machine.environment,
        )

    def __enter__(self) -> "Yardstick":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, way: str, seconds: float) -> float:
        """Images per second of a way, or with `copy` bytes per second."""
        try:
            self.process.stdin.write(f"{way} {seconds}\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "{}")
        except (OSError, ValueError) as error:
            raise Failed(f"{way}: {error}") from error
        if "rate" not in answer:
            raise Failed(answer.get("error", f"{way}: PyTorch ended"))
        return answer["rate"]
