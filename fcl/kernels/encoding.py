"""Writes columns to the cache: chooses encodings, stores pieces, and hashes values.

:mod:`fcl.kernels.columns` describes the encodings and the arena.
"""

import numpy as np

from fcl.kernels.bits import population, splitmix, trailing_zeros, without_lowest
from fcl.kernels.columns import BITS, DENSE, FINE, ROWS, STEPS, VALUES
from fcl.kernels.compilation import kernel, shared

#: The largest |multiple| of the step in STEPS.
MOST_STEPS = np.iinfo(np.int8).max
#: The bits of a float64 but for its sign.
BUT_SIGN = 0x7FFFFFFFFFFFFFFF


@kernel
def measure_bits(bits, n_rows, block, limit, counts, sizes, hashes):
    """Update the counts, sizes and hashes of columns with their bitmaps on one block, in place.

    limit : the count above which a bitmap is the smaller encoding.
    counts : int64 (c,), increased by the set bits.
    sizes : int64 (c,), increased by the bytes of the smaller encoding.
    hashes : uint64 (c,), mixed from all words, so that equal columns have equal hashes.
    """
    n_words = (n_rows + 63) >> 6
    for c in range(counts.shape[0]):
        state = hashes[c]
        total = 0
        for w in range(n_words):
            total += population(bits[c, w])
            state += splitmix(bits[c, w], block * 1024 + w + 1)
        hashes[c] = state
        counts[c] += total
        sizes[c] += 8 * n_words if total > limit else (2 * total + 7) & ~7


@kernel
def bits_to_rows(words, n_words, total, rows):
    """Write the positions of the set bits, ``total`` in all, to ``rows``, in order."""
    n = 0
    # Unless most words are empty, two or four positions are written for each, without a branch that could
    # not be predicted. Later words overwrite the surplus, and no write goes beyond the total.
    many = 8 * total > n_words
    four = total > n_words
    for w in range(n_words):
        word = words[w]
        end = n + population(word)
        if many and n + 4 <= total:
            rows[n] = 64 * w + np.int64(trailing_zeros(word))
            word = without_lowest(word)
            rows[n + 1] = 64 * w + np.int64(trailing_zeros(word))
            word = without_lowest(word)
            n += 2
            if four:
                rows[n] = 64 * w + np.int64(trailing_zeros(word))
                word = without_lowest(word)
                rows[n + 1] = 64 * w + np.int64(trailing_zeros(word))
                word = without_lowest(word)
                n += 2
        while n < end:
            rows[n] = 64 * w + np.int64(trailing_zeros(word))
            word = without_lowest(word)
            n += 1
        n = end


@kernel
def store_bits(words, n_rows, limit, arena16, arena64, offset):
    """Write one bitmap piece to the arena at ``offset`` bytes; returns (encoding, count, bytes).

    It takes two arrays, because the microseconds of passing all pieces count.
    """
    n_words = (n_rows + 63) >> 6
    total = np.int64(0)
    for w in range(n_words):
        total += np.int64(population(words[w]))
    if total > limit:
        at = offset >> 3
        for w in range(n_words):
            arena64[at + w] = words[w]
        return BITS, total, 8 * n_words
    bits_to_rows(words, n_words, total, arena16[offset >> 1 :])
    return ROWS, total, (2 * total + 7) & ~7


@kernel
def store_bitmaps(
    bits, which, n_rows, block_rows, arena16, arena64, starts, slots, kinds, offsets, counts, used
):
    """Write the bitmaps of some columns on all blocks to the arena, and their places.

    bits : uint64 (blocks, columns, words).
    which : int64 (k,), numbers of the columns among them.
    starts, slots : int64 (k,), the first byte of each column, and its slot.
    kinds, offsets, counts : by slot, as in :class:`fcl.kernels.columns.Pieces`.
    used : int64 (k,), overwritten with the bytes of each column.
    """
    for i in range(which.shape[0]):
        slot = slots[i]
        used[i] = 0
        for b in range(bits.shape[0]):
            rows = min(block_rows, n_rows - b * block_rows)
            limit = 4 * ((rows + 63) >> 6)
            at = starts[i] + used[i]
            stored = store_bits(bits[b, which[i]], rows, limit, arena16, arena64, at)
            kinds[slot, b], counts[slot, b], offsets[slot, b] = stored[0], stored[1], used[i]
            used[i] += stored[2]


@shared
def mix_place(x, place):
    """Mix a value's bits with its position in the column; a float32 value is in the upper 32 bits."""
    x += np.uint64(0x9E3779B97F4A7C15) * np.uint64(place)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> np.uint64(31))


