"""HTML of models and results, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from fcl.checks import shortened

if TYPE_CHECKING:
    from fcl.model.model import Model

__all__ = ["facts_html", "model_html"]

#: Number of features that a notebook shows.
TOP = 10


def model_html(model: Model, facts: Iterable[tuple[str, str]] = ()) -> str:
    """A model as two tables: its certificate, with more facts if given, and its strongest features."""
    certificate = model.certificate
    bound = certificate.bound
    lines = [
        ("features", f"{model.family.name}, {model.n_active:,} active"),
        ("loss", f"{model.loss}, C {model.C:.6g}"),
        ("objective", f"{certificate.objective:.8g}"),
        ("bound", f"{bound:.8g}" if math.isfinite(bound) else "unknown"),
        ("gap", f"{certificate.gap:.3g} relative, over {certificate.scope_text}"),
        *facts,
    ]
    return facts_html("fcl model", lines) + _features_html(model)


def facts_html(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """A table of two columns; names and texts are escaped."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in facts
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def _features_html(model: Model) -> str:
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(shortened(row.feature))}</td>"
        f"<td>{row.weight:+.5g}</td><td>{row.support:,}</td></tr>"
        for row in model.iter_features(TOP)
    )
    head = "<tr><th style='text-align:left'>feature</th><th>weight</th><th>rows</th></tr>"
    return f"<table><caption>strongest features</caption>{head}{rows}</table>" if rows else ""
