"""Online learners: one loop each over rows that are given as lists of their features.

Rows come as a CSR matrix: the features of row i are ``ids[indptr[i]:indptr[i + 1]]``, distinct within the
row. ``y`` and ``s`` are targets and sample weights, float64 (n,); rows of weight 0 are skipped before
anything else, as if they were not there. ``margins``, float64 (n,), holds the offsets on entry and the
margins *before* each row's update on return. ``table``, (p, columns) of float64 or float32, holds what a
learner keeps of a feature, so that one cache line has all of it; ``factors`` are the penalty factors,
float64 (p,), or None if they are all 1; a feature with an infinite factor keeps a weight of 0. ``state``
is float64 (STATES,), of which the constants below name the places; time is counted in it, not in calls.

A learning kernel returns the number of rows it has taken and why it stopped: DONE, REBASE if the caller
must flush before the next row, or DIVERGED at a row whose margin is not below MOST_MARGIN. Nothing is
updated from such a row, so the state stays finite.
"""

import math
from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.losses import (
    HINGE,
    LOGISTIC,
    SQUARED,
    SQUARED_HINGE,
    loss_slope_curvature,
    loss_value,
)

#: Places of ``state``: rows taken; their weight; weight since the last truncation; what truncations have
#: taken off so far; the divisor of the stored weights (elastic net); the value of the sum, or of the
#: divisor, at which the caller must flush; the intercept, its sum of squared slopes, and its linear term.
ROWS, WEIGHT, PENDING, SHRINK, GROWTH, LIMIT, INTERCEPT, SQUARES, LINEAR, START = range(10)
STATES = 10

DONE, REBASE, DIVERGED = range(3)

#: Margins beyond this size, and those that are not numbers, end learning. Below it, squares of slopes
#: stay finite for values that float32 can hold.
MOST_MARGIN = 1e100
#: The divisor of the stored weights at which they are rescaled.
MOST_GROWTH = 1e6
#: Largest change of a margin in the last step of the equation of an implicit logistic step.
MOST_CHANGE = 1e-2
#: Most steps of the equation of an implicit logistic step.
MOST_STEPS = 200


class TruncationRule(NamedTuple):
    """How truncated gradient steps and truncates."""

    rate: float  # the rate of row t is rate / t^power
    power: float
    gravity: float  # alpha, the coefficient of the penalty of one row of weight 1
    rho: float
    theta: float  # only weights of at most this size are truncated
    period: int  # rows between truncations
    implicit: bool  # the slope is that at the margin after the step
    rounding: bool  # small weights are set to 0 instead of shrunk
    subgradient: bool  # all weights are shrunk, past 0 if they are small
    intercept: bool


class FtrlRule(NamedTuple):
    """How the regularised leader steps."""

    rate: float
    gravity: float
    rho: float
    intercept: bool


@kernel
def implicit_slope(loss, y, m, q):
    """The slope r at the margin after the step, r = loss'(y, m - q r), with q >= 0.

    It is the slope of the loss's proximal point, so no rate overshoots. Logistic: r = -y p, where
    p = 1 / (1 + exp(y m + q p)) lies between 0 and its value at the old margin.
    """
    code = loss[0]
    if code == SQUARED:
        return 2.0 * (m - y) / (1.0 + 2.0 * q)
    h = 1.0 - y * m
    if code == SQUARED_HINGE:
        return -2.0 * y * h / (1.0 + 2.0 * q) if h > 0.0 else 0.0
    if code == HINGE:
        if h <= 0.0:
            return 0.0
        return -y * min(1.0, h / q) if q > 0.0 else -y
    if code != LOGISTIC:
        raise ValueError("implicit_slope: no branch for the code of this loss")
    low, high = 0.0, 1.0 / (1.0 + math.exp(y * m))
    p, most = high, high
    for _ in range(MOST_STEPS):
        found = 1.0 / (1.0 + math.exp(y * m + q * p))
        excess = p - found
        if excess > 0.0:
            high = p
        else:
            low = p
        # Halley's step, with the second derivative, which takes no other exponential
        curve = q * found * (1.0 - found)
        rise = 1.0 + curve
        step = p - 2.0 * excess * rise / (
            2.0 * rise * rise + excess * curve * q * (1.0 - 2.0 * found)
        )
        # strictly inside, and ever shorter: at large q steps would cycle between the ends
        if low < step < high and abs(step - p) <= most:
            # the margin changes little over Newton's step, so that the error is of third order
            newton = abs(excess) / rise
            near = q * newton <= MOST_CHANGE and (q * newton) ** 2 * newton <= 1e-17 * p
        else:
            step = 0.5 * (low + high)
            near = abs(step - p) <= 1e-16 * p
        p, most = step, 0.5 * abs(step - p)
        if near:
            break
    return -y * p


@kernel
def truncated(w, a, theta, rounding):
    """The weight w after truncations that take off a in all."""
    if a == 0.0 or w == 0.0 or abs(w) > theta:
        return w
    if rounding:
        return 0.0
    return math.copysign(max(0.0, abs(w) - a), w)


