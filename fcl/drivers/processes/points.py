"""Points in shared memory: the ids and the weights of each are two arrays."""

from __future__ import annotations

from fcl.drivers.processes.layout import Layout
from fcl.drivers.processes.messages import SharedPoint
from fcl.errors import BudgetError
from fcl.solve.state import Point

__all__ = ["read_point", "write_point"]


def read_point(layout: Layout, shared: SharedPoint) -> Point:
    """Copy a point from shared memory."""
    n = shared.n_weights
    ids = layout.array(f"{shared.place}_ids")[:n].copy()
    return Point(ids, layout.array(f"{shared.place}_weights")[:n].copy(), shared.intercept)


def write_point(layout: Layout, place: str, point: Point) -> SharedPoint:
    """Write a point into its place in shared memory; BudgetError if it does not fit."""
    n, room = len(point.ids), layout.config.max_active
    if n > room:
        raise BudgetError(
            f"expected at most {room} features with a weight, as the memory plan allows, got {n}; "
            "raise --memory, or lower C"
        )
    layout.array(f"{place}_ids")[:n] = point.ids
    layout.array(f"{place}_weights")[:n] = point.weights
    return SharedPoint(place, n, point.intercept)
