"""Stochastic gradient descent inside a weighted L1 ball, with the active weights in a heap.

After each row, w <- Proj(w - eta s r x) onto {sum_j a_j |w_j| <= z}. A row changes a few weights, and the
projection lowers all active ones by the same multiple of a_j, so the heap holds the keys

    key_j = |w_j| / a_j + shift,    with the sign of w_j,

and one number, ``shift``, is all that a projection changes in the weights that stay active. Duchi,
Shalev-Shwartz, Singer and Chandra (ICML 2008, section 6) search a balanced tree for the new shift. A heap
with the smallest key at its root is enough: for every set I that contains the active weights, the shift
is at least (sum_I a^2 key - z) / sum_I a^2 (Michelot 1986), so a root below this leaves the heap, and
the bound rises, until the root stays. Each removal is paid for by one insertion: a row of k features
takes O(k log m) steps with m active weights.

Sums are compensated, and the shift is subtracted from all keys before it exceeds ``MOST_SHIFT`` radii, so
that |w| exceeds the radius by rounding alone, after any number of rows. Weights with a_j = 0 are free:
they are outside the ball, and stay in an array.
"""

import math
from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.losses import add, loss_slope_curvature
from fcl.kernels.online import (
    DIVERGED,
    DONE,
    INTERCEPT,
    LINEAR,
    MOST_MARGIN,
    PENDING,
    ROWS,
    STATES,
    WEIGHT,
    implicit_slope,
    rate_of,
)

#: Places of ``Ball.state`` after those of :mod:`fcl.kernels.online`: the sums of a^2 key and of a^2 over
#: the heap, each with the carry of its compensated sum; the shift; the number of entries in the heap.
SUM, SUM_CARRY, SQUARES, SQUARES_CARRY, SHIFT, COUNT = range(STATES, STATES + 6)
BALL_STATES = STATES + 6
#: The shift is subtracted from the keys when it exceeds this many radii, divided by the sum of a^2.
MOST_SHIFT = 1024.0


class BallRule(NamedTuple):
    """How a learner on the ball steps."""

    rate: float  # the rate of row t is rate / t^power
    power: float
    radius: float
    implicit: bool  # the slope is that at the margin after the step, before the projection
    intercept: bool


class Ball(NamedTuple):
    """The weights of a learner, in the heap or among the free ones, and its state."""

    place: (
        np.ndarray
    )  # int32 (p,): position in the heap; -1: weight 0; below: -2 - position in free
    ids: (
        np.ndarray
    )  # int64 (capacity,): features in the heap; keys smaller in size than their children
    keys: np.ndarray  # float64 (capacity,): |w_j| / a_j + shift with the sign of w_j
    free: np.ndarray  # float64 (number of a_j = 0,): the weights outside the ball
    factors: np.ndarray  # float64 (p,): the a_j, infinite for weights that stay 0; (0,): all are 1
    state: np.ndarray  # float64 (BALL_STATES,), see above


class Batch(NamedTuple):
    """The sums of s r x over the rows since the last step, of the features that these rows have.

    ``Ball.state`` has the number of these rows in PENDING, and the sum of their s r in LINEAR.
    """

    rows: int  # rows of a step
    place: np.ndarray  # int32 (p,): position in ``ids``, or -1
    ids: np.ndarray  # int64 (capacity,): the features, in the order in which they came
    sums: np.ndarray  # float64 (capacity,)
    number: np.ndarray  # int64 (1,): of the features


@kernel
def rise(place, ids, keys, i):
    """Move an entry of a heap with four children a node towards the root; changes the heap in place."""
    key, j = keys[i], ids[i]
    while i > 0:
        parent = (i - 1) >> 2
        if abs(keys[parent]) <= abs(key):
            break
        keys[i], ids[i] = keys[parent], ids[parent]
        place[ids[i]] = i
        i = parent
    keys[i], ids[i], place[j] = key, j, i


