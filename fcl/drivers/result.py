"""The result of training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fcl.clock import parts_of
from fcl.facts import Fact, chosen, memory_fact, time_fact, validation_text
from fcl.model.certificate import Certificate, Scope
from fcl.model.facts import passes_text, trained_facts
from fcl.model.model import Model
from fcl.run.reasons import StopReason
from fcl.run.result import RunResult
from fcl.units import counted


@dataclass(frozen=True, kw_only=True)
class TrainResult(RunResult):
    """A model, and how training ended.

    In a job resumed from a checkpoint, ``seconds`` covers this run alone, and ``passes`` the whole job.

    Attributes
    ----------
    model : Model
        The model at the last anchor; with ``patience``, and unless training converged, the one with the
        lowest held-out loss.
    reason : StopReason
    message : str
        The reason in words.
    seconds : dict of str to float
        Time of each step, by its name; with the driver ``processes`` most are processor seconds of all
        writers together.
    peak_memory : int
        Bytes, over all processes.
    checkpoint_failed : bool
        Whether the last attempt to write a checkpoint failed.
    passes : int
        Number of passes, including pass 0, of the null model.
    limit_seconds : float
        The time that ``max_time`` limits: since the first pass began, without that of compiling.
    best_pass : int or None
        The pass of the lowest held-out loss, if the model is that of this pass (``patience``).
    wall_seconds : float
        The time of the run, to which the parts in ``facts()`` add up.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> result = fcl.train(data, "columns", C=1.0, tol=1e-6)
    >>> str(result.reason), result.converged
    ('tolerance', True)
    >>> len(result.history) == result.passes
    True
    >>> result.model.n_active
    3
    """

    model: Model
    passes: int
    limit_seconds: float = 0.0
    wall_seconds: float = 0.0
    best_pass: int | None = None

    @property
    def certificate(self) -> Certificate:
        """What is proved about the model."""
        return self.model.certificate

    def facts(self, validation: Mapping[str, Any] | None = None) -> list[Fact]:
        """How training ended, what is proved about the model, and what it took.

        validation : scores of the model by name, which the lines show too.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> facts = fcl.train(data, "columns", C=1.0).facts()
        >>> [fact.name for fact in facts][:4]
        ['stopped', 'objective', 'bound', 'gap']
        """
        passes = passes_text(self.passes, self.model.history)
        time = time_fact(parts_of(self.wall_seconds, self.seconds))
        facts = [self.stopped_fact(), *trained_facts(self.model)]
        if self.best_pass is not None:
            validation = self.history[self.best_pass]["validation"]
        if text := validation_text(validation):
            n_rows = (validation or {}).get("n_rows")
            over = "" if n_rows is None else f" over {counted(int(n_rows), 'row')}"
            facts.append(Fact("validation", f"{text}{over}"))
        return [
            *facts,
            time._replace(text=f"{time.text} ({passes})"),
            memory_fact(self.peak_memory, self.model.options.get("memory")),
        ]

    def _repr_html_(self) -> str:
        return self.model.to_html(chosen(self.facts(), "stopped", "time", "memory"))


def end_in_words(
    reason: StopReason,
    certificate: Certificate,
    tol: float,
    rounding: float = math.nan,
    lacking: str = "",
) -> str:
    """Explain to the user why training ended.

    rounding : relative gap that rounding alone can cause; for the reasons that mention it.
    lacking : what memory the run lacks; for the reason MEMORY.
    """
    reached = f"relative gap {certificate.gap_text}, requested {tol:g}"
    if certificate.scope is not Scope.FAMILY:
        reached += f", over {certificate.scope_text}"
    by_rounding = f"{reached}; rounding alone can cause a gap of {rounding:.1e}"
    words = {
        StopReason.MAX_PASSES: f"{reached}; raise max_passes or tol",
        StopReason.MAX_TIME: f"{reached}; raise max_time or tol",
        StopReason.STALLED: f"{by_rounding}; raise tol",
        StopReason.NO_PROGRESS: f"{by_rounding}; scale the columns, lower C, or raise tol",
    }.get(reason, reached)
    sentence = lacking if reason is StopReason.MEMORY else reason.sentence
    return f"{sentence}: {words}"
