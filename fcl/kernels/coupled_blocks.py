"""Coordinate descent for the group norm, on the model of :mod:`fcl.kernels.coupled`.

A step minimises the model over all K weights of a feature, which costs one pass over the column for the
slopes and one for the move.
"""

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.coupled import LANES, add_dense, dense_values, fold, move, slope, whole_slope

#: Rows whose products of a column and the weights are held while all outputs read them.
TILE = 4096
#: Maximum Newton steps for the length of a block of weights; it takes about five.
MOST_LENGTHS = 50


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
def _group_minimum(e, vectors, threshold, g, weights, rotated, new):
    """Write the K weights that minimise a quadratic and the group norm; g are the slopes at ``weights``.

    e, vectors : eigenvalues of the quadratic (K,) and its eigenvectors (1, K, K), or (0, K, K) if it is
    diagonal.
    """
    n_outputs = g.shape[0]
    turned = vectors.shape[0] > 0
    norm = 0.0
    for a in range(n_outputs):
        if turned:
            along = 0.0
            slope = 0.0
            for k in range(n_outputs):
                along += vectors[0, k, a] * weights[k]
                slope += vectors[0, k, a] * g[k]
            rotated[a] = e[a] * along - slope
        else:
            rotated[a] = e[a] * weights[a] - g[a]
        norm += rotated[a] * rotated[a]
    new[:] = 0.0
    if np.sqrt(norm) <= threshold:
        return
    length = block_length(rotated, e, threshold)
    for a in range(n_outputs):
        z = rotated[a] / (e[a] + threshold / length)
        if turned:
            for k in range(n_outputs):
                new[k] += vectors[0, k, a] * z
        else:
            new[a] = z


@kernel
def group_sweeps(hessian, curves, vectors, absolute, w, slope, most_sweeps, tolerance):
    """Minimise a quadratic and group norms over each group in turn, until no group violates by more.

    hessian float64 (k K, k K); eigenvalues (k, K) and eigenvectors (k, K, K) of its diagonal blocks; w
    and slope (k, K) are updated.
    """
    n_groups, n_outputs = w.shape
    rotated, new = np.empty(n_outputs), np.empty(n_outputs)
    whole = slope.reshape(n_groups * n_outputs)
    for _ in range(most_sweeps):
        largest = 0.0
        for j in range(n_groups):
            largest = max(largest, group_violation(slope[j], w[j], absolute[j]))
            _group_minimum(curves[j], vectors[j : j + 1], absolute[j], slope[j], w[j], rotated, new)
            for k in range(n_outputs):
                step = new[k] - w[j, k]
                if step != 0.0:
                    w[j, k] = new[k]
                    row = hessian[j * n_outputs + k]
                    for i in range(row.shape[0]):
                        whole[i] += step * row[i]
        if largest <= tolerance:
            return


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
    return fold(lanes)


@kernel
def _block_slopes(model, t, w, u, v, b, lanes, tile, g):
    """Write the slopes of the smooth part of the model in all weights of feature t."""
    dense = dense_values(model, t)
    n_outputs, n = u.shape
    if dense.shape[0] == 0:
        for k in range(n_outputs):
            g[k] = slope(model, t, k, w, u, v, b, lanes)
        return
    g[:] = 0.0
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        xs = tile[: end - begin]
        x = dense[begin:end]
        s = model.s[begin:end]
        for i in range(xs.shape[0]):
            xs[i] = x[i] * s[i]
        part = v[begin:end]
        for k in range(n_outputs):
            g[k] += _tile_slope(xs, model.p[k, begin:end], u[k, begin:end], part, lanes)
    for k in range(n_outputs):
        g[k] = whole_slope(model, t, k, w, b, model.unit * g[k])


@kernel
def _block_move(model, t, z, u, v, b):
    """Apply the steps z, float64 (K,), on the weights of feature t to u, v and b, in place."""
    dense = dense_values(model, t)
    n_outputs, n = u.shape
    if dense.shape[0] == 0:
        for k in range(n_outputs):
            move(model, t, k, z[k], u, v, b)
        return
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        x = dense[begin:end]
        v_part = v[begin:end]
        for k in range(n_outputs):
            step = np.float32(z[k])
            add_dense(x, step, model.p[k, begin:end], u[k, begin:end], v_part, model.coupled)
    for k in range(n_outputs):
        for c in range(b.shape[0]):
            b[c] -= z[k] * model.cross[t, k, c]


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
        own = model.vectors[t : t + 1]  # empty if the model has no eigenvectors
        _group_minimum(model.curve[t], own, model.absolute[t], g, w[t], rotated, new)
        moved = False
        for k in range(n_outputs):
            z[k] = new[k] - w[t, k]
            moved = moved or z[k] != 0.0
        if moved:
            w[t] = new
            _block_move(model, t, z, u, v, b)
    return largest