@kernel
def sink(place, ids, keys, count, i):
    """Move an entry of a heap with four children a node away from the root; changes the heap in place."""
    key, j = keys[i], ids[i]
    while True:
        first = 4 * i + 1
        if first >= count:
            break
        least, size = first, abs(keys[first])
        for child in range(first + 1, min(first + 4, count)):
            if abs(keys[child]) < size:
                least, size = child, abs(keys[child])
        if size >= abs(key):
            break
        keys[i], ids[i] = keys[least], ids[least]
        place[ids[i]] = i
        i = least
    keys[i], ids[i], place[j] = key, j, i


@kernel
def weight(ball, shift, j):
    """The weight of a feature."""
    at = ball.place[j]
    if at >= 0:
        key = ball.keys[at]
        a = ball.factors[j] if ball.factors.shape[0] else 1.0
        return math.copysign(a * (abs(key) - shift), key)
    return ball.free[-2 - at] if at < -1 else 0.0


@kernel
def margin(ball, ids, values, first, last):
    """The sums of w_j x_j and of x_j^2 over entries ``first`` to ``last`` of a row."""
    shift = ball.state[SHIFT]
    total = square = 0.0
    for e in range(first, last):
        x = np.float64(values[e])
        total += weight(ball, shift, ids[e]) * x
        square += x * x
    return total, square


@kernel
def accumulate(state, a, change, squares):
    """Add a^2 times a change of a key, and the change of the sum of a^2, to the sums, in place."""
    total, carry = add(state[SUM], state[SUM_CARRY], a * a * change)
    state[SUM], state[SUM_CARRY] = total, carry
    if squares != 0.0:
        total, carry = add(state[SQUARES], state[SQUARES_CARRY], squares)
        state[SQUARES], state[SQUARES_CARRY] = total, carry


@kernel
def move(ball, j, change):
    """Add ``change`` to the weight of a feature, before the projection; changes ``ball`` in place."""
    at = ball.place[j]
    if at < -1:
        ball.free[-2 - at] += change
        return
    state = ball.state
    shift = state[SHIFT]
    a = ball.factors[j] if ball.factors.shape[0] else 1.0
    if a == math.inf:
        return
    change /= a
    if at < 0:
        at = int(state[COUNT])
        state[COUNT] += 1.0
        key = abs(change) + shift
        ball.ids[at], ball.keys[at] = j, math.copysign(key, change)
        accumulate(state, a, key, a * a)
        rise(ball.place, ball.ids, ball.keys, at)
        return
    old = ball.keys[at]
    new = math.copysign(abs(old) - shift, old) + change
    key = abs(new) + shift
    accumulate(state, a, key - abs(old), 0.0)
    ball.keys[at] = math.copysign(key, new)
    if key < abs(old):
        rise(ball.place, ball.ids, ball.keys, at)
    else:
        sink(ball.place, ball.ids, ball.keys, int(state[COUNT]), at)


@kernel
def remove_root(ball):
    """Remove the smallest key from the heap, in place: its weight is 0."""
    state = ball.state
    j, key = ball.ids[0], abs(ball.keys[0])
    a = ball.factors[j] if ball.factors.shape[0] else 1.0
    ball.place[j] = -1
    accumulate(state, a, -key, -a * a)
    state[COUNT] -= 1.0
    last = int(state[COUNT])
    if last > 0:
        ball.keys[0], ball.ids[0] = ball.keys[last], ball.ids[last]
        sink(ball.place, ball.ids, ball.keys, last, 0)


@kernel
def rebase(ball):
    """Subtract the shift from all keys, and add the sums anew; changes ``ball`` in place.

    Rounding keeps the order of the keys, so the heap needs no repair.
    """
    state = ball.state
    shift = state[SHIFT]
    state[SUM : SHIFT + 1] = 0.0
    for i in range(int(state[COUNT])):
        j = ball.ids[i]
        a = ball.factors[j] if ball.factors.shape[0] else 1.0
        key = max(abs(ball.keys[i]) - shift, 0.0)
        ball.keys[i] = math.copysign(key, ball.keys[i])
        accumulate(state, a, key, a * a)


