"""Covariates of the softmax loss: the Hessian in their coefficients, and the balance of residuals.

With z_i in R^q, the coefficients of all classes are K q numbers, and the Hessian of the losses in them is

    sum_i s_i (diag(p_i) - p_i p_i') kron z_i z_i'

The blocks of a row of it add up to 0, so that a block on the diagonal is minus the sum of the others,
without loss of digits where probabilities are nearly 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fcl import kernels
from fcl.objective.covariates import FLAT, inverse_root
from fcl.parallel import one_blas_thread
from fcl.types import Floats

#: Number of rows whose columns are multiplied at a time.
CHUNK = 1024
#: Blocks whose Hessians are in memory at a time.
BLOCKS_AT_ONCE = 4
#: Rows times coefficients squared up to which the Hessian covers all rows; beyond, a share of them.
MOST_PRODUCTS = 4e9
#: Corrections of residuals; the second one balances the truncation to the grid of the prices.
CORRECTIONS = 2
#: Largest change of a probability by balancing, as a share of it: a point of the simplex stays one.
MOST_MOVED = 0.5


def free_hessian(of: Any, m: Floats, share: float) -> Floats:
    """The Hessian of the losses in the coefficients of the covariates, float64 (K q, K q).

    of : :class:`fcl.objective.softmax.SoftmaxOutputs`.  m : float64 (K, n).  share : the weight of equal
    probabilities that are mixed with those at m.
    """
    z = of.covariates
    K, size = of.n_outputs, of.n_free
    stride = max(1, round(of.n_rows * float(size) ** 2 / MOST_PRODUCTS))
    equal = share / (1.0 + share)

    def block(rows: slice) -> tuple[Floats, float]:
        out, weight = np.zeros((size, size)), 0.0
        for start in range(rows.start, rows.stop, CHUNK * stride):
            stop = min(start + CHUNK, rows.stop)
            s, p = of.s[start:stop], np.empty((K, stop - start))
            kernels.softmax.probabilities(of.s, m, np.zeros(K), start, stop, of.work(), p)
            p = (1.0 - equal) * p + equal / K * np.sqrt(s)
            columns = (p.T[:, :, None] * z.values[start:stop, None, :]).reshape(-1, size)
            out += columns.T @ columns
            weight += float(s.sum())
        return out, weight

    total, weight, blocks = np.zeros((size, size)), 0.0, list(of.blocks())
    with one_blas_thread():
        for first in range(0, len(blocks), BLOCKS_AT_ONCE):
            for part, own in of.team.map(block, blocks[first : first + BLOCKS_AT_ONCE]):
                total -= part
                weight += own
    if stride > 1:
        total *= float(of.s.sum()) / weight
    return close_blocks(total.reshape(K, z.q, K, z.q))


def close_blocks(hessian: Floats) -> Floats:
    """A Hessian (K, q, K, q) as a matrix (K q, K q), whose diagonal blocks follow from the others."""
    K, q = hessian.shape[:2]
    for k in range(K):
        hessian[k, :, k] = 0.0
        hessian[k, :, k] = -hessian[k].sum(axis=1)
    return hessian.reshape(K * q, K * q)


def balanced(of: Any, r: Floats, m: Floats, close: Callable[[Floats], None]) -> Floats:
    """Residuals r~, float64 (K, n), of which sum_i r~_ik z_i = 0 for every class, up to rounding.

    With A_i = Y_i + r_i / s_i in the simplex and u_i = X z_i, so is

        A~_ik = A_ik (1 - u_ik + sum_l A_il u_il),    |u_ik| <= 1/2

    which is the first-order effect of a Newton step X of the coefficients. Residuals of other classes at
    most double.

    r, m : float64 (K, n), residuals and margins of one point.  close : see :meth:`SoftmaxOutputs.close`,
    on all rows, so that a point of the simplex is left on the grid of the prices.
    """
    root = inverse_root(free_hessian(of, m, 0.0), FLAT)
    x, found = np.zeros(of.n_free), r
    for _ in range(CORRECTIONS):
        x += root @ (root.T @ of.free_sums(found))
        found = np.zeros_like(r)
        of.add_free(x, found)

        def block(rows: slice, moves: Floats = found) -> None:
            u, own = moves[:, rows], r[:, rows]
            np.clip(u, -MOST_MOVED, MOST_MOVED, out=u)
            shares = own / of.s[rows]
            shares[of.y[rows].astype(np.intp), np.arange(own.shape[1])] += 1.0
            u -= (shares * u).sum(axis=0)
            u[:] = own - own * u

        of.team.map(block, list(of.blocks()))
        close(found)
    return found
