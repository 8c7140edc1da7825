"""Cached columns: pieces, one per row block, in an arena of bytes, and sums over them.

A column is divided into pieces by row blocks (at most 65,536 rows, so that a row number within its block
fits in uint16). Each piece is stored in the smallest of six encodings that can represent its values:

    BITS     bitmap, uint64 words, row i of the block is bit i % 64 of word i // 64; all values 1
    ROWS     strictly increasing uint16 rows; all values 1
    VALUES   the same rows, padded to 8 bytes, then as many float32 values
    FINE     the same rows, padded to 8 bytes, then as many float64 values
    DENSE    one float32 value for every row of the block
    STEPS    a float32 step, 4 bytes of padding, then the int8 multiple of it for every row of the block

STEPS is for values that are exact multiples of a step, such as counts: the product of step and multiple,
24 bits by 7, is exact in float64. FINE is for float64 values that float32 would round.

A column occupies one contiguous run of bytes: its pieces follow one another, each at a multiple of 8
bytes. The directory has one row per column: ``first`` int64 (columns,) is the offset of its first byte;
``kinds`` uint8, ``offsets`` uint32 (bytes from ``first``) and ``counts`` uint32 (rows stored) have shape
(columns, blocks). Moving a column means copying it and then writing one number.
:mod:`fcl.kernels.encoding` writes columns.

Sums over many columns are made block by block: the vectors of one block (512 KiB each) stay in the
second-level cache while all columns read them.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fcl.kernels.bits import trailing_zeros
from fcl.kernels.compilation import kernel, summing
from fcl.kernels.ordered import first_from

BITS = 0
ROWS = 1
VALUES = 2
FINE = 3
DENSE = 4
STEPS = 5


class Pieces(NamedTuple):
    """The arrays of the cache, in the layout that kernels read."""

    arena16: np.ndarray  # uint16 view of the arena
    arena32: np.ndarray  # float32 view
    arena8: np.ndarray  # int8 view
    arena64: np.ndarray  # uint64 view
    fine: np.ndarray  # float64 view
    first: np.ndarray  # int64 (columns,)
    kinds: np.ndarray  # uint8 (columns, blocks)
    offsets: np.ndarray  # uint32 (columns, blocks)
    counts: np.ndarray  # uint32 (columns, blocks)
    block_rows: int
    n_rows: int


def block_moments(pieces, columns, b, r, q, g, h):
    """Write the sums of r_i phi_ij and q_i phi_ij^2 over block b, for the listed columns, to g and h.

    A job compiles only the kernels of the encodings that its columns have.

    r, q : float64 (n_rows,), for all blocks.
    """
    first = b * pieces.block_rows
    # a sample has fewer rows than the cache has room for
    r, q = (own[first : first + pieces.block_rows] for own in (r, q))
    kinds, places, counts = _pieces_of(pieces, columns, b)
    rq = None
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        which = np.flatnonzero(kinds == kind)
        if kind < DENSE and rq is None:
            rq = np.empty((len(r), 2))
            rq[:, 0], rq[:, 1] = r, q
        if kind == BITS:
            _moments_of_bits(pieces.arena64, places, which, rq, g, h)
        elif kind == ROWS:
            _moments_of_rows(pieces.arena16, places, counts, which, rq, g, h)
        elif kind < DENSE:
            values, shift = (pieces.arena32, 2) if kind == VALUES else (pieces.fine, 3)
            _moments_of_lists(pieces.arena16, values, shift, places, counts, which, rq, g, h)
        elif kind == DENSE:
            _moments_of_all(pieces.arena32, places >> 2, counts, which, r, q, g, h)
        else:
            _moments_of_all(pieces.arena8, places + 8, counts, which, r, q, g, h)
            step = pieces.arena32[places[which] >> 2].astype(np.float64)
            g[which] *= step
            h[which] *= step * step


def _pieces_of(pieces, columns, b):
    """Encodings, first bytes and counts of block b of the listed columns."""
    places = pieces.first[columns] + pieces.offsets[columns, b]
    return pieces.kinds[columns, b], places, pieces.counts[columns, b].astype(np.int64)


@kernel
def _moments_of_bits(arena64, places, which, rq, g, h):
    """The moments of bitmaps."""
    n_words = (rq.shape[0] + 63) >> 6
    for e in range(which.shape[0]):
        t = which[e]
        words = arena64[places[t] >> 3 : (places[t] >> 3) + n_words]
        total = squares = 0.0
        for w in range(n_words):
            word = words[w]
            while word != 0:
                i = 64 * w + np.int64(trailing_zeros(word))
                total += rq[i, 0]
                squares += rq[i, 1]
                word &= word - np.uint64(1)
        g[t], h[t] = total, squares


@kernel
def _moments_of_rows(arena16, places, counts, which, rq, g, h):
    """The moments of lists of rows."""
    for c in range(which.shape[0]):
        t = which[c]
        n = counts[t]
        rows = arena16[places[t] >> 1 : (places[t] >> 1) + n]
        # two sums of each, since an addition waits for the last one to the same sum
        g0 = g1 = h0 = h1 = 0.0
        for e in range(0, n - 1, 2):
            i, k = rows[e], rows[e + 1]
            g0 += rq[i, 0]
            h0 += rq[i, 1]
            g1 += rq[k, 0]
            h1 += rq[k, 1]
        if n & 1:
            g0 += rq[rows[n - 1], 0]
            h0 += rq[rows[n - 1], 1]
        g[t], h[t] = g0 + g1, h0 + h1


@kernel
def _moments_of_lists(arena16, arena, shift, places, counts, which, rq, g, h):
    """The moments of lists of rows and values, float32 or float64, of 1 << shift bytes."""
    for c in range(which.shape[0]):
        t = which[c]
        n = counts[t]
        rows = arena16[places[t] >> 1 : (places[t] >> 1) + n]
        at = (places[t] + ((2 * n + 7) & ~7)) >> shift
        values = arena[at : at + n]
        g0 = g1 = h0 = h1 = 0.0
        for e in range(0, n - 1, 2):
            i, x = rows[e], np.float64(values[e])
            k, z = rows[e + 1], np.float64(values[e + 1])
            g0 += rq[i, 0] * x
            h0 += rq[i, 1] * (x * x)
            g1 += rq[k, 0] * z
            h1 += rq[k, 1] * (z * z)
        if n & 1:
            i, x = rows[n - 1], np.float64(values[n - 1])
            g0 += rq[i, 0] * x
            h0 += rq[i, 1] * (x * x)
        g[t], h[t] = g0 + g1, h0 + h1


@kernel
def _moments_of_all(arena, starts, counts, which, r, q, g, h):
    """The moments of values of all rows, float32 or int8."""
    for e in range(which.shape[0]):
        t = which[e]
        g[t], h[t] = _dense_moments(arena[starts[t] : starts[t] + counts[t]], r, q)


@summing
def _dense_moments(values, r, q):
    """The moments of a value for every row."""
    g = h = 0.0
    for i in range(values.shape[0]):
        x = np.float64(values[i])
        g += r[i] * x
        h += q[i] * (x * x)
    return g, h


def add_block(pieces, columns, deltas, b, m):
    """Add ``deltas[t]`` times column ``columns[t]``, for all t, to the margins m of block b, in place."""
    first = b * pieces.block_rows
    part = m[first : min(first + pieces.block_rows, pieces.n_rows)]
    kinds, places, counts = _pieces_of(pieces, columns, b)
    group = np.maximum(kinds, ROWS)  # bitmaps and lists of rows go together
    cuts = [0, *(np.flatnonzero(group[1:] != group[:-1]) + 1).tolist(), len(columns)]
    for start, stop in pairwise(cuts):  # in their order, since it is the order of the sums
        run = slice(start, stop)
        kind, at, n, own = kinds[start], places[run], counts[run], deltas[run]
        if kind < VALUES:
            _add_ones(pieces.arena16, pieces.arena64, kinds[run], at, n, own, part)
        elif kind < DENSE:
            values, shift = (pieces.arena32, 2) if kind == VALUES else (pieces.fine, 3)
            _add_lists(pieces.arena16, values, shift, at, n, own, part)
        elif kind == DENSE:
            _add_all(pieces.arena32, at >> 2, np.ones(len(own)), own, part)
        else:
            _add_all(pieces.arena8, at + 8, pieces.arena32[at >> 2].astype(np.float64), own, part)


@kernel
def _add_ones(arena16, arena64, kinds, places, counts, deltas, m):
    """Add multiples of columns of ones to margins, in place."""
    for t in range(kinds.shape[0]):
        delta = deltas[t]
        if kinds[t] == BITS:
            n_words = (m.shape[0] + 63) >> 6
            words = arena64[places[t] >> 3 : (places[t] >> 3) + n_words]
            for w in range(n_words):
                word = words[w]
                while word != 0:
                    m[64 * w + np.int64(trailing_zeros(word))] += delta
                    word &= word - np.uint64(1)
        else:
            rows = arena16[places[t] >> 1 : (places[t] >> 1) + counts[t]]
            for e in range(rows.shape[0]):
                m[rows[e]] += delta


@kernel
def _add_lists(arena16, arena, shift, places, counts, deltas, m):
    """Add multiples of lists of rows and values of 1 << shift bytes to margins, in place."""
    for t in range(places.shape[0]):
        rows = arena16[places[t] >> 1 :]
        values = arena[(places[t] + ((2 * counts[t] + 7) & ~7)) >> shift :]
        for e in range(counts[t]):
            m[rows[e]] += deltas[t] * np.float64(values[e])


@kernel
def _add_all(arena, starts, steps, deltas, m):
    """Add multiples of values of all rows, in units of ``steps``, to margins, in place."""
    for t in range(starts.shape[0]):
        values = arena[starts[t] :]
        for i in range(m.shape[0]):
            m[i] += deltas[t] * (steps[t] * np.float64(values[i]))


def dense_rows(pieces, columns, b, first, out):
    """Write some rows of the listed columns: out[t, i] is row ``first + i`` of block b, column t.

    first : a multiple of 64.
    out : float64 (len(columns), rows), overwritten.
    """
    kinds, places, counts = _pieces_of(pieces, columns, b)
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        which = np.flatnonzero(kinds == kind)
        if kind >= DENSE:
            for t in which.tolist():
                at, last = int(places[t]), first + out.shape[1]
                if kind == DENSE:
                    out[t] = pieces.arena32[(at >> 2) + first : (at >> 2) + last]
                else:
                    out[t] = pieces.arena8[at + 8 + first : at + 8 + last]
                    out[t] *= np.float64(pieces.arena32[at >> 2])
        elif kind == BITS:
            _rows_of_bits(pieces.arena64, places, which, first, out)
        else:
            values = {ROWS: (None, 0), VALUES: (pieces.arena32, 2), FINE: (pieces.fine, 3)}[kind]
            _rows_of_lists(pieces.arena16, *values, places, counts, which, first, out)


@kernel
def _rows_of_bits(arena64, places, which, first, out):
    """Some rows of bitmaps; see :func:`dense_rows`."""
    for e in range(which.shape[0]):
        row = out[which[e]]
        words = arena64[places[which[e]] >> 3 :]
        for i in range(row.shape[0]):
            word = words[(first + i) >> 6]
            row[i] = np.float64((word >> np.uint64((first + i) & 63)) & np.uint64(1))


@kernel
def _rows_of_lists(arena16, arena, shift, places, counts, which, first, out):
    """Some rows of lists of rows, and values if ``arena`` is not None; see :func:`dense_rows`."""
    for c in range(which.shape[0]):
        t = which[c]
        row = out[t]
        for i in range(row.shape[0]):
            row[i] = 0.0
        n = counts[t]
        rows = arena16[places[t] >> 1 : (places[t] >> 1) + n]
        at = (places[t] + ((2 * n + 7) & ~7)) >> shift
        for e in range(first_from(rows, first), n):
            i = np.int64(rows[e]) - first
            if i >= row.shape[0]:
                break
            row[i] = 1.0 if arena is None else arena[at + e]


@kernel
def add_sparse_gram(pieces, columns, b, q, numbers, values, gram):
    """Add sum_i q_i phi_ij phi_ik over block b, for all pairs of columns, to ``gram``.

    The time is that of the pairs of nonzeros in the same row.

    q : float64 (n_rows,), for all blocks; the columns have as many rows.
    numbers, values : int32 and float64 (rows, len(columns)), buffers for the nonzeros of a few rows,
        a multiple of 64.
    gram : float64 (columns, columns); only entries (s, t) with s <= t are updated.
    """
    size = numbers.shape[0]
    begin = b * pieces.block_rows
    # a sample has fewer rows than the cache has room for
    n_rows = min(pieces.block_rows, q.shape[0] - begin)
    at = np.zeros(columns.shape[0], np.int64)  # how much of each list of rows is done
    filled = np.empty(size, np.int64)
    for first in range(0, n_rows, size):
        last = min(first + size, n_rows)
        filled[:] = 0
        for t in range(columns.shape[0]):
            at[t] = _add_nonzeros(
                pieces, columns[t], b, at[t], first, last, t, filled, numbers, values
            )
        for i in range(last - first):
            weight = q[begin + first + i]
            n = filled[i]
            for s in range(n):
                row = gram[numbers[i, s]]
                weighted = weight * values[i, s]
                for t in range(s, n):
                    row[numbers[i, t]] += weighted * values[i, t]


@kernel
def _add_nonzeros(pieces, j, b, at, first, last, t, filled, numbers, values):
    """Append the nonzeros of column j in rows first <= i < last of block b to the lists of these rows.

    at : entries of its list of rows that come before; returns those that come before ``last``.
    """
    offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
    n = np.int64(pieces.counts[j, b])
    kind = pieces.kinds[j, b]
    if kind in (ROWS, VALUES, FINE):
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        values_at = (offset + ((2 * n + 7) & ~7)) >> 2
        while at < n and rows[at] < last:
            i = np.int64(rows[at]) - first
            value = 1.0
            if kind == VALUES:
                value = np.float64(pieces.arena32[values_at + at])
            elif kind == FINE:
                value = pieces.fine[(values_at >> 1) + at]
            numbers[i, filled[i]] = t
            values[i, filled[i]] = value
            filled[i] += 1
            at += 1
        return at
    for i in range(first, last):
        if kind == BITS:
            word = pieces.arena64[(offset >> 3) + (i >> 6)]
            value = np.float64((word >> np.uint64(i & 63)) & np.uint64(1))
        elif kind == DENSE:
            value = np.float64(pieces.arena32[(offset >> 2) + i])
        else:
            value = np.float64(pieces.arena32[offset >> 2])
            value *= np.float64(pieces.arena8[offset + 8 + i])
        if value != 0.0:
            numbers[i - first, filled[i - first]] = t
            values[i - first, filled[i - first]] = value
            filled[i - first] += 1
    return at