@kernel
def project(ball, z):
    """Raise the shift until sum a_j |w_j| <= z; changes ``ball`` in place."""
    state = ball.state
    while True:
        total = state[SUM] + state[SUM_CARRY]
        squares = state[SQUARES] + state[SQUARES_CARRY]
        if total - squares * state[SHIFT] <= z:
            break
        while state[COUNT] > 0.0:
            # the maximum: rounding must not lower a shift by which weights have been removed
            state[SHIFT] = max(state[SHIFT], (total - z) / squares)
            if abs(ball.keys[0]) > state[SHIFT]:
                break
            remove_root(ball)
            total = state[SUM] + state[SUM_CARRY]
            squares = state[SQUARES] + state[SQUARES_CARRY]
        if state[COUNT] == 0.0:  # the radius is below the last digit of every weight
            state[SUM : SHIFT + 1] = 0.0
        if squares * state[SHIFT] <= MOST_SHIFT * z:
            break
        rebase(ball)  # then the sum is known to the last digit, and may still exceed z


@kernel
def take_step(batch, rule, ball):
    """Step along the mean gradient of a batch, and project; empties ``batch``, and changes ``ball``."""
    state = ball.state
    if state[PENDING] == 0.0:
        return
    length = rate_of(rule, state[ROWS] / batch.rows) / state[PENDING]
    if rule.intercept:
        state[INTERCEPT] -= length * state[LINEAR]
    for t in range(batch.number[0]):
        batch.place[batch.ids[t]] = -1
        if batch.sums[t] != 0.0:
            move(ball, batch.ids[t], -length * batch.sums[t])
    batch.number[0] = 0
    state[PENDING] = state[LINEAR] = 0.0
    project(ball, rule.radius)


@kernel
def add_to_batch(batch, ids, values, first, last, r, state):
    """Add the slope r of a row, which has the entries ``first`` to ``last``, to ``batch``, in place."""
    state[PENDING] += 1.0
    state[LINEAR] += r
    for e in range(first, last):
        j, change = ids[e], r * values[e]
        if change != 0.0:
            if batch.place[j] < 0:
                at = batch.number[0]
                batch.place[j], batch.ids[at], batch.sums[at] = at, j, 0.0
                batch.number[0] += 1
            batch.sums[batch.place[j]] += change


@kernel
def learn_ball(indptr, ids, values, y, s, margins, loss, rule, batch, ball):
    """Learn rows by projected stochastic gradient (Zinkevich 2003), writing margins, batch and ball.

    Rows, targets, weights, margins and the returned pair are as :mod:`fcl.kernels.online` says.

    batch : None for a step after each row; Batch for explicit steps along mean gradients. The rows of a
        batch have margins by the weights before its step; step t, counted in batches of rows, has the
        rate of row t.
    ball : Ball. It and ``batch`` have room for all features of these rows besides those in them.
    """
    state = ball.state
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        m, square = margin(ball, ids, values, indptr[i], indptr[i + 1])
        m = margins[i] + (m + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED
        margins[i] = m
        state[ROWS] += 1.0
        state[WEIGHT] += s[i]
        if batch is not None:
            r = s[i] * loss_slope_curvature(loss, y[i], m)[0]
            add_to_batch(batch, ids, values, indptr[i], indptr[i + 1], r, state)
            if state[PENDING] == batch.rows:
                take_step(batch, rule, ball)
            continue
        step = rate_of(rule, state[ROWS]) * s[i]
        if rule.implicit:
            step *= implicit_slope(loss, y[i], m, step * (square + rule.intercept))
        else:
            step *= loss_slope_curvature(loss, y[i], m)[0]
        if step == 0.0:
            continue
        if rule.intercept:
            state[INTERCEPT] -= step
        for e in range(indptr[i], indptr[i + 1]):
            if values[e] != 0.0:
                move(ball, ids[e], -step * values[e])
        project(ball, rule.radius)
    return y.shape[0], DONE


@kernel
def settle_ball(ball, first, last, out):
    """Write the weights of the features first to last - 1 to ``out``."""
    for j in range(first, last):
        out[j - first] = weight(ball, ball.state[SHIFT], j)


@kernel
def weights(ball, features, found):
    """Write the weights of ``features``, int64 (k,), to ``found``, float64 (k,)."""
    for i in range(features.shape[0]):
        found[i] = weight(ball, ball.state[SHIFT], features[i])
