"""A part's result file: what was run where, and a case each for what was found.

The file is written after each case, whole or not at all. A case that passed with the same commit, device and binary is not run again,
so a part that was interrupted, or whose time ended, continues when it is called once more. Where times are not what is asked, cases
run side by side.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import threading
import time
import traceback
from collections.abc import Callable

from machine import Failed, Machine, Skipped

# What a case need not be run again for. `left`: time ended before it began.
KEPT = ("passed", "measured")
LEFT = "time ended: call the same command again"


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Result:
    """The cases of one part."""

    def __init__(self, path: pathlib.Path, head: dict, only: str, seconds: float, at_once: int):
        self.path, self.head, self.only = path, head, only
        self.began, self.seconds = time.monotonic(), seconds
        self.cases: list[dict] = []
        self.before: dict[str, dict] = {}
        self.lock = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(at_once) if at_once > 1 else None
        self.running: list[concurrent.futures.Future] = []

    @staticmethod
    def begin(
        folder, part: str, machine: Machine, seed: int, command: str, only: str, seconds: float, at_once: int = 1
    ) -> "Result":
        """`at_once`: how many cases run side by side."""
        head = {"version": 1, "part": part, "null": machine.null, **machine.identity(), "seed": seed, "command": command}
        result = Result(folder / f"{part}.json", head, only, seconds, at_once)
        result.before = result.kept()
        return result

    def kept(self) -> dict[str, dict]:
        """Cases of an earlier call that need not be run again, by name."""
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        same = ("version", "null", "commit", "device", "driver", "torch", "binary_sha256")
        if any(found.get(key) != self.head[key] for key in same):
            return {}
        # With --only the other cases stay as they are.
        return {case["name"]: case for case in found["cases"] if case["status"] in KEPT or self.only not in case["name"]}

    def left_s(self) -> float:
        """Seconds until no further case begins."""
        return self.began + self.seconds - time.monotonic()

    def case(self, name: str, play: Callable[[], dict], kind: str = "passed", needs_s: float = 0.0) -> None:
        """Runs a case: `play` returns its figures, raises `Failed` with what is wrong, or `Skipped` with the reason. It is not
        begun where fewer than `needs_s` seconds are left. `kind` is `measured` where nothing can be wrong with figures."""
        if name in self.before:
            case = self.before.pop(name)
            print(f"   kept  {name}: {case['status']}, {case['date']}", flush=True)
            self.cases.append(case)
            return
        if self.only not in name:
            return
        case = {"name": name, "status": "left", "seed": self.head["seed"], "date": now(), "why": LEFT, "seconds": 0.0}
        self.cases.append(case)
        if self.pool is None:
            self.play(case, play, kind, needs_s)
        else:
            self.running.append(self.pool.submit(self.play, case, play, kind, needs_s))

    def play(self, case: dict, play: Callable[[], dict], kind: str, needs_s: float) -> None:
        """Fills in the case."""
        began = time.monotonic()
        found: dict = {"status": kind, "date": now()}
        if self.left_s() < needs_s:
            found = {}
        else:
            try:
                found["figures"] = play()
            except Skipped as skipped:
                found.update(status="skipped", why=str(skipped))
            except Failed as failed:
                found.update(status="failed", why=str(failed), figures=failed.figures)
            except Exception as error:  # noqa: BLE001  whatever goes wrong in one case, the others are run
                traceback.print_exc()
                found.update(status="failed", why=f"{type(error).__name__}: {error}")
        with self.lock:
            if found:
                case.pop("why")
                case.update(found)
            case["seconds"] = round(time.monotonic() - began, 3)
            self.save()
            say(case)

    def end(self) -> None:
        """Waits for what runs. Cases that were kept and that this call did not come to stay in the file."""
        concurrent.futures.wait(self.running)
        self.cases.extend(self.before.values())
        self.before = {}
        self.save()

    def save(self) -> None:
        cases = [*self.cases, *self.before.values()]
        head = {**self.head, "date": now(), "passed": self.passed(), "complete": self.complete()}
        text = json.dumps({**head, "cases": cases}, indent=1) + "\n"
        partial = self.path.with_suffix(".json.tmp")
        partial.write_text(text)
        os.replace(partial, self.path)

    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(case["status"] != "failed" for case in self.cases)

    def complete(self) -> bool:
        """Whether time was enough for all cases."""
        return all(case["status"] != "left" for case in self.cases)

    def summary(self) -> str:
        counts = {}
        for case in self.cases:
            counts[case["status"]] = counts.get(case["status"], 0) + 1
        words = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no case"
        null = " (a rehearsal, no measurement)" if self.head["null"] else ""
        return f"{self.head['part']}: {words}; {self.path}{null}"


def say(case: dict) -> None:
    """A line for a case, louder where it did not pass."""
    mark = {"passed": "ok", "measured": "ok", "skipped": "SKIPPED", "failed": "FAILED", "left": "LEFT"}[case["status"]]
    why = f": {case['why']}" if "why" in case else ""
    print(f"{mark:>7}  {case['name']} ({case['seconds']:.1f} s){why}", flush=True)
    shown = {key: value for key, value in (case.get("figures") or {}).items() if not isinstance(value, (list, dict))}
    if shown:
        words = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items())
        print("         " + ", ".join(words), flush=True)
