"""What tuned constants of the trainer do at half and at double."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures

#: Constants of sampling and damping: module of fcl.solve, name, and the factors that are tried. A share
#: that is above a half is moved towards 1 by half of what is missing instead of being doubled.
TUNED = {
    "sampling": (
        "GROWTH",
        "STEADY",
        "RENEWED",
        "LOCKED_SLOW",
        "ROWS_A_COLUMN",
        "STALE",
        "BY_CURVATURE",
    ),
    "damping": ("CUT", "LEAST_RAISED"),
    "view": ("PROXIMAL",),
    "trainer": ("RESTING", "SETTLED", "INNER_SHARE"),
}


def variants() -> dict[str, dict[str, Any]]:
    """The lines of the table: the constants as they are, then each at half and at double."""
    found: dict[str, dict[str, Any]] = {"as they are": {}}
    for module, names in TUNED.items():
        for name in names:
            for factor in (0.5, 2.0):
                found[f"{name} x {factor:g}"] = {"constant": f"{module}.{name}", "factor": factor}
    return found


def changed(value: float, factor: float) -> float:
    """A constant times a factor; a share above a half moves half of the way to 1 instead of doubling."""
    if factor > 1.0 and 0.5 < value < 1.0:
        return 1.0 - (1.0 - value) / factor
    return type(value)(value * factor)


def fit(
    rows: Rows,
    clock: Clock,
    constant: str = "",
    factor: float = 1.0,
    C: float = 0.1,
    loss: str = "logistic",
    tol: float = 1e-3,
    row_view: int | str = "auto",
) -> Figures:
    """Train to a gap with one constant changed."""
    import fcl

    if constant and not rows.is_few:
        module, name = constant.split(".")
        owner = import_module(f"fcl.solve.{module}")
        setattr(owner, name, changed(getattr(owner, name), factor))
    data = fcl.open_data(rows.x, y=rows.y)
    options: dict[str, Any] = {"C": C, "loss": loss, "tol": tol, "row_view": row_view}
    with clock:
        result = fcl.train(data, rows.features, threads=1, max_time=120, **options)
    last = result.model.history[-1]
    return {"passes": last["number"], "active": last["active"], "gap": last["gap"],
            "reason": "" if result.converged else "stopped"}  # fmt: skip
