"""Tables of weights on a grid: randomised rounding, Morris counters, and their random numbers.

A value v in steps of the grid becomes floor(v), or floor(v) + 1 with probability v - floor(v), so that
its mean is v (Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via
randomization", ICML 2013, algorithm 1). Everything before the rounding is float64.

Random numbers are Philox4x32-10 with counter (coordinate low, coordinate high, row low, row high + pass)
and key (seed low, seed high): they depend on nothing else, such as the size of blocks or the order of
calls.
"""

import math

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.fourier import philox
from fcl.kernels.losses import loss_slope_curvature, loss_value

#: The largest step of an int16 table. Its negative is the smallest, so that the range is symmetric.
LIMIT = 32767.0
#: 2^-32.
UNIT = 1.0 / 4294967296.0


@kernel
def words(seed, number, row, coordinate):
    """Two words of 32 bits, as uint64: one for a counter, one for a rounding; number : of the pass."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    s, r, c = np.uint64(seed), np.uint64(row), np.uint64(coordinate)
    high = ((r >> shift) + np.uint64(number)) & mask
    a, b, _, _ = philox(c & mask, c >> shift, r & mask, high, s & mask, s >> shift)
    return a, b


@kernel
def rounded(v, word):
    """One of the two integers around v, as float64, whose mean over words is v; v itself if integral."""
    low = math.floor(v)
    return low + 1.0 if word * UNIT < v - low else low


@kernel
def bounded(v):
    """The nearest number of the range of int16 tables."""
    return min(max(v, -LIMIT), LIMIT)


@kernel
def round_steps(values, scale, seed, output, ids, nearest, out):
    """Write values * scale, rounded, to ``out``, int64 (k,).

    Random numbers are those of the seed, of pass 0, of the row ``output``, and of coordinates ``ids``.
    """
    for j in range(values.shape[0]):
        v = values[j] * scale
        if nearest:
            out[j] = np.int64(np.rint(v))
        else:
            _, word = words(seed, 0, output, ids[j])
            out[j] = np.int64(rounded(v, word))


@kernel
def count(counts, i, up, word):
    """Count an event of coordinate i, and return the counter.

    up : uint64 (256,), the probability of an increment at each level, times 2^32, of Morris counters;
        empty for exact counts.
    """
    if up.shape[0] == 0 or word < up[counts[i]]:
        counts[i] += 1
    return counts[i]


@kernel
def margin(ids, values, first, last, weights, step, counts):
    """The margin of the entries from ``first`` to ``last`` of sparse rows, without an intercept.

    step : of the grid; 0.0 for tables of float numbers.
    """
    total = 0.0
    for k in range(first, last):
        total += weights[ids[k]] * values[k]
    return total * step if step > 0.0 else total


@kernel
def descend(rows, y, s, loss, weights, step, counts, up, rates, place, bias, losses):
    """Update a table by online gradient descent over sparse rows, and write the loss of each before it.

    For each nonzero entry of a row whose loss has a slope: count the coordinate, and subtract the rate of
    its counter times its gradient from its weight, in float64; then round.

    Parameters
    ----------
    rows : (indptr int64 (n + 1,), ids int64 (nnz,), values float64 (nnz,))
    y, s : float64 (n,)
        Targets, and weights of the rows.
    loss : (code, parameter)
    weights : int16, float32 or float64 (d,)
        In steps of the grid; or the weights themselves if ``step`` is 0.0.
    step : float
    counts : uint8, or uint32 for exact counts (d,)
    up, rates : uint64, float64 (256,)
        For each level of a counter: see :func:`count`; and the rate. For exact counts ``up`` is empty,
        and ``rates`` has the rate of the first event alone, which falls with the root of their number.
    place : (seed, number of the pass, number of the first row)
    bias : float64 (2,)
        The intercept, and the number of its updates; a negative number: there is no intercept.
    losses : float64 (n,)

    Returns
    -------
    int
        Rows done: less than n if a loss is not finite; that row changed nothing.
    """
    indptr, ids, values = rows
    seed, number, first_row = place
    scale = 1.0 / step if step > 0.0 else 1.0
    for i in range(y.shape[0]):
        first, last = indptr[i], indptr[i + 1]
        m = margin(ids, values, first, last, weights, step, counts) + bias[0]
        losses[i] = s[i] * loss_value(loss, y[i], m)
        if not math.isfinite(losses[i]):
            return i
        slope, _ = loss_slope_curvature(loss, y[i], m)
        slope *= s[i]
        if slope == 0.0:
            continue
        for k in range(first, last):
            g = slope * values[k]
            if g == 0.0:
                continue
            at = ids[k]
            a, b = words(seed, number, first_row + i, at)
            c = count(counts, at, up, a)
            rate = rates[c] if up.shape[0] else rates[0] / math.sqrt(c)
            v = weights[at] - rate * g * scale
            weights[at] = rounded(bounded(v), b) if step > 0.0 else v
        if bias[1] >= 0.0:
            bias[1] += 1.0
            bias[0] -= rates[1 if up.shape[0] else 0] / math.sqrt(bias[1]) * slope
    return y.shape[0]
