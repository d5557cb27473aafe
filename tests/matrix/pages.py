"""Makes the matrix's page: its rows as charts and a table that filters and sorts, with the style and scripts of `--html` (docs/pages.md)."""

import html
import json
import pathlib

from factors import FACTORS

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "models" / "report" / "page"

COLUMNS = {
    "machine": "The kind of machine: the name of its file in tests/matrix/measured.",
    "number": "Number of the configuration in tests/matrix/drawn.jsonl.",
    **{factor: f"Factor of the matrix: {factor}." for factor in FACTORS},
    "batch_per_rank": "Samples of each rank and micro-batch; 16 where empty.",
    "ranks_share_cores": "Whether ranks outnumber the machine's cores, and communication does not bound them.",
    "predicted_s": "Predicted time of a step, or of a collective alone.",
    "measured_s": "Measured time: the median.",
    "measured_p10_s": "10th percentile of the measured times.",
    "measured_p90_s": "90th percentile of the measured times.",
    "error_pct": "predicted / measured - 1, in percent.",
    "cores": "Cores of the machine.",
    "cpu": "The machine's CPU.",
    "date": "When the row was measured.",
}


# Axes and charts, as the module `chart` of lockstep-report describes them.
MEASURED = {"column": "measured_s", "name": "measured time", "unit": "milliseconds", "factor": 1e3, "log": True}
ERROR = {"column": "error_pct", "name": "error of the prediction", "unit": "percent", "factor": 1.0, "log": False}
COUNT = {"column": "error_pct", "name": "number of rows", "unit": "", "factor": 1.0, "log": False}
ERRORS = {"title": "Errors of predictions", "kind": "histogram", "x": ERROR, "y": COUNT, "lines": [["error", "error_pct"]], "by": None}


def chart(by):
    """The error by measured time, with a look for each value of a factor."""
    return {"title": f"Error by measured time, for each {by}", "kind": "cloud", "x": MEASURED, "y": ERROR, "lines": [["predicted", "error_pct"]], "by": by}


def text(rows, notes):
    """The page of these rows, as HTML."""
    content = {
        "title": "lockstep: predicted and measured, the validation matrix",
        "columns": [{"name": name, "about": about} for name, about in COLUMNS.items()],
        "rows": [[row.get(name) for name in COLUMNS] for row in rows],
        "settings": ["cores", "cpu"],
        "factors": ["machine", *FACTORS, "ranks_share_cores"],
        "notes": notes,
        "charts": [ERRORS, chart("load"), chart("place"), chart("algorithm"), chart("strategy")],
        "timelines": [],
    }
    read = lambda name: (PAGE / name).read_text()
    # No text in the content may close the element that holds it.
    held = json.dumps(content).replace("<", "\\u003c")
    scripts = "".join(f"<script>{read(name)}</script>\n" for name in ("chart.js", "zoom.js", "looks.js", "page.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{html.escape(content["title"])}</title>\n<style>\n{read("page.css")}</style></head>\n<body><main id="page"></main>\n'
        f'<script id="report" type="application/json">{held}</script>\n{scripts}</body></html>\n'
    )
