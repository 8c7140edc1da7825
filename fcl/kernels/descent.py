"""Coordinate descent on a quadratic model of the smooth part, over gathered columns.

The model at the current point, for steps d of k columns and x of the unpenalised columns Z:

    sum_j absolute_j |w_j + d_j| + sum_j lin_j d_j + lin_x . x + 1/2 sum_{i in T} q_i dm_i^2
                            + 1/2 sum_j extra_j d_j^2 + 1/2 extra_x . x^2,   dm = Phi d + Z x

x follows d (:mod:`fcl.solve.elimination`). All terms are divided by C; lin and extra include the squared
weights of the penalty, if it has any. The columns are gathered on the rows T (:mod:`fcl.kernels.gather`).
The state is u_i = q_i (Phi d)_i, so that a gradient needs one read per entry, and a step one update, and
a read of q_i where the rows of a segment do not share one. u and q are float32, in units of the largest
q, which halves the memory and shortens a sweep; the next model, which begins with an exact gradient,
corrects the rounding errors.
"""

import numpy as np

from fcl.kernels.compilation import kernel


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
def clamped(slope, w, low, high):
    """A slope without what the limits of the weight allow, as in :mod:`fcl.objective.limits`."""
    if w >= high:
        slope = max(slope, -1.0 if w > 0.0 else 0.0)
    if w <= low:
        slope = min(slope, 1.0 if w < 0.0 else 0.0)
    return slope


@kernel
def _slope(columns, t, u):
    """sum_i u_i phi_it over the sample."""
    total = 0.0
    for s in range(columns.firsts.shape[0] - 1):
        part = u[columns.firsts[s] : columns.firsts[s + 1]]
        rows = columns.rows[columns.cuts[t, s] : columns.cuts[t, s + 1]]
        n = rows.shape[0]
        # four independent sums: additions to a single sum would wait for each other
        g0 = g1 = g2 = g3 = 0.0
        e = 0
        if columns.values.shape[0] > 0:
            values = columns.values[columns.cuts[t, s] : columns.cuts[t, s + 1]]
            while e + 4 <= n:
                g0 += np.float64(part[rows[e]]) * np.float64(values[e])
                g1 += np.float64(part[rows[e + 1]]) * np.float64(values[e + 1])
                g2 += np.float64(part[rows[e + 2]]) * np.float64(values[e + 2])
                g3 += np.float64(part[rows[e + 3]]) * np.float64(values[e + 3])
                e += 4
            while e < n:
                g0 += np.float64(part[rows[e]]) * np.float64(values[e])
                e += 1
        else:
            while e + 4 <= n:
                g0 += part[rows[e]]
                g1 += part[rows[e + 1]]
                g2 += part[rows[e + 2]]
                g3 += part[rows[e + 3]]
                e += 4
            while e < n:
                g0 += part[rows[e]]
                e += 1
        total += (g0 + g1) + (g2 + g3)
    return total


@kernel
def _move(columns, t, step, shared, q, u):
    """Add q_i phi_it times a step, a number of the type of u, to u, in place."""
    valued = columns.values.shape[0] > 0
    for s in range(columns.firsts.shape[0] - 1):
        first = columns.firsts[s]
        last = columns.firsts[s + 1]
        part = u[first:last]
        begin = columns.cuts[t, s]
        end = columns.cuts[t, s + 1]
        rows = columns.rows[begin:end]
        if shared[s] > 0.0:
            change = shared[s] * step
            if valued:
                for e in range(rows.shape[0]):
                    part[rows[e]] += change * columns.values[begin + e]
            else:
                for e in range(rows.shape[0]):
                    part[rows[e]] += change
        else:
            own = q[first:last]
            if valued:
                for e in range(rows.shape[0]):
                    part[rows[e]] += own[rows[e]] * step * columns.values[begin + e]
            else:
                for e in range(rows.shape[0]):
                    part[rows[e]] += own[rows[e]] * step


@kernel
def move(columns, which, steps, shared, q, cross, u, b):
    """Update the state u and b for steps of some columns, in place; see :func:`descent_sweep`.

    which : int64, numbers of the columns.  steps : float64 (len(which),).
    """
    for o in range(which.shape[0]):
        t = which[o]
        _move(columns, t, u.dtype.type(steps[o]), shared, q, u)
        for c in range(cross.shape[1]):
            b[c] -= steps[o] * cross[t, c]


@kernel
def descent_sweep(
    absolute,
    order,
    columns,
    unit,
    shared,
    q,
    u,
    lin,
    extra,
    curve,
    cross,
    before,
    low,
    high,
    w,
    b,
    met,
):
    """One sweep over the columns in ``order``: minimise the model exactly over each in turn.

    u, w and b are updated in place, and ``met`` is written. Returns the largest violation met.

    The unpenalised columns are eliminated: they follow every step at once, because a step on column j
    changes their coordinates b by ``cross[j]`` times the step.

    Every step is applied, however small: a weight that kept a wrong sign would have a violation of 2
    permanently.

    absolute : float64 (k,), the factors of |w_j|, > 0.
    columns : GatheredColumns.
    unit : the value of a 1 in q, shared and u (float32).
    shared : float32 (segments,), the q of all rows of a segment, or 0 if they are to be read from q.
    curve : float64 (k,), curvature of the model in each column, once x is eliminated.
    cross : float64 (k, r), T' Z' Q phi_j, in r coordinates in which the unpenalised columns are
        orthonormal in the weights q_i.
    before : float64 (k,), the weights at the current point.
    low, high : float64 (k,), the limits of the weights.
    w : float64 (k,), the weights including their steps.
    b : float64 (r,), the step of the unpenalised columns in these coordinates.
    met : float64 (k,), overwritten with the violation met at each column of ``order``.
    """
    largest = 0.0
    for o in range(order.shape[0]):
        t = order[o]
        gradient = lin[t] + extra[t] * (w[t] - before[t])
        for c in range(cross.shape[1]):
            gradient += cross[t, c] * b[c]
        gradient += unit * _slope(columns, t, u)
        threshold = absolute[t]
        met[t] = violation(clamped(gradient / threshold, w[t], low[t], high[t]), w[t])
        largest = max(largest, met[t])
        h = curve[t]
        new = soft_threshold(w[t] - gradient / h, threshold / h)
        new = min(max(new, low[t]), high[t])
        z = new - w[t]
        if z != 0.0:
            w[t] = new
            _move(columns, t, u.dtype.type(z), shared, q, u)
            for c in range(cross.shape[1]):
                b[c] -= z * cross[t, c]
    return largest


@kernel
def gram_sweep(hessian, absolute, low, high, order, w, slope):
    """One sweep of coordinate descent on a quadratic with Hessian (k, k), whose diagonal is positive.

    ``w`` and ``slope`` are updated in place. Returns the largest violation met.

    low, high : float64 (k,), the limits of the weights.
    slope : float64 (k,), gradient of the smooth part at w.
    """
    largest = 0.0
    for o in range(order.shape[0]):
        j = order[o]
        met = violation(clamped(slope[j] / absolute[j], w[j], low[j], high[j]), w[j])
        largest = max(largest, met)
        h = hessian[j, j]
        new = soft_threshold(w[j] - slope[j] / h, absolute[j] / h)
        new = min(max(new, low[j]), high[j])
        step = new - w[j]
        if step != 0.0:
            w[j] = new
            for k in range(w.shape[0]):
                slope[k] += step * hessian[j, k]
    return largest
