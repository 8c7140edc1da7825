"""Tables of weights on a grid: randomised rounding, Morris counters, and their random numbers.

A value v in steps of the grid becomes floor(v), or floor(v) + 1 with probability v - floor(v), so that
its mean is v (Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via
randomization", ICML 2013, algorithm 1). Everything before the rounding is float64.

Random numbers are Philox4x32-10 with counter (coordinate low, coordinate high, row low, row high + pass)
and key (seed low, seed high): they depend on nothing else, such as the size of blocks or the order of
calls.
"""

import math
from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.fourier import philox
from fcl.kernels.losses import loss_slope_curvature
from fcl.kernels.online import (
    DIVERGED,
    DONE,
    INTERCEPT,
    MOST_MARGIN,
    REBASE,
    ROWS,
    SHRINK,
    SQUARES,
    WEIGHT,
    brought_up,
    end_row,
    leader_with,
    row_step,
    step_intercept,
)

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
def bounded(v, limit):
    """The nearest number from -limit to limit: the projection of algorithm 1."""
    return min(max(v, -limit), limit)


@kernel
def coarseness(rule, rate):
    """The step that a weight of this rate is rounded to, in steps of the grid: a power of 2, at least 1.

    It is the largest one up to gamma times the rate (algorithm 2), and up to the largest weight.
    """
    if rule.gamma == 0.0:
        return 1.0
    most = min(rule.gamma * rate / rule.step, rule.limit)
    _, exponent = math.frexp(max(most, 1.0))
    return math.ldexp(1.0, exponent - 1)


@kernel
def rounded_to(v, coarse, limit, word):
    """A multiple of ``coarse`` around v, of size at most ``limit``, whose mean over words is v."""
    most = math.floor(limit / coarse)
    return rounded(bounded(v / coarse, most), word) * coarse


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


class TableRule(NamedTuple):
    """How online gradient descent steps over a table."""

    rate: float  # the rate of a coordinate is rate / sqrt(events)
    gravity: float
    rho: float
    intercept: bool
    step: float  # of the grid; 0.0 for tables of float numbers
    limit: float  # the largest weight, in steps of the grid if there is one
    gamma: float  # a weight is rounded to steps of gamma times its rate; 0.0: to those of the grid
    seed: int


@kernel
def shrunk(v, soft, ridge):
    """A weight after an implicit step of the penalty."""
    if abs(v) <= soft:
        return 0.0
    return (v - math.copysign(soft, v)) / (1.0 + ridge)


