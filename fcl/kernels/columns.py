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

Sums over many columns are made block by block: the vectors of one block (512 KiB each) stay in the
second-level cache while all columns read them.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.bits import population, trailing_zeros

BITS = 0
ROWS = 1
VALUES = 2
FINE = 3
DENSE = 4
STEPS = 5
#: The largest |multiple| of the step in STEPS.
MOST_STEPS = 127


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
    """Write the positions of the set bits to ``rows``, in order; returns their count."""
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
    """Sums of r_i phi_ij and of q_i phi_ij^2 over the rows of block b; r and q hold only these rows."""
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
    elif kind == FINE:
        rows = pieces.arena16[offset >> 1 : (offset >> 1) + n]
        at = (offset + ((2 * n + 7) & ~7)) >> 3
        fine = pieces.fine[at : at + n]
        for e in range(n):
            i = rows[e]
            g += r[i] * fine[e]
            h += q[i] * fine[e] * fine[e]
    elif kind == STEPS:
        step = np.float64(pieces.arena32[offset >> 2])
        steps = pieces.arena8[offset + 8 : offset + 8 + n]
        for e in range(n):
            x = np.float64(steps[e])
            g += r[e] * x
            h += q[e] * x * x
        g *= step
        h *= step * step
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
    stop = min(first + pieces.block_rows, pieces.n_rows)
    part_r = r[first:stop]
    part_q = q[first:stop]
    for t in range(columns.shape[0]):
        g[t], h[t] = piece_moments(pieces, columns[t], b, part_r, part_q)


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
            for e in range(np.searchsorted(rows, first), n):
                i = np.int64(rows[e])
                if i >= last:
                    break
                if kind == FINE:
                    out[t, i - first] = pieces.fine[(at >> 1) + e]
                else:
                    out[t, i - first] = pieces.arena32[at + e] if kind == VALUES else 1.0


@kernel
def mark_rows(chosen, block_rows, wanted):
    """Write the chosen rows (chosen[i] >= 0) as bitmaps to ``wanted``, uint64 (blocks, words)."""
    wanted[:] = np.uint64(0)
    for i in range(chosen.shape[0]):
        if chosen[i] >= 0:
            inside_block = i % block_rows
            bit = np.uint64(1) << np.uint64(inside_block & 63)
            wanted[i // block_rows, inside_block >> 6] |= bit


@kernel
def centre(start, stop, n_rows, values, q, total, lean, curve, centres):
    """Subtract the weighted mean from each gathered column that has an entry in every row, in place.

    q : float64 (n_rows,); ``total`` is its sum.
    lean, curve : as :func:`gather_chosen` wrote them; updated to those of the centred columns.
    centres : float64 (columns,), overwritten with the means, or 0 for columns that are not centred.
    """
    for t in range(start.shape[0]):
        centres[t] = 0.0
        if stop[t] - start[t] != n_rows or not total > 0.0:
            continue
        mean = lean[t] / total
        first = start[t]
        g = 0.0
        h = 0.0
        for i in range(n_rows):
            # entries are in the order of the rows
            value = np.float32(np.float64(values[first + i]) - mean)
            values[first + i] = value
            g += q[i] * value
            h += q[i] * value * value
        centres[t] = mean
        lean[t] = g
        curve[t] = h


@kernel
def gather_chosen(
    pieces, columns, chosen, wanted, q, begin, end, start, stop, rows, values, lean, curve
):
    """Write the entries of the listed columns in the chosen rows, renumbered, column by column.

    Returns the number of columns written, which is smaller than requested if the buffers are full.

    chosen : int32 (n_rows,), the new number of each chosen row, else -1.
    wanted : the chosen rows as bitmaps (:func:`mark_rows`), so that most bits of a dense column need no
        test.
    q : float64 (chosen rows,), curvature of the chosen rows.
    begin, end : the part of ``rows`` int32 and ``values`` float32 that may be written. If ``values`` is
        empty, all values are 1 and only rows are written.
    start, stop : int64 (len(columns),), overwritten with the range of each column in ``rows``.
    lean, curve : float64 (len(columns),), overwritten with sum q_i phi_ij and sum q_i phi_ij^2 over the
        chosen rows.
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
            elif kind == STEPS:
                step = pieces.arena32[offset >> 2]
                for e in range(n):
                    if part[e] >= 0:
                        rows[into] = part[e]
                        values[into] = step * np.float32(pieces.arena8[offset + 8 + e])
                        into += 1
            else:
                inside = pieces.arena16[offset >> 1 : (offset >> 1) + n]
                at = (offset + ((2 * n + 7) & ~7)) >> 2
                for e in range(n):
                    row = part[inside[e]]
                    # always written, but kept only if the row is chosen: this avoids a branch
                    rows[into] = row
                    if kind == VALUES:
                        values[into] = pieces.arena32[at + e]
                    elif kind == FINE:
                        values[into] = pieces.fine[(at >> 1) + e]
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
    """Update the counts, sizes and hashes of columns with their bitmaps on one block, in place.

    limit : the count above which a bitmap is the smaller encoding.
    counts : int64 (c,), increased by the set bits.
    sizes : int64 (c,), increased by the bytes of the smaller encoding.
    hashes : uint64 (c,), see :func:`hash_bits`.
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
def hash_value(bits, place):
    """The term of a nonzero value in the hash of its column; bits : the float32 value as uint32."""
    return mix_place(np.uint64(bits) << np.uint64(32), place)


@kernel
def mix_place(x, place):
    """Mix a uint64 with its position in a column."""
    x += np.uint64(0x9E3779B97F4A7C15) * np.uint64(place)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> np.uint64(31))


