"""Sums of all patterns at one position, from the table of sums by window code; all int64.

Codes and patterns are defined in :mod:`fcl.kernels.kmers`. Windows with unknown letters are not in the
table but in a list of *items* (:class:`Items`).
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.candidates import SKIPPED, VISITED, edge, take
from fcl.kernels.compilation import kernel
from fcl.kernels.kmers import five_code

#: Number of letters that are expanded together at the bottom of the tree: 4^2 cells to 5^2 patterns.
FLAT_LETTERS = 2
#: Cells whose sums are made once, for the bounds of all nodes whose tables contain them: 4^3.
GRAIN = 64


class Items(NamedTuple):
    """Windows with unknown letters."""

    code: np.ndarray  # uint32, 0 for an unknown letter
    mask: np.ndarray  # uint32, 3 at each unknown letter
    value: np.ndarray  # int64


@kernel
def pattern_sums(table, items, cares, values, d, out):
    """Write the sum over the windows that match each pattern, from table and items, to ``out``."""
    full = (1 << (2 * d)) - 1
    for j in range(cares.shape[0]):
        size = 1  # of the neighbouring cells that differ in the wildcards at the end
        while size <= full and cares[j] & size == 0:
            size *= 4
        free = full & ~cares[j] & ~(size - 1)
        fixed = values[j]
        total = 0
        sub = 0
        while True:
            start = fixed | sub
            part = table[start : start + size]
            for i in range(size):
                total += part[i]
            sub = (sub - free) & free
            if sub == 0:
                break
        for e in range(items.code.shape[0]):
            code, unknown = np.int64(items.code[e]), np.int64(items.mask[e])
            if unknown & cares[j] == 0 and code & cares[j] == fixed:
                total += items.value[e]
        out[j] = total


@kernel
def _weigh(cells, start, size, grains):
    """Write the sums and the sums of absolute values of every GRAIN cells, as pairs.

    cells[start : start + size] : from the ``start / GRAIN``-th pair of ``grains`` on; fewer than GRAIN
        cells have none.
    """
    for g in range(start // GRAIN, (start + size) // GRAIN):
        total = absolute = 0
        part = cells[g * GRAIN : (g + 1) * GRAIN]  # only loops that index from 0 are vectorised
        for i in range(GRAIN):
            total += part[i]
            absolute += abs(part[i])
        grains[2 * g] = total
        grains[2 * g + 1] = absolute


@kernel
def _both_sums(cells, start, size, grains):
    """Sums of the positive and of the |negative| entries of cells[start : start + size]."""
    total = absolute = 0
    if size % GRAIN == 0:
        part = grains[2 * start // GRAIN : 2 * (start + size) // GRAIN]
        for g in range(size // GRAIN):
            total += part[2 * g]
            absolute += part[2 * g + 1]
    else:
        part = cells[start : start + size]
        for i in range(size):
            total += part[i]
            absolute += abs(part[i])
    return (absolute + total) >> 1, (absolute - total) >> 1


@kernel
def _add_letters(cells, start, size, radix, at):
    """Write the sums over the first letter of a table of radix * size cells to cells[at : at + size]."""
    a = cells[start : start + size]  # only loops that index from 0 are vectorised
    c = cells[start + size : start + 2 * size]
    g = cells[start + 2 * size : start + 3 * size]
    t = cells[start + 3 * size : start + 4 * size]
    out = cells[at : at + size]
    for i in range(size):
        out[i] = (a[i] + c[i]) + (g[i] + t[i])
    if radix == 5:
        unknown = cells[start + 4 * size : start + 5 * size]
        for i in range(size):
            out[i] += unknown[i]


@kernel
def _expand_axes(cells, start, letters, radix, flat_a, flat_b):
    """Expand radix^letters cells to the sums of all 5^letters patterns, axis by axis from the last.

    Returns 0 if the sums are in ``flat_a``, 1 if they are in ``flat_b``.
    """
    inner = 1
    outer = radix**letters
    for i in range(outer):
        flat_a[i] = cells[start + i]
    into_b = True
    for _ in range(letters):
        outer //= radix
        source = flat_a if into_b else flat_b
        target = flat_b if into_b else flat_a
        for o in range(outer):
            s = o * radix * inner
            t = o * 5 * inner
            for i in range(inner):
                x0 = source[s + i]
                x1 = source[s + inner + i]
                x2 = source[s + 2 * inner + i]
                x3 = source[s + 3 * inner + i]
                total = (x0 + x1) + (x2 + x3)
                if radix == 5:
                    total += source[s + 4 * inner + i]
                target[t + i] = x0
                target[t + inner + i] = x1
                target[t + 2 * inner + i] = x2
                target[t + 3 * inner + i] = x3
                target[t + 4 * inner + i] = total
        into_b = not into_b
        inner *= 5
    return 0 if into_b else 1


@kernel
def add_item_to_flat(flat, letters, code, mask, value):
    """Add an item to every pattern of the last ``letters`` letters that it matches, in place.

    An unknown letter matches only the wildcard; a known letter matches itself and the wildcard.
    """
    base = 0  # the pattern that has no wildcard at the known letters
    n_known = 0
    power = 1
    for t in range(letters):  # from the last letter backwards
        shift = 2 * t
        if (mask >> shift) & 3:
            base += 4 * power
        else:
            base += ((code >> shift) & 3) * power
            n_known += 1
        power *= 5
    for choice in range(1 << n_known):
        index = base
        bit = 0
        power = 1
        for t in range(letters):
            shift = 2 * t
            if (mask >> shift) & 3 == 0:
                if (choice >> bit) & 1:
                    index += (4 - ((code >> shift) & 3)) * power
                bit += 1
            power *= 5
        flat[index] += value


@kernel
def scan_size(d, radix):
    """Number of int64 cells that a scan of patterns of d letters needs, including the table."""
    size = radix**d
    for level in range(2, d + 1):
        size += radix ** (d - level)
    return size + (2 * (size // GRAIN) if radix == 4 else 0)


@kernel
def five_letter_table(table, d, items, out):
    """Write the table of sums in which unknown is a fifth letter to ``out``.

    table : int64 (>= 4^d,), for the windows without unknown letters.
    out : int64 (>= 5^d,); its first 5^d cells are overwritten.
    """
    out[: 5**d] = 0
    for c in range(1 << (2 * d)):
        out[five_code(c, np.int64(0), d, d)] = table[c]
    for e in range(items.code.shape[0]):
        out[five_code(np.int64(items.code[e]), np.int64(items.mask[e]), d, d)] += items.value[e]


@kernel
def scan_patterns(cells, d, radix, items, stack, first_id, flats, wanted):
    """Visit those patterns of one position, out of 4 * 5^(d-1), whose sums can exceed a threshold.

    The tree of patterns is searched depth first, one letter per level (A, C, G, T, wildcard; the first
    letter is never a wildcard). A node holds the table of the letters that follow its prefix. All its
    leaves are sums over subsets of that table, so the larger of its positive and its negative mass
    bounds them; if the bound exceeds neither threshold nor floor, the whole subtree is skipped, and no
    sums are made for watched features in it.

    cells : int64 (scan_size(d, radix),); the first radix^d hold the table, the others are overwritten.
    radix : 4, or 5 for a table in which unknown is a letter (:func:`five_letter_table`). This letter has
        no pattern of its own; its cells are added only to the wildcard's cells.
    items : the windows that are not in the table; empty with radix 5. Carrying a few items down
        the tree is faster than summing a larger table.
    stack : int32 (>= (d + 1) * len(items.code),), overwritten.
    flats : int64 (2, 5^FLAT_LETTERS), overwritten.
    wanted : :class:`fcl.kernels.candidates.Wanted`.
    """
    code, mask, value = items
    n_items = code.shape[0]
    skipped = 0
    visited = 0

    flat_letters = min(FLAT_LETTERS, d - 1)
    bottom = d - flat_letters  # level of the nodes that are expanded flat
    start = np.zeros(d + 2, np.int64)  # of the node's cells
    child = np.zeros(d + 2, np.int64)  # next child to visit
    prefix = np.zeros(d + 2, np.int64)  # in base 5
    list_start = np.zeros(d + 2, np.int64)  # the node's items: stack[list_start : list_stop]
    list_stop = np.zeros(d + 2, np.int64)
    wild_start = np.zeros(d + 2, np.int64)  # room for the wildcard child of each level
    room = radix**d
    for level in range(2, d + 1):
        wild_start[level] = room
        room += radix ** (d - level)
    grains = cells[room:]
    if radix == 4:  # with five letters, no table consists of whole grains
        _weigh(cells, np.int64(0), 1 << (2 * d), grains)
    leaves = 1
    for _ in range(flat_letters):
        leaves *= 5

    for e in range(n_items):
        stack[e] = e
    list_stop[0] = n_items
    level = 0
    while level >= 0:
        n_children = 4 if level == 0 else 5
        a = child[level]
        if a == n_children:
            level -= 1
            continue
        child[level] = a + 1
        below = d - level - 1  # letters after this one
        size = radix**below
        shift = 2 * below
        rest = np.uint32((1 << shift) - 1)
        here = np.uint32(3)
        into = list_stop[level]
        first = into
        if a < 4:
            at = start[level] + a * size
            for e in range(list_start[level], list_stop[level]):
                item = stack[e]
                if (mask[item] >> shift) & here == 0 and (code[item] >> shift) & here == a:
                    stack[into] = item
                    into += 1
        else:
            at = wild_start[level + 1]
            _add_letters(cells, start[level], size, radix, at)
            for e in range(list_start[level], list_stop[level]):
                item = stack[e]
                if mask[item] & rest == 0:  # no unknown letters remain: add to an ordinary cell
                    cells[at + np.int64(code[item] & rest)] += value[item]
                else:
                    stack[into] = item
                    into += 1
            if radix == 4:
                _weigh(cells, at, size, grains)
        up, down = _both_sums(cells, at, size, grains)
        for e in range(first, into):
            x = value[stack[e]]
            if x > 0:
                up += x
            else:
                down -= x
        bound = max(up, down)
        bar = edge(wanted)
        if bound <= bar:
            skipped = max(skipped, bound)
            continue
        if level + 1 < bottom:
            level += 1
            start[level] = at
            child[level] = 0
            prefix[level] = prefix[level - 1] * 5 + a
            list_start[level] = first
            list_stop[level] = into
            continue

        which = _expand_axes(cells, at, flat_letters, radix, flats[0], flats[1])
        flat = flats[which]
        for e in range(first, into):
            item = stack[e]
            add_item_to_flat(
                flat, flat_letters, np.int64(code[item]), np.int64(mask[item]), value[item]
            )
        base = first_id + (prefix[level] * 5 + a) * leaves
        visited += leaves
        most = 0
        for i in range(leaves):
            most = max(most, abs(flat[i]))
        if most <= bar:
            skipped = max(skipped, most)
            continue
        for i in range(leaves):
            x = abs(flat[i])
            if x > bar:
                take(base + i, flat[i], wanted)
                bar = edge(wanted)
            elif x > skipped:
                skipped = x
    wanted.found[SKIPPED] = max(wanted.found[SKIPPED], float(skipped))
    wanted.found[VISITED] += visited
