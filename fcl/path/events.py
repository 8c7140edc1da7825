"""Events of a path, reported between the events of training at its points."""

from __future__ import annotations

from dataclasses import dataclass

from fcl.drivers.events import Event


@dataclass(frozen=True)
class PathStarted(Event):
    """A path over one set of rows begins, or continues.

    part : rows that are trained on, such as ``fold 2 of 5``; empty for all.
    """

    part: str = ""


@dataclass(frozen=True)
class PointStarted(Event):
    """Training at a value of C begins.

    number : from 1, of the points of the grid.  of : number of points, 0 while the grid is unknown.
    part : rows that are trained on, such as ``fold 2 of 5``; empty for all.
    """

    number: int
    of: int
    C: float
    alpha: float
    part: str = ""


@dataclass(frozen=True)
class PointDone(Event):
    """A point is certified; fields as in :class:`fcl.path.PathPoint`."""

    number: int
    of: int
    C: float
    alpha: float
    active: int
    objective: float
    gap: float
    seconds: float
    passes: int
    score: float | None
    metric: str
    part: str = ""