@kernel
def common_step(values):
    """A step of which all values are exact multiples, from -127 to 127 times; 0.0 if none is found.

    The values must be exact in float32. This tries 1 and the smallest |value|; for most columns without
    a step it returns after a few rows.
    """
    least, most, whole = np.inf, 0.0, True
    for value in values:
        size = abs(np.float64(value))
        if size != 0.0:
            least = min(least, size)
            most = max(most, size)
            whole = whole and size == np.rint(size)
            if most > MOST_STEPS * least:
                return 0.0
    if whole and most <= MOST_STEPS:
        return 1.0
    for value in values:
        size = np.float64(value)
        if np.rint(size / least) * least != size:
            return 0.0
    return least


@kernel
def measure_dense(values, bits, block, counts, sizes, hashes):
    """As :func:`measure_bits` for float32 values (c, n_rows); counts are numbers of nonzeros.

    bits : the values viewed as uint32.
    """
    n_rows = bits.shape[1]
    for c in range(counts.shape[0]):
        state = hashes[c]
        total = 0
        for i in range(n_rows):
            if bits[c, i] & np.uint32(0x7FFFFFFF) != 0:  # neither 0.0 nor -0.0
                total += 1
                state += hash_value(bits[c, i], block * 65536 + i + 1)
        hashes[c] = state
        counts[c] += total
        sizes[c] += valued_bytes(n_rows, total, common_step(values[c]))[1]


@kernel
def measure_fine(values, coarse, rest, block, counts, sizes, hashes):
    """As :func:`measure_dense` for float64 values.

    Equal values have equal hashes, whichever encoding stores them.

    coarse, rest : the nearest float32 values, viewed as uint32, and the float64 remainders, as uint64.
    """
    n_rows = values.shape[1]
    for c in range(counts.shape[0]):
        state = hashes[c]
        total = 0
        fine = False
        for i in range(n_rows):
            if values[c, i] != 0.0:
                total += 1
                x = np.uint64(coarse[c, i]) << np.uint64(32)
                if rest[c, i] & np.uint64(0x7FFFFFFFFFFFFFFF) != 0:
                    x ^= rest[c, i]
                    fine = True
                state += mix_place(x, block * 65536 + i + 1)
        hashes[c] = state
        counts[c] += total
        sizes[c] += (
            fine_bytes(total) if fine else valued_bytes(n_rows, total, common_step(values[c]))[1]
        )


