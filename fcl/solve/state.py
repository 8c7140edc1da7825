"""The state that the steps share: points, the anchor, the working set and the local problem.

An **anchor** is a point (w, b) at which everything is exact: its margins are computed from the weights
alone, by one pass in a fixed order, so that equal weights give bitwise equal margins whatever happened
before. Certificates belong to anchors.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.arrays import Arrays, zeros
from fcl.cache import LiveColumns
from fcl.objective.limits import Limits, sizes
from fcl.types import Floats, Ids

Columns = npt.NDArray[np.intp]  # numbers of live columns


def is_active(weights: Floats) -> npt.NDArray[np.bool_]:
    """Whether features have a weight, bool (k,); weights : float64 (k,), or (k, K)."""
    nonzero: npt.NDArray[np.bool_] = weights != 0.0
    return np.asarray(nonzero.any(axis=tuple(range(1, weights.ndim))))


@dataclass(frozen=True)
class Point:
    """Nonzero weights of a few features, by strictly increasing ``ids``, and the unpenalised part.

    weights : float64 (k,), or (k, K) with K outputs: a feature is listed if any of its weights is not 0.
    covariates : float64 (q,), coefficients of the covariates. Their columns include the constant; an
        ``intercept`` beside them is what a search has yet to add to its coefficient. With K outputs,
        float64 (K q,), those of one output after those of another; without covariates the intercepts,
        float64 (K,); ``intercept`` is 0.
    """

    ids: Ids
    weights: Floats
    intercept: float
    covariates: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def make(
        cls, ids: Ids, weights: Floats, intercept: float, covariates: Floats | None = None
    ) -> Point:
        """Make a point from unsorted ids, omitting weights of 0."""
        keep = is_active(weights)
        ids, weights = ids[keep], weights[keep]
        order = np.argsort(ids)
        v = np.empty(0) if covariates is None else covariates
        return cls(ids[order], weights[order], float(intercept), v)

    @classmethod
    def of_outputs(cls, ids: Ids, weights: Floats, free: Floats, has_covariates: bool) -> Point:
        """Make a point from weights (k, K), and unpenalised coefficients (q, K) of each output.

        has_covariates : whether these are coefficients of covariates, or else the intercepts alone.
        """
        if weights.shape[1] > 1:
            return cls.make(ids, weights, 0.0, free.T.ravel())
        if has_covariates:
            return cls.make(ids, weights[:, 0], 0.0, free[:, 0])
        return cls.make(ids, weights[:, 0], free.sum())

    @property
    def weights_by_output(self) -> Floats:
        """The weights as a table with a column for each output, float64 (k, K)."""
        return self.weights.reshape(len(self.ids), math.prod(self.weights.shape[1:]))

    @property
    def free_by_output(self) -> Floats:
        """The unpenalised part as a table with a column for each output, float64 (q, K)."""
        return self.free.reshape(math.prod(self.weights.shape[1:]), -1).T

    @classmethod
    def nothing(cls, outputs: tuple[int, ...], n_covariates: int = 0) -> Point:
        """The point of which all weights and coefficients are 0.

        outputs : (K,) with K outputs, whose intercepts are then listed, or () with one.
        """
        v = np.zeros(max(n_covariates, *outputs, 0))
        return cls(np.empty(0, np.int64), np.empty((0, *outputs)), 0.0, v)

    @property
    def free(self) -> Floats:
        """The unpenalised part: coefficients of covariates, or the intercept alone."""
        return self.covariates if len(self.covariates) else np.array([self.intercept])

    def with_free(self, x: Floats) -> Point:
        """The same weights with another unpenalised part, of the same kind."""
        if len(self.covariates):
            return replace(self, intercept=0.0, covariates=x)
        return replace(self, intercept=float(x.sum()))

    def weights_of(self, ids: Ids) -> Floats:
        """The weights of any features; 0 for features without one."""
        out = np.zeros((len(ids), *self.weights.shape[1:]))
        if len(self.ids):
            at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            here = self.ids[at] == ids
            out[here] = self.weights[at[here]]
        return out

    def within(self, limits: Limits) -> Point:
        """This point with its weights moved into their limits."""
        if limits.unlimited:
            return self
        weights = limits.within(self.ids, self.weights)
        kept = is_active(weights)
        return replace(self, ids=self.ids[kept], weights=weights[kept])

    def toward(self, other: Point, beta: float, intercept: float) -> Point:
        """This point + beta * (other - this point), with a given intercept."""
        ids = np.union1d(self.ids, other.ids)
        mine = self.weights_of(ids)
        v = self.covariates + beta * (other.covariates - self.covariates)
        return Point.make(ids, mine + beta * (other.weights_of(ids) - mine), intercept, v)

    def beyond(self, before: Point) -> Point:
        """This point plus its difference from one before, without weights that would change sign."""
        weights = 2.0 * self.weights - before.weights_of(self.ids)
        kept = np.where(weights * self.weights > 0.0, weights, 0.0)
        v = 2.0 * self.covariates - before.covariates
        return Point.make(self.ids, kept, 2.0 * self.intercept - before.intercept, v)


@dataclass
class Anchor:
    """An accepted point, with its margins (float64 (n,), without the intercept) and objective.

    Margins of K outputs are float64 (K, n), with their intercepts.

    The objective never exceeds that of the previous anchor: of two values that differ by rounding alone
    the anchor keeps the lower one.
    """

    point: Point
    margins: Floats
    objective: float


#: arrays of the working set that have a row for each of K outputs
BY_OUTPUT = "weights anchor_weights gradients curvatures correction floor"


def working_arrays(max_columns: int, outputs: tuple[int, ...] = ()) -> Arrays:
    """The arrays of a working set, without the cache."""
    each = Arrays(("f8", max_columns, "factor"), ("?", max_columns, "seen"))
    return each + Arrays(("f8", (*outputs, max_columns), BY_OUTPUT))


@dataclass
class WorkingSet:
    """The cached columns and the trainer's data on each of them.

    The arrays have room for ``cache.max_columns``; entry j belongs to live column j. With K outputs those
    named in ``BY_OUTPUT`` have a row for each. Weights of features that are not cached are *frozen*: they
    act through the margins of the anchor.
    """

    cache: LiveColumns
    outputs: tuple[int, ...] = ()  #: (K,) with K outputs, () with one
    factor: Floats = field(init=False)  #: f_j in the penalty
    weights: Floats = field(init=False)  #: the trainer's point
    anchor_weights: Floats = field(init=False)  #: the anchor's
    gradients: Floats = field(init=False)  #: g_j at the anchor over all rows, exact
    #: h_j at the anchor over the rows of the view; unused if the view is not approximate
    curvatures: Floats = field(init=False)
    correction: Floats = field(init=False)  #: c_j: exact gradient minus the view's, at the anchor
    floor: Floats = field(init=False)  #: kappa_j: curvature that the view misses
    seen: npt.NDArray[np.bool_] = field(init=False)  #: by both a local solve and a pass
    _parts: list[WorkingSet] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        vars(self).update(working_arrays(self.cache.max_columns, self.outputs).allocate(zeros))
        self.factor[:] = 1.0
        self._divide()

    def _divide(self) -> None:
        self._parts = [self._part(k) for k in range(*self.outputs or (0,))]

    @property
    def parts(self) -> list[WorkingSet]:
        """The working set of each output, in rows of these arrays."""
        return self._parts or [self]  # a list that held itself would outlive the run

    def _part(self, k: int) -> WorkingSet:
        part = copy(self)
        part.outputs, part._parts = (), []
        for name in BY_OUTPUT.split():
            setattr(part, name, getattr(self, name)[k])
        return part

    def change_room(self) -> None:
        """Make room for as many columns as the cache has now."""
        before = dict(vars(self))
        self.__post_init__()
        kept = min(self.cache.max_columns, len(before["factor"]))
        for name in working_arrays(0):
            getattr(self, name)[..., :kept] = before[name][..., :kept]

    def enter(self, first: int, factors: Floats, weights: Floats, gradients: Floats) -> None:
        """Initialise the entries of columns that have just been admitted, from number ``first`` on."""
        new = slice(first, first + len(factors))
        self.factor[new] = factors
        self.put("weights", weights, first)
        self.put("anchor_weights", weights, first)
        self.put("gradients", gradients, first)
        for name in ("curvatures", "correction", "floor"):
            getattr(self, name)[..., new] = 0.0
        self.seen[new] = False

    def of(self, name: str) -> Floats:
        """An array of the live columns, float64 (columns,), or a copy (columns, K) with K outputs."""
        return np.ascontiguousarray(getattr(self, name)[..., : self.cache.n].T)

    def put(self, name: str, values: Floats, first: int = 0) -> None:
        """Set an array of the columns from number ``first`` on, from (columns,) or (columns, K)."""
        getattr(self, name)[..., first : first + len(values)] = values.T

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the columns that are not kept; their anchor weights become frozen."""
        kept = np.flatnonzero(keep)
        for name in working_arrays(0):
            array = getattr(self, name)
            array[..., : len(kept)] = array[..., kept]
        self.cache.evict(keep)


