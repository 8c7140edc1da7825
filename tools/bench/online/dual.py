"""Dual cached loops: dual coordinate descent, or stochastic gradient descent, on a bounded cache of rows.

Matsushima, Vishwanathan and Smola, *Linear support vector machines via dual cached loops*, KDD 2012: a
thread reads rows from disk into a cache for ever, while another trains on random cached rows. Here both
take turns in one loop: after every ``ratio`` steps of the trainer, the reader brings the next row. A
cached row is a number of a row of a matrix in memory, so reading takes no time, which favours these
methods.

    min 1/2 |w|^2 + C sum_i loss(y_i <w, x_i>),   hinge or squared hinge, with w = sum_i a_i y_i x_i
    D(a) = sum_i a_i - 1/2 |w|^2 [- sum_i a_i^2 / (4 C), squared hinge],   a_i >= 0 [and <= C, hinge]

A row leaves the cache to make room for a new one, drawn at random, or when its a_i is at a bound and its
gradient pushes it there by more than a share of the largest projected gradient of the round before (Hsieh
et al. 2008 drop such rows until the next round; here the reader brings them back). Nothing is lost: a and
w keep what all rows have given.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fcl.kernels import ball, kernel

#: Places of ``state``: rows in the cache; the next row of the reader; the random generator; steps taken.
COUNT, NEXT, RANDOM, STEPS = range(4)
#: Places of ``sums``: largest projected gradient of this round of n steps; the gradient beyond which rows
#: at a bound leave; of descent on the L1 problem the intercept and the sum of truncations.
LARGEST, BEYOND, INTERCEPT, SHRINK = range(4)


class Cache(NamedTuple):
    """The rows at hand."""

    rows: Any  # int64 (capacity,): numbers of rows, of which the first state[COUNT] count
    place: Any  # int64 (n,): place in ``rows``, or -1
    state: Any  # int64 (4,)
    sums: Any  # float64 (4,)


def make_cache(n, capacity, seed=1):
    """An empty cache for ``capacity`` of ``n`` rows."""
    state = np.array([0, 0, seed, 0])
    sums = np.array([0.0, math.inf, 0.0, 0.0])
    return Cache(np.zeros(capacity, np.int64), np.full(n, -1), state, sums)


@kernel
def drop(cache, at):
    """Remove the row at a place of the cache, in place."""
    cache.state[COUNT] -= 1
    last = cache.rows[cache.state[COUNT]]
    cache.place[cache.rows[at]] = -1
    if at < cache.state[COUNT]:
        cache.rows[at], cache.place[last] = last, at


@kernel
def drawn(cache):
    """A random place of the cache."""
    cache.state[RANDOM], at = ball.draw(cache.state[RANDOM], cache.state[COUNT])
    return at


@kernel
def read(cache):
    """Bring the reader's next row into the cache, in place; a random row makes room."""
    i = cache.state[NEXT]
    cache.state[NEXT] = (i + 1) % cache.place.shape[0]
    if cache.place[i] >= 0:
        return
    if cache.state[COUNT] == cache.rows.shape[0]:
        drop(cache, drawn(cache))
    cache.rows[cache.state[COUNT]], cache.place[i] = i, cache.state[COUNT]
    cache.state[COUNT] += 1


@kernel
def train_dual(indptr, ids, values, y, norms, C, squared, share, ratio, steps, a, w, cache):
    """Take steps of dual coordinate descent on cached rows; changes a, w and the cache in place.

    norms : float64 (n,), |x_i|^2; a : float64 (n,); w : float64 (p,)
    squared : bool, squared hinge instead of hinge
    share : float; rows leave at this share of the largest projected gradient
    """
    n = y.shape[0]
    state, sums = cache.state, cache.sums
    ridge = 0.5 / C if squared else 0.0
    most = math.inf if squared else C
    for _ in range(steps):
        if state[STEPS] % ratio == 0 or state[COUNT] == 0:
            read(cache)
        state[STEPS] += 1
        at = drawn(cache)
        i = cache.rows[at]
        m = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            m += w[ids[e]] * values[e]
        gradient = y[i] * m - 1.0 + a[i] * ridge
        bound = (a[i] <= 0.0 and gradient > 0.0) or (a[i] >= most and gradient < 0.0)
        if bound:
            if abs(gradient) > sums[BEYOND]:
                drop(cache, at)
        else:
            sums[LARGEST] = max(sums[LARGEST], abs(gradient))
            q = norms[i] + ridge
            new = min(max(a[i] - gradient / q, 0.0), most) if q > 0.0 else most
            step = (new - a[i]) * y[i]
            a[i] = new
            for e in range(indptr[i], indptr[i + 1]):
                w[ids[e]] += step * values[e]
        if state[STEPS] % n == 0:
            sums[BEYOND], sums[LARGEST] = share * sums[LARGEST], 0.0


@kernel
def train_l1(indptr, ids, values, y, C, rate, ratio, steps, w, seen, cache):
    """Take steps of truncated gradient on cached rows: |w|_1 + C sum of logistic losses, free intercept.

    After every row all weights shrink by eta / (C n), lazily: ``seen``, float64 (p,), holds the sum of
    the shrinks that a weight has had. Step t has eta = rate / (1 + rate t / (C n)). Changes w, seen and
    the cache in place.
    """
    n = y.shape[0]
    state, sums = cache.state, cache.sums
    gravity = 1.0 / (C * n)
    for _ in range(steps):
        if state[STEPS] % ratio == 0:
            read(cache)
        eta = rate / (1.0 + rate * state[STEPS] * gravity)
        state[STEPS] += 1
        i = cache.rows[drawn(cache)]
        m = sums[INTERCEPT]
        for e in range(indptr[i], indptr[i + 1]):
            j = ids[e]
            size = max(0.0, abs(w[j]) - (sums[SHRINK] - seen[j]))
            w[j], seen[j] = math.copysign(size, w[j]), sums[SHRINK]
            m += w[j] * values[e]
        # exp of a positive number would overflow
        small = math.exp(-abs(m))
        wrong = (small if y[i] * m > 0.0 else 1.0) / (1.0 + small)
        step = eta * y[i] * wrong
        sums[INTERCEPT] += step
        for e in range(indptr[i], indptr[i + 1]):
            w[ids[e]] += step * values[e]
        sums[SHRINK] += eta * gravity


def settled(w, seen, cache):
    """The weights of :func:`train_l1` with all shrinks."""
    due = cache.sums[SHRINK] - seen
    return np.sign(w) * np.maximum(np.abs(w) - due, 0.0)


def primal_and_dual(X, y, C, squared, a, w):
    """P(w) and D(a)."""
    short = np.maximum(0.0, 1.0 - y * (X @ w))
    ridge = 0.5 * float(w @ w)
    dual = float(a.sum()) - ridge - (float(a @ a) / (4.0 * C) if squared else 0.0)
    return ridge + C * float((short**2 if squared else short).sum()), dual