@kernel
def fine_bytes(count):
    """Bytes of a piece of ``count`` values in FINE."""
    return ((2 * count + 7) & ~7) + 8 * count


@kernel
def measure_steps(steps, step, bits, block, counts, sizes, hashes):
    """As :func:`measure_dense` for multiples of a step, int8 (c, n_rows).

    bits : uint32 (256,); at k + 128, float32(k step) viewed as uint32.
    """
    n_rows = steps.shape[1]
    for c in range(counts.shape[0]):
        state = hashes[c]
        total = 0
        for i in range(n_rows):
            k = np.int64(steps[c, i])
            if k != 0:
                total += 1
                state += hash_value(bits[k + 128], block * 65536 + i + 1)
        hashes[c] = state
        counts[c] += total
        sizes[c] += valued_bytes(n_rows, total, step)[1]


@kernel
def valued_bytes(n_rows, count, step):
    """The smallest of VALUES, STEPS and DENSE for a piece, and its bytes. step : 0.0 for none."""
    kind, size = VALUES, ((2 * count + 7) & ~7) + ((4 * count + 7) & ~7)
    if step > 0.0 and 8 + ((n_rows + 7) & ~7) < size:
        kind, size = STEPS, 8 + ((n_rows + 7) & ~7)
    if (4 * n_rows + 7) & ~7 < size:
        kind, size = DENSE, (4 * n_rows + 7) & ~7
    return kind, size


@kernel
def store_dense(values, arena16, arena32, arena8, offset):
    """Write one piece of values (n_rows,) to the arena; returns (encoding, count, bytes)."""
    return _store_values(values, 1.0, common_step(values), arena16, arena32, arena8, offset)


@kernel
def store_fine(values, arena16, arena32, arena8, arena, offset):
    """As :func:`store_dense` for float64 values; arena : the float64 view of the arena."""
    n_rows = values.shape[0]
    total = 0
    fine = False
    for i in range(n_rows):
        total += values[i] != 0.0
        fine = fine or np.float64(np.float32(values[i])) != values[i]
    if not fine:
        return store_dense(values, arena16, arena32, arena8, offset)
    _store_entries(
        values, 1.0, arena16[offset >> 1 :], arena[(offset + ((2 * total + 7) & ~7)) >> 3 :]
    )
    return FINE, np.int64(total), fine_bytes(total)


@kernel
def store_steps(steps, step, arena16, arena32, arena8, offset):
    """As :func:`store_dense` for multiples of a step, int8 (n_rows,)."""
    return _store_values(steps, step, step, arena16, arena32, arena8, offset)


@kernel
def _store_values(values, unit, step, arena16, arena32, arena8, offset):
    """Write a piece of ``unit`` times the values; unless ``step`` is 0, these are multiples of it."""
    n_rows = values.shape[0]
    total = 0
    for i in range(n_rows):
        total += values[i] != 0
    kind, size = valued_bytes(n_rows, total, step)
    if kind == STEPS:
        arena32[offset >> 2] = step
        arena32[(offset >> 2) + 1] = 0.0
        ratio = unit / step
        for i in range(n_rows):
            arena8[offset + 8 + i] = np.int8(np.rint(ratio * values[i]))
        return STEPS, np.int64(n_rows), size
    if kind == DENSE:
        at = offset >> 2
        for i in range(n_rows):
            arena32[at + i] = unit * values[i]
        return DENSE, np.int64(n_rows), size
    at = (offset + ((2 * total + 7) & ~7)) >> 2
    _store_entries(values, unit, arena16[offset >> 1 :], arena32[at:])
    return VALUES, np.int64(total), size


@kernel
def _store_entries(values, unit, rows, entries):
    """Write the rows of the nonzero values, and ``unit`` times these values."""
    e = 0
    for i in range(values.shape[0]):
        if values[i] != 0:
            rows[e] = i
            entries[e] = unit * values[i]
            e += 1


@kernel
def move_words(arena64, first, size, into):
    """Copy ``size`` words from ``first`` to ``into``; they may overlap if into <= first."""
    for w in range(size):
        arena64[into + w] = arena64[first + w]
