"""A dual point that is not limited by rounding of the margins.

The residuals of the anchor are computed from its margins, in float64. Where rows are nearly interpolated,
or values are very large, the residuals at the optimum are smaller than the rounding error of the margins,
and no float64 weights could give them: the bound then stalls far below an objective that is correct to
the last digit. But any vector in the domain of the dual proves a bound. This module searches near the
residuals for a vector that meets the optimality conditions of the nonzero weights, in extended precision.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fcl.features.prices import Prices
from fcl.objective import SingleOutput
from fcl.solve.outer import Outer
from fcl.solve.passes import Passes
from fcl.solve.state import Point
from fcl.types import Floats, Ids

#: Maximum weights, and entries of their columns: a few milliseconds of work, and up to four pricings.
MOST_WEIGHTS = 512
MOST_ENTRIES = 1 << 16
#: Number of corrections of a vector; each one corrects the rounding of the one before.
CORRECTIONS = 4
#: Shares of the rows that move: at first all, later those with the smallest residuals.
SHARES = 1.0, 0.5, 0.25
#: A column depends on the others if its component orthogonal to them is below this share of the largest.
DEPENDENT = 1e-13
#: A residual within this share of an end of the domain counts as being at that end.
EDGE = 1e-9
#: Weights that move no margin by more than this share of the largest change are left by rounding; without
#: them, the columns that remain are better conditioned.
FIRM = 1e-10
#: Maximum features that are returned, and the violation that they must exceed.
MOST_CANDIDATES, LEAST_VIOLATION = 8, 1e-12
#: Error of a margin relative to the sum of its terms' sizes: rounding, and changes that rounding hides
#: from the trainer.
ROUNDED = 256 * np.finfo(float).eps


@dataclass(frozen=True)
class Polished:
    """The result of :func:`polish`."""

    bound: float
    #: features that violate at the corrected residuals, and their gradients at the anchor
    ids: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    gradients: Floats = field(default_factory=lambda: np.empty(0))

    def added_to(self, prices: Prices) -> Prices:
        """The prices of the anchor, with these features after the other candidates, in no order."""
        new, shape = ~np.isin(self.ids, prices.ids), (-1, *prices.gradients.shape[1:])
        return replace(
            prices,
            ids=np.concatenate([prices.ids, self.ids[new]]),
            gradients=np.concatenate([prices.gradients, self.gradients[new].reshape(shape)]),
        )


def polish(passes: Passes, outer: Outer, known: Ids) -> Polished:
    """Correct the residuals of the anchor, and price the family there.

    If rounding explains the largest violation at the anchor, the result has the features that violate at
    the corrected residuals, except ``known`` ones: those with a weight or a cached column.
    """
    bound, prices = _corrected_prices(
        passes, outer.point, outer.threshold, outer.objective * (1.0 - outer.tol)
    )
    hidden = outer.max_violation - 1.0 <= passes.rounded(outer.point, reach=outer.reach)[1]
    if prices is None or not hidden:
        return Polished(bound)
    conditions = passes.conditions
    new = ~np.isin(prices.ids, known)
    ids = prices.ids[new]
    gradients = prices.gradients[new]
    over = conditions.violations(ids, gradients, np.zeros_like(gradients))
    worst = np.argsort(-over, kind="stable")[:MOST_CANDIDATES]
    ids = np.sort(ids[worst[over[worst] > LEAST_VIOLATION]])
    return Polished(bound, ids, passes.gradients(ids))


def polishable(passes: Passes, point: Point) -> bool:
    """Whether :func:`polish` can do anything.

    The point must be small, the losses smooth and separate, and its pass must price the whole family.
    """
    objective = passes.objective
    if passes.sampled or objective.loss.couples or not objective.loss.smooth:
        return False
    entries = objective.n_rows * (point.weights.size + objective.n_free)
    return 0 < point.weights.size <= MOST_WEIGHTS and entries <= MOST_ENTRIES


def polished_bound(passes: Passes, point: Point, threshold: float) -> float:
    """The dual bound from corrected residuals of a point, which the vector of residuals must hold."""
    return _corrected_prices(passes, point, threshold, math.inf)[0]


def _corrected_prices(
    passes: Passes, point: Point, threshold: float, enough: float
) -> tuple[float, Prices | None]:
    """The best bound from corrected residuals, and the prices there.

    Finds nothing for a point that is not :func:`polishable`. The vector of residuals must hold the
    residuals at the anchor ``point``; the call restores them.

    threshold : |g_j| / f_j below which prices need not be exact.  enough : bound at which to stop.
    """
    if not polishable(passes, point):
        return -math.inf, None
    outputs = _outputs(passes, point)
    own = passes.vectors.residuals.copy()
    residuals = passes.vectors.residuals.reshape(len(outputs), -1)
    subsets = [False, True] if any(not output.firm.all() for output in outputs) else [False]
    # the objective that the bound is compared with comes from rounded margins
    rounded = passes.rounded(point)[0]
    best: tuple[float, Prices | None] = -math.inf, None
    try:
        for firm, bare in itertools.product(subsets, (False, True)):
            for r, output in zip(residuals, outputs, strict=True):
                r[:] = output.corrected(firm, bare)
            prices, bound = passes.prove(np.empty(0, np.int64), threshold)
            if bound - rounded > best[0]:
                best = bound - rounded, prices
            if best[0] >= enough:
                break
    finally:
        passes.vectors.residuals[:] = own
    return best


@dataclass(frozen=True)
class _Output:
    """The conditions columns @ r = target of the residuals r of one output, and what is known of r."""

    columns: Floats  #: float64 (m, n), of length 1: of features with a weight, and unpenalised ones
    target: Floats  #: float64 (m,)
    firm: npt.NDArray[np.bool_]  #: which of them do not belong to a weight that rounding left
    residuals: Floats  #: at the anchor, float64 (n,)
    hidden: Floats  #: how far they move when margins move within their rounding error
    low: Floats  #: ends of the domain
    high: Floats

    def corrected(self, firm: bool, bare: bool) -> Floats:
        """Residuals that meet the conditions.

        firm : whether to leave out conditions that are not.  bare : whether to begin by dropping
        everything that the conditions do not require, which is noise where rows are interpolated.
        """
        own, some = self.residuals, self.firm if firm else np.ones(len(self.firm), bool)
        # residuals at an end of the domain stay there, as on the linear pieces of the Huber loss
        ends = (own <= _within(self.low)) | (own >= _within(self.high))
        sizes = np.maximum(np.where(ends, 0.0, np.abs(own)), self.hidden)
        start = np.where(ends, own, 0.0) if bare else own
        return _corrected(start, sizes, self.columns[some], self.target[some], self.low, self.high)


def _outputs(passes: Passes, point: Point) -> list[_Output]:
    """The conditions at a point, of each output."""
    objective, k = passes.objective, len(point.ids)
    n, penalty, factors = objective.n_rows, objective.penalty, passes.conditions.factors(point.ids)
    columns = np.zeros((k, n))
    for t in range(k):
        passes.family.write_margins(
            passes.prepared, point.ids[t : t + 1], np.ones(1), columns[t], None
        )
    weights = point.weights.reshape(k, -1)
    norms = np.linalg.norm(weights, axis=1, keepdims=True) if penalty.grouped else np.abs(weights)
    directions = weights / np.where(norms > 0.0, norms, 1.0)
    vectors = passes.vectors
    margins, residuals = (x.reshape(-1, n) for x in (vectors.accepted, vectors.residuals))
    found = []
    for number, part in enumerate(getattr(objective, "parts", (objective,))):
        w, direction = weights[:, number], directions[:, number]
        reached = penalty.limits.reached(point.ids, w)  # there any larger slope will do
        own = np.flatnonzero((w != 0.0) & ~reached)
        target = -(penalty.absolute(factors) * direction + penalty.ridge(factors) * w) / objective.C
        hidden = _hidden(part, margins[number], point.intercept, np.abs(w) @ np.abs(columns))
        sizes = np.maximum(np.sqrt(np.einsum("ij,ij->i", columns, columns)), 1e-300)
        moves = (sizes * np.abs(w))[own]
        rows = columns[own] / sizes[own, None]
        if part.covariates is None:
            free = np.full((part.n_free, n), 1.0 / math.sqrt(n))
        else:
            z = part.covariates.values.T
            free = z / np.linalg.norm(z, axis=1)[:, None]
        low, high = (end * part.s for end in part.loss.domain(part.y))
        found.append(
            _Output(
                np.vstack([rows, free]),
                np.append(target[own] / sizes[own], np.zeros(len(free))),
                np.append(moves > FIRM * moves.max(initial=0.0), np.ones(len(free), bool)),
                residuals[number].copy(),
                hidden,
                low,
                high,
            )
        )
    return found


def _hidden(objective: SingleOutput, margins: Floats, intercept: float, terms: Floats) -> Floats:
    """How far residuals move when margins move within their rounding error, float64 (n_rows,).

    Rounding may have set the residual of a row near a jump of the curvature to 0.

    terms : sums of the sizes of the features' terms.
    """
    rounded = ROUNDED * (np.abs(margins) + abs(intercept) + terms)
    low, high, q = np.empty((3, objective.n_rows))
    objective.residuals_curvatures(margins - rounded, low, q, intercept)
    objective.residuals_curvatures(margins + rounded, high, q, intercept)
    return np.abs(high - low)


def _within(end: Floats) -> Floats:
    """Numbers slightly inside an end of the domain."""
    return np.where(np.isfinite(end), (1.0 - EDGE) * end, end)


def _corrected(
    start: Floats, sizes: Floats, columns: Floats, target: Floats, low: Floats, high: Floats
) -> Floats:
    """A vector in [low, high] near ``start``, by ``sizes``, with columns @ vector = target."""
    vector, exact = start.copy(), columns.astype(np.longdouble)
    scale = np.where(target != 0.0, np.abs(target), max(np.abs(target).max(), 1e-300))
    best, least = vector, math.inf
    for share in SHARES:
        # the numbers of the last rows are small, and so float64 rounds them to finer steps
        some = np.where(np.abs(vector) <= np.quantile(np.abs(vector), share), sizes, 0.0)
        if not some.any():
            break
        vector = _nearer(vector, np.sqrt(some), columns, exact, target, low, high)
        miss = float((np.abs(target - exact @ vector) / scale).max())
        if miss < least:
            best, least = vector, miss
    return best


def _nearer(
    vector: Floats,
    roots: Floats,
    columns: Floats,
    exact: npt.NDArray[np.longdouble],
    target: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """The vector after the shortest corrections, in units of ``roots``, from independent columns."""
    from scipy.linalg import qr, solve_triangular

    basis, triangle, order = qr((columns * roots).T, mode="economic", pivoting=True)
    beyond = np.abs(np.diag(triangle))
    rank = int(np.count_nonzero(beyond > DEPENDENT * beyond[0]))
    basis, triangle, order = basis[:, :rank], triangle[:rank, :rank], order[:rank]
    for _ in range(CORRECTIONS):
        missing = (target - exact @ vector).astype(np.float64)[order]
        move = solve_triangular(triangle, missing, trans="T", check_finite=False)
        vector = np.clip(vector + roots * (basis @ move), low, high)
    return vector
