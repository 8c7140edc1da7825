"""Columns of the cache: pieces of row blocks in an arena of bytes, and sums over them.

A column is cut by row blocks (at most 65,536 rows, so that a row inside its block fits uint16). Each
piece is stored in the cheapest of four encodings:

    BITS     bitmap, uint64 words, row i of the block is bit i % 64 of word i // 64; all values 1
    ROWS     strictly increasing uint16 rows; all values 1
    VALUES   the same rows, padded to 8 bytes, then as many float32 values
    DENSE    one float32 value for every row of the block

Pieces begin at multiples of 8 bytes. The directory has a row a column: ``kinds`` uint8, ``offsets``
int64 (bytes), ``counts`` int64 (rows stored), all (columns, blocks).
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
    kinds: np.ndarray  # uint8 (columns, blocks)
    offsets: np.ndarray  # int64 (columns, blocks)
    counts: np.ndarray  # int64 (columns, blocks)
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
def column_moments(pieces, j, r, q):
    """Sums of r_i phi_ij and of q_i phi_ij^2 over the rows."""
    g = 0.0
    h = 0.0
    for b in range(pieces.kinds.shape[1]):
        first = b * pieces.block_rows
        offset = pieces.offsets[j, b]
        n = pieces.counts[j, b]
        kind = pieces.kinds[j, b]
        stop = min(first + pieces.block_rows, pieces.n_rows)
        part_r = r[first:stop]
        part_q = q[first:stop]
        if kind == BITS:
            n_words = (stop - first + 63) >> 6
            words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
            for w in range(n_words):
                word = words[w]
                while word != 0:
                    i = 64 * w + np.int64(trailing_zeros(word))
                    g += part_r[i]
                    h += part_q[i]
                    word &= word - np.uint64(1)
        elif kind == ROWS:
            rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            g0 = g1 = h0 = h1 = 0.0
            e = 0
            while e + 2 <= n:
                i = rows[e]
                k = rows[e + 1]
                g0 += part_r[i]
                h0 += part_q[i]
                g1 += part_r[k]
                h1 += part_q[k]
                e += 2
            while e < n:
                g0 += part_r[rows[e]]
                h0 += part_q[rows[e]]
                e += 1
            g += g0 + g1
            h += h0 + h1
        elif kind == VALUES:
            rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            at = (offset + ((2 * n + 7) & ~7)) >> 2
            values = pieces.arena32[at : at + n]
            for e in range(n):
                x = np.float64(values[e])
                i = rows[e]
                g += part_r[i] * x
                h += part_q[i] * x * x
        else:
            values = pieces.arena32[offset >> 2 : (offset >> 2) + n]
            for e in range(n):
                x = np.float64(values[e])
                g += part_r[e] * x
                h += part_q[e] * x * x
    return g, h


@kernel
def add_column(pieces, j, delta, m):
    """Add ``delta`` times column j to the margins, in place. m : float64 (n_rows,)."""
    for b in range(pieces.kinds.shape[1]):
        first = b * pieces.block_rows
        offset = pieces.offsets[j, b]
        n = pieces.counts[j, b]
        kind = pieces.kinds[j, b]
        part = m[first : min(first + pieces.block_rows, pieces.n_rows)]
        if kind == BITS:
            n_words = (part.shape[0] + 63) >> 6
            words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
            for w in range(n_words):
                word = words[w]
                while word != 0:
                    part[64 * w + np.int64(trailing_zeros(word))] += delta
                    word &= word - np.uint64(1)
        elif kind == ROWS:
            rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            for e in range(n):
                part[rows[e]] += delta
        elif kind == VALUES:
            rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            at = (offset + ((2 * n + 7) & ~7)) >> 2
            values = pieces.arena32[at : at + n]
            for e in range(n):
                part[rows[e]] += delta * np.float64(values[e])
        else:
            values = pieces.arena32[offset >> 2 : (offset >> 2) + n]
            for e in range(n):
                part[e] += delta * np.float64(values[e])


@kernel
def moments_of(pieces, columns, r, q, g, h):
    """Write the moments (:func:`column_moments`) of the listed columns to ``g`` and ``h``."""
    for t in range(columns.shape[0]):
        g[t], h[t] = column_moments(pieces, columns[t], r, q)


@kernel
def add_columns(pieces, columns, deltas, m):
    """Add ``deltas[t]`` times the column ``columns[t]``, for all t, to the margins, in place."""
    for t in range(columns.shape[0]):
        if deltas[t] != 0.0:
            add_column(pieces, columns[t], deltas[t], m)


@kernel
def gather_chosen(pieces, columns, chosen, q, start, rows, values, lean, curve):
    """Write the entries of the listed columns in the chosen rows, renumbered, column by column.

    chosen : int32 (n_rows,), the new number of a chosen row, else -1.
    q : float64 (chosen,), curvature of the chosen rows.
    start : int64 (len(columns) + 1,), gets where each column begins in ``rows`` int32 and
    ``values`` float32. With an empty ``values`` all values are 1 and only rows are written.
    lean, curve : float64 (len(columns),), get sum q_i phi_ij and sum q_i phi_ij^2 over the chosen
        rows.

    Takes a bit a row of its own. Returns False if ``rows`` has not the room.
    """
    valued = values.shape[0] > 0
    n_blocks = pieces.kinds.shape[1]
    # the chosen rows as bitmaps: most bits of a dense column go without being looked at one by one
    wanted = np.zeros((n_blocks, (pieces.block_rows + 63) >> 6), np.uint64)
    for i in range(pieces.n_rows):
        if chosen[i] >= 0:
            inside_block = i % pieces.block_rows
            bit = np.uint64(1) << np.uint64(inside_block & 63)
            wanted[i // pieces.block_rows, inside_block >> 6] |= bit
    into = 0
    start[0] = 0
    for t in range(columns.shape[0]):
        j = columns[t]
        for b in range(n_blocks):
            first = b * pieces.block_rows
            offset = pieces.offsets[j, b]
            n = pieces.counts[j, b]
            if into + n > rows.shape[0]:
                return False
            kind = pieces.kinds[j, b]
            part = chosen[first : min(first + pieces.block_rows, pieces.n_rows)]
            begin = into
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
                values[begin:into] = np.float32(1.0)
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
        start[t + 1] = into
    return True


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
def compact(arena64, first, size, into):
    """Move size[t] words from first[t] to into[t], for all t in order, in place (into <= first)."""
    for t in range(first.shape[0]):
        if into[t] != first[t]:
            for w in range(size[t]):
                arena64[into[t] + w] = arena64[first[t] + w]
