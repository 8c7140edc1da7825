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

from typing import NamedTuple

import numpy as np

from fcl.kernels.bits import trailing_zeros
from fcl.kernels.compilation import inlined, kernel, summing
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


@inlined
def _listed_moments(rows, values, rq):
    """The moments of a list of rows and values."""
    # two sums of each, since an addition waits for the last one to the same sum
    g0 = g1 = h0 = h1 = 0.0
    n = rows.shape[0]
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
    return g0 + g1, h0 + h1


@summing
def _dense_moments(values, r, q):
    """The moments of a value for every row."""
    g = h = 0.0
    for i in range(values.shape[0]):
        x = np.float64(values[i])
        g += r[i] * x
        h += q[i] * (x * x)
    return g, h


@kernel
def piece_moments(pieces, j, b, r, q, rq):
    """Sums of r_i phi_ij and of q_i phi_ij^2 over the rows of block b.

    r, q : float64, of the rows of the block.
    rq : float64 (rows of the block, 2), each r_i beside its q_i, so that one line of memory has both.
    """
    offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
    n = np.int64(pieces.counts[j, b])
    kind = pieces.kinds[j, b]
    g = 0.0
    h = 0.0
    if kind == BITS:
        n_words = (rq.shape[0] + 63) >> 6
        words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
        for w in range(n_words):
            word = words[w]
            while word != 0:
                i = 64 * w + np.int64(trailing_zeros(word))
                g += rq[i, 0]
                h += rq[i, 1]
                word &= word - np.uint64(1)
    elif kind == ROWS:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        g0 = g1 = h0 = h1 = 0.0
        e = 0
        while e + 2 <= n:
            i = rows[e]
            k = rows[e + 1]
            g0 += rq[i, 0]
            h0 += rq[i, 1]
            g1 += rq[k, 0]
            h1 += rq[k, 1]
            e += 2
        while e < n:
            g0 += rq[rows[e], 0]
            h0 += rq[rows[e], 1]
            e += 1
        g = g0 + g1
        h = h0 + h1
    elif kind == VALUES:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        at = (offset + ((2 * n + 7) & ~7)) >> 2
        g, h = _listed_moments(rows, pieces.arena32[at : at + n], rq)
    elif kind == FINE:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        at = (offset + ((2 * n + 7) & ~7)) >> 3
        g, h = _listed_moments(rows, pieces.fine[at : at + n], rq)
    elif kind == STEPS:
        step = np.float64(pieces.arena32[offset >> 2])
        g, h = _dense_moments(pieces.arena8[offset + 8 : offset + 8 + n], r, q)
        g *= step
        h *= step * step
    else:
        g, h = _dense_moments(pieces.arena32[offset >> 2 : (offset >> 2) + n], r, q)
    return g, h


@kernel
def add_piece(pieces, j, b, delta, m):
    """Add ``delta`` times block b of column j to the margins of that block, in place."""
    offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
    n = np.int64(pieces.counts[j, b])
    kind = pieces.kinds[j, b]
    if kind == BITS:
        n_words = (m.shape[0] + 63) >> 6
        words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
        for w in range(n_words):
            word = words[w]
            while word != 0:
                m[64 * w + np.int64(trailing_zeros(word))] += delta
                word &= word - np.uint64(1)
    elif kind == ROWS:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        for e in range(n):
            m[rows[e]] += delta
    elif kind == VALUES:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        at = (offset + ((2 * n + 7) & ~7)) >> 2
        values = pieces.arena32[at : at + n]
        for e in range(n):
            m[rows[e]] += delta * np.float64(values[e])
    elif kind == FINE:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        at = (offset + ((2 * n + 7) & ~7)) >> 3
        for e in range(n):
            m[rows[e]] += delta * pieces.fine[at + e]
    elif kind == STEPS:
        step = np.float64(pieces.arena32[offset >> 2])
        steps = pieces.arena8[offset + 8 : offset + 8 + n]
        for e in range(n):
            m[e] += delta * (step * np.float64(steps[e]))
    else:
        values = pieces.arena32[offset >> 2 : (offset >> 2) + n]
        for e in range(n):
            m[e] += delta * np.float64(values[e])


@kernel
def block_moments(pieces, columns, b, r, q, g, h):
    """Write the moments (:func:`piece_moments`) of the listed columns on block b to ``g`` and ``h``.

    r, q : float64 (n_rows,), for all blocks.
    """
    first = b * pieces.block_rows
    # a sample has fewer rows than the cache has room for
    stop = max(first, min(first + pieces.block_rows, r.shape[0]))
    r, q = r[first:stop], q[first:stop]
    rq = np.empty((stop - first, 2))
    for i in range(rq.shape[0]):  # an assignment of slices takes seconds to compile
        rq[i, 0] = r[i]
        rq[i, 1] = q[i]
    for t in range(columns.shape[0]):
        g[t], h[t] = piece_moments(pieces, columns[t], b, r, q, rq)


@kernel
def add_block(pieces, columns, deltas, b, m):
    """Add ``deltas[t]`` times column ``columns[t]``, for all t, to the margins m of block b, in place."""
    first = b * pieces.block_rows
    part = m[first : min(first + pieces.block_rows, pieces.n_rows)]
    for t in range(columns.shape[0]):
        if deltas[t] != 0.0:
            add_piece(pieces, columns[t], b, deltas[t], part)


@kernel
def dense_rows(pieces, columns, b, first, out):
    """Write some rows of the listed columns: out[t, i] is row ``first + i`` of block b, column t.

    first : a multiple of 64.
    out : float64 (len(columns), rows), overwritten.
    """
    out[:] = 0.0
    last = first + out.shape[1]
    for t in range(columns.shape[0]):
        j = columns[t]
        offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
        n = np.int64(pieces.counts[j, b])
        kind = pieces.kinds[j, b]
        if kind == BITS:
            for i in range(first, last):
                word = pieces.arena64[(offset >> 3) + (i >> 6)]
                out[t, i - first] = np.float64((word >> np.uint64(i & 63)) & np.uint64(1))
        elif kind == DENSE:
            for i in range(first, last):
                out[t, i - first] = pieces.arena32[(offset >> 2) + i]
        elif kind == STEPS:
            step = np.float64(pieces.arena32[offset >> 2])
            for i in range(first, last):
                out[t, i - first] = step * np.float64(pieces.arena8[offset + 8 + i])
        else:
            rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            at = (offset + ((2 * n + 7) & ~7)) >> 2
            for e in range(first_from(rows, first), n):
                i = np.int64(rows[e])
                if i >= last:
                    break
                if kind == FINE:
                    out[t, i - first] = pieces.fine[(at >> 1) + e]
                else:
                    out[t, i - first] = pieces.arena32[at + e] if kind == VALUES else 1.0


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
