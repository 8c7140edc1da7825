"""The state of a run between two passes: what a checkpoint saves, and what a driver resumes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.arrays import of_outputs
from fcl.solve.outer import Certified, OuterState
from fcl.solve.sampling import LastStep, SampleState
from fcl.solve.state import Point
from fcl.solve.trainer import TrainerState
from fcl.types import Ids

Arrays = dict[str, np.ndarray]

#: fields that a file has under their own names
_OUTER = ("objective", "bound", "max_violation", "gap", "sharpness")
_TRAINER = tuple(field.name for field in fields(TrainerState))
_COUNTERS = ("idle", "beta", "evicted")


@dataclass(frozen=True)
class BestPass:
    """The pass with the lowest held-out loss, which early stopping returns to."""

    number: int
    loss: float
    point: Point  #: its anchor


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Everything that the rest of a run depends on, before a pass; nothing in it is a proof.

    The ``processes`` driver stores no trainer state and does not know which columns the trainer has
    seen.
    """

    outer: OuterState
    cached: Ids  #: cached features, in the order of the cache
    seen: npt.NDArray[np.bool_]  #: whether a local solve and a pass have seen each of them
    trainer: TrainerState = field(default_factory=TrainerState)
    sample: SampleState | None = None  #: None: the trainer works on all rows
    idle: int = 0  #: passes in a row without progress
    beta: float = 0.0  #: share of the last step that was taken
    evicted: int = 0  #: columns evicted before the last pass
    last: Certified | None = None  #: of the last pass, only for :meth:`Certified.progressed`
    untried: Point | None = None  #: a point that no search has judged yet
    best_pass: BestPass | None = None  #: for early stopping
    slots: int = 0  #: columns for which the directory has room; 0 if it cannot grow

    @property
    def most_active(self) -> int:
        """The most features with a weight of a point from which a run resumes."""
        kept = None if self.best_pass is None else self.best_pass.point
        points = (self.outer.point, self.outer.best, self.untried, kept)
        return max(len(point.ids) for point in points if point is not None)

    def to_file(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays by name, as ``fcl/model/CHECKPOINT.md`` declares them."""
        outer, sample = self.outer, self.sample
        numbers: dict[str, Any] = {
            **{name: getattr(outer, name) for name in _OUTER},
            **asdict(self.trainer),
            **{name: getattr(self, name) for name in _COUNTERS},
            "last": {},
        }
        arrays: Arrays = {"cached": self.cached, "seen": self.seen}
        if self.last is not None:
            numbers["last"] = {"objective": self.last.objective, "bound": self.last.bound}
        if self.slots:
            numbers["slots"] = self.slots
        if self.best_pass is not None:
            numbers["best_pass"] = {"number": self.best_pass.number, "loss": self.best_pass.loss}
            _put(numbers["best_pass"], "intercept", arrays, "kept_", self.best_pass.point)
        if outer.point.weights.ndim > 1:
            numbers["n_outputs"] = outer.point.weights.shape[1]
        _put(numbers, "intercept", arrays, "", outer.point)
        _put(numbers, "best_intercept", arrays, "best_", outer.best)
        _put(numbers, "untried_intercept", arrays, "untried_", self.untried)
        if sample is not None:
            numbers["sample"] = asdict(sample)
            del numbers["sample"]["origin"]
            _put(numbers["sample"], "intercept", arrays, "sample_", sample.origin)
        return numbers, arrays

    @classmethod
    def from_file(cls, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> RunState:
        """The inverse of :meth:`to_file`, for a validated file; older versions store less."""
        K = numbers.get("n_outputs") or 1
        point = _get(numbers, "intercept", arrays, "", K)
        assert point is not None
        last, sample = numbers["last"], numbers.get("sample")
        state = None
        if sample is not None:
            rest = {k: v for k, v in sample.items() if k not in ("intercept", "step")}
            origin = _get(sample, "intercept", arrays, "sample_", K)
            state = SampleState(**rest, step=LastStep(**sample["step"]), origin=origin)
        best = numbers.get("best_pass")
        if best is not None:
            kept = _get(best, "intercept", arrays, "kept_", K)
            assert kept is not None
            best = BestPass(best["number"], best["loss"], kept)
        return cls(
            outer=OuterState(
                point=point,
                best=_get(numbers, "best_intercept", arrays, "best_", K),
                **{name: numbers[name] for name in _OUTER},
            ),
            cached=arrays["cached"],
            seen=arrays["seen"],
            trainer=TrainerState(**{k: numbers[k] for k in _TRAINER if k in numbers}),
            sample=state,
            **{name: numbers[name] for name in _COUNTERS},
            last=None
            if last.keys() < {"objective", "bound"}
            else Certified(last["objective"], last["bound"], math.inf, math.inf, 0),
            untried=_get(numbers, "untried_intercept", arrays, "untried_", K),
            best_pass=best,
            slots=numbers.get("slots") or 0,
        )


def _put(
    numbers: dict[str, Any], name: str, arrays: Arrays, prefix: str, point: Point | None
) -> None:
    if point is not None:
        numbers[name] = point.intercept
        arrays[f"{prefix}ids"], arrays[f"{prefix}weights"] = point.ids, point.weights.ravel()
        if len(point.covariates):
            arrays[f"{prefix}covariates"] = point.covariates


def _get(
    numbers: Mapping[str, Any],
    name: str,
    arrays: Mapping[str, np.ndarray],
    prefix: str,
    n_outputs: int,
) -> Point | None:
    if numbers.get(name) is None:
        return None
    v = arrays.get(f"{prefix}covariates", np.empty(0))
    ids = arrays[f"{prefix}ids"]
    weights = arrays[f"{prefix}weights"].reshape(len(ids), *of_outputs(n_outputs))
    return Point(ids, weights, numbers[name], v)
