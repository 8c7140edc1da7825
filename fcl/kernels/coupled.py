"""Coordinate descent on a quadratic model of K outputs that share columns, over gathered columns.

The model at the current point, for steps D (k, K) of the weights and x (K,) of the intercepts:

    penalty(W + D) + sum_jk lin_jk D_jk + lin_x . x + 1/2 sum_jk extra_jk D_jk^2 + 1/2 floor . x^2
              + 1/2 sum_i s_i [ sum_k p_ik dU_ik^2 - v_i^2 ]

    dU = D' Phi + x,   v_i = sum_l p_il dU_il

For *coupled* outputs (softmax) p are the probabilities, so the last sum is the exact Hessian
diag(p) - p p'. For separate outputs p are the curvatures, s is 1 and v stays 0. x follows D: the
intercepts are eliminated, as :mod:`fcl.solve.elimination` does for one output; they have the coordinates
b, which a step z on weight (j, k) changes by -z cross_jk.

The state is u = dU without x, and v of that u. A slope therefore reads one column and four vectors, and
a step writes two, for any number of outputs. p, s, u and v are float32, s in units of its largest entry.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.descent import soft_threshold, violation
from fcl.kernels.gather import GatheredColumns

#: Partial sums of a scalar product: so many that the compiler uses vector instructions without having to
#: change the order of a sum.
LANES = 256


class CoupledModel(NamedTuple):
    """The gathered model: k columns, K outputs, r coordinates of the intercepts."""

    columns: GatheredColumns
    p: np.ndarray  # float32 (K, rows)
    s: np.ndarray  # float32 (rows,), in units of ``unit``
    unit: float
    coupled: bool
    absolute: np.ndarray  # float64 (k,), factors of |w_jk|, or of |W_j.|_2
    lin: np.ndarray  # float64 (k, K)
    extra: np.ndarray  # float64 (k, K)
    curve: np.ndarray  # float64 (k, K): curvatures of coordinates, or eigenvalues of blocks
    vectors: np.ndarray  # float64 (k, K, K), eigenvectors of blocks in columns; or empty
    cross: np.ndarray  # float64 (k, K, r)
    before: np.ndarray  # float64 (k, K), the weights at the current point


@kernel
def fold(lanes):
    """The sum of the lanes, which it overwrites."""
    half = lanes.shape[0] // 2
    while half >= 16:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half //= 2
    total = 0.0
    for i in range(2 * half):
        total += np.float64(lanes[i])
    return total


@kernel
def _dense_slope(x, p, s, u, v, lanes):
    """sum_i x_i s_i p_i (u_i - v_i); overwrites ``lanes``, float32 (LANES,)."""
    lanes[:] = np.float32(0.0)
    n = x.shape[0]
    for first in range(0, n, LANES):
        m = min(LANES, n - first)
        x_part = x[first : first + m]
        p_part = p[first : first + m]
        s_part = s[first : first + m]
        u_part = u[first : first + m]
        v_part = v[first : first + m]
        for i in range(m):
            lanes[i] += x_part[i] * p_part[i] * s_part[i] * (u_part[i] - v_part[i])
    return fold(lanes)


@kernel
def dense_values(model, t):
    """The values of column t if it has an entry in every row, else an empty array."""
    cuts = model.columns.cuts[t]
    last = cuts[cuts.shape[0] - 1]
    dense = model.columns.values.shape[0] > 0 and last - cuts[0] == model.s.shape[0]
    return model.columns.values[cuts[0] : last if dense else cuts[0]]


@kernel
def slope(model, t, k, w, u, v, b, lanes):
    """Slope of the smooth part of the model in weight (t, k)."""
    columns = model.columns
    valued = columns.values.shape[0] > 0
    dense = dense_values(model, t)
    g = 0.0
    if dense.shape[0] > 0:
        g = _dense_slope(dense, model.p[k], model.s, u[k], v, lanes)
    else:
        for segment in range(columns.firsts.shape[0] - 1):
            first = columns.firsts[segment]
            last = columns.firsts[segment + 1]
            p = model.p[k, first:last]
            s = model.s[first:last]
            u_part = u[k, first:last]
            v_part = v[first:last]
            for e in range(columns.cuts[t, segment], columns.cuts[t, segment + 1]):
                i = columns.rows[e]
                part = np.float64(p[i] * s[i] * (u_part[i] - v_part[i]))
                g += part * np.float64(columns.values[e]) if valued else part
    return whole_slope(model, t, k, w, b, model.unit * g)


@kernel
def whole_slope(model, t, k, w, b, g):
    """The slope g of the rows, and the slopes of the other terms, in weight (t, k)."""
    g += model.lin[t, k] + model.extra[t, k] * (w[t, k] - model.before[t, k])
    for c in range(b.shape[0]):
        g += model.cross[t, k, c] * b[c]
    return g


@kernel
def add_dense(x, step, p, u, v, coupled):
    """Add a step along a dense column to u, and to v if the outputs are coupled, in place."""
    if coupled:
        for i in range(x.shape[0]):
            change = step * x[i]
            u[i] += change
            v[i] += change * p[i]
    else:
        for i in range(x.shape[0]):
            u[i] += step * x[i]


@kernel
def move(model, t, k, z, u, v, b):
    """Apply a step z on weight (t, k) to u, v and b, in place."""
    columns = model.columns
    valued = columns.values.shape[0] > 0
    dense = dense_values(model, t)
    step = np.float32(z)
    if dense.shape[0] > 0:
        add_dense(dense, step, model.p[k], u[k], v, model.coupled)
    else:
        for segment in range(columns.firsts.shape[0] - 1):
            first = columns.firsts[segment]
            last = columns.firsts[segment + 1]
            p = model.p[k, first:last]
            u_part = u[k, first:last]
            v_part = v[first:last]
            for e in range(columns.cuts[t, segment], columns.cuts[t, segment + 1]):
                i = columns.rows[e]
                change = step * columns.values[e] if valued else step
                u_part[i] += change
                if model.coupled:
                    v_part[i] += change * p[i]
    for c in range(b.shape[0]):
        b[c] -= z * model.cross[t, k, c]


@kernel
def weight_sweep(model, order, w, u, v, b, met, lanes):
    """One sweep for the L1 norm: minimise the model exactly over each weight in turn.

    Updates w, u, v and b in place and writes ``met``. Returns the largest violation met.

    order : int64, weight (t, k) has the number t K + k.
    w : float64 (k, K), the weights including their steps.
    met : float64 (k, K), overwritten with the violations of the weights in ``order``.
    lanes : float32 (LANES,), overwritten.
    """
    largest = 0.0
    n_outputs = w.shape[1]
    for o in range(order.shape[0]):
        t = order[o] // n_outputs
        k = order[o] % n_outputs
        g = slope(model, t, k, w, u, v, b, lanes)
        threshold = model.absolute[t]
        met[t, k] = violation(g / threshold, w[t, k])
        largest = max(largest, met[t, k])
        h = model.curve[t, k]
        new = soft_threshold(w[t, k] - g / h, threshold / h)
        z = new - w[t, k]
        if z != 0.0:
            w[t, k] = new
            move(model, t, k, z, u, v, b)
    return largest


@kernel
def row_value(model, u, v):
    """1/2 sum_i s_i [sum_k p_ik u_ik^2 - v_i^2]."""
    total = 0.0
    for k in range(u.shape[0]):
        for i in range(u.shape[1]):
            total += np.float64(model.s[i] * model.p[k, i] * u[k, i] * u[k, i])
    for i in range(v.shape[0]):
        total -= np.float64(model.s[i] * v[i] * v[i])
    return 0.5 * model.unit * total
