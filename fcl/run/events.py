"""The events of a run, the same for all learners.

A run calls ``progress(event)`` with each event, in the thread of the caller. Every run reports
``Started``, then a :class:`Measured` event after each unit of its work, and ``Stopped`` at its end. The
units are passes (``PassDone``), points of a path (``PointDone``), rows of an online learner
(``OnlineProgress``) or blocks of a stagewise learner (``BlockVisited``). Events are frozen. Sizes are in
bytes, times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from fcl.plain import plain


@dataclass(frozen=True)
class Event:
    """Base class of events.

    Attributes
    ----------
    is_progress : bool
        Whether the run has passed the checks of its input by now, so that a log may be created.
    """

    is_progress: ClassVar[bool] = False

    def to_dict(self) -> dict[str, Any]:
        """``{"event": class name, field: value, ...}``, ready for ``json.dumps``."""
        values: dict[str, Any] = {"event": type(self).__name__}
        for part in fields(self):
            value = getattr(self, part.name)
            values[part.name] = value.to_dict() if part.name == "plan" and value else plain(value)
        return values


@dataclass(frozen=True)
class Started(Event):
    """The data are open and checked, and the memory is planned; the rows are not read yet.

    Attributes
    ----------
    plan : MemoryPlan
    options : mapping
        Effective options by name.
    n_rows, n_features : int
        Training rows, and features of the family.
    C, alpha : float or None
        Weight of the losses, and of the penalty; None in a path, which chooses its own.
    n_positive : int or None
        Rows with the positive label; None for regression.
    n_sampled : int or None
        Features that each pass samples from a family too large to be priced whole; None if every pass
        prices all features.
    driver_in_words : str
        The driver with its threads or writers, and the reason if it was chosen.
    learner : str
        "train", "path", "online", "stagewise" or "certify".
    n_valid : int
        Held-out rows; 0 without any.
    n_outputs : int
        Classes of one model, or targets; 1 for two labels.
    n_steps : int or None
        Number of units of work, if it is known: blocks of all visits.
    """

    plan: Any = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    n_rows: int
    n_features: int
    C: float | None
    alpha: float | None
    n_positive: int | None = None
    n_sampled: int | None = None
    driver_in_words: str = ""
    learner: str = "train"
    n_valid: int = 0
    n_outputs: int = 1
    n_steps: int | None = None


@dataclass(frozen=True)
class Compiling(Event):
    """Kernels that the cache lacks are being compiled.

    Attributes
    ----------
    seconds : float
        Estimated time that this takes.
    """

    seconds: float


@dataclass(frozen=True)
class Compiled(Event):
    """The kernels are compiled; later runs load them from the cache.

    Attributes
    ----------
    seconds : float
    """

    seconds: float


@dataclass(frozen=True)
class StepProgress(Event):
    """The finished share of a long step, at most once in two seconds.

    Attributes
    ----------
    number : int
        Pass that the step belongs to.
    step : str
        "reading", "pricing", "columns" or another name from the report of times.
    share : float
        Finished share of the rows or parts of the step, in [0, 1].
    seconds : float
        Time since the start.
    """

    number: int
    step: str
    share: float
    seconds: float


@dataclass(frozen=True)
class Prepared(Event):
    """All rows are read and prepared for the passes.

    Attributes
    ----------
    seconds, rows_per_second : float
    """

    seconds: float
    rows_per_second: float


@dataclass(frozen=True)
class Workers(Event):
    """The cluster of the driver ``dask``, before each pass.

    Attributes
    ----------
    workers, threads : int
        That the scheduler has now.
    shards : int
        Parts into which the rows are cut.
    moved : int
        Bytes of sums and residuals that tasks have received from others so far.
    """

    workers: int
    threads: int
    shards: int
    moved: int


@dataclass(frozen=True)
class Jobs(Event):
    """Whole jobs on a cluster, whenever one begins or ends.

    Attributes
    ----------
    done, running, sent : int
        Numbers of jobs; more may be sent later.
    workers : int
        Workers on which jobs run now.
    """

    done: int
    running: int
    sent: int
    workers: int


@dataclass(frozen=True)
class Measured(Event):
    """Base class of the events that report a finished unit of work.

    Each has ``number``, which counts the units, and ``seconds``.
    """

    is_progress: ClassVar[bool] = True
    #: the fields that :attr:`numbers` has
    _measures: ClassVar[tuple[str, ...]] = ()
    number: int

    @property
    def step(self) -> int:
        """What the axis of a plot counts: units of work, or the rows of an online learner."""
        return self.number

    @property
    def numbers(self) -> dict[str, float]:
        """The finite measurements by name, such as ``gap`` and ``validation.auprc``, to be logged."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self._measures}
        scores: Mapping[str, Any] = getattr(self, "validation", None) or {}
        found |= {f"validation.{name}": v for name, v in scores.items() if name != "n_rows"}
        return {
            name: float(value)
            for name, value in found.items()
            if value is not None and math.isfinite(value)
        }


