"""Executes every notebook of this folder, or those named, from the first cell to the last; an error in any cell is an error here.

The executed copies, with their figures, go to out/notebooks/; the sources stay as they are and must hold no outputs.
"""

import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient

folder = pathlib.Path(__file__).resolve().parent
target = folder.parent / "out" / "notebooks"


def main():
    notebooks = sorted(folder.glob("*.ipynb"))
    if len(sys.argv) > 1:
        notebooks = [path for path in notebooks if path.stem in sys.argv[1:]]
    if not notebooks:
        sys.exit(f"{folder}: no such notebook")
    target.mkdir(parents=True, exist_ok=True)
    for path in notebooks:
        notebook = nbformat.read(path, as_version=4)
        if any(cell.get("outputs") for cell in notebook.cells):
            sys.exit(f"{path}: holds outputs; clear them before it is committed")
        began = time.monotonic()
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=600, resources=where, extra_arguments=["--log-level=ERROR"]).execute()
        nbformat.write(notebook, target / path.name)
        print(f"{path.name}: {len(notebook.cells)} cells in {time.monotonic() - began:.1f} s")


main()