@kernel
def brought_up(w, due, j, rule, factors):
    """The weight w of feature j after truncations that take off ``due``, times its penalty factor."""
    if factors is not None:
        due *= factors[j]
    return truncated(w, due, rule.theta, rule.rounding)


@kernel
def rate_of(rule, t):
    """The rate of row t, from 1 on."""
    if rule.power == 0.0:
        return rule.rate
    if rule.power == 0.5:
        return rule.rate / math.sqrt(t)
    return rule.rate / t**rule.power


@kernel
def adaptive_rate(rate, squares):
    """The rate of a feature whose squared slopes sum to ``squares``; 0 where they underflow."""
    return rate / math.sqrt(squares) if squares > 0.0 else 0.0


@kernel
def subtract_subgradient(a, factors, table):
    """Move each weight by a f_j towards 0, and past it; a weight of 0 stays."""
    for j in range(table.shape[0]):
        w = np.float64(table[j, 0])
        if w != 0.0:
            f = 1.0 if factors is None else factors[j]
            table[j, 0] = w - math.copysign(a * f, w)


@kernel
def row_step(loss, rule, y, s, m, square, state):
    """The rate of a row, and how far it moves the weight of a feature of value 1 against its slope.

    m : margin.  square : the sum of the squared values of the row.
    """
    eta = rate_of(rule, state[ROWS] + 1.0)
    if rule.implicit:
        r = implicit_slope(loss, y, m, eta * s * (square + rule.intercept))
    else:
        r = loss_slope_curvature(loss, y, m)[0]
    return eta, eta * s * r


@kernel
def end_row(rule, scale, s, state):
    """Count a row, and truncate after every ``period`` of them; whether the caller must flush.

    scale : of what a truncation takes off, for each unit of the weight of the rows.
    """
    state[ROWS] += 1.0
    state[WEIGHT] += s
    state[PENDING] += s
    if state[ROWS] % rule.period != 0.0:
        return False
    a = 0.0 if rule.subgradient else scale * state[PENDING]
    state[SHRINK] += 1.0 if rule.rounding else a * rule.rho * state[GROWTH]
    state[GROWTH] *= 1.0 + a * (1.0 - rule.rho)
    state[PENDING] = 0.0
    return state[SHRINK] > state[LIMIT] or state[GROWTH] > MOST_GROWTH