@kernel
def learn_table(
    indptr,
    ids,
    values,
    y,
    s,
    margins,
    loss,
    rule,
    number,
    factors,
    up,
    events,
    weights,
    counts,
    state,
):
    """Learn rows by online gradient descent, writing margins, weights, counts and state.

    For each nonzero entry of a row whose loss has a slope, the coordinate is counted, and its weight
    becomes w - rate / sqrt(events) * gradient, in float64, bounded to the range of the table, and rounded
    at random. Without counts, row t has the rate rate / sqrt(t) for all weights. The penalty of the rows
    since the last event is taken off at each event; on average these are the weight of all rows so far
    divided by the coordinate's events.

    number : of the pass, for the random numbers.
    up : uint64 (256,); see :func:`count`.
    events : float64 (256,)
        The estimated number of events at each level of a Morris counter; empty for exact counts.
    weights : int8, int16 or int32 (p,) in steps of the grid, or float32 or float64.
    counts : uint8 (p,), or uint32 for exact counts; (0,) for one rate of all weights.

    Rows, loss, factors and state are as in :mod:`fcl.kernels.online`; a row may have a feature twice.
    """
    step = rule.step
    unit = step if step > 0.0 else 1.0
    random = step > 0.0 or up.shape[0] > 0
    single = counts.shape[0] == 0
    rates = rule.rate / np.sqrt(
        events
    )  # infinite for 0 events, which no counter has after an event
    coarse = np.ones(up.shape[0])
    for c in range(1, up.shape[0]):
        coarse[c] = coarseness(rule, rates[c])
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        lo, hi = indptr[i], indptr[i + 1]
        m = 0.0
        for e in range(lo, hi):
            m += weights[ids[e]] * np.float64(values[e])
        m = margins[i] + (m * unit + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED
        margins[i] = m
        d = s[i] * loss_slope_curvature(loss, y[i], m)[0]
        rate, size = rule.rate / math.sqrt(state[ROWS] + 1.0), 1.0
        if single:
            size = coarseness(rule, rate)
        if d != 0.0:
            for e in range(lo, hi):
                g = d * np.float64(values[e])
                j = ids[e]
                if g == 0.0 or (factors is not None and factors[j] == math.inf):
                    continue
                a, b = np.uint64(0), np.uint64(0)
                if random:
                    a, b = words(rule.seed, number, state[ROWS], j)
                c = 0
                if not single:
                    c = count(counts, j, up, a)
                    rate = rates[c] if up.shape[0] else rule.rate / math.sqrt(c)
                    size = coarse[c] if up.shape[0] else 1.0
                v = weights[j] * unit - rate * g
                if rule.gravity > 0.0:
                    tau = events[c] if up.shape[0] else np.float64(c)
                    due = rate * rule.gravity * (state[WEIGHT] / tau)
                    if factors is not None:
                        due *= factors[j]
                    v = shrunk(v, rule.rho * due, (1.0 - rule.rho) * due)
                if step > 0.0:
                    weights[j] = rounded_to(v / unit, size, rule.limit, b)
                else:
                    weights[j] = bounded(v, rule.limit)
            if rule.intercept:
                state[SQUARES] += 1.0
                own = state[ROWS] + 1.0 if single else state[SQUARES]
                state[INTERCEPT] -= rule.rate / math.sqrt(own) * d
        state[ROWS] += 1.0
        state[WEIGHT] += s[i]
    return y.shape[0], DONE


# -- truncated gradient and the regularised leader ------------------------------------------------


class GridRule(NamedTuple):
    """How the weights of a table are rounded."""

    step: float
    limit: float  # the largest weight, in steps
    seed: int
    number: int  # of the pass


@kernel
def owed(j, now, rule, grid, factors, weights, stamps):
    """A weight with all truncations so far, as float64."""
    return brought_up(weights[j] * grid.step, now - np.float64(stamps[j]), j, rule, factors)


@kernel
def learn_truncated_grid(
    indptr, ids, values, y, s, margins, loss, rule, grid, factors, kept, weights, stamps, state
):
    """Learn rows as :func:`fcl.kernels.online.learn_truncated`, and round weights when rows have them.

    kept : float64, at least as long as the longest row.
    weights : int8, int16 or int32 (p,) in steps of the grid.
    stamps : float32 (p,), SHRINK at the last truncation of a weight.
    """
    stamp = np.empty(1, stamps.dtype)  # SHRINK as the table holds it
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        lo, hi = indptr[i], indptr[i + 1]
        stamp[0] = state[SHRINK]
        now = np.float64(stamp[0])
        m, square = 0.0, 0.0
        for e in range(lo, hi):
            x = np.float64(values[e])
            w = owed(ids[e], now, rule, grid, factors, weights, stamps)
            kept[e - lo] = w
            square += x * x
            m += w * x
        m = margins[i] + (m + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED
        margins[i] = m
        eta, step = row_step(loss, rule, y[i], s[i], m, square, state)
        if step != 0.0:
            for e in range(lo, hi):
                j = ids[e]
                if factors is None or factors[j] < math.inf:
                    _, word = words(grid.seed, grid.number, state[ROWS], j)
                    v = (kept[e - lo] - step * values[e]) / grid.step
                    weights[j] = rounded_to(v, 1.0, grid.limit, word)
                    stamps[j] = now
            if rule.intercept:
                state[INTERCEPT] -= step
        if end_row(rule, eta * rule.gravity, s[i], state):
            return i + 1, REBASE
    return y.shape[0], DONE


@kernel
def settle_truncated_grid(rule, grid, factors, weights, stamps, state, first, last, out):
    """Write the weights of the features first to last - 1, with all truncations so far, to ``out``."""
    stamp = np.empty(1, stamps.dtype)
    stamp[0] = state[SHRINK]
    now = np.float64(stamp[0])
    for j in range(first, last):
        out[j - first] = owed(j, now, rule, grid, factors, weights, stamps)


@kernel
def write_grid(grid, row, first, values, weights):
    """Write ``values``, rounded, to the weights from ``first`` on; row : rows learnt so far.

    The words are those that learning uses for counters, which these tables do not have.
    """
    for k in range(values.shape[0]):
        if values[k] == 0.0:
            weights[first + k] = 0
        else:
            word, _ = words(grid.seed, grid.number, row, first + k)
            weights[first + k] = rounded_to(values[k] / grid.step, 1.0, grid.limit, word)


@kernel
def encoded_square(x, word):
    """A sum of squares as a floating-point number of 8 + 8 bits, whose mean over words is x.

    From 2^-128 to 2^127; 0 below, and the largest number above. See :func:`decoded_square`.
    """
    if x <= 0.0:
        return 0
    share, exponent = math.frexp(x)
    code = (exponent + 128) * 256 + int(rounded(512.0 * share - 256.0, word))
    return 0 if code < 256 else min(code, 65535)


@kernel
def decoded_square(code):
    """The number that :func:`encoded_square` gave; 0 for 0."""
    if code == 0:
        return 0.0
    return math.ldexp((256.0 + (code & 255)) / 512.0, (code >> 8) - 128)


@kernel
def leader_on_grid(j, weight, rule, grid, factors, weights, squares):
    """The weight of a feature, its linear term z, and the root of its sum of squared slopes.

    weight : of the rows so far.
    """
    root = math.sqrt(decoded_square(int(squares[j])))
    z = weights[j] * grid.step * root / rule.rate
    return leader_with(j, z, root, rule, weight, factors), z, root


@kernel
def learn_ftrl_grid(
    indptr, ids, values, y, s, margins, loss, rule, grid, factors, kept, weights, squares, state
):
    """Learn rows as :func:`fcl.kernels.online.learn_ftrl`, over a table of rounded numbers.

    The table has the linear term as z rate / root, the weight without penalty, whose range stays the same
    as rows come (Golovin et al. 2013, footnote 4).

    kept : float64, at least as long as the longest row.
    weights : int8, int16 or int32 (p,): z rate / root in steps of the grid.
    squares : uint16 (p,): the sum of squared slopes, root^2; see :func:`encoded_square`.
    """
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        lo, hi, weight = indptr[i], indptr[i + 1], state[WEIGHT]
        m = 0.0
        for e in range(lo, hi):
            w, _, _ = leader_on_grid(ids[e], weight, rule, grid, factors, weights, squares)
            kept[e - lo] = w
            m += w * np.float64(values[e])
        m = margins[i] + (m + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED
        margins[i] = m
        d = s[i] * loss_slope_curvature(loss, y[i], m)[0]
        if d != 0.0:
            for e in range(lo, hi):
                j, own = ids[e], d * np.float64(values[e])
                _, z, root = leader_on_grid(j, weight, rule, grid, factors, weights, squares)
                a, b = words(grid.seed, grid.number, state[ROWS], j)
                squares[j] = encoded_square(root * root + own * own, a)
                new = math.sqrt(decoded_square(int(squares[j])))
                if new > 0.0:
                    z += own - (new - root) / rule.rate * kept[e - lo]
                    weights[j] = rounded_to(z * rule.rate / new / grid.step, 1.0, grid.limit, b)
            step_intercept(rule, d, state)
        state[ROWS] += 1.0
        state[WEIGHT] += s[i]
    return y.shape[0], DONE


@kernel
def settle_ftrl_grid(rule, grid, factors, weights, squares, state, first, last, out):
    """Write the weights of the features first to last - 1 to ``out``."""
    for j in range(first, last):
        w, _, _ = leader_on_grid(j, state[WEIGHT], rule, grid, factors, weights, squares)
        out[j - first] = w
