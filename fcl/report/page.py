"""The HTML page: one file without external requests, in which names cannot become code.

jinja2 escapes all text. The numbers of sortable tables are JSON, in which ``<``, ``>``, ``&`` and quotes
are escaped. The page's policy (CSP) allows no script but its own, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fcl.plain import plain
from fcl.report.contract import Section, Table
from fcl.report.figures import themed
from fcl.units import format_gap, format_share

#: Characters from which on a text is long.
LONG_TEXT = 14


def render(title: str, sections: Sequence[Section], note: str = "") -> str:
    """The page as HTML; the first section answers what the page is about, below title and note.

    All texts are foreign; the pictures come from :mod:`fcl.report.figures`.
    """
    from jinja2 import Environment, StrictUndefined
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = _read("page.js")

    def drawn(panel: str) -> Markup:
        return Markup(themed(panel))

    def island(table: Table) -> Any:
        # escapes of letters beyond ASCII would take up to 12 bytes each
        values = plain({"head": table.head, "rows": table.rows})
        return htmlsafe_json_dumps(values, ensure_ascii=False)

    template = environment.from_string(_read("page.html.j2"))
    return template.render(
        title=title,
        note=note,
        sections=sections,
        style=Markup(_read("page.css")),
        script=Markup(script),
        script_hash=_sha256(f"\n{script}\n"),
        drawn=drawn,
        island=island,
        cell=cell,
        is_text=lambda value: isinstance(value, str),
        kind=_kind,
    )


def _read(name: str) -> str:
    return files("fcl.report").joinpath("templates", name).read_text(encoding="utf-8").rstrip("\n")


def _sha256(script: str) -> str:
    """The hash of a script, as content security policies give it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _kind(value: Any) -> str:
    """The class of a cell: long texts need room where the page is narrow."""
    if not isinstance(value, str):
        return "number"
    return "text" if len(value) > LONG_TEXT else "word"


#: Gaps below this are 0 to a reader.
LEAST_GAP = 1e-12


def _gap(gap: float) -> str:
    return format_gap(0.0 if abs(gap) < LEAST_GAP else gap)


#: Columns whose numbers have a form of their own.
FORMATS = {"gap": _gap, "share of the score": format_share}


def cell(value: Any, column: str = "") -> str:
    """A value of a table as text: numbers with at most four significant digits, unknown ones empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if column in FORMATS:
        return FORMATS[column](value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        whole = abs(value) < 1e15 and (abs(value) >= 1e3 or value.is_integer())
        small = 0.0 < abs(value) < 1e-4
        return f"{value:,.0f}" if whole else f"{value:.{2 if small else 4}g}"
    return str(value)