@dataclass
class LocalPoint:
    """The local objective of a view, divided by C, at one point and in some of the columns."""

    view: Any  #: RowView
    working: WorkingSet
    columns: Columns
    weights: Floats
    gradients: Floats  #: of the smooth part
    curvatures: Floats  #: of the losses over the view
    floor: Floats  #: kappa_j: coefficients of (w_j - w_e,j)^2 / 2, around the anchor
    absolute: Floats  #: coefficients of |w_j|
    ridge: Floats  #: coefficients of w_j^2 / 2
    low: Floats  #: limits of the weights
    high: Floats
    loss: float  #: sum of the weighted losses over the view
    slopes: Floats  #: in the free coefficients, float64 (n_free,)

    @property
    def slots(self) -> Ids:
        return self.working.cache.slots[self.columns]

    @property
    def ids(self) -> Ids:
        return self.working.cache.ids[self.columns]

    @property
    def movable(self) -> npt.NDArray[np.bool_]:
        """Which columns may move: those with a weight, and those that violate."""
        slopes = sizes(self.gradients, self.low, self.high)
        return np.asarray((self.weights != 0.0) | (slopes > self.absolute))

    def take(self, which: Columns) -> LocalPoint:
        """The same point, in a subset of the columns."""
        parts: Any = {
            name: array[which]
            for name, array in vars(self).items()
            if isinstance(array, np.ndarray) and name != "slopes"
        }
        return replace(self, **parts)


@dataclass
class Step:
    """A step of the weights of some columns, and of the free coefficients."""

    d: Floats
    x: Floats
    sweeps: int
    cut: bool = False  #: whether it ended at its limit of entries
    rough: bool = False  #: whether it may leave the last digits of its model