@kernel
def common_step(values):
    """Find a step: all values are its exact multiples, from -127 to 127 times; 0.0 if no step is found.

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


def measure_values(values, coarse, rest, block, counts, sizes, hashes):
    """Like :func:`measure_bits` for float32 or float64 values (c, n_rows); counts are of nonzeros.

    Equal values have equal hashes, whichever encoding stores them.

    coarse : the nearest float32 values, viewed as uint32.
    rest : the float64 remainders, viewed as uint64; None for float32 values.
    """
    for c in range(counts.shape[0]):
        own = None if rest is None else rest[c]
        hashes[c], total, fine = _hashed(hashes[c], coarse[c], own, None, block)
        counts[c] += total
        step = 0.0 if fine else common_step(values[c])
        sizes[c] += fine_bytes(total) if fine else valued_bytes(values.shape[1], total, step)[1]


@kernel
def measure_lists(start, rows, values, coarse, rest, n_rows, block, counts, sizes, hashes):
    """Like :func:`measure_values` for lists of nonzeros.

    start, rows, values : as in :class:`fcl.features.base.ListedColumns`.
    """
    for c in range(counts.shape[0]):
        some = slice(start[c], start[c + 1])
        own = None if rest is None else rest[some]
        hashes[c], total, fine = _hashed(hashes[c], coarse[some], own, rows[some], block)
        counts[c] += total
        if fine:
            sizes[c] += fine_bytes(total)
        else:
            sizes[c] += valued_bytes(n_rows, total, common_step(values[some]))[1]


@kernel
def _hashed(state, coarse, rest, rows, block):
    """The hash with a block of a column, the number of its nonzeros, and whether it needs float64.

    rows : of the values, None for values of all rows.
    """
    total = np.int64(0)  # not 0, for whose type numba would compile callees as well
    fine = False
    for e in range(coarse.shape[0]):
        x = np.uint64(coarse[e]) << np.uint64(32)
        if rest is not None and rest[e] & np.uint64(BUT_SIGN) != 0:
            x ^= rest[e]
            fine = True
        if rows is not None or x & np.uint64(BUT_SIGN) != 0:
            total += 1
            state += mix_place(x, block * 65536 + (e if rows is None else np.int64(rows[e])) + 1)
    return state, total, fine


@shared
def fine_bytes(count):
    """Bytes of a piece of ``count`` values in FINE."""
    return ((2 * count + 7) & ~7) + 8 * count


@kernel
def measure_steps(steps, step, bits, block, counts, sizes, hashes):
    """Like :func:`measure_values` for multiples of a step, int8 (c, n_rows).

    bits : uint32 (256,); at k + 128, float32(k step) viewed as uint32.
    """
    n_rows = steps.shape[1]
    for c in range(counts.shape[0]):
        state = hashes[c]
        total = np.int64(0)
        for i in range(n_rows):
            k = np.int64(steps[c, i])
            if k != 0:
                total += 1
                state += mix_place(np.uint64(bits[k + 128]) << np.uint64(32), block * 65536 + i + 1)
        hashes[c] = state
        counts[c] += total
        sizes[c] += valued_bytes(n_rows, total, step)[1]


@shared
def valued_bytes(n_rows, count, step):
    """The smallest of VALUES, STEPS and DENSE for a piece, and its bytes. step : 0.0 for none."""
    kind, size = VALUES, ((2 * count + 7) & ~7) + ((4 * count + 7) & ~7)
    if step > 0.0 and 8 + ((n_rows + 7) & ~7) < size:
        kind, size = STEPS, 8 + ((n_rows + 7) & ~7)
    if (4 * n_rows + 7) & ~7 < size:
        kind, size = DENSE, (4 * n_rows + 7) & ~7
    return kind, size


@kernel
def store_lists(start, rows, values, n_rows, which, b, slots, starts, used, pieces):
    """Store block b of some columns, and enter it in the directory.

    start, rows, values : lists of nonzeros, column t at ``start[t] : start[t + 1]``.
    which : int64 (k,), the columns among them; slots, starts : int64 (k,), their slots and first bytes.
    used : int64 (k,), bytes of their earlier blocks; updated.
    """
    for i in range(which.shape[0]):
        entries = slice(start[which[i]], start[which[i] + 1])
        at = starts[i] + used[i]
        kind, count, size = _store_list(rows[entries], values[entries], n_rows, pieces, at)
        pieces.kinds[slots[i], b] = kind
        pieces.counts[slots[i], b] = count
        pieces.offsets[slots[i], b] = used[i]
        used[i] += size


@kernel
def _store_list(rows, values, n_rows, pieces, offset):
    """Write one piece of values at some rows to the arena; returns (encoding, count, bytes)."""
    count = values.shape[0]
    at = offset + ((2 * count + 7) & ~7)
    fine = False
    for e in range(count):
        fine |= np.float64(np.float32(values[e])) != values[e]
    step = 0.0 if fine else common_step(values)
    kind, size = valued_bytes(n_rows, count, step)
    if fine:
        kind, size = FINE, fine_bytes(count)
        for e in range(count):
            pieces.fine[(at >> 3) + e] = values[e]
    elif kind == STEPS:
        pieces.arena32[offset >> 2] = step
        pieces.arena32[(offset >> 2) + 1] = 0.0
        out, ratio = pieces.arena8[offset + 8 : offset + 8 + n_rows], 1.0 / step
        out[:] = 0
        for e in range(count):
            out[rows[e]] = np.int8(np.rint(ratio * values[e]))
        return kind, n_rows, size
    elif kind == DENSE:
        dense = pieces.arena32[offset >> 2 : (offset >> 2) + n_rows]
        dense[:] = 0.0
        for e in range(count):
            dense[rows[e]] = values[e]
        return kind, n_rows, size
    else:
        for e in range(count):
            pieces.arena32[(at >> 2) + e] = values[e]
    for e in range(count):
        pieces.arena16[(offset >> 1) + e] = rows[e]
    return kind, count, size


@kernel
def move_words(arena64, first, size, into):
    """Copy ``size`` words from ``first`` to ``into``; they may overlap if into <= first."""
    for w in range(size):
        arena64[into + w] = arena64[first + w]
