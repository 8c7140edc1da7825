"""Sums of positional k-mers for several outputs at once, which share the reading of rows and the search.

An output is a *lane*. Cells of tables hold the sums of all lanes side by side, so that one access serves
LANES outputs, and vector instructions expand the tables of all lanes. Unused lanes may repeat the rows of
another lane; their threshold is larger than any sum.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.candidates import SKIPPED, VISITED, edge, take
from fcl.kernels.compilation import kernel
from fcl.kernels.patterns import FLAT_LETTERS, add_item_to_flat

#: Number of outputs; four int64 are half a line of the cache, and one vector register.
LANES = 4


class LaneRows(NamedTuple):
    """The numbers of a block of rows, as float64 or as int64 in steps, for each lane."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray


class LaneItems(NamedTuple):
    """Windows with unknown letters; see :class:`fcl.kernels.patterns.Items`."""

    code: np.ndarray  # uint32
    mask: np.ndarray  # uint32
    values: np.ndarray  # int64 (LANES, n)


class LaneWanted(NamedTuple):
    """A :class:`fcl.kernels.candidates.Wanted` for each lane."""

    a: tuple
    b: tuple
    c: tuple
    d: tuple


@kernel
def _masses(cells, start, size, items, listed, out):
    """Write the larger of the sums of positive and of |negative| entries, by lane.

    listed : the items that count, besides some cells.
    """
    part = cells[start * LANES : (start + size) * LANES]
    t0 = t1 = t2 = t3 = a0 = a1 = a2 = a3 = 0
    for i in range(size):
        x0, x1, x2, x3 = part[4 * i], part[4 * i + 1], part[4 * i + 2], part[4 * i + 3]
        t0 += x0
        t1 += x1
        t2 += x2
        t3 += x3
        a0 += abs(x0)
        a1 += abs(x1)
        a2 += abs(x2)
        a3 += abs(x3)
    for e in range(listed.shape[0]):
        item = listed[e]
        x0, x1, x2, x3 = (
            items.values[0, item],
            items.values[1, item],
            items.values[2, item],
            items.values[3, item],
        )
        t0 += x0
        t1 += x1
        t2 += x2
        t3 += x3
        a0 += abs(x0)
        a1 += abs(x1)
        a2 += abs(x2)
        a3 += abs(x3)
    out[0] = (a0 + abs(t0)) >> 1
    out[1] = (a1 + abs(t1)) >> 1
    out[2] = (a2 + abs(t2)) >> 1
    out[3] = (a3 + abs(t3)) >> 1


@kernel
def _add_items(flat, letters, items, listed):
    """Add items to every pattern of the last ``letters`` letters that they match, in place."""
    for e in range(listed.shape[0]):
        item = listed[e]
        code, mask = np.int64(items.code[item]), np.int64(items.mask[item])
        for lane in range(LANES):
            add_item_to_flat(flat[lane::LANES], letters, code, mask, items.values[lane, item])


@kernel
def _items_of_letter(items, listed, below, letter, stack, into):
    """Copy the items that have a letter, with ``below`` letters after it, to ``stack[into:]``.

    Returns the end of the copies.
    """
    shift = 2 * below
    for e in range(listed.shape[0]):
        item = listed[e]
        if (items.mask[item] >> shift) & 3 == 0 and (items.code[item] >> shift) & 3 == letter:
            stack[into] = item
            into += 1
    return into


@kernel
def _items_of_wildcard(items, listed, below, cells, stack, into):
    """The same for a wildcard; items without unknown letters after it are added to its cells."""
    rest = (1 << (2 * below)) - 1
    for e in range(listed.shape[0]):
        item = listed[e]
        if items.mask[item] & rest == 0:
            for lane in range(LANES):
                cells[(items.code[item] & rest) * LANES + lane] += items.values[lane, item]
        else:
            stack[into] = item
            into += 1
    return into


