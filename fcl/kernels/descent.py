"""Coordinate descent on a quadratic model of the smooth part, over gathered columns.

The model at the current point, for steps d of k columns and d_b of the intercept:

    sum_j absolute_j |w_j + d_j| + sum_j lin_j d_j + lin_b d_b + 1/2 sum_{i in T} q_i dm_i^2
                            + 1/2 sum_j extra_j d_j^2 + 1/2 extra_b d_b^2,   dm = Phi d + d_b

All of it is over C; what squares of weights the penalty has is in lin and extra.
The columns are gathered on the rows T (``rows`` int32, ``values`` float32 or empty for all ones,
column t at ``start[t] : stop[t]``). The state is u_i = q_i dm_i, so that a gradient costs one read
an entry and a step one read and one update. u and q are float32, in units of the largest q: half the
memory, and a sweep over 100,000 rows takes 1.5 times less; what rounding does to one step, the next one,
which begins with an exact gradient, puts right.
"""

import numpy as np

from fcl.kernels import kernel


@kernel
def soft_threshold(x, t):
    """The nearest point to x with its magnitude lowered by t, 0 within t of 0."""
    if x > t:
        return x - t
    if x < -t:
        return x + t
    return 0.0


@kernel
def violation(slope, w):
    """Distance of a slope from optimality: from [-1, 1] where w is 0, else from -sign(w)."""
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
    lean,
    before,
    w,
    free,
    lin_b,
    curve_b,
    b,
    met,
):
    """One sweep over the columns in ``order``: exact minimisation of the model over each in turn.

    The intercept is eliminated: it follows every step at once (``free``), at the cost of two
    scalars, because sum_i q_i phi_ij = ``lean[j]`` tells how a step on column j moves the slope in b.
    Steps on b alternating with sweeps would crawl: the four letters of a position add up to the
    constant, so dense columns and intercept are strongly coupled.

    absolute : float64 (k,), what |w_j| is multiplied by, > 0.
    unit : what a 1 in q and u (float32) stands for.
    before : float64 (k,), the weights at the current point;  w : the same with their steps.
    b : float64 (2,): d_b, and sum_i u_i without what d_b adds (u itself is kept without it).
    met : float64 (k,), gets the violation met at each column of ``order``.
    u, w, b are updated in place. Every step is applied, however small: a
    weight left with a wrong sign would have a violation of 2 for ever. Returns the largest violation
    met.
    """
    largest = 0.0
    valued = values.shape[0] > 0
    # numba tests every signed index for a negative one, which takes a sixth of the time of a sweep
    numbers = rows.view(np.uint32)
    for o in range(order.shape[0]):
        t = order[o]
        first = start[t]
        last = stop[t]
        gradient = lin[t] + extra[t] * (w[t] - before[t]) + lean[t] * b[0]
        g0 = 0.0
        if valued:
            for e in range(first, last):
                g0 += np.float64(u[numbers[e]]) * np.float64(values[e])
            gradient += unit * g0
        else:
            g0 = g1 = g2 = g3 = 0.0
            e = first
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
        if free:
            # a constant column has nothing left once the intercept is free
            h = max(h - lean[t] * lean[t] / curve_b, 1e-9 * h)
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
            if free:
                b[1] += z * lean[t]
                b[0] = -(lin_b + b[1]) / curve_b
    return largest


@kernel
def gram_sweep(hessian, absolute, order, w, slope):
    """One sweep of coordinate descent on a quadratic with Hessian (k, k), whose diagonal is positive.

    slope : float64 (k,), of the smooth part at w; both are updated in place. Returns the largest
    violation met.
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


#: Bins of curvatures, four to a factor of two. In units of the largest one: those below it tell rows
#: apart, those above are sizes of tau for samples of few of very many rows.
BINS = 512
_LOWEST = -100.0


def bin_edges():
    """Lower edges of the bins of :func:`curvature_histogram`, float64 (BINS,), in its units."""
    return 2.0 ** (np.arange(BINS) / 4.0 + _LOWEST)


@kernel
def curvature_histogram(q, unit, counts, sums):
    """Count rows and sum curvatures by the size of q / unit; rows without curvature do not count.

    counts, sums : float64 (BINS,), overwritten; sums in units, too. Bin 0 also holds all smaller q.
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
def choose_rows(q, tau, seed, chosen, q_chosen):
    """Number a sample of the rows: row i is in with probability min(1, q_i / tau).

    chosen[i] = its number or -1;  q_chosen = q_i over that probability, so that sums over the sample
    are unbiased. Membership is a hash of (seed, i). Returns their count.
    """
    n = 0
    for i in range(q.shape[0]):
        chosen[i] = -1
        if q[i] <= 0.0:
            continue
        if q[i] < tau:
            x = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
            if np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0) * tau >= q[i]:
                continue
        chosen[i] = n
        q_chosen[n] = max(q[i], tau)
        n += 1
    return n


@kernel
def choose_by(inclusion, seed, chosen):
    """Write whether each row is in: with probability ``inclusion``, by a hash of (seed, row)."""
    for i in range(inclusion.shape[0]):
        x = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        chosen[i] = np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0) < inclusion[i]
