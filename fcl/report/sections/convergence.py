"""What is proved about the model; objective, bound, gap, features and validation over the passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
#: Columns that are drawn, and those of the CSV file.
DRAWN = ("number", "objective", "bound", "gap", "active", "cached")
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
        metric, scores = history.validation()
        metric = metric and short(score_title(metric), 12)
        columns = {name: history.column(name) for name in DRAWN}
        curves = thinned({**columns, "seconds": history.elapsed(), "validation": scores})
        lead = f"{lead} {_lead(history)}"
        facts += _facts(history)
        panels = _draw(curves, metric, tol)
        blocks.append(Figure("convergence", panels, _caption(metric), _table(history)))
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
    data = Table.of("gap", {"gap": [gap], "tolerance": [tol]})
    return Figure("gap", [drawn.svg], caption, data)


def _label(axes: Axes, at: tuple[float, float], text: str, ha: str, **style: Any) -> None:
    """Text beside a point; spaces would not keep a distance, since SVG ignores them."""
    distance = 4 if ha == "left" else -4
    axes.annotate(text, at, (distance, 0), textcoords="offset points", ha=ha, **style)


def thinned(columns: Mapping[str, Floats]) -> dict[str, Floats]:
    """At most MOST_PASSES numbers of each column; NaN in place of those that could overflow."""
    n = len(next(iter(columns.values())))
    at = np.unique(np.linspace(0, n - 1, MOST_PASSES).astype(np.intp))
    drawable = {name: np.abs(values[at]) < MOST_DRAWN for name, values in columns.items()}
    return {name: np.where(drawable[name], columns[name][at], np.nan) for name in columns}


def plot(axes: Any, x: Floats, values: Floats, colour: str, label: str = "") -> None:
    """A line, with a dot for each number if there are few."""
    style = ".-" if len(x) <= MOST_DOTS else "-"
    axes.plot(x, values, style, color=colour, label=label or None)


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


def _caption(metric: str) -> str:
    text = "Objective and lower bound; relative gap with the tolerance; active and cached features"
    return f"{text}; {metric} of the validation rows." if metric else f"{text}."


def _table(history: History) -> Table:
    metric, scores = history.validation()
    columns = {"seconds": history.elapsed(), **{name: history.column(name) for name in COLUMNS}}
    if metric:
        columns[f"validation_{short(metric)}"] = scores
    return Table.of("convergence", columns)


def _draw(curves: Mapping[str, Floats], metric: str, tol: float) -> list[str]:
    """A panel for each quantity over seconds, and over passes."""
    quantities: dict[str, Callable[[Any, Floats, Mapping[str, Floats], float], tuple[str, ...]]]
    quantities = {"objective": _objective, "relative gap": _gap, "features": _features}
    if metric:
        quantities[f"validation {metric}"] = _validation
    panels = []
    for name, draw in quantities.items():
        for xlabel, x in (("seconds", curves["seconds"]), ("passes", curves["number"])):
            with drawing(PANEL, 1.9) as drawn:
                legend = draw(drawn.axes, x, curves, tol)
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


def _validation(axes: Any, x: Floats, curves: Mapping[str, Floats], tol: float) -> tuple[str, ...]:
    plot(axes, x, curves["validation"], THIRD)
    return ()


def _objective(axes: Any, x: Floats, curves: Mapping[str, Floats], tol: float) -> tuple[str, ...]:
    objective, bound = curves["objective"], curves["bound"]
    plot(axes, x, objective, ACCENT)
    plot(axes, x, bound, SECOND)
    known = objective[np.isfinite(objective)]
    if len(known):
        first, last = known.max(), known.min()
        spread = max(first - last, 1e-3 * abs(last)) or 1.0
        lowest = np.nanmin(bound, initial=last)
        # early bounds are so low that they would flatten the objective
        axes.set_ylim(max(lowest, last - spread) - 0.05 * spread, first + 0.05 * spread)
    return "objective", "bound"


def _gap(axes: Any, x: Floats, curves: Mapping[str, Floats], tol: float) -> tuple[str, ...]:
    gap = np.where(curves["gap"] > 0.0, curves["gap"], np.nan)
    plot(axes, x, gap, ACCENT)
    marked = tol if 0.0 < tol < 1.0 else 1.0
    smallest = np.nanmin(np.append(gap, marked))
    log_axis(axes, "y", max(smallest, LEAST_GAP), max(1.0, np.nanmax(gap, initial=1.0)))
    if marked == tol:
        axes.axhline(tol, color=SECOND, linewidth=1.0, linestyle="--")
    return ()


def _features(axes: Any, x: Floats, curves: Mapping[str, Floats], tol: float) -> tuple[str, ...]:
    plot(axes, x, curves["active"], ACCENT)
    plot(axes, x, curves["cached"], SECOND)
    most = max(np.nanmax(curves[name], initial=0.0) for name in ("active", "cached"))
    axes.set_ylim(0.0, 1.05 * max(most, 1.0))
    axes.locator_params(axis="y", integer=True)
    return "active", "cached"
