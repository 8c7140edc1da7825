"""What a driver reports while it trains; the commands turn it into lines, a live view, a log.

Events are frozen: a driver makes one and hands it to ``progress(event)``, in the driver's thread.
Sizes are bytes, times are seconds; ``to_dict`` gives a flat dictionary for JSON, whose ``event``
names the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fcl.plain import plain

if TYPE_CHECKING:
    from fcl.model.certificate import Certificate

__all__ = [
    "Compiled",
    "Compiling",
    "Event",
    "PassDone",
    "Prepared",
    "Started",
    "StepProgress",
    "Stopped",
    "Validated",
    "plan_dict",
]


def plan_dict(plan: Any) -> dict[str, Any] | None:
    """A memory plan (``lines()``, ``total``, ``budget``) as a dictionary of bytes."""
    if plan is None:
        return None
    lines = {name: int(size) for name, size in plan.lines()}
    return {"lines": lines, "total": int(plan.total), "budget": int(plan.budget)}


@dataclass(frozen=True)
class Event:
    """Base of the events."""

    def to_dict(self) -> dict[str, Any]:
        """``{"event": class name, field: value, ...}``, ready for ``json.dumps``."""
        values: dict[str, Any] = {"event": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            values[field.name] = plan_dict(value) if field.name == "plan" else plain(value)
        return values


@dataclass(frozen=True)
class Started(Event):
    """The data are open and checked, the memory is planned, the first pass has not begun.

    n_positive is None for regression; C_min is None while it is not known. n_sampled : features that
    each pass draws of a family too large to be priced whole; None: all are priced.
    """

    plan: Any
    options: Mapping[str, Any]
    n_rows: int
    n_features: int
    C: float
    alpha: float
    n_positive: int | None = None
    C_min: float | None = None
    n_sampled: int | None = None


@dataclass(frozen=True)
class Compiling(Event):
    """Kernels are being compiled, since the cache lacks them; ``seconds`` is about how long it takes."""

    seconds: float


@dataclass(frozen=True)
class Compiled(Event):
    """The kernels were compiled, which is done once."""

    seconds: float


@dataclass(frozen=True)
class StepProgress(Event):
    """How much of a long step is done; at most one event every two seconds, none of a shorter pass.

    number  of the pass that the step belongs to.
    step    "reading", "pricing", "columns" and others: the names of the report of times.
    share   from 0 to 1, of the rows or parts of the step.
    seconds since the start.
    """

    number: int
    step: str
    share: float
    seconds: float


@dataclass(frozen=True)
class Prepared(Event):
    """The rows were read once and stand prepared for the passes."""

    seconds: float
    rows_per_second: float


@dataclass(frozen=True)
class PassDone(Event):
    """A pass was made and its anchor accepted.

    number      counts passes from 1 (0 is the null model); seconds are since the start.
    gap         relative; max_violation as in the certificate (at most 1 at the optimum).
    priced, cached, active : numbers of features.
    scope       the features that bound, gap and violation cover, in words.
    beta        the step that the search took of the proposed one.
    validation  {"auprc": ..., "n_rows": ...} if it was measured at this anchor.
    time_left   an estimate, None where there is none.
    busy        processor time over time of each process since the pass before, by its name.
    """

    number: int
    seconds: float
    objective: float
    bound: float
    gap: float
    max_violation: float
    priced: int
    cached: int
    active: int
    cache_bytes: int
    cache_capacity: int
    evicted: int
    rows_per_second: float
    memory_bytes: int
    beta: float
    validation: Mapping[str, Any] | None = None
    time_left: float | None = None
    busy: Mapping[str, float] | None = None
    scope: str = "all features of the family"


@dataclass(frozen=True)
class Validated(Event):
    """The scores of the anchor of a pass are there; they may come while later passes are under way."""

    number: int
    validation: Mapping[str, Any]


@dataclass(frozen=True)
class Stopped(Event):
    """The end: why, and what was reached. `seconds` maps the name of a step to its time."""

    reason: str
    message: str
    certificate: Certificate
    seconds: Mapping[str, float]
    peak_memory: int
