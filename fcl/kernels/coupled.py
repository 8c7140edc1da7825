"""Coordinate descent on a quadratic model of K outputs that share columns, over gathered columns.

The model at the current point, for steps D (k, K) of the weights and x (K,) of the intercepts:

    penalty(W + D) + sum_jk lin_jk D_jk + lin_x . x + 1/2 sum_jk extra_jk D_jk^2 + 1/2 floor . x^2
              + 1/2 sum_i s_i [ sum_k p_ik dU_ik^2 - v_i^2 ]

    dU = D' Phi + x,   v_i = sum_l p_il dU_il

For *coupled* outputs (softmax) p are the probabilities, so the last sum is the exact Hessian
diag(p) - p p'. For separate outputs p are the curvatures, s is 1 and v stays 0. x follows D: the
intercepts are eliminated, as :mod:`fcl.solve.elimination` does for one output; they have the coordinates
b, which a step z on weight (j, k) changes by -z leans_jk.

The state is u = dU without x, and v of that u. A slope therefore reads one column and four vectors, and
a step writes two, for any number of outputs. p, s, u and v are float32, s in units of its largest entry.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.descent import soft_threshold, violation

#: Partial sums of a scalar product: so many that the compiler uses vector instructions without having to
#: change the order of a sum.
LANES = 256
#: Rows whose products of a column and the weights are held while all outputs read them.
TILE = 4096
#: Maximum Newton steps for the length of a block of weights; it takes about five.
MOST_LENGTHS = 50


class CoupledModel(NamedTuple):
    """The gathered model: k columns, K outputs, r coordinates of the intercepts."""

    start: np.ndarray  # int64 (k,)
    stop: np.ndarray  # int64 (k,); a column with an entry in every row is dense
    rows: np.ndarray  # int32 (entries,)
    values: np.ndarray  # float32 (entries,), or empty for all ones
    p: np.ndarray  # float32 (K, rows)
    s: np.ndarray  # float32 (rows,), in units of ``unit``
    unit: float
    coupled: bool
    absolute: np.ndarray  # float64 (k,), factors of |w_jk|, or of |W_j.|_2
    lin: np.ndarray  # float64 (k, K)
    extra: np.ndarray  # float64 (k, K)
    curve: np.ndarray  # float64 (k, K): curvatures of coordinates, or eigenvalues of blocks
    vectors: np.ndarray  # float64 (k, K, K), eigenvectors of blocks in columns; or empty
    leans: np.ndarray  # float64 (k, K, r)
    before: np.ndarray  # float64 (k, K), the weights at the current point


@kernel
def _fold(lanes):
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
    return _fold(lanes)


@kernel
def _tile_slope(xs, p, u, v, lanes):
    """sum_i xs_i p_i (u_i - v_i); overwrites ``lanes``, float32 (LANES,)."""
    lanes[:] = np.float32(0.0)
    n = p.shape[0]
    for first in range(0, n, LANES):
        m = min(LANES, n - first)
        x_part = xs[first : first + m]
        p_part = p[first : first + m]
        u_part = u[first : first + m]
        v_part = v[first : first + m]
        for i in range(m):
            lanes[i] += x_part[i] * p_part[i] * (u_part[i] - v_part[i])
    return _fold(lanes)


@kernel
def _slope(model, t, k, w, u, v, b, lanes):
    """Slope of the smooth part of the model in weight (t, k)."""
    first = model.start[t]
    last = model.stop[t]
    valued = model.values.shape[0] > 0
    p = model.p[k]
    s = model.s
    out = u[k]
    g = 0.0
    if valued and last - first == s.shape[0]:
        g = _dense_slope(model.values[first:last], p, s, out, v, lanes)
    else:
        numbers = model.rows.view(
            np.uint32
        )  # unsigned: numba tests signed indices for being negative
        for e in range(first, last):
            i = numbers[e]
            part = np.float64(p[i] * s[i] * (out[i] - v[i]))
            g += part * np.float64(model.values[e]) if valued else part
    return _whole_slope(model, t, k, w, b, model.unit * g)


@kernel
def _whole_slope(model, t, k, w, b, g):
    """The slope g of the rows, and the slopes of the other terms, in weight (t, k)."""
    g += model.lin[t, k] + model.extra[t, k] * (w[t, k] - model.before[t, k])
    for c in range(b.shape[0]):
        g += model.leans[t, k, c] * b[c]
    return g


@kernel
def _add(x, step, p, u, v, coupled):
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
def _move(model, t, k, z, u, v, b):
    """Apply a step z on weight (t, k) to u, v and b, in place."""
    first = model.start[t]
    last = model.stop[t]
    valued = model.values.shape[0] > 0
    p = model.p[k]
    out = u[k]
    step = np.float32(z)
    if valued and last - first == model.s.shape[0]:
        _add(model.values[first:last], step, p, out, v, model.coupled)
    else:
        numbers = model.rows.view(np.uint32)
        for e in range(first, last):
            i = numbers[e]
            change = step * model.values[e] if valued else step
            out[i] += change
            if model.coupled:
                v[i] += change * p[i]
    for c in range(b.shape[0]):
        b[c] -= z * model.leans[t, k, c]


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
        g = _slope(model, t, k, w, u, v, b, lanes)
        threshold = model.absolute[t]
        met[t, k] = violation(g / threshold, w[t, k])
        largest = max(largest, met[t, k])
        h = model.curve[t, k]
        new = soft_threshold(w[t, k] - g / h, threshold / h)
        z = new - w[t, k]
        if z != 0.0:
            w[t, k] = new
            _move(model, t, k, z, u, v, b)
    return largest


@kernel
def group_violation(slopes, weights, threshold):
    """Distance of a feature's slopes from optimality, in units of the threshold.

    With weights W_j. of 0 the norm of the slopes may be up to the threshold; else the slopes must be
    -threshold W_j. / |W_j.|_2.
    """
    length = 0.0
    for k in range(weights.shape[0]):
        length += weights[k] * weights[k]
    length = np.sqrt(length)
    off = 0.0
    for k in range(weights.shape[0]):
        part = slopes[k] / threshold
        if length > 0.0:
            part += weights[k] / length
        off += part * part
    off = np.sqrt(off)
    return off if length > 0.0 else max(0.0, off - 1.0)


@kernel
def block_length(c, e, threshold):
    """Length of the z that minimises sum_k (e_k z_k^2 / 2 - c_k z_k) + threshold |z|_2.

    For |c|_2 > threshold it is the root of sum_k (c_k / (e_k length + threshold))^2 = 1: Newton's method
    on the inverse square root of the sum, which is nearly linear, from a lower bound of the root.
    """
    norm = 0.0
    top = 0.0
    for k in range(c.shape[0]):
        norm += c[k] * c[k]
        top = max(top, e[k])
    length = (np.sqrt(norm) - threshold) / top
    for _ in range(MOST_LENGTHS):
        total = 0.0
        slope = 0.0
        for k in range(c.shape[0]):
            divisor = e[k] * length + threshold
            part = c[k] * c[k] / (divisor * divisor)
            total += part
            slope += part * e[k] / divisor
        # derivative of total^(-1/2) is total^(-3/2) slope
        step = (np.sqrt(total) - 1.0) * total / slope
        length += step
        if abs(step) <= 1e-14 * length:
            break
    return length


@kernel
def _block_minimum(model, t, g, weights, rotated, new):
    """Write the weights of feature t that minimise the model; g are the slopes at ``weights``."""
    n_outputs = g.shape[0]
    e = model.curve[t]
    turned = model.vectors.shape[0] > 0
    norm = 0.0
    for a in range(n_outputs):
        if turned:
            along = 0.0
            lean = 0.0
            for k in range(n_outputs):
                along += model.vectors[t, k, a] * weights[k]
                lean += model.vectors[t, k, a] * g[k]
            rotated[a] = e[a] * along - lean
        else:
            rotated[a] = e[a] * weights[a] - g[a]
        norm += rotated[a] * rotated[a]
    threshold = model.absolute[t]
    new[:] = 0.0
    if np.sqrt(norm) <= threshold:
        return
    length = block_length(rotated, e, threshold)
    for a in range(n_outputs):
        z = rotated[a] / (e[a] + threshold / length)
        if turned:
            for k in range(n_outputs):
                new[k] += model.vectors[t, k, a] * z
        else:
            new[a] = z


@kernel
def _block_slopes(model, t, w, u, v, b, lanes, tile, g):
    """Write the slopes of the smooth part of the model in all weights of feature t."""
    first = model.start[t]
    last = model.stop[t]
    n_outputs, n = u.shape
    if model.values.shape[0] == 0 or last - first != n:
        for k in range(n_outputs):
            g[k] = _slope(model, t, k, w, u, v, b, lanes)
        return
    g[:] = 0.0
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        xs = tile[: end - begin]
        x = model.values[first + begin : first + end]
        s = model.s[begin:end]
        for i in range(xs.shape[0]):
            xs[i] = x[i] * s[i]
        part = v[begin:end]
        for k in range(n_outputs):
            g[k] += _tile_slope(xs, model.p[k, begin:end], u[k, begin:end], part, lanes)
    for k in range(n_outputs):
        g[k] = _whole_slope(model, t, k, w, b, model.unit * g[k])


@kernel
def _block_move(model, t, z, u, v, b):
    """Apply the steps z, float64 (K,), on the weights of feature t to u, v and b, in place."""
    first = model.start[t]
    last = model.stop[t]
    n_outputs, n = u.shape
    if model.values.shape[0] == 0 or last - first != n:
        for k in range(n_outputs):
            _move(model, t, k, z[k], u, v, b)
        return
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        x = model.values[first + begin : first + end]
        v_part = v[begin:end]
        for k in range(n_outputs):
            step = np.float32(z[k])
            _add(x, step, model.p[k, begin:end], u[k, begin:end], v_part, model.coupled)
    for k in range(n_outputs):
        for c in range(b.shape[0]):
            b[c] -= z[k] * model.leans[t, k, c]


@kernel
def block_sweep(model, order, w, u, v, b, met, lanes):
    """One sweep for the group norm: minimise the model over all weights of each feature in turn.

    Updates w, u, v and b in place and writes ``met``. Returns the largest violation met. The minimum is
    exact if the model has ``vectors``, else that of an upper bound with the curvatures ``curve``.

    order : int64, numbers of features.
    met : float64 (k,), overwritten with the violations of the features in ``order``.
    """
    largest = 0.0
    n_outputs = w.shape[1]
    g = np.empty(n_outputs)
    rotated = np.empty(n_outputs)
    new = np.empty(n_outputs)
    z = np.empty(n_outputs)
    tile = np.empty(TILE, np.float32)
    for o in range(order.shape[0]):
        t = order[o]
        _block_slopes(model, t, w, u, v, b, lanes, tile, g)
        met[t] = group_violation(g, w[t], model.absolute[t])
        largest = max(largest, met[t])
        _block_minimum(model, t, g, w[t], rotated, new)
        moved = False
        for k in range(n_outputs):
            z[k] = new[k] - w[t, k]
            moved = moved or z[k] != 0.0
        if moved:
            w[t] = new
            _block_move(model, t, z, u, v, b)
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
