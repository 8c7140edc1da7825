"""What training gives back."""

from __future__ import annotations

import math
import resource
import sys
from dataclasses import dataclass
from enum import StrEnum

from fcl.model.certificate import Certificate, Scope
from fcl.model.model import Model

__all__ = ["StopReason", "TrainResult", "end_in_words", "peak_memory"]


class StopReason(StrEnum):
    """Why a training ended."""

    TOLERANCE = "tolerance"
    MAX_PASSES = "max-passes"
    MAX_TIME = "max-time"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"  #: rounding explains the gap
    NO_PROGRESS = "no-progress"


@dataclass(frozen=True)
class TrainResult:
    """A model, and how training ended.

    Times are in seconds, of this run alone where it went on from a checkpoint; ``passes`` are of all.
    """

    model: Model
    converged: bool
    reason: StopReason
    message: str
    seconds: dict[str, float]
    peak_memory: int  #: bytes, over all processes
    passes: int
    checkpoint_failed: bool = False  #: the last checkpoint could not be written

    @property
    def certificate(self) -> Certificate:
        """What is proved of the model."""
        return self.model.certificate


def end_in_words(
    reason: StopReason, certificate: Certificate, tol: float, rounding: float = math.nan
) -> str:
    """Why training ended, for the user. rounding : relative gap that rounding may leave."""
    reached = f"relative gap {certificate.gap:.2e}, asked {tol:.2e}"
    if certificate.scope is not Scope.FAMILY:
        reached += f", over {certificate.scope_text}"
    return {
        StopReason.TOLERANCE: f"converged: {reached}",
        StopReason.MAX_PASSES: f"reached max_passes: {reached}; raise max_passes or tol",
        StopReason.MAX_TIME: f"reached max_time: {reached}; raise max_time or tol",
        StopReason.INTERRUPTED: f"interrupted: {reached}",
        StopReason.STALLED: f"rounding of float64 lets no step lower the objective any more: "
        f"{reached}, of which rounding may leave {rounding:.1e}; raise tol",
        StopReason.NO_PROGRESS: f"the last passes lowered neither objective nor gap: {reached}, "
        f"of which rounding may leave {rounding:.1e}; scale the columns, lower C, or raise tol",
    }[reason]


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes.

    Not ``ru_maxrss`` where it can be helped: on Linux a child begins with that of the process that
    started it.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
