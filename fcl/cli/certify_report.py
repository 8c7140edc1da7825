"""The summary of ``fcl certify``, as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fcl.checks import shortened
from fcl.cli.report import Items, aligned, certificate_items
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.drivers.optimality import Optimality


def certify_lines(found: Optimality, model: str, out: str | None, notes: Items) -> list[str]:
    """The summary: objective, bounds, violation, the best C, the ball, and the strongest violators."""
    items = [
        ("model", f"{model}, {counted(found.n_active, 'active feature')}"),
        ("rows", f"{found.n_rows:,}, sum of weights {found.sum_weights:.10g}{_data(found)}"),
        ("C", f"{found.C:.8g} (alpha {found.alpha:.8g})"),
        *certificate_items(found.certificate, found.n_active),
    ]
    items += notes
    if found.own_bound < found.bound:
        text = f"{found.own_bound:.10g}, gap {found.own_gap:.3g}: what this model proves by itself"
        items.append(("own bound", text))
    items += [
        ("intercept", _intercept(found)),
        ("best C", _best(found)),
        ("ball", ball_text(found)),
    ]
    if out is not None:
        items.append(("written", out))
    lines = aligned(items)
    if found.violators:
        lines += ["strongest violators:", f"{'|C g|':>12}  {'weight':>12}  feature"]
    for row in found.violators:
        lines.append(f"{row.slope:>12.5g}  {_weight(row.weight):>12}  {shortened(row.feature)}")
    return lines


def _data(found: Optimality) -> str:
    if found.same_data is None:
        return ""
    return "; the training data" if found.same_data else "; not the training data"


def _weight(weight: Any) -> str:
    """A weight, or the largest of several outputs."""
    if isinstance(weight, list):
        weight = max(weight, key=abs)
    return f"{weight:+.5g}" if weight else "0"


def _intercept(found: Optimality) -> str:
    own = found.intercept if isinstance(found.intercept, list) else [found.intercept]
    text = ", ".join(f"{b:.8g}" for b in own[:20]) + ", ..." * (len(own) > 20)
    if found.own_objective is None:
        return f"{text} is the best one; the model has none"
    excess = found.own_objective - found.objective
    if excess <= 1e-9 * abs(found.objective):
        return text
    return (
        f"{text} is the best one; with the model's own the objective is {found.own_objective:.10g}"
    )


def _best(found: Optimality) -> str:
    if found.best_C is None or found.best_gap is None:
        return "not computed: for this penalty only --C best does it, in several passes"
    if math.isinf(found.best_C):
        return "none: no feature has a price, and the model is optimal for the losses alone"
    return f"{found.best_C:.8g}, where the model is most nearly optimal: gap {found.best_gap:.3g}"


def ball_text(found: Optimality) -> str:
    """How far the losses are above the least in a ball."""
    if not found.losses > 0.0:
        return f"radius {found.radius:.8g}: no losses are left"
    share = found.ball_gap / found.losses
    return (
        f"radius {found.radius:.8g}: losses {found.losses:.8g}, at most {found.ball_gap:.4g} "
        f"({share:.3g} of them) above the best in the ball"
    )
