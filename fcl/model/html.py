"""HTML of models and results, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from fcl.checks import shortened
from fcl.model.certificate import Certificate
from fcl.model.frames import FeatureRow, OutputFeature

#: Number of features that a notebook shows.
TOP = 10

_LEFT = "style='text-align:left'"


def certificate_facts(certificate: Certificate) -> list[tuple[str, str]]:
    """Objective, bound and gap of a certificate as (name, text)."""
    bound = certificate.bound
    return [
        ("objective", f"{certificate.objective:.8g}"),
        ("bound", f"{bound:.8g}" if math.isfinite(bound) else "unknown"),
        ("gap", f"{certificate.gap:.3g} relative, over {certificate.scope_text}"),
        *([] if certificate.violation_resolved else [("violation", certificate.violation_text)]),
    ]


def table_html(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """A table of names and texts, which are escaped."""
    rows = "".join(
        f"<tr><th {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(text)}</td></tr>"
        for name, text in facts
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def features_html(features: Sequence[FeatureRow | OutputFeature]) -> str:
    """A table of features, whose descriptions are escaped; empty without features."""
    several = any(isinstance(row, OutputFeature) for row in features)
    rows = "".join(
        f"<tr><td {_LEFT}>{escape(shortened(row.feature))}</td>{_output_cell(row)}"
        f"<td>{row.weight:+.5g}</td><td>{row.support:,}</td></tr>"
        for row in features
    )
    output = f"<th {_LEFT}>output</th>" if several else ""
    head = f"<tr><th {_LEFT}>feature</th>{output}<th>weight</th><th>rows</th></tr>"
    return f"<table><caption>strongest features</caption>{head}{rows}</table>" if rows else ""


def _output_cell(row: FeatureRow | OutputFeature) -> str:
    """The cell of a weight's output; empty for models of one output."""
    if not isinstance(row, OutputFeature):
        return ""
    return f"<td {_LEFT}>{escape(shortened(str(row.output)))}</td>"
