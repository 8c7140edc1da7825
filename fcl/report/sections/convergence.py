"""Convergence: objective, bound, gap, features and validation over the passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.model import History
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import ACCENT, SECOND, THIRD, drawing, log_axis, short
from fcl.report.sections.head import LEAST_GAP, number
from fcl.types import Floats
from fcl.units import score_title

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


def section(context: Context) -> Section | None:
    """The passes of the training; None if the model has no history."""
    history = context.model.history
    if not len(history):
        return None
    curves = _Curves.of(history)
    tol = number(context.model.options.get("tol"))
    figure = Figure("convergence", _draw(curves, tol), _caption(curves), _table(history))
    return Section("convergence", "Convergence", _lead(history), _facts(history), [figure])


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


def _draw(curves: _Curves, tol: float) -> str:
    panels = 3 + bool(curves.metric)
    grid = {"sharex": "col", "sharey": "row"}
    with drawing(9.0, 1.65 * panels, rows=panels, columns=2, **grid) as drawn:
        for column, x in enumerate((curves.seconds, curves.number)):
            own = drawn.axes[:, column]
            _objective(own[0], x, curves)
            _gap(own[1], x, curves, tol)
            _features(own[2], x, curves)
            if curves.metric:
                own[3].plot(x, curves.validation, curves.style, color=THIRD)
            own[-1].set_xlabel("seconds" if column == 0 else "passes")
        if len(curves.number) == 1 and np.isfinite(only := curves.number[0]):
            # around one point, matplotlib has ticks at fractions
            drawn.axes[-1, 1].set_xlim(only - 1.0, only + 1.0)
        drawn.axes[-1, 1].locator_params(axis="x", integer=True)
        names = ["objective", "relative gap", "features", f"validation\n{_metric(curves)}"]
        for axes, name in zip(drawn.axes[:, 0], names, strict=False):
            axes.set_ylabel(name)
        drawn.axes[0, 1].legend(["objective", "bound"], loc="upper right")
        drawn.axes[2, 1].legend(["active", "cached"], loc="best")
    svg: str = drawn.svg
    return svg


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
