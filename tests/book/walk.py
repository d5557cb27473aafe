#!/usr/bin/env python3
"""Types the walks of docs/tutorial.md that add code in a copy of the last commit, and fails where a command does: `python3 tests/book/walk.py FOLDER`.

FOLDER is recreated; programs are built in FOLDER-target, which is kept.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

WALKS = ["Add an algorithm", "Add a strategy"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    copy = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x"], cwd=copy, check=True, input=archive)
    # `target` is where the walk's commands look for the program.
    (copy / "target").symlink_to(f"{copy}-target")
    pathlib.Path(f"{copy}-target").mkdir(exist_ok=True)
    page = (copy / "docs" / "tutorial.md").read_text()
    began, blocks = time.monotonic(), []
    for name in WALKS:
        walk = page.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]
        path, code = re.search(r"`((?:topology|models)/src/\S+)`:\n\n```rust\n(.*?)```", walk, re.DOTALL).groups()
        (copy / path).write_text(code)
        blocks += re.findall(r"```sh\n(.*?)```", walk, re.DOTALL)
    for block in blocks:
        print(f"$ {block}", flush=True)
        subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=copy, check=True, env={**os.environ, "RUSTFLAGS": "-D warnings"})
    print(f"{len(blocks)} steps in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
