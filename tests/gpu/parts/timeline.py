"""What a run's timeline says of a GPU's time: how long nothing was computed, and how fast what memory bounds went."""

import json
import math
import pathlib
import statistics

from machine import Failed, Machine

# Layers whose time is that of the bytes they move.
MOVES = {
    "batch_norm", "scale", "bias", "relu", "sigmoid", "tanh", "gelu", "silu", "exact_gelu", "relu6", "leaky_relu",
    "hard_sigmoid", "hard_swish", "affine", "square", "layer_norm", "group_norm", "global_response_norm", "product", "softmax",
    "select", "border", "blur_pool", "resize", "local_response_norm", "dropout", "max_pool", "average_pool",
    "global_pool", "add", "concat",
}
# An update of SGD with momentum reads weight, velocity and gradient and writes the first two, four bytes each.
UPDATE_BYTES = 20
# Iterations at the beginning that are left out, where there are more.
WARM_UP = 5


def account(machine: Machine, model: str, batch: int, device: str, trace: pathlib.Path, bandwidth: float | None) -> dict:
    """Of a run with `--trace`, whose events take time of their own: the step is somewhat longer than without."""
    steps = 3 if machine.null else 30
    row = machine.row(
        "--model", model, "--data", f"synthetic:{max(2 * batch, 4)}", "--batch-per-rank", batch, "--steps", steps, "--device", device,
        "--learning-rate", "0.000001", "--trace", trace, limit=120,
    )
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X" and event["tid"] == 0]
    first = min(WARM_UP, steps - 1)
    events = [event for event in events if event["args"]["iteration"] >= first]
    if not events:
        raise Failed("the trace has no task of the compute stream", command=row["command"])
    busy, whole = covered(events)
    figures = {
        "step_time_s": row["step_time_s"], "tasks": len(events), "idle_share": 1 - busy / whole if whole > 0 else math.nan,
        "command": row["command"],
    }
    layers = machine.run("models", "show", model, "--format", "json", limit=60).rows()
    kinds = rates(events, layers, batch, 2 if device == "cuda:bf16" else 4)
    figures["least_bytes_per_s"] = kinds
    if bandwidth:
        figures["share_of_copy_bandwidth"] = {kind: rate / bandwidth for kind, rate in kinds.items()}
    if machine.null:
        figures["said"] = "times of the pretend libraries mean nothing"
    return figures


def covered(events: list[dict]) -> tuple[float, float]:
    """Microseconds in which something was computed, and from the first beginning to the last end. Loads are no computation."""
    spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["cat"] != "load")
    busy, reached = 0.0, -math.inf
    for begin, end in spans:
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return (busy, reached - spans[0][0]) if spans else (0.0, 0.0)


def rates(events: list[dict], layers: list[dict], batch: int, scalar: int) -> dict[str, float]:
    """Bytes per second by what was done: the fewest bytes that the task must move (each input read once, each output written once)
    over its median time, the median over tasks. Forward passes of layers that memory bounds, and updates. `scalar` is the bytes of an
    activation."""
    by_name = {layer["layer"]: layer for layer in layers}
    times: dict[tuple[str, str], list[float]] = {}
    for event in joined(events, by_name):
        times.setdefault((event["cat"], event["name"]), []).append(event["dur"] / 1e6)
    found: dict[str, list[float]] = {}
    parameters = sum(layer["parameters"] for layer in layers)
    updates = [name for kind, name in times if kind == "update"]
    for (kind, name), durations in times.items():
        seconds = statistics.median(durations)
        if kind == "update" and len(updates) == 1:
            moved, what = UPDATE_BYTES * parameters, "update"
        elif kind == "forward":
            members = members_of(name, by_name)
            if None in members or any(member["kind"] not in MOVES for member in members):
                continue
            inside = {member["layer"] for member in members}
            sources = {source for member in members for source in member["inputs"]} - inside
            elements = sum(map(size, [by_name[source] for source in sources])) + size(members[-1])
            moved, what = scalar * batch * elements, "+".join(member["kind"] for member in members)
        else:
            continue
        if seconds > 0:
            found.setdefault(what, []).append(moved / seconds)
    return {what: statistics.median(values) for what, values in sorted(found.items())}


def joined(events: list[dict], by_name: dict[str, dict]) -> list[dict]:
    """The events, with those of a batch normalisation and of the addition behind it, which does the last of its work, as one."""
    readers: dict[str, int] = {}
    for layer in by_name.values():
        for source in layer["inputs"]:
            readers[source] = readers.get(source, 0) + 1
    found: list[dict] = []
    for event in sorted(events, key=lambda event: event["ts"]):
        last = found[-1] if found else None
        if last and last["cat"] == event["cat"] == "forward":
            before, behind = members_of(last["name"], by_name), members_of(event["name"], by_name)
            norm, add = before[0], behind[0]
            if (
                len(before) == 1 and norm and add and norm["kind"] == "batch_norm" and add["kind"] == "add"
                and len(add["inputs"]) == 2 and norm["layer"] in add["inputs"] and readers[norm["layer"]] == 1
            ):
                name = f"{last['name']}+{event['name'].removeprefix('forward ')}"
                found[-1] = {**last, "name": name, "dur": last["dur"] + event["dur"]}
                continue
        found.append(event)
    return found


def members_of(name: str, by_name: dict[str, dict]) -> list[dict | None]:
    """The layers of a forward task."""
    return [by_name.get(member) for member in name.removeprefix("forward ").split("+")]


def size(layer: dict) -> int:
    """Elements of a layer's output for one sample."""
    return math.prod(int(one) for one in layer["output"].split("×"))
