"""What is proved about the model; objective, bound, gap, features and validation over the passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.facts import chosen
from fcl.model import History
from fcl.model.facts import proof
from fcl.report.contract import Context, Figure, Section, Table, number
from fcl.report.figures import (
    ACCENT,
    INK,
    PAGE,
    PANEL,
    SECOND,
    THIRD,
    drawing,
    log_axis,
    short,
)
from fcl.types import Floats
from fcl.units import format_bytes, format_gap, format_seconds, score_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The smallest gap that the pictures show.
LEAST_GAP = 1e-16
#: Names of the facts of the model that the section shows.
FACTS = (
    "loss", "minimises", "C", "limits", "objective", "bound", "gap", "violation", "certificate",
    "active", "passes",
)  # fmt: skip

#: Passes that the pictures show; longer histories are thinned evenly.
MOST_PASSES = 500
#: Passes that are marked with dots, each of which takes 100 bytes.
MOST_DOTS = 60
#: Larger numbers, from a damaged or forged history, are not drawn.
MOST_DRAWN = 1e100
#: Columns of the CSV file.
COLUMNS = (
    "number", "objective", "bound", "gap", "max_violation", "priced", "cached", "active", "evicted",
    "cache_bytes", "cache_capacity", "rows_per_second", "memory_bytes", "beta",
)  # fmt: skip


def section(context: Context) -> Section:
    """What is proved about the model, and the passes of its training."""
    model = context.model
    history, certificate = model.history, model.certificate
    tol = number(model.options.get("tol"))
    facts = [(fact.name, fact.text) for fact in chosen(model.facts(), *FACTS)]
    facts += _effort(history, model.options.get("memory"))
    blocks = [_gap_bar(certificate.gap, tol)] if certificate.has_gap else []
    lead = proof(certificate)
    if len(history):
        curves = _Curves.of(history)
        lead = f"{lead} {_lead(history)}"
        facts += _facts(history)
        panels = _draw(curves, tol)
        blocks.append(Figure("convergence", panels, _caption(curves), _table(history)))
    return Section("convergence", "Certificate and training", lead, facts, blocks, folded=True)


def _effort(history: History, budget: object) -> list[tuple[str, str]]:
    """Time and peak memory of the training, as far as its history knows them."""
    facts = []
    seconds, peak = _largest(history.elapsed()), _largest(history.column("memory_bytes"))
    if math.isfinite(seconds):
        facts.append(("time", format_seconds(seconds)))
    if math.isfinite(peak):
        limit = number(budget)
        words = f" of {format_bytes(limit)}" if math.isfinite(limit) else ""
        facts.append(("peak memory", format_bytes(peak) + words))
    return facts


def _largest(values: Floats) -> float:
    """The largest known number; NaN without any."""
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else math.nan


def _gap_bar(gap: float, tol: float) -> Figure:
    """The gap and the tolerance on a log scale."""
    shown = min(max(gap, LEAST_GAP), 1.0)
    with drawing(PANEL, 1.0) as drawn:
        axes = drawn.axes
        marked = 0.0 < tol < 1.0
        low = max(min(shown, tol if marked else shown), LEAST_GAP) / 100.0
        log_axis(axes, "x", low, 1.0)
        axes.set_xlim(1.0, low)
        axes.barh([0.0], [shown - 1.0], left=1.0, height=0.8, color=ACCENT, alpha=0.85)
        # beyond the end of the bar, unless the line of the tolerance would cross the text
        inside = marked and tol < shown and math.log(shown) <= 0.4 * math.log(low)
        side, colour = ("right", PAGE) if inside else ("left", INK)
        _label(axes, (shown, 0.0), f"gap {format_gap(gap)}", va="center", ha=side, color=colour)
        if marked:
            axes.axvline(tol, color=SECOND, linewidth=1.6)
            left = math.log(tol) > 0.6 * math.log(low)
            words, ha = f"tolerance {tol:.3g}", "left" if left else "right"
            _label(axes, (tol, 0.62), words, ha=ha, va="bottom", color=SECOND)
        axes.set_ylim(-0.55, 1.3)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    caption = (
        "Relative duality gap, on a log scale: the bar runs from 1, where nothing is proved, to the gap "
        "of this model."
    )
    data = Table("gap", ["gap", "tolerance"], [[gap, tol]], shown=False)
    return Figure("gap", [drawn.svg], caption, data)


def _label(axes: Axes, at: tuple[float, float], text: str, ha: str, **style: Any) -> None:
    """Text beside a point; spaces would not keep a distance, since SVG ignores them."""
    distance = 4 if ha == "left" else -4
    axes.annotate(text, at, (distance, 0), textcoords="offset points", ha=ha, **style)


@dataclass(frozen=True, eq=False)
class _Curves:
    """Numbers of at most MOST_PASSES passes, each float64 (passes,)."""

    seconds: Floats
    number: Floats
    objective: Floats
    bound: Floats
    gap: Floats
    active: Floats
    cached: Floats
    metric: str
    validation: Floats

    @property
    def style(self) -> str:
        """Lines, with a dot for each pass if there are few."""
        return ".-" if len(self.gap) <= MOST_DOTS else "-"

    @classmethod
    def of(cls, history: History) -> _Curves:
        at = np.unique(np.linspace(0, len(history) - 1, MOST_PASSES).astype(np.intp))
        metric, validation = history.validation()
        names = ("number", "objective", "bound", "gap", "active", "cached")
        own = {name: _drawable(history.column(name)[at]) for name in names}
        seconds, scores = _drawable(history.elapsed()[at]), _drawable(validation[at])
        return cls(seconds, **own, metric=metric, validation=scores)


def _drawable(values: Floats) -> Floats:
    """Numbers with NaN in place of those whose differences could overflow in a picture."""
    return np.where(np.abs(values) < MOST_DRAWN, values, np.nan)


def _lead(history: History) -> str:
    first = (
        "has no features"
        if history.starts_empty
        else "has the weights from which the training started"
    )
    text = f"Every pass prices features and certifies the best model so far; pass 0 {first}."
    if len(history.restarts()):
        text += " The job was resumed; the seconds of all its runs are added up."
    return text


def _facts(history: History) -> list[tuple[str, str]]:
    facts = []
    evicted = np.nansum(history.column("evicted"))
    if evicted > 0:
        facts.append(("evicted columns", f"{int(evicted):,}"))
    busy: dict[str, list[float]] = {}
    for record in history:
        shares = record.get("busy")
        for name, share in (shares if isinstance(shares, dict) else {}).items():
            if math.isfinite(number(share)):
                busy.setdefault(short(name), []).append(number(share))
    if busy:
        means = ", ".join(f"{name} {np.mean(shares):.0%}" for name, shares in busy.items())
        facts.append(("busy, mean over passes", short(means, 300)))
    return facts


def _caption(curves: _Curves) -> str:
    text = "Objective and lower bound; relative gap with the tolerance; active and cached features"
    return f"{text}; {_metric(curves)} of the validation rows." if curves.metric else f"{text}."


def _metric(curves: _Curves) -> str:
    return short(score_title(curves.metric), 12)


def _table(history: History) -> Table:
    metric, scores = history.validation()
    columns = {"seconds": history.elapsed(), **{name: history.column(name) for name in COLUMNS}}
    if metric:
        columns[f"validation_{short(metric)}"] = scores
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Table("convergence", list(columns), rows, shown=False)


def _draw(curves: _Curves, tol: float) -> list[str]:
    """A panel for each quantity over seconds, and over passes."""
    quantities: list[tuple[str, Callable[[Any, Floats], None], tuple[str, ...]]] = [
        ("objective", partial(_objective, curves=curves), ("objective", "bound")),
        ("relative gap", partial(_gap, curves=curves, tol=tol), ()),
        ("features", partial(_features, curves=curves), ("active", "cached")),
    ]
    if curves.metric:
        validation = partial(_validation, curves=curves)
        quantities.append((f"validation {_metric(curves)}", validation, ()))
    panels = []
    for name, plot, legend in quantities:
        for xlabel, x in (("seconds", curves.seconds), ("passes", curves.number)):
            with drawing(PANEL, 1.9) as drawn:
                plot(drawn.axes, x)
                drawn.axes.set(xlabel=xlabel, ylabel=name)
                if xlabel == "passes":
                    if len(x) == 1 and np.isfinite(x[0]):
                        # around one point, matplotlib has ticks at fractions
                        drawn.axes.set_xlim(x[0] - 1.0, x[0] + 1.0)
                    drawn.axes.locator_params(axis="x", integer=True)
                if legend:
                    lines = drawn.axes.lines[: len(legend)]
                    drawn.figure.legend(lines, legend, loc="outside upper center", ncols=2)
            panels.append(drawn.svg)
    return panels


def _validation(axes: Any, x: Floats, curves: _Curves) -> None:
    axes.plot(x, curves.validation, curves.style, color=THIRD)


def _objective(axes: Any, x: Floats, curves: _Curves) -> None:
    axes.plot(x, curves.objective, curves.style, color=ACCENT)
    axes.plot(x, curves.bound, curves.style, color=SECOND)
    known = curves.objective[np.isfinite(curves.objective)]
    if not len(known):
        return
    first, last = known.max(), known.min()
    spread = max(first - last, 1e-3 * abs(last)) or 1.0
    lowest = np.nanmin(curves.bound, initial=last)
    # early bounds are so low that they would flatten the objective
    axes.set_ylim(max(lowest, last - spread) - 0.05 * spread, first + 0.05 * spread)


def _gap(axes: Any, x: Floats, curves: _Curves, tol: float) -> None:
    gap = np.where(curves.gap > 0.0, curves.gap, np.nan)
    axes.plot(x, gap, curves.style, color=ACCENT)
    marked = tol if 0.0 < tol < 1.0 else 1.0
    smallest = np.nanmin(np.append(gap, marked))
    log_axis(axes, "y", max(smallest, LEAST_GAP), max(1.0, np.nanmax(gap, initial=1.0)))
    if marked == tol:
        axes.axhline(tol, color=SECOND, linewidth=1.0, linestyle="--")


def _features(axes: Any, x: Floats, curves: _Curves) -> None:
    axes.plot(x, curves.active, curves.style, color=ACCENT)
    axes.plot(x, curves.cached, curves.style, color=SECOND)
    most = max(np.nanmax(curves.active, initial=0.0), np.nanmax(curves.cached, initial=0.0))
    axes.set_ylim(0.0, 1.05 * max(most, 1.0))
    axes.locator_params(axis="y", integer=True)
