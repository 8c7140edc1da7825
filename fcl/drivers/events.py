"""Events that a driver reports during training.

Events are frozen. The driver passes each one to ``progress(event)``, in its own thread; the commands show
them as lines, a live view or a log. Sizes are in bytes, times in seconds; ``to_dict`` returns a
dictionary for JSON, whose key ``event`` names the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from fcl.plain import plain

if TYPE_CHECKING:
    from fcl.model.certificate import Certificate


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
        for field in fields(self):
            value = getattr(self, field.name)
            values[field.name] = value.to_dict() if field.name == "plan" and value else plain(value)
        return values


@dataclass(frozen=True)
class Started(Event):
    """The data are open and checked, and the memory is planned; the rows are not read yet.

    n_positive  rows with the positive label; None for regression.
    n_sampled   features that each pass samples from a family too large to be priced whole; None if
                every pass prices all features.
    driver_in_words  the driver with its threads or writers, and the reason if it was chosen.
    """

    plan: Any
    options: Mapping[str, Any]
    n_rows: int
    n_features: int
    C: float
    alpha: float
    n_positive: int | None = None
    n_sampled: int | None = None
    driver_in_words: str = ""


@dataclass(frozen=True)
class Compiling(Event):
    """Kernels that the cache lacks are being compiled."""

    seconds: float  #: estimated time that this takes


@dataclass(frozen=True)
class Compiled(Event):
    """The kernels are compiled; later runs load them from the cache."""

    seconds: float


@dataclass(frozen=True)
class StepProgress(Event):
    """How much of a long step is done.

    There is at most one such event every two seconds, and none in a shorter pass.

    number   pass that the step belongs to.
    step     "reading", "pricing", "columns" or another name from the report of times.
    share    finished share of the rows or parts of the step, in [0, 1].
    seconds  time since the start.
    """

    number: int
    step: str
    share: float
    seconds: float


@dataclass(frozen=True)
class Prepared(Event):
    """All rows are read and prepared for the passes."""

    seconds: float
    rows_per_second: float


@dataclass(frozen=True)
class Workers(Event):
    """The cluster of the driver ``dask``, before each pass.

    workers, threads   that the scheduler has now.
    shards             into which the rows are cut.
    moved              bytes of sums and residuals that tasks have received from others so far.
    """

    workers: int
    threads: int
    shards: int
    moved: int


@dataclass(frozen=True)
class Jobs(Event):
    """Whole jobs on a cluster, whenever one begins or ends.

    done, running, sent   numbers of jobs; more may be sent later.
    workers               on which jobs run now.
    """

    done: int
    running: int
    sent: int
    workers: int


@dataclass(frozen=True)
class PassDone(Event):
    """A pass is complete: its anchor is accepted and certified.

    number         counts passes from 1 (0 is the null model).
    seconds        time since the start.
    gap            relative duality gap.
    max_violation  as in the certificate (at most 1 at the optimum), but without an allowance for the
                   rounding of margins.
    priced, cached, active : numbers of features.
    evicted        columns dropped from the cache since the pass before.
    beta           share of the proposed step that the search took.
    validation     {metric: score, "n_rows": ...} if it was measured at this anchor.
    time_left      estimated seconds to the end; None if there is no estimate.
    busy           processor time over elapsed time of each process since the last pass, by its name.
    scope          the features that bound, gap and violation cover, in words.
    sample         why the trainer got another sample of rows since the pass before; empty if it did not
                   (:meth:`fcl.solve.sampling.SampleSize.redraw_reason`), and in the first pass after a
                   resume.
    models         the models of the local problem that the trainer minimised since the pass before, and
                   how often, such as "sampled Hessian 2; raised whole Hessian 1": curvatures are raised
                   after a step that the search has cut short.
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
    sample: str = ""
    models: str = ""
    is_progress: ClassVar[bool] = True


@dataclass(frozen=True)
class Validated(Event):
    """The scores of a pass's anchor are available; they may arrive during later passes."""

    number: int
    validation: Mapping[str, Any]


@dataclass(frozen=True)
class Stopped(Event):
    """Training ended; ``seconds`` maps the name of each step to its time."""

    is_progress: ClassVar[bool] = True
    reason: str
    message: str
    certificate: Certificate
    seconds: Mapping[str, float]
    peak_memory: int
