"""Why runs end: one enumeration for all learners."""

from __future__ import annotations

from enum import StrEnum


class StopReason(StrEnum):
    """Why a run ended; ``sentence`` says it in words, to which results add numbers."""

    sentence: str

    TOLERANCE = "tolerance", "converged"
    DONE = "done", "all of the work is done"
    MAX_PASSES = "max-passes", "reached max_passes"
    MAX_TIME = "max-time", "reached max_time"
    MAX_ACTIVE = "max-active", "the model has as many features as max_active allows"
    PATIENCE = "patience", "the patience ran out"
    INTERRUPTED = "interrupted", "interrupted"
    CALLBACK = "callback", "stopped by the callback"
    STALLED = "stalled", "float64 rounding prevents any further decrease of the objective"
    NO_PROGRESS = "no-progress", "the last passes lowered neither the objective nor the gap"
    MEMORY = "memory", "the rest of the job needs more memory"
    DIVERGED = "diverged", "a margin is not finite or beyond 1e100: the rate is too large"

    def __new__(cls, value: str, sentence: str = "") -> StopReason:
        """A reason with its sentence."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    @property
    def is_interrupt(self) -> bool:
        """Whether a signal or a callback ended the run."""
        return self in (StopReason.INTERRUPTED, StopReason.CALLBACK)

    @property
    def is_chosen(self) -> bool:
        """Whether the user chose this end, so that a gap above the tolerance is no failure."""
        return self.is_interrupt or self in (
            StopReason.MAX_PASSES,
            StopReason.MAX_TIME,
            StopReason.PATIENCE,
        )
