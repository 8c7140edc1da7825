"""Coordinate descent on a quadratic model of the smooth part, over gathered columns.

The model at the current point, for steps d of k columns and x of the unpenalised columns Z:

    sum_j absolute_j |w_j + d_j| + sum_j lin_j d_j + lin_x . x + 1/2 sum_{i in T} q_i dm_i^2
                            + 1/2 sum_j extra_j d_j^2 + 1/2 extra_x . x^2,   dm = Phi d + Z x

x follows d (:mod:`fcl.solve.elimination`). All terms are divided by C; lin and extra include the squared
weights of the penalty, if it has any. The columns are gathered on the rows T (``rows`` int32, ``values``
float32 or empty for all ones, column t at ``start[t] : stop[t]``). The state is u_i = q_i (Phi d)_i, so
that a gradient needs one read per entry, and a step one read and one update. u and q are float32, in
units of the largest q, which halves the memory and shortens a sweep; the next model, which begins with an
exact gradient, corrects the rounding errors.
"""

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.bits import splitmix


@kernel
def soft_threshold(x, t):
    """Move x towards 0 by t; 0 if |x| <= t."""
    if x > t:
        return x - t
    if x < -t:
        return x + t
    return 0.0


@kernel
def violation(slope, w):
    """Distance of a slope from optimality: from [-1, 1] if w is 0, else from -sign(w)."""
    if w > 0.0:
        return abs(slope + 1.0)
    if w < 0.0:
        return abs(slope - 1.0)
    return max(0.0, abs(slope) - 1.0)


@kernel
def violations(slopes, w, out):
    """Write the violation of every column; returns the largest."""
    largest = 0.0
    for j in range(slopes.shape[0]):
        out[j] = violation(slopes[j], w[j])
        largest = max(largest, out[j])
    return largest


@kernel
def descent_sweep(
    absolute,
    order,
    start,
    stop,
    rows,
    values,
    unit,
    q,
    u,
    lin,
    extra,
    curve,
    leans,
    before,
    w,
    b,
    met,
):
    """One sweep over the columns in ``order``: minimise the model exactly over each in turn.

    u, w and b are updated in place, and ``met`` is written. Returns the largest violation met.

    The unpenalised columns are eliminated: they follow every step at once, because a step on column j
    changes their coordinates b by ``leans[j]`` times the step.

    Every step is applied, however small: a weight that kept a wrong sign would have a violation of 2
    permanently.

    absolute : float64 (k,), the factors of |w_j|, > 0.
    unit : the value of a 1 in q and u (float32).
    curve : float64 (k,), curvature of the model in each column, once x is eliminated.
    leans : float64 (k, r), T' Z' Q phi_j, in r coordinates in which the unpenalised columns are
        orthonormal in the weights q_i.
    before : float64 (k,), the weights at the current point.
    w : float64 (k,), the weights including their steps.
    b : float64 (r,), the step of the unpenalised columns in these coordinates.
    met : float64 (k,), overwritten with the violation met at each column of ``order``.
    """
    largest = 0.0
    valued = values.shape[0] > 0
    # unsigned, because numba would test every signed index for being negative, which takes time
    numbers = rows.view(np.uint32)
    for o in range(order.shape[0]):
        t = order[o]
        first = start[t]
        last = stop[t]
        gradient = lin[t] + extra[t] * (w[t] - before[t])
        for c in range(leans.shape[1]):
            gradient += leans[t, c] * b[c]
        # four independent sums: additions to a single sum would wait for each other
        g0 = g1 = g2 = g3 = 0.0
        e = first
        if valued:
            while e + 4 <= last:
                g0 += np.float64(u[numbers[e]]) * np.float64(values[e])
                g1 += np.float64(u[numbers[e + 1]]) * np.float64(values[e + 1])
                g2 += np.float64(u[numbers[e + 2]]) * np.float64(values[e + 2])
                g3 += np.float64(u[numbers[e + 3]]) * np.float64(values[e + 3])
                e += 4
            while e < last:
                g0 += np.float64(u[numbers[e]]) * np.float64(values[e])
                e += 1
        else:
            while e + 4 <= last:
                g0 += u[numbers[e]]
                g1 += u[numbers[e + 1]]
                g2 += u[numbers[e + 2]]
                g3 += u[numbers[e + 3]]
                e += 4
            while e < last:
                g0 += u[numbers[e]]
                e += 1
        gradient += unit * ((g0 + g1) + (g2 + g3))
        threshold = absolute[t]
        met[t] = violation(gradient / threshold, w[t])
        largest = max(largest, met[t])
        h = curve[t]
        new = soft_threshold(w[t] - gradient / h, threshold / h)
        z = new - w[t]
        if z != 0.0:
            w[t] = new
            step = u.dtype.type(z)
            if valued:
                for e in range(first, last):
                    i = numbers[e]
                    u[i] += q[i] * step * values[e]
            else:
                for e in range(first, last):
                    i = numbers[e]
                    u[i] += q[i] * step
            for c in range(leans.shape[1]):
                b[c] -= z * leans[t, c]
    return largest


