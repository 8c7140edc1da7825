"""Columns of the cache: pieces of row blocks in an arena of bytes, and sums over them.

A column is cut by row blocks (at most 65,536 rows, so that a row inside its block fits uint16). Each
piece is stored in the cheapest of four encodings:

    BITS     bitmap, uint64 words, row i of the block is bit i % 64 of word i // 64; all values 1
    ROWS     strictly increasing uint16 rows; all values 1
    VALUES   the same rows, padded to 8 bytes, then as many float32 values
    DENSE    one float32 value for every row of the block

A column lies in one run of bytes: its pieces follow one another, each at a multiple of 8 bytes. The
directory has a row a column: ``first`` int64 (columns,) says where it begins; ``kinds`` uint8,
``offsets`` uint32 (bytes from there) and ``counts`` uint32 (rows stored) are (columns, blocks). To move
a column is to copy it and then to write one number.

Sums over many columns go block by block: the vectors of one block (512 KiB each) stay in the second
level cache while all columns read them.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.bits import population, trailing_zeros

BITS = 0
ROWS = 1
VALUES = 2
DENSE = 3


class Pieces(NamedTuple):
    """The arrays of the cache, as kernels see them."""

    arena16: np.ndarray  # uint16 view of the arena
    arena32: np.ndarray  # float32 view
    arena64: np.ndarray  # uint64 view
    first: np.ndarray  # int64 (columns,)
    kinds: np.ndarray  # uint8 (columns, blocks)
    offsets: np.ndarray  # uint32 (columns, blocks)
    counts: np.ndarray  # uint32 (columns, blocks)
    block_rows: int
    n_rows: int


@kernel
def hash_bits(words, n_words, block, state):
    """Mix the words of a bitmap into a 64-bit state: equal columns have equal states."""
    for w in range(n_words):
        x = words[w] + np.uint64(0x9E3779B97F4A7C15) * np.uint64(block * 1024 + w + 1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state += x ^ (x >> np.uint64(31))
    return state


@kernel
def bits_to_rows(words, n_words, rows):
    """Write the positions of the set bits, in order; returns their count."""
    n = 0
    for w in range(n_words):
        word = words[w]
        while word != 0:
            rows[n] = 64 * w + np.int64(trailing_zeros(word))
            n += 1
            word &= word - np.uint64(1)
    return n


@kernel
def piece_moments(pieces, j, b, r, q):
    """Sums of r_i phi_ij and of q_i phi_ij^2 over the rows of block b; r, q : those of the block."""
    offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
    n = np.int64(pieces.counts[j, b])
    kind = pieces.kinds[j, b]
    g = 0.0
    h = 0.0
    if kind == BITS:
        n_words = (r.shape[0] + 63) >> 6
        words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
        for w in range(n_words):
            word = words[w]
            while word != 0:
                i = 64 * w + np.int64(trailing_zeros(word))
                g += r[i]
                h += q[i]
                word &= word - np.uint64(1)
    elif kind == ROWS:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        g0 = g1 = h0 = h1 = 0.0
        e = 0
        while e + 2 <= n:
            i = rows[e]
            k = rows[e + 1]
            g0 += r[i]
            h0 += q[i]
            g1 += r[k]
            h1 += q[k]
            e += 2
        while e < n:
            g0 += r[rows[e]]
            h0 += q[rows[e]]
            e += 1
        g = g0 + g1
        h = h0 + h1
    elif kind == VALUES:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        at = (offset + ((2 * n + 7) & ~7)) >> 2
        values = pieces.arena32[at : at + n]
        for e in range(n):
            x = np.float64(values[e])
            i = rows[e]
            g += r[i] * x
            h += q[i] * x * x
    else:
        values = pieces.arena32[offset >> 2 : (offset >> 2) + n]
        for e in range(n):
            x = np.float64(values[e])
            g += r[e] * x
            h += q[e] * x * x
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
    else:
        values = pieces.arena32[offset >> 2 : (offset >> 2) + n]
        for e in range(n):
            m[e] += delta * np.float64(values[e])


@kernel
def block_moments(pieces, columns, b, r, q, g, h):
    """Write the moments (:func:`piece_moments`) of the listed columns on block b to ``g`` and ``h``.

    r, q : float64 (n_rows,), of all blocks.
    """
    first = b * pieces.block_rows
    stop = min(first + pieces.block_rows, pieces.n_rows)
    part_r = r[first:stop]
    part_q = q[first:stop]
    for t in range(columns.shape[0]):
        g[t], h[t] = piece_moments(pieces, columns[t], b, part_r, part_q)


@kernel
def add_block(pieces, columns, deltas, b, m):
    """Add ``deltas[t]`` times the column ``columns[t]``, for all t, to the margins of block b."""
    first = b * pieces.block_rows
    part = m[first : min(first + pieces.block_rows, pieces.n_rows)]
    for t in range(columns.shape[0]):
        if deltas[t] != 0.0:
            add_piece(pieces, columns[t], b, deltas[t], part)


@kernel
def mark_rows(chosen, block_rows, wanted):
    """Write the chosen rows (chosen[i] >= 0) as bitmaps: uint64 (blocks, words a block)."""
    wanted[:] = np.uint64(0)
    for i in range(chosen.shape[0]):
        if chosen[i] >= 0:
            inside_block = i % block_rows
            bit = np.uint64(1) << np.uint64(inside_block & 63)
            wanted[i // block_rows, inside_block >> 6] |= bit


@kernel
def gather_chosen(
    pieces, columns, chosen, wanted, q, begin, end, start, stop, rows, values, lean, curve
):
    """Write the entries of the listed columns in the chosen rows, renumbered, column by column.

    chosen : int32 (n_rows,), the new number of a chosen row, else -1; wanted : the same as bitmaps
        (:func:`mark_rows`), so that most bits of a dense column go without being looked at.
    q : float64 (chosen,), curvature of the chosen rows.
    begin, end : the part of ``rows`` int32 and ``values`` float32 that may be written.
    start, stop : int64 (len(columns),), get where each column lies in them. With an empty ``values``
        all values are 1 and only rows are written.
    lean, curve : float64 (len(columns),), get sum q_i phi_ij and sum q_i phi_ij^2 over the chosen
        rows.

    Returns how many columns were written: fewer than asked if the room did not do.
    """
    valued = values.shape[0] > 0
    n_blocks = pieces.kinds.shape[1]
    into = begin
    for t in range(columns.shape[0]):
        j = columns[t]
        start[t] = into
        for b in range(n_blocks):
            first = b * pieces.block_rows
            offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
            n = np.int64(pieces.counts[j, b])
            if into + n > end:
                return t
            kind = pieces.kinds[j, b]
            part = chosen[first : min(first + pieces.block_rows, pieces.n_rows)]
            block_begin = into
            if kind == BITS:
                n_words = (part.shape[0] + 63) >> 6
                words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
                for w in range(n_words):
                    word = words[w] & wanted[b, w]
                    while word != 0:
                        rows[into] = part[64 * w + np.int64(trailing_zeros(word))]
                        into += 1
                        word &= word - np.uint64(1)
            elif kind == DENSE:
                at = offset >> 2
                for e in range(n):
                    if part[e] >= 0:
                        rows[into] = part[e]
                        values[into] = pieces.arena32[at + e]
                        into += 1
            else:
                inside = pieces.arena16[offset >> 1 : (offset >> 1) + n]
                at = (offset + ((2 * n + 7) & ~7)) >> 2
                for e in range(n):
                    row = part[inside[e]]
                    # written either way, and kept where the row is chosen: no branch to foretell
                    rows[into] = row
                    if kind == VALUES:
                        values[into] = pieces.arena32[at + e]
                    into += np.int64(row >= 0)
            if valued and kind <= ROWS:
                values[block_begin:into] = np.float32(1.0)
        a = 0.0
        h = 0.0
        if valued:
            for e in range(start[t], into):
                x = np.float64(values[e])
                a += q[rows[e]] * x
                h += q[rows[e]] * x * x
        else:
            for e in range(start[t], into):
                a += q[rows[e]]
            h = a
        lean[t] = a
        curve[t] = h
        stop[t] = into
    return columns.shape[0]


@kernel
def measure_bits(bits, n_rows, block, limit, counts, sizes, hashes):
    """Add up what bitmaps of one block mean for their columns.

    counts : int64 (c,), += set bits;  sizes : int64 (c,), += bytes of the cheaper encoding;
    hashes : uint64 (c,), mixed.  ``limit``: the count above which a bitmap is cheaper.
    """
    n_words = (n_rows + 63) >> 6
    for c in range(counts.shape[0]):
        total = 0
        for w in range(n_words):
            total += population(bits[c, w])
        counts[c] += total
        sizes[c] += 8 * n_words if total > limit else (2 * total + 7) & ~7
        hashes[c] = hash_bits(bits[c], n_words, block, hashes[c])


@kernel
def store_bits(words, n_rows, limit, arena16, arena64, offset):
    """Write one bitmap piece to the arena at ``offset`` bytes; returns (encoding, count, bytes)."""
    n_words = (n_rows + 63) >> 6
    total = 0
    for w in range(n_words):
        total += population(words[w])
    if total > limit:
        at = offset >> 3
        for w in range(n_words):
            arena64[at + w] = words[w]
        return BITS, np.int64(total), 8 * n_words
    bits_to_rows(words, n_words, arena16[offset >> 1 :])
    return ROWS, np.int64(total), (2 * np.int64(total) + 7) & ~7


@kernel
def measure_dense(bits, block, counts, sizes, hashes):
    """As :func:`measure_bits` for float32 values, seen as their bits: uint32 (c, n_rows).

    Counts are of nonzeros.
    """
    n_rows = bits.shape[1]
    for c in range(counts.shape[0]):
        state = hashes[c]
        total = 0
        for i in range(n_rows):
            if bits[c, i] & np.uint32(0x7FFFFFFF) != 0:  # neither 0.0 nor -0.0
                total += 1
                x = np.uint64(bits[c, i]) << np.uint64(32)
                x += np.uint64(0x9E3779B97F4A7C15) * np.uint64(block * 65536 + i + 1)
                x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                state += x ^ (x >> np.uint64(31))
        hashes[c] = state
        counts[c] += total
        sizes[c] += dense_bytes(n_rows, total)


@kernel
def dense_bytes(n_rows, count):
    """Bytes of a piece of valued rows: the smaller of the two encodings."""
    listed = ((2 * count + 7) & ~7) + ((4 * count + 7) & ~7)
    return min(listed, (4 * n_rows + 7) & ~7)


@kernel
def store_dense(values, arena16, arena32, offset):
    """Write one piece of values (n_rows,) to the arena; returns (encoding, count, bytes)."""
    n_rows = values.shape[0]
    total = 0
    for i in range(n_rows):
        total += values[i] != 0.0
    size = dense_bytes(n_rows, total)
    if size == (4 * n_rows + 7) & ~7:
        at = offset >> 2
        for i in range(n_rows):
            arena32[at + i] = values[i]
        return DENSE, np.int64(n_rows), size
    rows = offset >> 1
    at = (offset + ((2 * total + 7) & ~7)) >> 2
    e = 0
    for i in range(n_rows):
        if values[i] != 0.0:
            arena16[rows + e] = i
            arena32[at + e] = values[i]
            e += 1
    return VALUES, np.int64(total), size


@kernel
def move_words(arena64, first, size, into):
    """Copy ``size`` words from ``first`` to ``into``; they may overlap if into <= first."""
    for w in range(size):
        arena64[into + w] = arena64[first + w]