@dataclass(frozen=True)
class PassDone(Measured):
    """A pass is complete: its anchor is accepted and certified.

    Attributes
    ----------
    number : int
        Counts passes from 1 (0 is the null model).
    seconds : float
        Time since the start.
    objective, bound, gap : float
        Of the anchor; the gap is relative.
    max_violation : float
        As in the certificate (at most 1 at the optimum), but without an allowance for the rounding of
        margins.
    priced, cached, active : int
        Numbers of features: whose gradients the pass computed, with a column in memory, with a weight.
    cache_bytes, cache_capacity : int
        Bytes of the cache in use, and of the whole cache.
    evicted : int
        Columns dropped from the cache since the pass before.
    rows_per_second, memory_bytes : float, int
        Speed of the passes, and peak memory.
    beta : float
        Share of the proposed step that the search took.
    validation : mapping or None
        {metric: score, "n_rows": rows} if it was measured at this anchor; with ``patience`` also the mean
        held-out "loss".
    time_left : float or None
        Estimated seconds to the end; None if there is no estimate.
    busy : mapping or None
        Processor time over elapsed time of each process since the last pass, by its name.
    scope : str
        The features that bound, gap and violation cover, in words.
    sample : str
        Why the trainer got another sample of rows since the pass before; empty if it did not, and in the
        first pass after a resume.
    models : str
        The models of the local problem that the trainer minimised since the pass before, and how often,
        such as "sampled Hessian 2; raised whole Hessian 1": curvatures are raised after a step that the
        search has cut short.
    """

    _measures: ClassVar[tuple[str, ...]] = (
        "objective",
        "bound",
        "gap",
        "max_violation",
        "active",
        "cached",
        "rows_per_second",
        "memory_bytes",
    )
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
    sample: str = ""
    models: str = ""


@dataclass(frozen=True)
class Validated(Event):
    """The scores of a pass's anchor are available; they may arrive during later passes.

    Attributes
    ----------
    number : int
        The pass.
    validation : mapping
        As in :class:`PassDone`.
    """

    number: int
    validation: Mapping[str, Any]


@dataclass(frozen=True)
class PathStarted(Event):
    """Training along a path begins, or continues, over one set of rows.

    Attributes
    ----------
    part : str
        Rows that are trained on, such as ``fold 2 of 5``; empty for all.
    """

    part: str = ""


@dataclass(frozen=True)
class PointStarted(Event):
    """Training at a value of C begins.

    Attributes
    ----------
    number, of : int
        Number of the point from 1, and number of points, 0 while the grid is unknown.
    C, alpha : float
        Weight of the losses, and of the penalty.
    part : str
        Rows that are trained on, such as ``fold 2 of 5``; empty for all.
    """

    number: int
    of: int
    C: float
    alpha: float
    part: str = ""


@dataclass(frozen=True)
class PointDone(Measured):
    """A point of a path is certified; fields as in :class:`fcl.path.PathPoint`.

    Attributes
    ----------
    number, of : int
        Number of the point from 1, and number of points.
    C, alpha : float
        Weight of the losses, and of the penalty.
    active : int
        Features with a weight.
    objective, gap : float
    seconds : float
        Time of this point.
    passes : int
    score : float or None
        On the held-out rows, by ``metric``.
    metric : str
    part : str
        Rows that were trained on, such as ``fold 2 of 5``; empty for all.
    """

    _measures: ClassVar[tuple[str, ...]] = ("C", "active", "objective", "gap", "passes", "score")
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


@dataclass(frozen=True)
class OnlineProgress(Measured):
    """How an online learner does after some rows.

    Attributes
    ----------
    number : int
        The pass, from 1 on.
    rows : int
        Rows learnt so far, over all passes.
    seen : bool
        Whether the learner had seen the rows of this pass before.
    loss : float
        Mean of the losses of the rows of this pass, each before it was learnt.
    loss_since : float
        The same, of the rows since the event before.
    constant_loss : float
        Mean loss of the best constant margin over the rows of this pass so far.
    active : int
        Features with a weight.
    norm : float
        Sum of |w_j|.
    rows_per_second, memory_bytes : float, int
    seconds : float
        Time since the start.
    validation : mapping or None
        {metric: score, "n_rows": rows}.
    """

    _measures: ClassVar[tuple[str, ...]] = (
        "loss",
        "loss_since",
        "constant_loss",
        "active",
        "norm",
        "rows_per_second",
        "memory_bytes",
    )
    rows: int
    seen: bool
    loss: float
    loss_since: float
    constant_loss: float
    active: int
    norm: float
    rows_per_second: float
    memory_bytes: int
    seconds: float
    validation: Mapping[str, Any] | None = None

    @property
    def step(self) -> int:
        """The number of rows learnt."""
        return self.rows


@dataclass(frozen=True)
class BlockVisited(Measured):
    """A stagewise learner has visited a block of features.

    Attributes
    ----------
    number : int
        Blocks done so far, over all visits.
    loss, valid_loss : float, float or None
        Mean loss of the training and of the held-out rows.
    error, valid_error : float or None
        Share of rows whose largest margin is of another class, or of wrong labels; None for numbers.
    seconds : float
        Time of this block.
    n_blocks : int
        Blocks of a visit.
    visits_of_round : int
        Visits of each block in a round of cls, else 0.
    time_left : float
        Estimated seconds to the end.
    """

    _measures: ClassVar[tuple[str, ...]] = ("loss", "error", "valid_loss", "valid_error")
    loss: float
    error: float | None
    valid_loss: float | None
    valid_error: float | None
    seconds: float
    n_blocks: int
    visits_of_round: int
    time_left: float


@dataclass(frozen=True)
class Stopped(Event):
    """The run ended.

    Attributes
    ----------
    reason : StopReason
    message : str
        The reason in words.
    certificate : Certificate, JointGap or None
        What is proved about the model, with ``objective``, ``bound`` and ``gap``; None if nothing is.
    seconds : mapping
        Time of each step, by its name.
    peak_memory : int
    best : int or None
        The pass or block of which the model is, by the held-out loss; None without such a choice.
    """

    is_progress: ClassVar[bool] = True
    reason: str
    message: str
    certificate: Any
    seconds: Mapping[str, float]
    peak_memory: int
    best: int | None = None
