"""Executes every notebook of this folder, or those named, from the first cell to the last; an error in any cell is an error here.

    .venv/bin/python notebooks/execute.py            executed copies go to out/notebooks
    .venv/bin/python notebooks/execute.py --write    the notebooks themselves get the outputs, as they are committed

Without --write the notebooks stay as they are: their outputs must be of the code that they hold, and texts that follow from
predictions and committed results alone must be those of this run.
"""

import argparse
import base64
import hashlib
import io
import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient
from PIL import Image

folder = pathlib.Path(__file__).resolve().parent
target = folder.parent / "out" / "notebooks"
# Times of the machine that executes it.
MEASURED = {"quickstart"}
# Numbers of colours that a committed picture may have: the first with which it keeps those of its series.
PALETTES = 48, 96, 192, 256
# Pixels of a colour that is a series', and how far each of its three parts may move.
PIXELS, MOVED = 40, 16


def code(notebook):
    """A hash of all cells' sources, and of the module that draws."""
    texts = [cell.source for cell in notebook.cells] + [(folder / "figures.py").read_text()]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def texts(notebook):
    """The texts among the outputs."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.get("data", {}) for output in outputs]
    return [output["text"] for output in outputs if "text" in output] + [data["text/markdown"] for data in shown if "text/markdown" in data]


def reduced(picture):
    """The picture with few colours, where no colour that a series may have becomes another's."""
    width, raw = picture.width, picture.tobytes()
    pixels = list(zip(raw[0::3], raw[1::3], raw[2::3]))
    often = {colour for count, colour in picture.getcolors(len(pixels)) if count >= PIXELS}
    places = {colour: at for at, colour in enumerate(pixels) if colour in often}
    for colours in PALETTES:
        small = picture.quantize(colours)
        found = small.convert("RGB")
        moved = [max(abs(a - b) for a, b in zip(colour, found.getpixel((at % width, at // width)))) for colour, at in places.items()]
        if max(moved, default=0) <= MOVED:
            return small
    return picture


def smaller(notebook):
    """Pictures with few colours, and no times of execution."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                picture = Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"]))).convert("RGB")
                small = io.BytesIO()
                reduced(picture).save(small, "png", optimize=True)
                output["data"]["image/png"] = base64.b64encode(small.getvalue()).decode()


def stale(held, executed, name):
    """Why the outputs that a notebook holds are not of its code; None: they are."""
    if held.metadata.get("lockstep", {}).get("code_sha256") != code(held):
        return "was changed after its outputs were written"
    if name not in MEASURED and texts(held) != texts(executed):
        return "holds outputs of other predictions or results"
    return None


def main():
    flags = argparse.ArgumentParser(description="Executes the notebooks.")
    flags.add_argument("names", nargs="*", help="notebooks to execute; all without names")
    flags.add_argument("--write", action="store_true", help="write the outputs into the notebooks")
    flags = flags.parse_args()
    notebooks = [path for path in sorted(folder.glob("*.ipynb")) if not flags.names or path.stem in flags.names]
    if not notebooks:
        sys.exit(f"{folder}: no such notebook")
    target.mkdir(parents=True, exist_ok=True)
    wrong = []
    for path in notebooks:
        notebook, held = (nbformat.read(path, as_version=4) for _ in range(2))
        began = time.monotonic()
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=600, resources=where, extra_arguments=["--log-level=ERROR"]).execute()
        smaller(notebook)
        notebook.metadata["lockstep"] = {"code_sha256": code(notebook)}
        nbformat.write(notebook, path if flags.write else target / path.name)
        print(f"{path.name}: {len(notebook.cells)} cells in {time.monotonic() - began:.1f} s")
        reason = None if flags.write else stale(held, notebook, path.stem)
        if reason:
            wrong.append(f"{path.name} {reason}: .venv/bin/python notebooks/execute.py --write {path.stem}")
    sys.exit("\n".join(wrong) or 0)


main()
