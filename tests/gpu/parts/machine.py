"""The machine that is measured: its GPU, where its libraries are, and how the binary is run on it."""

import ctypes
import dataclasses
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time

BIN = pathlib.Path("tests/gpu/bin")
# The bindings look for NCCL and others by names that the wheels do not have.
UNVERSIONED = ("libcuda", "libnvrtc", "libcublas", "libcublasLt", "libcudnn", "libnccl")


class Skipped(Exception):
    """What a machine lacks, or what the binary cannot do yet."""


class Failed(Exception):
    """What is wrong, with the figures that show it."""

    def __init__(self, why: str, **figures):
        super().__init__(why)
        self.figures = figures


@dataclasses.dataclass
class Outcome:
    """How a command ended."""

    command: str
    code: int
    out: str
    error: str
    seconds: float

    def rows(self) -> list[dict]:
        """The rows of `--format json`."""
        return json.loads(self.out)["rows"]

    def last_line(self) -> str:
        lines = self.error.strip().splitlines()
        return lines[-1] if lines else ""


def wheel_folders() -> list[pathlib.Path]:
    """The folders of libraries in NVIDIA's Python packages, which PyTorch brings along."""
    found = importlib.util.find_spec("nvidia")
    places = [pathlib.Path(place) for place in (found.submodule_search_locations if found else [])]
    return sorted(folder for place in places for folder in place.glob("*/lib") if folder.is_dir())


def linked(folders: list[pathlib.Path], into: pathlib.Path) -> pathlib.Path:
    """A folder of links by names without a version to what `folders` hold."""
    into.mkdir(parents=True, exist_ok=True)
    for name in UNVERSIONED:
        of_name = [path for folder in folders for path in sorted(folder.glob(f"{name}.so.*"))]
        link = into / f"{name}.so"
        if of_name and not link.exists():
            link.symlink_to(of_name[0].resolve())
    return into


@dataclasses.dataclass
class Machine:
    """A GPU, or the pretence of one."""

    null: bool
    binary: pathlib.Path
    environment: dict[str, str]
    device: str = "no device"
    driver: str = "no driver"
    torch: str | None = None
    commit: str = "unknown"
    binary_sha256: str = ""
    checks: list[dict] = dataclasses.field(default_factory=list)

    @staticmethod
    def find(null: bool, binary: pathlib.Path | None, work: pathlib.Path) -> "Machine":
        """The machine as `exec devices` sees it; ends the process, with what is missing, where it has no GPU."""
        binary = binary or (pathlib.Path("target/debug/lockstep") if null else BIN / "lockstep")
        if not binary.is_file():
            cure = "cargo build" if null else "bash tests/gpu/run build, where Rust is, and bring tests/gpu/bin along"
            sys.exit(f"{binary} is not there: {cure}")
        folders = [pathlib.Path("target/tmp/pretend").resolve()] if null else wheel_folders()
        names = [linked(folders, work / "names"), *folders]
        before = os.environ.get("LD_LIBRARY_PATH", "")
        path = ":".join([*map(str, names), *([before] if before else [])])
        environment = {**os.environ, "LD_LIBRARY_PATH": path, "LOCKSTEP_CACHE": str(work / "cache"), "RUST_BACKTRACE": "0"}
        if null:
            environment["PRETEND_SEED"] = environment.get("PRETEND_SEED", "2017")
        machine = Machine(null, binary.resolve(), environment)
        seen = machine.run("exec", "devices", "--format", "json", limit=120)
        if seen.code != 0:
            sys.exit(f"{seen.command}: {seen.last_line()}")
        machine.checks = seen.rows()
        gpus = [row["found"] for row in machine.checks if row["check"].startswith("cuda gpu") and row["status"] == "ok"]
        if not gpus:
            lacks = [f"{row['check']}: {row['found']}" for row in machine.checks if row["status"] != "ok"]
            sys.exit("this machine has no GPU that can be used:\n  " + "\n  ".join(lacks))
        machine.device = "; ".join(gpus)
        if machine.device.startswith("Pretend") and not null:
            sys.exit("these are the pretend libraries, on which nothing can be measured: say --null, or clear LD_LIBRARY_PATH")
        machine.driver = driver(environment["LD_LIBRARY_PATH"], null)
        machine.torch = None if null else torch_version()
        machine.binary_sha256 = hashlib.sha256(binary.read_bytes()).hexdigest()
        machine.commit = commit(null)
        return machine

    def identity(self) -> dict:
        """What a result file says of it."""
        libraries = {row["check"]: row["found"] for row in self.checks if row["check"].startswith("cuda ")}
        return {
            "device": self.device, "driver": self.driver, "torch": self.torch, "commit": self.commit,
            "binary_sha256": self.binary_sha256, "host": f"{platform.platform()}, {os.cpu_count()} cores",
            "libraries": libraries,
        }

    def run(self, *arguments, limit: float, program: pathlib.Path | None = None, extra: dict | None = None) -> Outcome:
        """Runs the binary, or another program, for `limit` seconds at most. 124 is the code of one that took longer."""
        command = [str(program or self.binary), *map(str, arguments)]
        return run(command, {**self.environment, **(extra or {})}, limit)

    def row(self, *arguments, limit: float, extra: dict | None = None) -> dict:
        """The one row of a training run, with its `command`; fails where the run does."""
        done = self.run("exec", "run", *arguments, "--format", "json", limit=limit, extra=extra)
        if done.code != 0:
            raise Failed(f"exit code {done.code}: {done.last_line()}", command=done.command)
        return {**done.rows()[0], "command": done.command, "seconds": done.seconds}

    def has(self, *words: str) -> bool:
        """Whether the binary knows this command."""
        return self.run(*words, "--help", limit=60).code == 0

    def need_torch(self) -> None:
        """Skips where there is no PyTorch that sees the GPU."""
        if self.null:
            raise Skipped("a rehearsal needs no PyTorch: its figures are left out")
        if self.torch is None:
            raise Skipped(f"{sys.executable} has no PyTorch that sees a GPU")


def run(command: list[str], environment: dict, limit: float) -> Outcome:
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
        code, out, error = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, error = 124, "", f"{decoded(late.stderr)}\nno end after {limit:.0f} s"
    return Outcome(shlex.join(["lockstep", *command[1:]]), code, out, error, time.monotonic() - began)


def decoded(text) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text or ""


def driver(path: str, null: bool) -> str:
    """The driver's CUDA version as it says itself, and its own where the system tells."""
    version = ctypes.c_int(0)
    for folder in [*path.split(":"), "", "/usr/local/nvidia/lib64"]:
        try:
            library = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"))
        except OSError:
            continue
        library.cuDriverGetVersion(ctypes.byref(version))
        break
    said = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if null:
        return f"pretend driver, {said}"
    try:
        first = pathlib.Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        return f"{said}; {first}"
    except OSError:
        return said


def torch_version() -> str | None:
    """PyTorch's version where it sees a GPU. It is asked in a process of its own, which leaves no context on the device."""
    asked = "import torch; print(torch.__version__ if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    return done.stdout.strip() or None


def commit(null: bool) -> str:
    """Of what the binary was built from."""
    if not null:
        try:
            return (BIN / "commit").read_text().strip()
        except OSError:
            return "unknown"
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