@kernel
def _expand_axis(source, target, outer, inner):
    """Write the sums over a letter, which is the middle of three axes, to ``target`` as a fifth entry."""
    for o in range(outer):
        own = source[4 * o * inner : 4 * (o + 1) * inner]
        out = target[5 * o * inner : 5 * (o + 1) * inner]
        for i in range(inner):
            x0, x1, x2, x3 = own[i], own[inner + i], own[2 * inner + i], own[3 * inner + i]
            out[i] = x0
            out[inner + i] = x1
            out[2 * inner + i] = x2
            out[3 * inner + i] = x3
            out[4 * inner + i] = (x0 + x1) + (x2 + x3)


@kernel
def _expand_last_axis(source, target, outer):
    """:func:`_expand_axis` for inner = LANES, a constant, so that the compiler unrolls the inner loop."""
    for o in range(outer):
        own = source[4 * o * LANES : 4 * (o + 1) * LANES]
        out = target[5 * o * LANES : 5 * (o + 1) * LANES]
        for i in range(LANES):
            x0, x1 = own[i], own[LANES + i]
            x2, x3 = own[2 * LANES + i], own[3 * LANES + i]
            out[i] = x0
            out[LANES + i] = x1
            out[2 * LANES + i] = x2
            out[3 * LANES + i] = x3
            out[4 * LANES + i] = (x0 + x1) + (x2 + x3)


@kernel
def _expand(cells, start, letters, flats):
    """Expand 4^letters cells to the sums of all 5^letters patterns; returns the index of their flat.

    As :func:`fcl.kernels.patterns._expand_axes`, with the lanes as the innermost axis.
    """
    outer = 4**letters
    part = cells[start * LANES : (start + outer) * LANES]
    if letters == 0:
        for lane in range(LANES):
            flats[0, lane] = part[lane]
        return 0
    outer //= 4
    _expand_last_axis(part, flats[0], outer)
    inner, which = 5 * LANES, 0
    for _ in range(letters - 1):
        outer //= 4
        _expand_axis(flats[which], flats[1 - which], outer, inner)
        which = 1 - which
        inner *= 5
    return which


@kernel
def _largest(flat, leaves, out):
    """Write the largest |sum| of each lane."""
    m0 = m1 = m2 = m3 = 0
    for i in range(leaves):
        m0 = max(m0, abs(flat[4 * i]))
        m1 = max(m1, abs(flat[4 * i + 1]))
        m2 = max(m2, abs(flat[4 * i + 2]))
        m3 = max(m3, abs(flat[4 * i + 3]))
    out[0], out[1], out[2], out[3] = m0, m1, m2, m3


@kernel
def _collect(flat, lane, leaves, base, skipped, wanted):
    """Take the sums of a lane that are above the edge; returns the new edge."""
    bar = edge(wanted)
    for i in range(leaves):
        value = flat[i * LANES + lane]
        x = abs(value)
        if x > bar:
            take(base + i, value, wanted)
            bar = edge(wanted)
        elif x > skipped[lane]:
            skipped[lane] = x
    return bar


@kernel
def _finish(wanted, skipped, visited):
    """Record the largest skipped bound and the number of visited features of a lane."""
    wanted.found[SKIPPED] = max(wanted.found[SKIPPED], float(skipped))
    wanted.found[VISITED] += visited


@kernel
def _select(sizes, bars, active, skipped):
    """The active lanes whose size is above their bar, as bits; the others record it as skipped."""
    chosen = 0
    for lane in range(LANES):
        if (active >> lane) & 1:
            if sizes[lane] > bars[lane]:
                chosen |= 1 << lane
            else:
                skipped[lane] = max(skipped[lane], sizes[lane])
    return chosen