@kernel
def learn_truncated(indptr, ids, values, y, s, margins, loss, rule, factors, table, state):
    """Learn rows by truncated gradient (Langford, Li and Zhang 2008), writing margins, table and state.

    A feature is truncated when a row has it, or at a flush: what truncations have taken off since its
    last one is the difference of two sums. This gives the weights of truncating all features at once,
    because soft thresholding by a and then by b is soft thresholding by a + b, and rounding twice is
    rounding.

    Sub-gradients (equation 5) are subtracted from all weights at once: a weight that crosses 0 comes back
    at the next one, which no sum represents.

    With the elastic net a truncation also divides the weights by 1 + a (1 - rho); the table holds them
    multiplied by all these divisors, GROWTH.

    With AdaGrad, feature j has the rate eta_j = rate / sqrt(sum of its squared slopes), which changes
    only when a row has the feature; its truncations since then took off eta_j alpha f_j times the weight
    of the rows, and SHRINK is the weight of all rows truncated for.

    table : (p, 2): the stored weight, and SHRINK at its last truncation; :mod:`fcl.kernels.nonzero` has
        the same loop over a hash table. (p, 3) with the rates of AdaGrad: also the sum of squared slopes.
    """
    adaptive = table.shape[1] == 3
    stamp = np.empty(1, table.dtype)  # SHRINK as the table holds it
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        growth = state[GROWTH]
        stamp[0] = state[SHRINK]
        now = np.float64(stamp[0])
        m, square = 0.0, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j, x = np.uint64(ids[e]), np.float64(values[e])
            square += x * x
            due = now - np.float64(table[j, 1])
            w = np.float64(table[j, 0])
            if due != 0.0:
                if w != 0.0:
                    if adaptive and not rule.rounding:
                        due *= rule.gravity * adaptive_rate(rule.rate, np.float64(table[j, 2]))
                    w = brought_up(w, due, j, rule, factors)
                    table[j, 0] = w
                table[j, 1] = now
            m += w * x
        m = margins[i] + (m / growth + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED
        margins[i] = m
        if adaptive:
            scale, d = 1.0, s[i] * loss_slope_curvature(loss, y[i], m)[0]
            if d != 0.0:
                for e in range(indptr[i], indptr[i + 1]):
                    j = np.uint64(ids[e])
                    if factors is None or factors[j] < math.inf:
                        own = d * np.float64(values[e])
                        table[j, 2] += own * own
                        eta = adaptive_rate(rule.rate, np.float64(table[j, 2]))
                        table[j, 0] -= eta * own
                if rule.intercept:
                    state[SQUARES] += d * d
                    state[INTERCEPT] -= adaptive_rate(rule.rate, state[SQUARES]) * d
        else:
            eta, step = row_step(loss, rule, y[i], s[i], m, square, state)
            scale = eta * rule.gravity
            if rule.subgradient and (state[ROWS] + 1.0) % rule.period == 0.0:
                subtract_subgradient(scale * (state[PENDING] + s[i]), factors, table)
            if step != 0.0:
                scaled = step * growth
                for e in range(indptr[i], indptr[i + 1]):
                    j = np.uint64(ids[e])
                    if factors is None or factors[j] < math.inf:
                        table[j, 0] -= scaled * values[e]
                if rule.intercept:
                    state[INTERCEPT] -= step
        if end_row(rule, scale, s[i], state):
            return i + 1, REBASE
    return y.shape[0], DONE


@kernel
def settle_truncated(rule, factors, table, state, first, last, out):
    """Write the weights of the features first to last - 1 to ``out``, with all truncations so far."""
    adaptive = table.shape[1] == 3 and not rule.rounding
    stamp = np.empty(1, table.dtype)
    stamp[0] = state[SHRINK]
    now = np.float64(stamp[0])
    for j in range(first, last):
        w = np.float64(table[j, 0])
        if w != 0.0:
            due = now - np.float64(table[j, 1])
            if adaptive:
                due *= rule.gravity * adaptive_rate(rule.rate, np.float64(table[j, 2]))
            w = brought_up(w, due, j, rule, factors) / state[GROWTH]
        out[j - first] = w


@kernel
def leader(z, root, rate, soft, ridge):
    """The weight of a feature by its linear term z and the root of its sum of squared slopes."""
    if root == 0.0 or abs(z) <= soft:
        return 0.0
    if ridge == 0.0:
        return -(z - math.copysign(soft, z)) * rate / root
    return -(z - math.copysign(soft, z)) / (root / rate + ridge)


@kernel
def leader_with(j, z, root, rule, weight, factors):
    """The weight of feature j, with its penalty factor, after rows of so much weight."""
    f = 1.0 if factors is None else factors[j]
    if f == math.inf:
        return 0.0
    soft = rule.rho * rule.gravity * weight
    ridge = (1.0 - rule.rho) * rule.gravity * weight
    return leader(z, root, rule.rate, soft * f, ridge * f)


@kernel
def step_intercept(rule, d, state):
    """Move the intercept of the regularised leader after a row of slope d."""
    if rule.intercept:
        root = state[SQUARES]
        new = math.sqrt(root * root + d * d)
        w = state[INTERCEPT] - state[START]
        state[LINEAR] += d - (new - root) / rule.rate * w
        state[SQUARES] = new
        state[INTERCEPT] = state[START] + leader(state[LINEAR], new, rule.rate, 0.0, 0.0)


@kernel
def learn_ftrl(indptr, ids, values, y, s, margins, loss, rule, factors, kept, table, state):
    """Learn rows by following the regularised leader (McMahan 2011), writing kept, margins, table, state.

    Before each row the weights are the exact minimiser of

        sum_rows [(d_j - sigma_j w_j^row) w_j + sigma_j w_j^2 / 2]
        + T alpha f_j (rho |w_j| + (1 - rho) w_j^2 / 2)

    with d_j the slopes of the rows so far, T their weight, w^row the weights at that row, and sigma_j
    what the row added to sqrt(sum of squared slopes) / rate. Without penalty this is AdaGrad.

    kept : float64, at least as long as the longest row.
    table : (p, 2): the linear term z, and sqrt(sum of squared slopes).
    """
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        lo, hi, weight = indptr[i], indptr[i + 1], state[WEIGHT]
        m = 0.0
        for e in range(lo, hi):
            j = np.uint64(ids[e])
            z, root = np.float64(table[j, 0]), np.float64(table[j, 1])
            w = leader_with(j, z, root, rule, weight, factors)
            kept[e - lo] = w
            m += w * np.float64(values[e])
        m = margins[i] + (m + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED
        margins[i] = m
        d = s[i] * loss_slope_curvature(loss, y[i], m)[0]
        if d != 0.0:
            for e in range(lo, hi):
                j = np.uint64(ids[e])
                own = d * np.float64(values[e])
                root = np.float64(table[j, 1])
                new = math.sqrt(root * root + own * own)
                table[j, 1] = new
                table[j, 0] += own - (new - root) / rule.rate * kept[e - lo]
            step_intercept(rule, d, state)
        state[ROWS] += 1.0
        state[WEIGHT] += s[i]
    return y.shape[0], DONE


@kernel
def settle_ftrl(rule, factors, table, state, first, last, out):
    """Write the weights of the features first to last - 1 to ``out``."""
    for j in range(first, last):
        z, root = np.float64(table[j, 0]), np.float64(table[j, 1])
        out[j - first] = leader_with(j, z, root, rule, state[WEIGHT], factors)


@kernel
def sum_losses(loss, y, s, margins):
    """The sum of the losses of rows, weighted; rows of weight 0 do not count."""
    total = 0.0
    for i in range(y.shape[0]):
        if s[i] != 0.0:
            total += s[i] * loss_value(loss, y[i], margins[i])
    return total
