"""Loops that the ball's heap is compared with: tree, list, whole vector, exponentiated gradient, descent.

Everything here minimises losses over {sum_j |w_j| <= z} and a free intercept, except coordinate descent,
which has a penalty in place of z. Rows come as a CSR matrix: ``indptr``, ``ids`` (distinct within a row)
and ``values``, with targets ``y``; each ``descend_...`` takes a range of rows in order, row t at the rate
``rate`` / sqrt(t), adds each loss before the row's update, and returns their sum. Source: Duchi,
Shalev-Shwartz, Singer and Chandra, *Efficient projections onto the l1-ball for learning in high
dimensions*, ICML 2008.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fcl.kernels import ball, kernel
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
        slope, _ = loss_slope_curvature(loss, y[i], m)
        state[ROWS] += 1.0
        step = -rate / math.sqrt(state[ROWS]) * slope
        state[INTERCEPT] += step
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
        slope, _ = loss_slope_curvature(loss, y[i], m)
        state[ROWS] += 1.0
        step = -rate / math.sqrt(state[ROWS]) * slope
        state[INTERCEPT] += step
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
        slope, _ = loss_slope_curvature(loss, y[i], m)
        state[ROWS] += 1.0
        step = -rate / math.sqrt(state[ROWS]) * slope
        state[INTERCEPT] += step
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
