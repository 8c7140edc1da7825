"""Events of a stagewise training, for logs and views."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fcl.drivers.events import Event
from fcl.stagewise.learner import BlockDone


@dataclass(frozen=True)
class StagewiseStarted(Event):
    """The data are open and checked, and the memory is planned; the rows are not read yet.

    n_valid_rows : 0 without validation.  n_outputs : classes, or numbers for each row.
    n_steps : visits of blocks, over all visits.
    """

    plan: Any
    n_rows: int
    n_valid_rows: int
    n_features: int
    n_outputs: int
    n_steps: int


@dataclass(frozen=True)
class BlockVisited(Event):
    """A block was visited; fields as in :class:`fcl.stagewise.learner.BlockDone`.

    n_blocks : blocks of a visit.  visits_of_round : visits of each block in a round of cls, else 0.
    time_left : estimated seconds to the end.
    """

    number: int
    loss: float
    error: float | None
    valid_loss: float | None
    valid_error: float | None
    seconds: float
    n_blocks: int
    visits_of_round: int
    time_left: float
    is_progress: ClassVar[bool] = True

    @classmethod
    def of(cls, done: BlockDone, n_blocks: int, visits_of_round: int, left: float) -> BlockVisited:
        """The event of a block."""
        return cls(
            **asdict(done), n_blocks=n_blocks, visits_of_round=visits_of_round, time_left=left
        )


@dataclass(frozen=True)
class StagewiseStopped(Event):
    """Training ended.

    best_number : visits of blocks after which the weights of the model were taken.
    gap : relative, to the joint optimum; None if it was not requested.
    """

    reason: str
    n_visited: int
    best_number: int
    gap: float | None
    is_progress: ClassVar[bool] = True
