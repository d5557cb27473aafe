"""Names kinds of machines by what speeds and bits depend on: vector instructions and the processor."""

import pathlib
import re


def _cpuinfo():
    return pathlib.Path("/proc/cpuinfo").read_text()


def field(key):
    """The first value of a key of /proc/cpuinfo; `unknown` without one."""
    found = re.search(rf"^{key}\s*: (.*)$", _cpuinfo(), re.M)
    return found.group(1).strip() if found else "unknown"


def simd():
    """The widest vector instructions that the kernels use here: AVX-512, AVX2 or portable."""
    flags = set(field("flags").split())
    return "AVX-512" if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags else "AVX2" if "avx2" in flags else "portable"


def kind():
    """Vector instructions and processor as part of a file's name, e.g. avx2-authenticamd-23-1."""
    parts = [simd().replace("-", ""), *map(field, ["vendor_id", "cpu family", "model"])]
    return re.sub(r"[^a-z0-9-]+", "-", "-".join(parts).lower())