@kernel
def gram_sweep(hessian, absolute, order, w, slope):
    """One sweep of coordinate descent on a quadratic with Hessian (k, k), whose diagonal is positive.

    ``w`` and ``slope`` are updated in place. Returns the largest violation met.

    slope : float64 (k,), gradient of the smooth part at w.
    """
    largest = 0.0
    for o in range(order.shape[0]):
        j = order[o]
        largest = max(largest, violation(slope[j] / absolute[j], w[j]))
        h = hessian[j, j]
        new = soft_threshold(w[j] - slope[j] / h, absolute[j] / h)
        step = new - w[j]
        if step != 0.0:
            w[j] = new
            for k in range(w.shape[0]):
                slope[k] += step * hessian[j, k]
    return largest


#: Number of bins of curvatures, four per factor of two, in units of the largest curvature. Rows fall into
#: bins up to that unit; the bins above it are values of tau for small samples of very many rows.
BINS = 512
_LOWEST = -100.0


def bin_edges():
    """Lower edges of the bins of :func:`curvature_histogram`, float64 (BINS,), in the same units."""
    return 2.0 ** (np.arange(BINS) / 4.0 + _LOWEST)


@kernel
def curvature_histogram(q, unit, counts, sums):
    """Count rows and sum curvatures by bins of q / unit; rows without curvature do not count.

    counts, sums : float64 (BINS,), overwritten; sums are of q / unit. Bin 0 also holds all smaller q.
    """
    counts[:] = 0.0
    sums[:] = 0.0
    for i in range(q.shape[0]):
        if q[i] <= 0.0:
            continue
        x = q[i] / unit
        k = 0
        if x > 0.0:
            k = int(np.floor(4.0 * (np.log2(x) - _LOWEST)))
            k = min(max(k, 0), BINS - 1)
        counts[k] += 1.0
        sums[k] += x


@kernel
def _uniform(seed, row):
    """A number in [0, 1) for a row, from a hash."""
    return np.float64(splitmix(np.uint64(seed), row + 1) >> np.uint64(11)) / 9007199254740992.0


@kernel
def choose_rows(q, tau, seed, chosen, q_chosen):
    """Sample the rows, row i with probability min(1, q_i / tau), and number them; returns their count.

    A hash of (seed, i) decides whether row i is chosen.

    chosen : int32 (n,), overwritten with the number of each chosen row, or -1.
    q_chosen : overwritten with q_i over that probability, so that sums over the sample are unbiased.
    """
    n = 0
    for i in range(q.shape[0]):
        chosen[i] = -1
        if q[i] <= 0.0:
            continue
        if q[i] < tau and _uniform(seed, i) * tau >= q[i]:
            continue
        chosen[i] = n
        q_chosen[n] = max(q[i], tau)
        n += 1
    return n


@kernel
def choose_by(inclusion, seed, chosen):
    """Write whether each row is chosen: with probability ``inclusion``, by a hash of (seed, row)."""
    for i in range(inclusion.shape[0]):
        chosen[i] = _uniform(seed, i) < inclusion[i]
