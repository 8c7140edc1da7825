"""Exact minimisation of the inner model, with its whole Hessian.

The worse the columns are conditioned, the more sweeps coordinate descent takes: with columns of very
different scales, near-copies, or nearly interpolated rows it would take millions. If there are few
columns, this module computes their Hessian over all rows of the view in float64, and
:mod:`fcl.solve.quadratic` minimises the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fcl.kernels import columns as column_kernels
from fcl.solve.clipped import most_entries
from fcl.solve.columns import CHUNK_ENTRIES, SPARSE, column_moments, over_point
from fcl.solve.elimination import elimination
from fcl.solve.quadratic import FIRST_SWEEPS, minimise_in_box, minimise_quadratic
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet
from fcl.types import Floats

#: Number of columns up to which a Hessian is computed.
MOST_COLUMNS = 1024
#: Dense products that take as long as reading an entry in a sweep.
PRODUCTS_AN_ENTRY = 20.0
#: Share of the diagonal that elimination must leave, so that the subtraction costs at most 3 digits.
LEAST_LEFT = 1e-3


def hessian_bytes(columns: int, n_rows: int) -> int:
    """Bytes that a step allocates: the Hessian, its factors, and columns for it.

    :mod:`fcl.solve.clipped` holds up to three copies of its columns, and about thirty vectors over the
    rows, which together take at most four more chunks.
    """
    copy = max(2 * CHUNK_ENTRIES, min(most_entries(n_rows, columns), n_rows * columns))
    return 8 * (8 * columns**2 + 3 * copy + 4 * CHUNK_ENTRIES)


def minimise_whole(at: LocalPoint, q: Floats, tolerance: float, cease: Callable[[], bool]) -> Step:
    """The step that minimises the model at a point, in which the free coefficients are eliminated.

    q : float64 (n_rows,), curvatures of the rows of the view.
    tolerance : violation up to which a weight of 0 stays out of the active set.
    cease : whether to stop and return the best point so far.
    """
    view = at.view
    root = elimination(view.objective, q, view.free_floor)
    sums = _sums(at, q)
    cross = sums @ root
    coefs = cross @ root.T
    # floors retain a part of what is eliminated
    hessian = _sparse_hessian(at, q, sums, coefs)
    if hessian is None:
        hessian = _hessian(at, q, coefs)
    hessian += (coefs * view.free_floor) @ coefs.T
    diagonal = np.diag_indices_from(hessian)
    hessian[diagonal] += at.floor + at.ridge
    gradients, tolerance = at.gradients - coefs @ at.slopes, min(tolerance, 1e-6)
    if view.objective.penalty.limits.unlimited:
        rank = len(at.columns) if at.ridge.any() else int(np.count_nonzero(q))
        weights, sets = minimise_quadratic(
            hessian, gradients, at.absolute, at.weights, tolerance, rank, cease
        )
    else:
        limits = at.low, at.high
        weights, sets = minimise_in_box(
            hessian, gradients, at.absolute, *limits, at.weights, tolerance, cease
        )
    d = weights - at.weights
    return Step(d, root @ (-(at.slopes @ root) - d @ cross), sets)


def hessian_work(working: WorkingSet, columns: Columns, n_rows: int) -> float:
    """Number of entries that sweeps read in about the time that :func:`minimise_whole` takes."""
    k = len(columns)
    filled = float(working.cache.store.nonzeros[working.cache.slots[columns]].sum())
    if filled <= SPARSE * k * n_rows:
        products = filled + 0.5 * filled * filled / max(n_rows, 1)
    else:
        products = n_rows * (k + k**2 / PRODUCTS_AN_ENTRY)
    return products + FIRST_SWEEPS * k**2 + k**3 / PRODUCTS_AN_ENTRY


def _sums(at: LocalPoint, q: Floats) -> Floats:
    """sum_i q_i phi_ij z_i over the unpenalised columns z, float64 (k, n_free)."""
    objective = at.view.objective
    if objective.covariates is None:
        cross_sums, _ = column_moments(at.working, at.columns, q, q, objective.team)
        return np.repeat(cross_sums[:, None], objective.n_free, axis=1)
    z = objective.covariates.values
    return over_point(at, lambda part, rows: part @ (z[rows] * q[rows, None]))


def _sparse_hessian(at: LocalPoint, q: Floats, sums: Floats, coefs: Floats) -> Floats | None:
    """The Hessian of sparse columns, by the pairs of nonzeros in a row; None if others are faster.

    What elimination takes away is subtracted from sums over the rows, which loses digits of columns
    that are nearly combinations of the unpenalised ones; these are left to :func:`_hessian`, too.

    sums, coefs : float64 (k, n_free).
    """
    k, part, cache, slots = len(at.columns), at.view.objective, at.working.cache, at.slots
    filled = cache.store.nonzeros[slots].sum()
    if filled > SPARSE * k * part.n_rows:
        return None
    hessian = np.zeros((k, k))
    shape = max(64, CHUNK_ENTRIES // k // 64 * 64), k
    buffers = np.empty(shape, np.int32), np.empty(shape)
    for block in range(cache.store.n_blocks):
        column_kernels.add_sparse_gram(cache.pieces, slots, block, q, *buffers, hessian)
    hessian += np.triu(hessian, 1).T
    whole = hessian.diagonal().copy()
    product = sums @ coefs.T
    hessian -= product
    hessian -= product.T
    hessian += coefs @ part.free_gram(q) @ coefs.T
    return hessian if (hessian.diagonal() >= LEAST_LEFT * whole).all() else None


def _hessian(at: LocalPoint, q: Floats, coefs: Floats) -> Floats:
    """sum_i q_i (phi_ij - coefs_j z_i) (phi_ik - coefs_k z_i), float64 (k, k).

    coefs : float64 (k, n_free), of the projections of the columns on the unpenalised ones.
    """
    covariates = at.view.objective.covariates

    def chunk(part: Floats, rows: slice) -> Floats:
        if covariates is not None:
            part -= coefs @ covariates.values[rows].T
        elif coefs.shape[1]:
            part -= coefs
        part *= np.sqrt(q[rows])
        return part @ part.T

    return over_point(at, chunk)
