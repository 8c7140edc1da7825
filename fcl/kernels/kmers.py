"""Positional k-mers: prepared rows, codes of windows, tables of residuals, columns.

**Prepared rows.** A block of m rows of L letters is stored as 2-bit planes: ``planes`` uint8
(ceil(L / 4), m); byte ``planes[g, i]`` holds the letters 4 g .. 4 g + 3 of row i, the first in the
highest bits. The code of a window is therefore a shift and a mask of up to four neighbouring planes,
which are read sequentially. Unknown letters are stored as 0 (A) and listed by position: ``unknown_rows``
int32 has the rows of position p at ``unknown_start[p] : unknown_start[p + 1]`` (int64 (L + 1,)).

**Codes.** The window of d letters at position k has the code sum_t letter_t 4^(d - 1 - t), with the first
letter most significant. A *pattern* is a pair (care, value) of such bit fields; it matches a code if
``code & care == value``. Wildcard letters have 0 in both. A pattern also has a *five code*: its letters
as digits in base 5 (wildcard = 4), with the first letter most significant. So has a window, in which 4
stands for every unknown letter and every letter beyond the end of the row.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel

#: Number of rows whose codes are made at a time: the codes stay in the first-level cache.
CHUNK = 2048
#: Patterns at a position from which bitmaps of letters are made, which all of them combine.
LEAST_SLICED = 28
#: Rows of such bitmaps: so many that a pattern's loops over them take longer than setting up, and so few
#: that the bitmaps stay near the core.
SLICE = 8 * CHUNK


class WindowBlock(NamedTuple):
    """A block of prepared rows."""

    planes: np.ndarray  # uint8 (ceil(L / 4), >= n_rows)
    unknown_start: np.ndarray  # int64 (L + 1,)
    unknown_rows: np.ndarray  # int32
    first_row: int
    n_rows: int

    @property
    def rows(self) -> slice:
        """The rows of the block among all rows."""
        return slice(self.first_row, self.first_row + self.n_rows)


class WindowBuffers(NamedTuple):
    """Buffers for the windows at one position of the rows of a block."""

    codes: np.ndarray  # uint32 (CHUNK,), of some rows
    sums: np.ndarray  # float64 (CHUNK,), of some rows
    # uint32 (n_rows,), 3 for each unknown letter of a row's window, as in a code; all 0 between calls
    masks: np.ndarray
    # int32 (n_rows,), the rows with unknown letters, in the order in which they are found
    rows: np.ndarray


@kernel
def list_unknown(codes, unknown_start, unknown_rows):
    """Write the unknown letters of a block of rows, by position, to unknown_start and unknown_rows.

    If ``unknown_rows`` is empty, only ``unknown_start`` is written.
    """
    rows, length = codes.shape
    unknown_start[:] = 0
    for i in range(rows):
        for p in range(length):
            if codes[i, p] > 3:
                unknown_start[p + 1] += 1
    for p in range(length):
        unknown_start[p + 1] += unknown_start[p]
    if unknown_rows.shape[0] == 0:
        return
    cursor = unknown_start[:-1].copy()
    for i in range(rows):
        for p in range(length):
            if codes[i, p] > 3:
                unknown_rows[cursor[p]] = i
                cursor[p] += 1


@kernel
def window_codes(planes, k, d, start, stop, out):
    """Write the codes of the windows of d letters at k, for the rows start .. stop - 1, to ``out``."""
    g = k >> 2
    offset = k & 3
    n_planes = (offset + d + 3) >> 2
    shift = np.uint32(2 * (4 * n_planes - offset - d))
    mask = np.uint32((1 << (2 * d)) - 1)
    n = stop - start
    if n_planes == 1:
        p0 = planes[g, start:stop]
        for i in range(n):
            out[i] = (np.uint32(p0[i]) >> shift) & mask
    elif n_planes == 2:
        p0 = planes[g, start:stop]
        p1 = planes[g + 1, start:stop]
        for i in range(n):
            wide = (np.uint32(p0[i]) << np.uint32(8)) | np.uint32(p1[i])
            out[i] = (wide >> shift) & mask
    elif n_planes == 3:
        p0 = planes[g, start:stop]
        p1 = planes[g + 1, start:stop]
        p2 = planes[g + 2, start:stop]
        for i in range(n):
            wide = (
                (np.uint32(p0[i]) << np.uint32(16))
                | (np.uint32(p1[i]) << np.uint32(8))
                | np.uint32(p2[i])
            )
            out[i] = (wide >> shift) & mask
    else:
        p0 = planes[g, start:stop]
        p1 = planes[g + 1, start:stop]
        p2 = planes[g + 2, start:stop]
        p3 = planes[g + 3, start:stop]
        for i in range(n):
            wide = (
                (np.uint32(p0[i]) << np.uint32(24))
                | (np.uint32(p1[i]) << np.uint32(16))
                | (np.uint32(p2[i]) << np.uint32(8))
                | np.uint32(p3[i])
            )
            out[i] = (wide >> shift) & mask


@kernel
def code_of_row(planes, k, d, i):
    """The code of the window of d letters at position k of row i."""
    code = np.uint32(0)
    for t in range(d):
        p = k + t
        letter = (planes[p >> 2, i] >> np.uint8(2 * (3 - (p & 3)))) & np.uint8(3)
        code = (code << np.uint32(2)) | np.uint32(letter)
    return code


@kernel
def unknown_windows(block, k, d, buffers):
    """Find the rows whose window of d letters at position k has unknown letters.

    Writes ``masks`` and ``rows`` of the buffers, and returns the number of rows. The caller must reset
    ``masks[rows[:count]]`` to 0.
    """
    masks, rows = buffers.masks, buffers.rows
    count = 0
    for t in range(d):
        bits = np.uint32(3 << (2 * (d - 1 - t)))
        for e in range(block.unknown_start[k + t], block.unknown_start[k + t + 1]):
            row = block.unknown_rows[e]
            if masks[row] == 0:
                rows[count] = row
                count += 1
            masks[row] |= bits
    return count


@kernel
def in_steps(x, inverse):
    """Convert a row's number to whole steps. inverse : 1 / step; None: x is in steps already, int64."""
    # always int64: the type of a sum of float64 and int64 would be float64
    return np.int64(x) if inverse is None else np.int64(x * inverse)