@kernel
def scan_lanes(cells, d, items, stack, first_id, flats, wanted):
    """Do for each lane what :func:`fcl.kernels.patterns.scan_patterns` does with radix 4.

    The tree is walked once. A lane leaves a subtree where its own bound is low enough, so that it finds,
    bit for bit, what a scan of its own would find.

    cells : int64 (scan_size(d, 4) * LANES,); the first 4^d * LANES hold the tables, the others are
        overwritten.
    items : LaneItems, the windows that are not in the tables.
    stack : int32 (>= (d + 1) * len(items.code),), overwritten.
    flats : int64 (2, 5^FLAT_LETTERS * LANES), overwritten.
    wanted : LaneWanted.
    """
    flat_letters = min(FLAT_LETTERS, d - 1)
    bottom = d - flat_letters
    start = np.zeros(d + 2, np.int64)  # of the node's cells
    child = np.zeros(d + 2, np.int64)  # next child to visit
    prefix = np.zeros(d + 2, np.int64)  # in base 5
    active = np.zeros(d + 2, np.int64)  # lanes, as bits
    list_start = np.zeros(d + 2, np.int64)  # the node's items: stack[list_start : list_stop]
    list_stop = np.zeros(d + 2, np.int64)
    wild_start = np.zeros(d + 2, np.int64)  # room for the wildcard child of each level
    room = 4**d
    for level in range(2, d + 1):
        wild_start[level] = room
        room += 4 ** (d - level)
    leaves = 5**flat_letters
    sizes = np.zeros(LANES, np.int64)
    skipped = np.zeros(LANES, np.int64)
    visited = np.zeros(LANES, np.int64)
    bars = np.array([edge(wanted.a), edge(wanted.b), edge(wanted.c), edge(wanted.d)])

    active[0] = (1 << LANES) - 1
    list_stop[0] = items.code.shape[0]
    for e in range(list_stop[0]):
        stack[e] = e
    level = 0
    while level >= 0:
        a = child[level]
        if a == (4 if level == 0 else 5):
            level -= 1
            continue
        child[level] = a + 1
        below = d - level - 1  # letters after this one
        size = 4**below
        first = list_stop[level]
        listed = stack[list_start[level] : first]
        if a < 4:
            at = start[level] + a * size
            last = _items_of_letter(items, listed, below, a, stack, first)
        else:
            at = wild_start[level + 1]
            n = size * LANES
            source = cells[start[level] * LANES : start[level] * LANES + 4 * n]
            target = cells[at * LANES : at * LANES + n]
            for i in range(n):
                target[i] = (source[i] + source[n + i]) + (source[2 * n + i] + source[3 * n + i])
            last = _items_of_wildcard(items, listed, below, target, stack, first)
        listed = stack[first:last]
        _masses(cells, at, size, items, listed, sizes)
        here = _select(sizes, bars, active[level], skipped)
        if here == 0:
            continue
        if level + 1 < bottom:
            level += 1
            start[level] = at
            child[level] = 0
            prefix[level] = prefix[level - 1] * 5 + a
            active[level] = here
            list_start[level] = first
            list_stop[level] = last
            continue

        flat = flats[_expand(cells, at, flat_letters, flats)]
        _add_items(flat, flat_letters, items, listed)
        base = first_id + (prefix[level] * 5 + a) * leaves
        for lane in range(LANES):
            visited[lane] += leaves * ((here >> lane) & 1)
        _largest(flat, leaves, sizes)
        here = _select(sizes, bars, here, skipped)
        if here & 1:
            bars[0] = _collect(flat, np.int64(0), leaves, base, skipped, wanted.a)
        if here & 2:
            bars[1] = _collect(flat, np.int64(1), leaves, base, skipped, wanted.b)
        if here & 4:
            bars[2] = _collect(flat, np.int64(2), leaves, base, skipped, wanted.c)
        if here & 8:
            bars[3] = _collect(flat, np.int64(3), leaves, base, skipped, wanted.d)
    _finish(wanted.a, skipped[0], visited[0])
    _finish(wanted.b, skipped[1], visited[1])
    _finish(wanted.c, skipped[2], visited[2])
    _finish(wanted.d, skipped[3], visited[3])
