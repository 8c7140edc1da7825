"""The head: the problem, what is proved about the model, and what the training took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import shortened
from fcl.model import Certificate
from fcl.model.certificate import Scope
from fcl.model.outputs import output_names
from fcl.objective import Limits, stored_penalty
from fcl.report.contract import PLURALS, Context, Figure, Section, Table
from fcl.report.figures import ACCENT, INK, PAGE, SECOND, drawing, log_axis
from fcl.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The smallest gap that the picture shows.
LEAST_GAP = 1e-16
#: Names of outputs that the head lists.
MOST_NAMES = 30


def section(context: Context) -> Section:
    """The head of the page; it has no conditions."""
    model = context.model
    certificate = model.certificate
    facts = [*_problem(context), *_certificate(certificate), *_effort(context)]
    tol = number(model.options.get("tol"))
    blocks = [_gap_bar(certificate.gap, tol)] if math.isfinite(certificate.gap) else []
    words = proof(certificate, model.n_outputs)
    return Section("head", "Model and certificate", words, facts, blocks)


def number(value: Any) -> float:
    """A number among the options of a model, which may come from a stranger; NaN for anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else math.nan


def proof(certificate: Certificate, n_outputs: int = 1) -> str:
    """What the certificate proves, in one or two sentences."""
    if certificate.scope is Scope.NOTHING:
        return "Nothing is proved about this model: it is newer than the last pricing."
    if not math.isfinite(certificate.gap):
        return "Nothing is proved about this model: no lower bound of the objective is known."
    most = max(certificate.objective - certificate.bound, 0.0)
    text = (
        f"No choice of the intercept{'s' * (n_outputs > 1)} and of weights for the "
        f"{counted(certificate.n_priced, 'priced feature')} "
        f"lowers the objective by more than {most:.3g}, which is {certificate.gap:.3g} of the objective."
    )
    if certificate.scope is Scope.FAMILY:
        return f"{text} These are all features of the family."
    if certificate.scope is Scope.SUPPORT:
        return f"{text} These are the features that another model had chosen; the others were left out."
    when = ", and they were priced one point earlier" * (certificate.scope is Scope.SAMPLE_BEFORE)
    return f"{text} These features are a sample of the family{when}; nothing is proved about the others."


def _problem(context: Context) -> list[tuple[str, str]]:
    model = context.model
    penalty = stored_penalty(model.options).formula(model.n_outputs)
    if model.options.get("standardize"):
        penalty += ", in units of standard deviations"
    if text := Limits.from_stored(model.options.get("limits")).text:
        penalty += f", within {text}"
    if model.certificate.scope is Scope.SUPPORT:
        penalty += ", each term times the variance of its feature"
    rows = f"{counted(model.n_rows, 'training row')}, sum of weights {model.sum_weights:.10g}"
    return [
        ("task", f"{_task(context)}, {model.loss} loss"),
        ("data", rows + (", with an offset" if model.has_offset else "") + _covariates(context)),
        ("family", shortened(_family(context), 400)),
        ("penalty", penalty),
        ("C", f"{model.C:.10g} (alpha {model.alpha:.10g})"),
    ]


def _task(context: Context) -> str:
    model = context.model
    if model.n_outputs > 1:
        verb = {"class": "classification", "target": "regression", "label": "labelling"}[model.noun]
        text = f"{verb}, {counted(model.n_outputs, model.noun, PLURALS[model.noun])}"
        if model.labels is None:
            return text
        names = output_names(model)
        more = ", ..." * (len(names) > MOST_NAMES)
        return shortened(f"{text} ({', '.join(names[:MOST_NAMES])}{more})", 400)
    if model.labels is None:
        return "regression"
    negative, positive = context.labels
    return f"classification of {positive} (+1) against {negative} (-1)"


def _covariates(context: Context) -> str:
    names = context.model.covariate_names
    return f", with unpenalised {shortened(', '.join(names), 400)}" if names else ""


def _family(context: Context) -> str:
    model = context.model
    spelled = model.options.get("features")
    text = spelled if isinstance(spelled, str) else model.family.name
    return f"{text}: {counted(model.family.n_features, 'feature')}, {model.n_active:,} active"


def _certificate(certificate: Certificate) -> list[tuple[str, str]]:
    known = math.isfinite(certificate.bound)
    return [
        ("objective", f"{certificate.objective:.10g}"),
        ("bound", f"{certificate.bound:.10g}" if known else "unknown"),
        ("gap", f"{certificate.gap:.3g} relative"),
        *([] if certificate.violation_resolved else [("violation", certificate.violation_text)]),
    ]


def _effort(context: Context) -> list[tuple[str, str]]:
    history, options = context.model.history, context.model.options
    first = "null model" if history.starts_empty else "starting weights"
    passes = max(0, context.model.certificate.passes - 1)
    facts = [("passes", f"{passes:,} after the pass of the {first}")]
    seconds = _largest(history.elapsed())
    if math.isfinite(seconds):
        facts.append(("time", format_seconds(seconds)))
    peak, budget = _largest(history.column("memory_bytes")), number(options.get("memory"))
    if math.isfinite(peak):
        limit = f" of {format_bytes(budget)}" if math.isfinite(budget) else ""
        facts.append(("peak memory", format_bytes(peak) + limit))
    return facts


def _largest(values: np.ndarray) -> float:
    """The largest known number; NaN without any."""
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else math.nan


def _label(axes: Axes, at: tuple[float, float], text: str, ha: str, **style: Any) -> None:
    """Text beside a point; spaces would not keep a distance, since SVG ignores them."""
    distance = 4 if ha == "left" else -4
    axes.annotate(text, at, (distance, 0), textcoords="offset points", ha=ha, **style)


def _gap_bar(gap: float, tol: float) -> Figure:
    shown = min(max(gap, LEAST_GAP), 1.0)
    with drawing(9.0, 0.95) as drawn:
        axes = drawn.axes
        marked = 0.0 < tol < 1.0
        low = max(min(shown, tol if marked else shown), LEAST_GAP) / 20.0
        log_axis(axes, "x", low, 1.0)
        axes.set_xlim(1.0, low)
        axes.barh([0.0], [shown - 1.0], left=1.0, height=0.8, color=ACCENT, alpha=0.85)
        # beyond the end of the bar, unless the line of the tolerance would cross the text
        inside = marked and tol < shown and math.log(shown) <= 0.25 * math.log(low)
        side, colour = ("right", PAGE) if inside else ("left", INK)
        _label(axes, (shown, 0.0), f"gap {gap:.2e}", va="center", ha=side, color=colour)
        if marked:
            axes.axvline(tol, color=SECOND, linewidth=1.6)
            words = f"tolerance {tol:.3g}"
            _label(axes, (tol, 0.62), words, ha="left", va="bottom", color=SECOND)
        axes.set_ylim(-0.55, 1.3)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    caption = (
        "Relative duality gap, on a log scale: the bar runs from 1, where nothing is proved, to the gap "
        "of this model."
    )
    data = Table("gap", ["gap", "tolerance"], [[gap, tol]], shown=False)
    return Figure("gap", drawn.svg, caption, data)
