"""Truncated gradient over a hash table of the weights that are not 0.

Linear probing: the entry of a feature is at its place, or at the next free one after it; ``keys`` holds
feature numbers, int64 (capacity,), -1 where an entry is free. Nothing is removed one by one: where the
table is full, the caller keeps the entries whose weights are not 0, and makes a new table of them. The
weights have the bits of the dense table (:func:`fcl.kernels.online.learn_truncated`), in which a feature
whose weight is 0 needs no time of its last truncation either.
"""

import math

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.online import (
    DIVERGED,
    DONE,
    GROWTH,
    INTERCEPT,
    MOST_MARGIN,
    REBASE,
    SHRINK,
    brought_up,
    end_row,
    row_step,
)

#: Why a kernel stopped, besides the reasons of :mod:`fcl.kernels.online`: the next row may not find room.
FULL = 3
#: Number of a free entry.
FREE = -1
#: 2^64 divided by the golden ratio.
MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def entry_of(keys, feature):
    """The entry of a feature, or the free one where it belongs."""
    mixed = (np.uint64(feature) * MIX) >> np.uint64(32)
    at = np.int64((mixed * np.uint64(keys.shape[0])) >> np.uint64(32))
    while keys[at] != feature and keys[at] != FREE:
        at += 1
        if at == keys.shape[0]:
            at = 0
    return at


@kernel
def missing(keys, features):
    """How many of distinct features have no entry."""
    found = 0
    for k in range(features.shape[0]):
        found += keys[entry_of(keys, features[k])] == FREE
    return found


@kernel
def fill(keys, table, features, rows):
    """Put features, which are not there yet, and their rows of the table into a table with room."""
    for k in range(features.shape[0]):
        at = entry_of(keys, features[k])
        keys[at] = features[k]
        for c in range(table.shape[1]):
            table[at, c] = rows[k, c]


@kernel
def settle_nonzero(rule, factors, keys, table, state, out):
    """Write the weights of all entries, with all truncations so far, to ``out``; 0 for free ones."""
    stamp = np.empty(1, table.dtype)
    stamp[0] = state[SHRINK]
    now = np.float64(stamp[0])
    for at in range(keys.shape[0]):
        out[at] = 0.0
        w = np.float64(table[at, 0])
        if keys[at] != FREE and w != 0.0:
            due = now - np.float64(table[at, 1])
            out[at] = brought_up(w, due, keys[at], rule, factors) / state[GROWTH]


@kernel
def learn_nonzero(
    indptr, ids, values, y, s, margins, loss, rule, factors, places, most, keys, table, state
):
    """Learn rows as :func:`fcl.kernels.online.learn_truncated`; returns rows, reason, and new entries.

    places : int64, at least as long as the longest row.
    most : number of entries that may be added.
    table : (capacity, 2), as the dense one, by entries.
    """
    stamp, added = np.empty(1, table.dtype), 0
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        lo, hi = indptr[i], indptr[i + 1]
        if added + hi - lo > most and added + missing(keys, ids[lo:hi]) > most:
            return i, FULL, added
        growth = state[GROWTH]
        stamp[0] = state[SHRINK]
        now = np.float64(stamp[0])
        m, square = 0.0, 0.0
        for e in range(lo, hi):
            j, x = ids[e], np.float64(values[e])
            square += x * x
            at = entry_of(keys, j)
            places[e - lo] = at
            w = 0.0
            if keys[at] == j:
                due = now - np.float64(table[at, 1])
                w = np.float64(table[at, 0])
                if due != 0.0:
                    if w != 0.0:
                        w = brought_up(w, due, j, rule, factors)
                        table[at, 0] = w
                    table[at, 1] = now
            m += w * x
        m = margins[i] + (m / growth + state[INTERCEPT])
        if not abs(m) < MOST_MARGIN:
            return i, DIVERGED, added
        margins[i] = m
        eta, step = row_step(loss, rule, y[i], s[i], m, square, state)
        if step != 0.0:
            scaled = step * growth
            for e in range(lo, hi):
                j = ids[e]
                if factors is None or factors[j] < math.inf:
                    at = places[e - lo]
                    if keys[at] != j:  # an entry of this row may have taken the free one
                        at = entry_of(keys, j)
                    if keys[at] == FREE:
                        keys[at], added = j, added + 1
                        table[at, 0], table[at, 1] = 0.0, now
                    table[at, 0] -= scaled * values[e]
            if rule.intercept:
                state[INTERCEPT] -= step
        if end_row(rule, eta * rule.gravity, s[i], state):
            return i + 1, REBASE, added
    return y.shape[0], DONE, added
