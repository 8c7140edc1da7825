"""Baselines of the papers behind the online learners, as numba kernels over rows of a CSR matrix.

Rows come as ``indptr``, ``ids`` (distinct within a row) and ``values``, with targets ``y``. Sources:

Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient projections onto the l1-ball for learning in high
dimensions*, ICML 2008. Each ``descend_...`` minimises losses over {sum_j |w_j| <= z} and a free
intercept: it takes a range of rows in order, row t at the rate ``rate`` / sqrt(t), adds each loss before
the row's update, and returns their sum. Coordinate descent has a penalty in place of z.

Matsushima, Vishwanathan and Smola, *Linear support vector machines via dual cached loops*, KDD 2012: a
thread reads rows from disk into a cache for ever, while another trains on random cached rows. Here both
take turns in one loop: after every ``ratio`` steps of the trainer, the reader brings the next row. A
cached row is a number of a row of a matrix in memory, so reading takes no time, which favours these
methods.

    min 1/2 |w|^2 + C sum_i loss(y_i <w, x_i>),   hinge or squared hinge, with w = sum_i a_i y_i x_i
    D(a) = sum_i a_i - 1/2 |w|^2 [- sum_i a_i^2 / (4 C), squared hinge],   a_i >= 0 [and <= C, hinge]

A row leaves the cache to make room for a new one, drawn at random, or when its a_i is at a bound and its
gradient pushes it there by more than a share of the largest projected gradient of the round before (Hsieh
et al. 2008 drop such rows until the next round; here the reader brings them back).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fcl.kernels import ball
from fcl.kernels.compilation import kernel
from fcl.kernels.losses import loss_slope_curvature, loss_value

#: Places of ``state``: rows taken; the intercept; the shift of all keys; the root of the tree, or the
#: number of features in the list; the sum of all numbers of exponentiated gradient.
ROWS, INTERCEPT, SHIFT, ROOT, TOTAL = range(5)
STATES = 5
#: Exponentiated gradient adds its numbers anew after so many rows.
SUM_EVERY = 4096
#: Largest exponent of a step of exponentiated gradient.
MOST_EXPONENT = 30.0
#: An exponential counts as so many operations.
EXPONENTIAL = 10.0


# -- Figure 2 of the paper -----------------------------------------------------------------------


@kernel
def threshold_as_printed(u, count, z):
    """The threshold of sizes ``u[:count]``, which is reordered, as Figure 2 prints its search.

    A rejected pivot leaves alone, without the sizes that equal it.
    """
    state, total, active = count, 0.0, 0
    first, last = 0, count  # undecided
    while first < last:
        state, at = ball.draw(state, last - first)
        at += first
        pivot = u[at]
        u[at], u[first] = u[first], pivot
        end, above = first + 1, pivot  # u[first:end] is G
        for i in range(first + 1, last):
            x = u[i]
            if x >= pivot:
                u[i] = u[end]
                u[end] = x
                end += 1
                above += x
        if (total + above) - (active + end - first) * pivot < z:
            total += above
            active += end - first
            first = end
        else:
            first, last = first + 1, end
    return (total - z) / active


@kernel
def step_of(loss, y, m, rate, state):
    """The step along the features of the next row, which the intercept takes, too; changes ``state``."""
    slope, _ = loss_slope_curvature(loss, y, m)
    state[ROWS] += 1.0
    step = -rate / math.sqrt(state[ROWS]) * slope
    state[INTERCEPT] += step
    return step


# -- the tree of the paper's section 6 -----------------------------------------------------------


class Tree(NamedTuple):
    """A treap over (raw_j, j), all arrays (p + 1,); place p stands for no node, with size and sum 0."""

    raw: Any  # float64: |w_j| + shift
    sign: Any  # float64
    left: Any  # int64
    right: Any  # int64
    priority: Any  # int64, random
    size: Any  # int64: nodes of the subtree
    total: Any  # float64: the sum of raw over the subtree, made from the children's at every change


def make_tree(p, seed=0):
    """A tree without nodes; ``state[ROOT]`` must begin with p."""
    links = [np.full(p + 1, p), np.full(p + 1, p)]
    priority = np.random.default_rng(seed).permutation(p + 1)
    sums = (np.zeros(p + 1, np.int64), np.zeros(p + 1))
    return Tree(np.zeros(p + 1), np.ones(p + 1), *links, priority, *sums)


@kernel
def refresh(t, v):
    """Make size and sum of a node from its children, in place."""
    a, b = t.left[v], t.right[v]
    t.size[v] = 1 + t.size[a] + t.size[b]
    t.total[v] = t.raw[v] + t.total[a] + t.total[b]


@kernel
def split(t, v, key, j):
    """Split a subtree in place into the nodes below (key, j) and the others; returns both roots."""
    if v == t.raw.shape[0] - 1:
        return v, v
    if t.raw[v] < key or (t.raw[v] == key and v < j):
        low, high = split(t, t.right[v], key, j)
        t.right[v] = low
        refresh(t, v)
        return v, high
    low, high = split(t, t.left[v], key, j)
    t.left[v] = high
    refresh(t, v)
    return low, v


@kernel
def merge(t, a, b):
    """Merge two subtrees in place, all nodes of ``a`` before those of ``b``; returns the root."""
    none = t.raw.shape[0] - 1
    if a == none:
        return b
    if b == none:
        return a
    if t.priority[a] > t.priority[b]:
        t.right[a] = merge(t, t.right[a], b)
        refresh(t, a)
        return a
    t.left[b] = merge(t, a, t.left[b])
    refresh(t, b)
    return b


@kernel
def pivot(t, root, z):
    """The shift at which the weights of the tree sum to z (Figure 3, which returns the whole shift)."""
    node = root
    count, total = 0, 0.0
    while node != t.raw.shape[0] - 1:
        more = count + 1 + t.size[t.right[node]]
        above = total + t.raw[node] + t.total[t.right[node]]
        if above < more * t.raw[node] + z:
            count, total = more, above
            node = t.left[node]
        else:
            node = t.right[node]
    return (total - z) / count


@kernel
def descend_tree(indptr, ids, values, y, first, last, loss, rate, z, t, state):
    """Projected stochastic gradient with the tree; changes the tree and ``state`` in place."""
    none = t.raw.shape[0] - 1
    losses = 0.0
    for i in range(first, last):
        shift, root = state[SHIFT], int(state[ROOT])
        m = state[INTERCEPT]
        for e in range(indptr[i], indptr[i + 1]):
            m += t.sign[ids[e]] * max(t.raw[ids[e]] - shift, 0.0) * values[e]
        losses += loss_value(loss, y[i], m)
        step = step_of(loss, y[i], m, rate, state)
        for e in range(indptr[i], indptr[i + 1]):
            j = ids[e]
            if t.raw[j] > shift:
                low, rest = split(t, root, t.raw[j], j)
                _, high = split(t, rest, t.raw[j], j + 1)
                root = merge(t, low, high)
            u = t.sign[j] * max(t.raw[j] - shift, 0.0) + step * values[e]
            t.raw[j], t.sign[j] = abs(u) + shift, math.copysign(1.0, u)
            if t.raw[j] > shift:
                t.left[j] = t.right[j] = none
                refresh(t, j)
                low, high = split(t, root, t.raw[j], j)
                root = merge(t, merge(t, low, j), high)
        if t.total[root] - t.size[root] * shift > z:
            # the maximum: a shift lowered by rounding would bring back weights that have left the tree
            state[SHIFT] = max(shift, pivot(t, root, z))
            _, root = split(t, root, state[SHIFT], none)
        state[ROOT] = root
    return losses


def tree_weights(t, state):
    """The weights, float64 (p,)."""
    return np.asarray(t.sign * np.maximum(t.raw - state[SHIFT], 0.0))[:-1]


# -- a list, and the whole vector ----------------------------------------------------------------


@kernel
def descend_list(indptr, ids, values, y, first, last, loss, rate, z, w, listed, members, state):
    """Projected stochastic gradient with a list of active features; changes all arrays after z in place.

    w : float64 (p,); listed : uint8 (p,); members : int64 (p,)
    """
    losses = 0.0
    for i in range(first, last):
        count = int(state[ROOT])
        m = state[INTERCEPT]
        for e in range(indptr[i], indptr[i + 1]):
            m += w[ids[e]] * values[e]
        losses += loss_value(loss, y[i], m)
        step = step_of(loss, y[i], m, rate, state)
        for e in range(indptr[i], indptr[i + 1]):
            j = ids[e]
            w[j] += step * values[e]
            if not listed[j]:
                listed[j] = 1
                members[count] = j
                count += 1
        total = 0.0
        for k in range(count):
            total += abs(w[members[k]])
        if total > z:
            before, shift = count + 1, 0.0
            while (
                count < before
            ):  # never "until equal": a size within rounding of the shift may flip
                before, kept = count, 0
                shift = max(shift, (total - z) / count)
                total = 0.0
                for k in range(count):
                    j = members[k]
                    if abs(w[j]) > shift:
                        members[kept] = j
                        kept += 1
                        total += abs(w[j])
                    else:
                        w[j], listed[j] = 0.0, 0
                count = kept
            for k in range(count):
                j = members[k]
                w[j] = math.copysign(abs(w[j]) - shift, w[j])
        state[ROOT] = count
    return losses


@kernel
def descend_dense(indptr, ids, values, y, first, last, loss, rate, z, w, out, state):
    """Projected stochastic gradient that projects all of ``w``, float64 (p,); changes w and state."""
    losses = 0.0
    for i in range(first, last):
        m = state[INTERCEPT]
        for e in range(indptr[i], indptr[i + 1]):
            m += w[ids[e]] * values[e]
        losses += loss_value(loss, y[i], m)
        step = step_of(loss, y[i], m, rate, state)
        for e in range(indptr[i], indptr[i + 1]):
            w[ids[e]] += step * values[e]
        largest, total, nonzeros = ball.survey(w, True)
        if total > z:
            bound = (total - z) / nonzeros - largest
            ball.project(w, True, largest, bound, z, out)
            w[:] = out
    return losses


# -- exponentiated gradient (EG+-, equation 13) --------------------------------------------------


@kernel
def total_of(up, down, state):
    """Divide all numbers by their sum, in place, and note the new sum."""
    total = up.sum() + down.sum()
    up /= total
    down /= total
    state[TOTAL] = up.sum() + down.sum()


@kernel
def descend_eg(
    indptr,
    ids,
    values,
    y,
    first,
    last,
    loss,
    rate,
    free_rate,
    power,
    z,
    batch,
    up,
    down,
    found,
    state,
):
    """Exponentiated gradient with signs: w = z (up - down) / sum; changes the arrays and ``state``.

    Step t follows the mean gradient of ``batch`` rows, or of the last ones, with the rate ``rate`` /
    t^power, and ``free_rate`` / t^power for the intercept. The 2 p numbers are all above 0, and sum to z
    after scaling: a step changes the numbers of the features of its rows, and their sum by the
    differences. Returns the sums of losses and of errors before the steps.

    found : float64 (p,), zeros between the steps
    """
    losses = errors = 0.0
    for begin in range(first, last, batch):
        end = min(begin + batch, last)
        scale = z / state[TOTAL]
        free = 0.0
        for i in range(begin, end):
            m = state[INTERCEPT]
            for e in range(indptr[i], indptr[i + 1]):
                m += scale * (up[ids[e]] - down[ids[e]]) * values[e]
            losses += loss_value(loss, y[i], m)
            errors += y[i] * m <= 0.0
            slope, _ = loss_slope_curvature(loss, y[i], m)
            free += slope
            for e in range(indptr[i], indptr[i + 1]):
                found[ids[e]] += slope * values[e]
        state[ROWS] += end - begin
        length = 1.0 / ((state[ROWS] / batch) ** power * (end - begin))
        state[INTERCEPT] -= free_rate * length * free
        for e in range(indptr[begin], indptr[end]):
            j = ids[e]
            if found[j] == 0.0:
                continue
            exponent = -rate * length * found[j]
            found[j] = 0.0
            factor = math.exp(min(max(exponent, -MOST_EXPONENT), MOST_EXPONENT))
            new, other = up[j] * factor, down[j] / factor
            state[TOTAL] += (new - up[j]) + (other - down[j])
            up[j], down[j] = new, other
        # the sum is made anew when a multiple of SUM_EVERY rows is passed
        passed = state[ROWS] // SUM_EVERY > (state[ROWS] - (end - begin)) // SUM_EVERY
        if passed or not 1e-100 < state[TOTAL] < 1e100:
            total_of(up, down, state)
    return losses, errors


def make_eg(p):
    """Numbers up and down, all equal with sum 1, zeros for a gradient, and the state."""
    state = np.zeros(STATES)
    state[TOTAL] = 1.0
    return np.full(p, 0.5 / p), np.full(p, 0.5 / p), np.zeros(p), state


# -- coordinate descent on the penalised problem --------------------------------------------------


@kernel
def sweep(indptr, rows, values, y, squared, curvatures, penalty, w, m, r):
    """Take a cycle of coordinate descent on mean loss + penalty |w|_1; returns the operations.

    A step minimises the loss exactly (squared) or its bound by a curvature of 1/4 (logistic), and the
    intercept follows at the end. The matrix is given by columns. Changes w, the margins m, and the slopes
    r, all float64.

    curvatures : float64 (p,), sum of x^2 times the largest curvature of the loss
    """
    n = y.shape[0]
    count = 0.0
    for j in range(w.shape[0]):
        first, last = indptr[j], indptr[j + 1]
        if curvatures[j] == 0.0:
            continue
        g = 0.0
        for e in range(first, last):
            g += values[e] * r[rows[e]]
        count += 2.0 * (last - first)
        u = w[j] - g / curvatures[j]
        new = math.copysign(max(abs(u) - penalty * n / curvatures[j], 0.0), u)
        if new != w[j]:
            change, w[j] = new - w[j], new
            for e in range(first, last):
                i = rows[e]
                m[i] += change * values[e]
                r[i] = slope_of(squared, y[i], m[i])
            count += (4.0 if squared else 4.0 + EXPONENTIAL) * (last - first)
    change = -r.sum() / (n * (2.0 if squared else 0.25))
    for i in range(n):
        m[i] += change
        r[i] = slope_of(squared, y[i], m[i])
    return count + (4.0 if squared else 4.0 + EXPONENTIAL) * n


@kernel
def slope_of(squared, y, m):
    """The derivative of the squared or logistic loss."""
    if squared:
        return 2.0 * (m - y)
    return -y / (1.0 + math.exp(min(y * m, 700.0)))


# -- dual cached loops -----------------------------------------------------------------------------

#: Places of ``state``: rows in the cache; the next row of the reader; the random generator; steps taken.
COUNT, NEXT, RANDOM, STEPS = range(4)
#: Places of ``sums``: largest projected gradient of this round of n steps; the gradient beyond which rows
#: at a bound leave; of descent on the L1 problem the intercept and the sum of truncations.
LARGEST, BEYOND, BIAS, SHRINK = range(4)


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
def drop_row(cache, at):
    """Remove the row at a place of the cache, in place."""
    cache.state[COUNT] -= 1
    last = cache.rows[cache.state[COUNT]]
    cache.place[cache.rows[at]] = -1
    if at < cache.state[COUNT]:
        cache.rows[at], cache.place[last] = last, at


@kernel
def draw_row(cache):
    """A random place of the cache."""
    cache.state[RANDOM], at = ball.draw(cache.state[RANDOM], cache.state[COUNT])
    return at


@kernel
def read_row(cache):
    """Bring the reader's next row into the cache, in place; a random row makes room."""
    i = cache.state[NEXT]
    cache.state[NEXT] = (i + 1) % cache.place.shape[0]
    if cache.place[i] >= 0:
        return
    if cache.state[COUNT] == cache.rows.shape[0]:
        drop_row(cache, draw_row(cache))
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
            read_row(cache)
        state[STEPS] += 1
        at = draw_row(cache)
        i = cache.rows[at]
        m = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            m += w[ids[e]] * values[e]
        gradient = y[i] * m - 1.0 + a[i] * ridge
        bound = (a[i] <= 0.0 and gradient > 0.0) or (a[i] >= most and gradient < 0.0)
        if bound:
            if abs(gradient) > sums[BEYOND]:
                drop_row(cache, at)
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
            read_row(cache)
        eta = rate / (1.0 + rate * state[STEPS] * gravity)
        state[STEPS] += 1
        i = cache.rows[draw_row(cache)]
        m = sums[BIAS]
        for e in range(indptr[i], indptr[i + 1]):
            j = ids[e]
            size = max(0.0, abs(w[j]) - (sums[SHRINK] - seen[j]))
            w[j], seen[j] = math.copysign(size, w[j]), sums[SHRINK]
            m += w[j] * values[e]
        # exp of a positive number would overflow
        small = math.exp(-abs(m))
        wrong = (small if y[i] * m > 0.0 else 1.0) / (1.0 + small)
        step = eta * y[i] * wrong
        sums[BIAS] += step
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
