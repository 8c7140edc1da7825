"""Patterns anywhere in a window: sums, margins and columns of counts and of presence.

Prepared rows, codes, patterns (care, value) and five codes are defined in :mod:`fcl.kernels.kmers`. Only
a wildcard matches an unknown letter, or a letter beyond the end of the row. Kernels that take a position
k get :class:`fcl.kernels.kmers.WindowBuffers`; row-by-row kernels get :class:`RowBuffers`.

Counts are sums over positions, so all positions share one table. Presence is not a sum over
positions: the codes of a row are visited together, and each distinct code counts once.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.kmers import (
    CHUNK,
    code_of_row,
    five_code,
    in_steps,
    unknown_windows,
    window_codes,
)

#: Number of rows whose letters are unpacked at a time: one line of the first-level cache per plane.
LETTER_ROWS = 64


class RowBuffers(NamedTuple):
    """Buffers of the kernels that process a block row by row, LETTER_ROWS rows at a time."""

    cursors: np.ndarray  # int64 (L,), the next unknown row of each position
    letters: np.ndarray  # uint8 (LETTER_ROWS, L)
    codes: np.ndarray  # int64 (n_positions,), of a row
    windows: np.ndarray  # uint32 (L, LETTER_ROWS) if a search prices the patterns, else empty
    hits: np.ndarray  # uint32 (LETTER_ROWS,), what is found in the windows


@kernel
def reverse_complement(code, d, radix):
    """The code of the reverse complement, radix 4 or 5; trailing wildcards stay at the end."""
    behind = 0
    if radix == 5:
        while behind < d and code % 5 == 4:
            code //= 5
            behind += 1
    out = 0
    for _ in range(d - behind):
        digit = code % radix
        code //= radix
        out = out * radix + (digit if digit == 4 else 3 - digit)
    for _ in range(behind):
        out = out * radix + 4
    return out


@kernel
def list_canonical(d, radix, out):
    """Write the canonical codes, which are at most the reverse complement's code; returns their number.

    The first letter is never a wildcard.

    out : int32 (2, >= count), overwritten with the codes and the codes of the reverse complements.
    """
    count = 0
    for code in range(4 * radix ** (d - 1)):
        other = reverse_complement(code, d, radix)
        if code <= other:
            out[0, count] = code
            out[1, count] = other
            count += 1
    return count


# -- sums of counts ----------------------------------------------------------------------------


@kernel
def move_unknown(block, k, span, d, r, inverse, buffers, table, five):
    """Move the windows with unknown letters at k from ``table`` to ``five``, both in place.

    The fast loop has counted each unknown letter as an A.

    five : int64 (5^d,); empty: these windows match no pattern and are only removed.
    """
    count = unknown_windows(block, k, span, buffers)
    for e in range(count):
        row = buffers.rows[e]
        code = np.int64(code_of_row(block.planes, k, span, row))
        x = in_steps(r[row], inverse)
        table[code] -= x
        if five.shape[0]:
            five[five_code(code, np.int64(buffers.masks[row]), span, d)] += x
        buffers.masks[row] = 0


@kernel
def add_to_five(table, span, d, five):
    """Add a table over windows of ``span`` letters, int64 (4^span,), to the table ``five``."""
    for code in range(1 << (2 * span)):
        five[five_code(code, 0, span, d)] += table[code]


@kernel
def sum_wildcards(cells, d):
    """Convert sums over windows to sums over patterns, by five code, in place. cells : int64 (5^d,)."""
    inner = 1
    for _ in range(d):
        for o in range(cells.shape[0] // (5 * inner)):
            at = o * 5 * inner
            for i in range(at, at + inner):
                known = (cells[i] + cells[i + inner]) + (
                    cells[i + 2 * inner] + cells[i + 3 * inner]
                )
                cells[i + 4 * inner] += known
        inner *= 5


@kernel
def both_sums(cells, codes, others, out):
    """Write the sum of each pattern's cell and, if different, its reverse complement's cell."""
    for j in range(codes.shape[0]):
        total = cells[codes[j]]
        if others[j] != codes[j]:
            total += cells[others[j]]
        out[j] = total


# -- margins of counts -------------------------------------------------------------------------


@kernel
def place_weights(codes, others, weights, cells):
    """Add each weight to the cells of its pattern and of the reverse complement, in place."""
    for j in range(codes.shape[0]):
        cells[codes[j]] += weights[j]
        if others[j] != codes[j]:
            cells[others[j]] += weights[j]


@kernel
def share_wildcards(cells, d):
    """Convert weights of patterns to margins of windows, by five code, in place."""
    inner = 1
    for _ in range(d):
        for o in range(cells.shape[0] // (5 * inner)):
            at = o * 5 * inner
            for i in range(at, at + inner):
                wild = cells[i + 4 * inner]
                cells[i] += wild
                cells[i + inner] += wild
                cells[i + 2 * inner] += wild
                cells[i + 3 * inner] += wild
        inner *= 5


@kernel
def take_from_five(five, span, d, table):
    """Write the margins of all windows of ``span`` letters to ``table``, float64 (4^span,)."""
    for code in range(1 << (2 * span)):
        table[code] = five[five_code(code, 0, span, d)]


@kernel
def mend_unknown(block, k, span, d, table, five, buffers, m):
    """Correct margins at k for the windows with unknown letters, in place; see :func:`move_unknown`."""
    count = unknown_windows(block, k, span, buffers)
    for e in range(count):
        row = buffers.rows[e]
        code = np.int64(code_of_row(block.planes, k, span, row))
        right = 0.0
        if five.shape[0]:
            right = five[five_code(code, np.int64(buffers.masks[row]), span, d)]
        m[row] += right - table[code]
        buffers.masks[row] = 0


# -- columns of patterns with wildcards --------------------------------------------------------


@kernel
def count_patterns(block, k, span, cares, values, owners, buffers, out):
    """Add 1 to ``out[owners[j], i]`` where pattern j matches the window at k of row i.

    cares, values : int64, for codes of the window's ``span`` letters.
    out : float32 (k, n_rows), updated in place.
    """
    codes = buffers.codes
    for start in range(0, block.n_rows, CHUNK):
        stop = min(block.n_rows, start + CHUNK)
        window_codes(block.planes, k, span, start, stop, codes)
        for j in range(cares.shape[0]):
            care, fixed = np.uint32(cares[j]), np.uint32(values[j])
            part = out[owners[j], start:stop]
            for i in range(stop - start):
                part[i] += np.float32((codes[i] & care) == fixed)
    count = unknown_windows(block, k, span, buffers)
    for e in range(count):
        row = buffers.rows[e]
        code = np.int64(code_of_row(block.planes, k, span, row))
        for j in range(cares.shape[0]):
            if code & cares[j] == values[j] and np.int64(buffers.masks[row]) & cares[j] != 0:
                out[owners[j], row] -= np.float32(1.0)
        buffers.masks[row] = 0


@kernel
def add_squares_of(counts, units, squares, present):
    """Add sum_i units_i counts_ji^2 and the sum of units_i where counts_ji is not 0, in place; int64."""
    for j in range(counts.shape[0]):
        square = there = 0
        for i in range(counts.shape[1]):
            c = np.int64(counts[j, i])
            square += units[i] * (c * c)
            there += units[i] if c != 0 else 0
        squares[j] += square
        present[j] += there


# -- row by row, without wildcards -------------------------------------------------------------


@kernel
def unpack_letters(block, start, buffers):
    """Write the letters, 0-4, of up to LETTER_ROWS rows from ``start`` on to ``letters`` of the buffers.

    A block must be unpacked in order from its first row: ``cursors``, the next unknown row of each
    position, are updated in place. Returns the row that follows the last.
    """
    letters, cursors = buffers.letters, buffers.cursors
    stop = min(block.n_rows, start + LETTER_ROWS)
    if start == 0:
        for p in range(cursors.shape[0]):
            cursors[p] = block.unknown_start[p]
    for p in range(letters.shape[1]):
        plane = block.planes[p >> 2]
        shift = np.uint8(2 * (3 - (p & 3)))
        for i in range(stop - start):
            letters[i, p] = (plane[start + i] >> shift) & np.uint8(3)
        end = block.unknown_start[p + 1]
        while cursors[p] < end and block.unknown_rows[cursors[p]] < stop:
            letters[block.unknown_rows[cursors[p]] - start, p] = 4
            cursors[p] += 1
    return stop


@kernel
def row_codes(letters, d, both, out):
    """Write the code of every window of d letters of a row to ``out`` (n_positions,).

    The code is -1 if a letter is unknown; with ``both`` it is the smaller of the code and the
    reverse complement's code.
    """
    last = 2 * (d - 1)
    full = (1 << (2 * d)) - 1
    code = 0
    other = 0
    clean = 0  # letters since the last unknown one
    for p in range(letters.shape[0]):
        letter = np.int64(letters[p])
        clean = 0 if letter > 3 else clean + 1
        code = ((code << 2) | (letter & 3)) & full
        other = (other >> 2) | ((3 - (letter & 3)) << last)
        if p >= d - 1:
            found = min(code, other) if both else code
            out[p - d + 1] = found if clean >= d else -1


@kernel
def add_present(block, d, both, r, inverse, buffers, stamps, table):
    """Add r_i in steps to ``table`` for every distinct code of row i, in place.

    table : int64 (4^d,).
    stamps : int32 (4^d,), negative on entry; becomes the last row with each code.
    """
    codes = buffers.codes
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for row in range(start, stop):
            row_codes(buffers.letters[row - start], d, both, codes)
            value = in_steps(r[row], inverse)
            for c in codes:
                if c >= 0 and stamps[c] != row:
                    stamps[c] = row
                    table[c] += value


@kernel
def add_present_margins(block, d, both, table, buffers, stamps, m):
    """Add to the margin of each row the weights of its distinct codes, in place."""
    codes = buffers.codes
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for row in range(start, stop):
            row_codes(buffers.letters[row - start], d, both, codes)
            total = 0.0
            for c in codes:
                if c >= 0 and table[c] != 0.0 and stamps[c] != row:
                    stamps[c] = row
                    total += table[c]
            m[row] += total


@kernel
def mark_present(block, d, both, slots, buffers, bits):
    """Set the bit of each row in the bitmaps of its codes.

    slots : int32 (4^d,), the bitmap of each code, or -1.
    bits : uint64 (k, >= ceil(n_rows / 64)), zero on entry; row i is bit i % 64 of word i // 64.
    """
    codes = buffers.codes
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for row in range(start, stop):
            row_codes(buffers.letters[row - start], d, both, codes)
            for c in codes:
                if c >= 0 and slots[c] >= 0:
                    bits[slots[c], row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@kernel
def count_codes(block, d, both, slots, buffers, out):
    """Add to ``out[slots[c], i]`` how often row i has code c. out : float32 (k, n_rows)."""
    codes = buffers.codes
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for row in range(start, stop):
            row_codes(buffers.letters[row - start], d, both, codes)
            for c in codes:
                if c >= 0 and slots[c] >= 0:
                    out[slots[c], row] += np.float32(1.0)


@kernel
def add_squares(block, d, both, slots, units, buffers, stamps, seen, squares, present):
    """Add units_i times the squared count of each code in row i to ``squares[slots[c]]``, in place.

    units, squares : int64.
    present : int64 (k,), increased by units_i for each row i that has the code.
    stamps, seen : int64 (k,), the last row with each code (negative on entry), and its count there.
    """
    codes = buffers.codes
    for start in range(0, block.n_rows, LETTER_ROWS):
        stop = unpack_letters(block, start, buffers)
        for row in range(start, stop):
            row_codes(buffers.letters[row - start], d, both, codes)
            for c in codes:
                if c < 0 or slots[c] < 0:
                    continue
                j = slots[c]
                if stamps[j] != row:
                    stamps[j] = row
                    seen[j] = 0
                    present[j] += units[row]
                squares[j] += units[row] * (2 * seen[j] + 1)  # (seen + 1)^2 - seen^2
                seen[j] += 1
