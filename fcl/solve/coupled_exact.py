"""Exact minimisation of the inner model of K outputs that are trained together.

As for one output (:mod:`fcl.solve.exact`), coordinate descent takes millions of sweeps where columns or
rows have very different scales, and it works in float32. Small models are minimised in float64 instead,
with their whole Hessian over all rows of the view.

The Hessian of row i is the sum of c_il c_il' over the outputs l, where c_il = sqrt(s_i p_il) (e_l - p_i)
for softmax and sqrt(p_il) e_l for separate losses. The model is thus a least-squares problem with a row
for each row and output, and its free coefficients are eliminated by orthogonal projection, without loss
of digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from fcl.solve.columns import over_point
from fcl.solve.coupled_groups import minimise_groups
from fcl.solve.coupled_model import RowHessians
from fcl.solve.quadratic import minimise_quadratic
from fcl.solve.state import Columns, LocalPoint, Step
from fcl.types import Floats

#: Rows times outputs times the weights squared up to which a model is minimised exactly (milliseconds),
#: and up to which it is after coordinate descent has failed (about a second).
CHEAP_WORK, DEAR_WORK = 3e7, 3e9
#: Weights, and numbers over rows, up to which it may be.
MOST_WEIGHTS = 512
MOST_NUMBERS = 1 << 20
#: Entries of the least-squares problem in memory at a time.
CHUNK_ENTRIES = 1 << 17
#: A free coefficient depends on others if its column, orthogonal to theirs, is below this share of it.
DEPENDENT = 1e-12


def _numbers(n_rows: int, n_columns: int, n_outputs: int, q: int) -> int:
    """Numbers over rows: the dense columns, the factors of the Hessians, and the free columns' basis."""
    return n_rows * (n_columns + (1 + 2 * max(1, q)) * n_outputs**2)


def is_exact(at: LocalPoint, careful: bool) -> bool:
    """Whether the model at a point is minimised exactly.

    careful : whether coordinate descent has failed.
    """
    (k, n_outputs), n, z = at.weights.shape, at.view.objective.n_rows, at.view.objective.covariates
    q = 0 if z is None else z.q
    weights = k * n_outputs
    fits = weights <= MOST_WEIGHTS and _numbers(n, k, n_outputs, q) <= MOST_NUMBERS
    work = float(n * n_outputs) * weights**2
    return at.view.complete and fits and work <= (DEAR_WORK if careful else CHEAP_WORK)


def exact_bytes(n_rows: int, n_columns: int, n_outputs: int, q: int) -> int:
    """Bytes that :func:`minimise_exactly` allocates.

    n_columns : number that may be active.  q : number of covariates.
    """
    if _numbers(n_rows, 1, n_outputs, q) > MOST_NUMBERS:
        return 0
    numbers = min(_numbers(n_rows, n_columns, n_outputs, q), MOST_NUMBERS)
    weights = min(n_columns * n_outputs, MOST_WEIGHTS)
    return 8 * (numbers + 3 * min(n_rows * n_outputs * weights, CHUNK_ENTRIES) + 8 * weights**2)


def minimise_exactly(
    at: LocalPoint,
    hessians: RowHessians,
    raised: float,
    tolerance: float,
    cease: Callable[[], bool],
) -> Step:
    """The step that minimises the model at a point; arguments as for ``minimise_model``."""
    (k, n_outputs), n = at.weights.shape, at.view.objective.n_rows
    factors = hessians.factors()
    columns = factors[:, :, : len(at.slopes)]
    if hessians.z is not None:
        columns = columns[:, :, :, None] * hessians.z[:, None, None, :]
    free = _Free.of(columns.reshape(n * n_outputs, -1))
    dense = np.empty((n, k))

    def keep(part: Floats, rows: slice) -> float:
        dense[rows] = part.T
        return 0.0

    over_point(at, keep)
    size = max(1, CHUNK_ENTRIES // (n_outputs * k * n_outputs))
    chunks = [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def products(rows: slice) -> tuple[Floats, Floats]:
        """The columns of the weights at some rows, and the basis of the free coefficients there."""
        part = factors[rows, :, None, :] * dense[rows, None, :, None]
        basis = free.basis[rows.start * n_outputs : rows.stop * n_outputs]
        return part.reshape(-1, k * n_outputs), basis

    cross = np.zeros((free.basis.shape[1], k * n_outputs))
    for rows in chunks:
        part, basis = products(rows)
        cross += basis.T @ part
    hessian = np.zeros((k * n_outputs, k * n_outputs))
    for rows in chunks:
        part, basis = products(rows)
        part = part - basis @ cross
        hessian += part.T @ part
    own = hessian.diagonal().copy()
    diagonal = np.diag_indices_from(hessian)
    hessian[diagonal] += (at.floor + at.ridge[:, None]).ravel() + raised * own
    gradients = at.gradients.ravel() - cross.T @ free.scaled(at.slopes)
    start = at.weights
    if at.view.objective.penalty.grouped:
        weights, sets = minimise_groups(hessian, gradients, at.absolute, start, tolerance, cease)
    else:
        absolute = np.repeat(at.absolute, n_outputs)
        found, sets = minimise_quadratic(
            hessian, gradients, absolute, start.ravel(), min(tolerance, 1e-6), cease=cease
        )
        weights = found.reshape(start.shape)
    d = weights - start
    return Step(d, free.step(at.slopes, cross @ d.ravel()), sets)


@dataclass(frozen=True)
class _Free:
    """The free coefficients' columns in the least-squares problem, as basis times triangle."""

    basis: Floats  #: float64 (rows * K, r), orthonormal
    triangle: Floats  #: float64 (r, r)
    order: Columns  #: the r coefficients that are independent; the others stay
    n_free: int

    @classmethod
    def of(cls, columns: Floats) -> _Free:
        """Factorise the columns, float64 (rows * K, n_free)."""
        n_free = columns.shape[1]
        if not n_free:
            return cls(columns[:, :0], np.empty((0, 0)), np.empty(0, np.intp), 0)
        scale = np.linalg.norm(columns, axis=0)
        scale = np.where(scale > 0.0, scale, 1.0)
        basis, triangle, order = qr(columns / scale, mode="economic", pivoting=True)
        rank = int(np.count_nonzero(np.abs(np.diag(triangle)) > DEPENDENT))
        order = order[:rank]
        return cls(basis[:, :rank], triangle[:rank, :rank] * scale[order], order, n_free)

    def scaled(self, slopes: Floats) -> Floats:
        """The slopes of the free coefficients in the coordinates of the basis."""
        found: Floats = solve_triangular(self.triangle, slopes[self.order], trans="T")
        return found if self.n_free else np.empty(0)

    def step(self, slopes: Floats, moved: Floats) -> Floats:
        """The best step of the free coefficients, given what the weights' step moves in the basis."""
        x = np.zeros(self.n_free)
        if self.n_free:
            x[self.order] = solve_triangular(self.triangle, -self.scaled(slopes) - moved)
        return x
