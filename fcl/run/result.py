"""What the results of all learners have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fcl.facts import Fact
from fcl.run.events import Stopped
from fcl.run.reasons import StopReason


@dataclass(frozen=True, kw_only=True)
class RunResult(ABC):
    """The model of a run, and how the run ended.

    Attributes
    ----------
    model : Model or StagewiseModel
    reason : StopReason
    message : str
        The reason in words.
    seconds : dict of str to float
        Time of each step, by its name.
    peak_memory : int
        Bytes, over all processes.
    checkpoint_failed : bool
        Whether the last attempt to save the state failed; the model is not affected.
    """

    model: Any
    reason: StopReason
    message: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory: int = 0
    checkpoint_failed: bool = False

    @property
    def history(self) -> Any:
        """What was measured after each unit of work, in order."""
        return self.model.history

    @property
    def converged(self) -> bool:
        """Whether the relative gap reached the tolerance."""
        return self.reason is StopReason.TOLERANCE

    @abstractmethod
    def facts(self) -> list[Fact]:
        """How the run ended, and what is known about the model."""

    def stopped_fact(self) -> Fact:
        """Why the run ended."""
        return Fact("stopped", self.message, str(self.reason))

    def stopped(self, certificate: Any = None, best: int | None = None) -> Stopped:
        """The event of the end."""
        spent, peak = self.seconds, self.peak_memory
        return Stopped(self.reason, self.message, certificate, spent, peak, best)
