"""Points of weights in shared memory: two arrays each, for ids and weights."""

from __future__ import annotations

from fcl.drivers.processes.layout import Layout
from fcl.solve.state import Point

__all__ = ["read_point", "write_point"]


def read_point(layout: Layout, name: str, n: int, intercept: float) -> Point:
    """A copy of a point with n weights."""
    ids = layout.array(f"{name}_ids")[:n].copy()
    return Point(ids, layout.array(f"{name}_weights")[:n].copy(), intercept)


def write_point(layout: Layout, name: str, point: Point) -> None:
    """Put a point into its place."""
    n, room = len(point.ids), layout.config.max_active
    if n > room:
        raise MemoryError(
            f"{n} features have a weight, and the memory plan has room for {room}; "
            "raise --memory, or lower C"
        )
    layout.array(f"{name}_ids")[:n] = point.ids
    layout.array(f"{name}_weights")[:n] = point.weights
