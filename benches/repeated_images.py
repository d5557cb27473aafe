"""Links the images of a folder of classes again and again into another folder, until they take enough bytes:
benches/repeated_images.py IMAGES TO GB."""

import itertools
import os
import pathlib
import sys

images, many, size = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]) * 1e9
files = sorted(images.glob("*/*"))
for number, file in enumerate(itertools.cycle(files)):
    if size <= 0:
        break
    (many / file.parent.name).mkdir(parents=True, exist_ok=True)
    os.link(file, many / file.parent.name / f"{number:07}{file.suffix}")
    size -= file.stat().st_size