@kernel
def add_to_table(planes, k, d, r, inverse, codes, table):
    """Add r_i in steps to ``table[code of the window at k]`` for the rows of a block, in place.

    This kernel is called so often that the microseconds of passing a whole block count.

    inverse : as in :func:`in_steps`.
    table : int64 (4^d,).
    """
    n_rows = r.shape[0]
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        part = r[start:stop]
        for i in range(stop - start):
            table[codes[i]] += in_steps(part[i], inverse)


@kernel
def take_marginals(shared, first, second, add):
    """Move the sums of a table over its last letter to ``first``, and over its first to ``second``.

    shared : int64 (4^(d + 1),), the table that two neighbouring positions share; 0 afterwards.
    first, second : int64 (4^d,), their own tables.
    add : whether to add to these tables; False overwrites them.
    """
    n = first.shape[0]
    letters, to_first = shared.reshape((4, n)), first.reshape((4, n // 4))
    step = min(n, CHUNK)
    for start in range(0, n, step):  # so few cells that they stay in the first-level cache
        stop = start + step
        a, c, g, t = letters[0], letters[1], letters[2], letters[3]
        a, c, g, t = a[start:stop], c[start:stop], g[start:stop], t[start:stop]
        out = second[start:stop]
        for i in range(step):
            out[i] = (out[i] if add else 0) + ((a[i] + c[i]) + (g[i] + t[i]))
        for letter in range(4):
            part = letters[letter, start:stop]
            fours = part.reshape((step // 4, 4))
            out = to_first[letter, start // 4 : stop // 4]
            for i in range(step // 4):
                total = (fours[i, 0] + fours[i, 1]) + (fours[i, 2] + fours[i, 3])
                out[i] = (out[i] if add else 0) + total
            part[:] = 0


@kernel
def take_unknown(block, k, d, r, inverse, buffers, table, n, items):
    """Move the windows with unknown letters from ``table`` to the list of items, in place.

    The fast loop has counted each unknown letter as an A. Windows whose first letter is unknown match no
    pattern and are dropped. Returns the new number of items.

    n : the number of items in the list on entry.
    """
    count = unknown_windows(block, k, d, buffers)
    first = np.uint32(3 << (2 * (d - 1)))
    for e in range(count):
        row = buffers.rows[e]
        c = code_of_row(block.planes, k, d, row)
        x = in_steps(r[row], inverse)
        table[c] -= x
        if buffers.masks[row] & first == 0:
            items.code[n] = c
            items.mask[n] = buffers.masks[row]
            items.value[n] = x
            n += 1
        buffers.masks[row] = 0
    return n


@kernel
def match_bits(block, k, d, cares, values, buffers, bits):
    """Write, for each pattern at position k, the bitmap of the rows of a block that match it.

    cares, values : int64 (c,).
    bits : uint64 (c, >= ceil(n_rows / 64)), overwritten; row i is bit i % 64 of word i // 64.
    """
    n_rows = block.n_rows
    n_words = (n_rows + 63) // 64
    if cares.shape[0] < LEAST_SLICED:
        for start in range(0, n_rows, CHUNK):
            stop = min(n_rows, start + CHUNK)
            words = slice(start // 64, (stop + 63) // 64)
            _padded_codes(block.planes, k, d, start, stop, buffers.codes)
            for c in range(cares.shape[0]):
                care, value = np.uint32(cares[c]), np.uint32(values[c])
                _match_codes(buffers.codes, care, value, bits[c, words])
    else:
        letters = np.empty((4 * d, SLICE // 64), np.uint64)
        fixed = np.empty(d + 3, np.int64)
        for first in range(0, n_rows, SLICE):
            last = min(n_rows, first + SLICE)
            for start in range(first, last, CHUNK):
                stop = min(last, start + CHUNK)
                words = slice((start - first) // 64, (stop - first + 63) // 64)
                _padded_codes(block.planes, k, d, start, stop, buffers.codes)
                _letter_bits(buffers.codes, d, letters[:, words])
            words = slice(first // 64, (last + 63) // 64)
            for c in range(cares.shape[0]):
                _match_letters(letters, cares[c], values[c], fixed, bits[c, words])
    if n_rows % 64:
        keep = (np.uint64(1) << np.uint64(n_rows % 64)) - np.uint64(1)
        for c in range(cares.shape[0]):
            bits[c, n_words - 1] &= keep
    count = unknown_windows(block, k, d, buffers)
    for e in range(count):
        row = buffers.rows[e]
        for c in range(cares.shape[0]):
            if np.int64(buffers.masks[row]) & cares[c] != 0:
                bits[c, row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
        buffers.masks[row] = 0


@kernel
def _padded_codes(planes, k, d, start, stop, codes):
    """Write the codes of some rows, and set all bits of the remaining codes."""
    window_codes(planes, k, d, start, stop, codes)
    for i in range(stop - start, codes.shape[0]):
        codes[i] = np.uint32(0xFFFFFFFF)


@kernel
def _match_codes(codes, care, value, out):
    """Write the bitmap of the codes that one pattern matches, code by code."""
    for w in range(out.shape[0]):
        word = np.uint64(0)
        for t in range(64):
            hit = (codes[64 * w + t] & care) == value
            word |= np.uint64(hit) << np.uint64(t)
        out[w] = word


@kernel
def _letter_bits(codes, d, letters):
    """Write the bitmap of the codes with each letter at each of d places: uint64 (4 * d, words)."""
    for t in range(d):
        low = np.uint32(1) << np.uint32(2 * (d - 1 - t))
        high = np.uint32(2) << np.uint32(2 * (d - 1 - t))
        a, c, g, u = letters[4 * t], letters[4 * t + 1], letters[4 * t + 2], letters[4 * t + 3]
        _match_codes(codes, low, low, c)
        _match_codes(codes, high, high, g)
        for w in range(letters.shape[1]):
            u[w] = c[w] & g[w]
            a[w] = ~(c[w] | g[w])
            c[w] &= ~u[w]
            g[w] &= ~u[w]


@kernel
def _match_letters(letters, care, value, fixed, out):
    """Write the bitmap of the codes that one pattern matches, from the bitmaps of their letters.

    The pattern has at least one letter.

    fixed : int64 (d + 3,), overwritten with the rows of ``letters`` that the pattern combines.
    """
    d = fixed.shape[0] - 3
    n = 0
    for t in range(d):
        shift = 2 * (d - 1 - t)
        if (care >> shift) & 3:
            fixed[n] = 4 * t + ((value >> shift) & 3)
            n += 1
    fixed[n : n + 3] = fixed[0]  # repeated, for four letters at a time; it changes nothing
    # letter by letter, not word by word, since these loops compile to vector instructions
    for e in range(0, n, 4):
        one, two = letters[fixed[e]], letters[fixed[e + 1]]
        three, four = letters[fixed[e + 2]], letters[fixed[e + 3]]
        if e == 0:
            for w in range(out.shape[0]):
                out[w] = (one[w] & two[w]) & (three[w] & four[w])
        else:
            for w in range(out.shape[0]):
                out[w] &= (one[w] & two[w]) & (three[w] & four[w])


@kernel
def five_code(code, mask, span, d):
    """The five code of a window of ``span`` letters, padded to d; ``mask`` is 3 at unknown letters."""
    at = 0
    for t in range(span):
        shift = 2 * (span - 1 - t)
        at = at * 5 + (4 if (mask >> shift) & 3 else (code >> shift) & 3)
    for _ in range(d - span):
        at = at * 5 + 4
    return at
