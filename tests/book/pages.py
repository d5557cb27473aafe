"""A hook of MkDocs: brings pages from outside `docs` into the book, with every file that a page links to, and points links at them.

The pages are written for a forge, where links are paths in the repository. In the book, a file outside `docs` is below `repository/`; a link to
a folder becomes its text.
"""

import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "tests/gpu/README.md", "tests/gpu/pretend/README.md"]
LINK = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^( *```.*?^ *```[^\n]*$)", re.MULTILINE | re.DOTALL)


def in_book(path):
    """The address in the book of a file of the repository, both as paths from the root."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def in_repository(uri):
    """The reverse of `in_book`."""
    return uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"


def targets(path):
    """Files of the repository, outside of `docs`, that the page at `path` links to."""
    for part in FENCE.split((ROOT / path).read_text())[::2]:
        for _, _, link in LINK.findall(part):
            target = os.path.normpath(os.path.join(os.path.dirname(path), link.partition("#")[0]))
            if ":" not in link and not link.startswith("#") and not target.startswith("docs/") and (ROOT / target).is_file():
                yield target


def on_files(files, config):
    """Adds the pages, and the files that pages link to."""
    pages = PAGES + [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in sorted({*PAGES, *(target for page in pages for target in targets(page))}):
        files.append(File.generated(config, in_book(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Points links of a page at addresses in the book."""
    path = in_repository(page.file.src_uri)

    def moved(match):
        image, text, link = match.groups()
        if ":" in link or link.startswith("#"):
            return match.group(0)
        name, mark, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if (ROOT / target).is_dir():
            return text
        return f"{image}[{text}]({os.path.relpath(in_book(target), os.path.dirname(page.file.src_uri))}{mark}{anchor})"

    parts = FENCE.split(markdown)
    return "".join(part if at % 2 else LINK.sub(moved, part) for at, part in enumerate(parts))
