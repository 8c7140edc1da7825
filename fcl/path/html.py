"""HTML of the points of a path, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fcl.units import format_seconds, score_title


def points_html(
    title: str, metric: str, rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]
) -> str:
    """A table of points, in which the chosen one is bold.

    Parameters
    ----------
    title, metric : str
    rows : sequence of mappings
        From :meth:`fcl.PathResult.rows`.
    chosen : mapping
        One of them.
    """
    names = ("point", "C", "features", "gap", score_title(metric), "standard error", "time")
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = [
        _line([str(number), *_cells(row)], bold=row is chosen) for number, row in enumerate(rows, 1)
    ]
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{''.join(lines)}</table>"


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        f"{row['C']:.4g}",
        f"{row['active']:,}",
        f"{row['gap']:.2e}",
        "" if math.isnan(row["score"]) else f"{row['score']:.6g}",
        "" if math.isnan(row["se"]) else f"{row['se']:.3g}",
        format_seconds(row["seconds"]),
    ]


def _line(cells: Sequence[str], bold: bool) -> str:
    marked = (f"<b>{cell}</b>" if bold else cell for cell in cells)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in marked)}</tr>"
