"""Products of columns of a block of numbers, dense or sparse, and their sums against residuals.

A product is a row of ``tuples`` int64 (k, depth): its columns, the largest first, padded with -1.
Adjacent products with equal first columns share the work for these columns.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.ordered import first_from


class Parts(NamedTuple):
    """A block of numbers: either ``matrix``, or sparse columns; the other arrays are empty."""

    matrix: np.ndarray  # (m, n), whose row j is column j
    columns: np.ndarray  # int64, increasing: the columns that have entries
    start: np.ndarray  # the entries of columns[t] are at start[t] : start[t + 1]
    rows: np.ndarray  # uint16
    values: np.ndarray


class ByRows(NamedTuple):
    """The nonzero entries of a block in row order."""

    start: np.ndarray  # int64 (n + 1,): the entries of row i are at start[i] : start[i + 1]
    columns: np.ndarray  # int32, increasing in each row
    values: np.ndarray


class Buffers(NamedTuple):
    """The products of the first 1, 2, ... factors of a product over n rows."""

    at: np.ndarray  # int32 (depth, n), the rows where they are not 0
    value: np.ndarray  # float64 (depth, n), their values there
    counts: np.ndarray  # int64 (depth,), the numbers of these rows


@kernel
def _first(block, column, at, value):
    """Write the rows and values of the nonzero entries of a column; returns their number."""
    matrix, columns, start, rows, values = block
    n = 0
    if matrix.shape[0] > 0:
        for i in range(matrix.shape[1]):
            x = matrix[column, i]
            if x != 0.0:
                at[n] = i
                value[n] = x
                n += 1
        return n
    t = first_from(columns, column)
    if t < columns.shape[0] and columns[t] == column:
        for e in range(start[t], start[t + 1]):
            if values[e] != 0.0:
                at[n] = rows[e]
                value[n] = values[e]
                n += 1
    return n


@kernel
def _times(block, column, n_before, at, value, at_new, value_new):
    """Multiply a product of ``n_before`` entries by a column, write the result; returns its count."""
    matrix, columns, start, rows, values = block
    n = 0
    if matrix.shape[0] > 0:
        for k in range(n_before):
            x = matrix[column, at[k]]
            if x != 0.0:
                at_new[n] = at[k]
                value_new[n] = value[k] * x
                n += 1
        return n
    t = first_from(columns, column)
    if t == columns.shape[0] or columns[t] != column:
        return 0
    e, end = start[t], start[t + 1]
    for k in range(n_before):
        i = at[k]
        if 8 * (n_before - k) < end - e:  # few rows against many entries: bisect
            low, high = e, end
            while low < high:
                middle = (low + high) // 2
                if rows[middle] < i:
                    low = middle + 1
                else:
                    high = middle
            e = low
        else:
            while e < end and rows[e] < i:
                e += 1
        if e == end:
            break
        if rows[e] == i and values[e] != 0.0:
            at_new[n] = i
            value_new[n] = value[k] * values[e]
            n += 1
    return n


@kernel
def _advance(block, tuples, k, made):
    """Make product k in the buffers, reusing the factors shared with product k - 1; returns its level."""
    at, value, counts = made
    depth = tuples.shape[1]
    level = 0
    if k > 0:
        while level < depth and tuples[k, level] >= 0 and tuples[k, level] == tuples[k - 1, level]:
            level += 1
    while level < depth and tuples[k, level] >= 0:
        column = tuples[k, level]
        if level == 0:
            counts[0] = _first(block, column, at[0], value[0])
        else:
            before = level - 1
            counts[level] = _times(
                block, column, counts[before], at[before], value[before], at[level], value[level]
            )
        level += 1
    return level - 1


@kernel
def product_columns(block, tuples, made, out):
    """Write the products to out (k, n), which must be zero on entry."""
    for k in range(tuples.shape[0]):
        level = _advance(block, tuples, k, made)
        for j in range(made.counts[level]):
            out[k, made.at[level, j]] = made.value[level, j]


@kernel
def product_bits(block, tuples, made, out):
    """Set the bits of the rows where a product is not 0 in out, uint64 (k, words), zero on entry."""
    for k in range(tuples.shape[0]):
        level = _advance(block, tuples, k, made)
        for j in range(made.counts[level]):
            i = made.at[level, j]
            out[k, i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@kernel
def product_margins(block, tuples, made, weights, out):
    """Add weights[k] times product k to ``out``, in place."""
    for k in range(tuples.shape[0]):
        level = _advance(block, tuples, k, made)
        w = weights[k]
        for j in range(made.counts[level]):
            out[made.at[level, j]] += w * made.value[level, j]


@kernel
def product_sums(block, tuples, made, r, power, out):
    """Add sum_i r_i phi_ik^power to out[k]; power 0 sums r_i over the rows where phi_ik is not 0."""
    for k in range(tuples.shape[0]):
        level = _advance(block, tuples, k, made)
        g = 0.0
        for j in range(made.counts[level]):
            x = made.value[level, j]
            if power == 2:
                x *= x
            elif power == 0:
                x = 1.0
            g += r[made.at[level, j]] * x
        out[k] += g


# -- a block in row order --------------------------------------------------------------------------


@kernel
def count_rows(block, row_start):
    """Write to row_start, int64 (n + 1,), where each row begins when nonzero entries are in row order."""
    matrix, _, start, rows, values = block
    row_start[:] = 0
    if matrix.shape[0] > 0:
        for j in range(matrix.shape[0]):
            for i in range(matrix.shape[1]):
                if matrix[j, i] != 0.0:
                    row_start[i + 1] += 1
    else:
        for e in range(start[-1]):
            if values[e] != 0.0:
                row_start[rows[e] + 1] += 1
    for i in range(row_start.shape[0] - 1):
        row_start[i + 1] += row_start[i]


@kernel
def write_rows(block, out):
    """Write the nonzero entries to ``out``, a :class:`ByRows`; :func:`count_rows` wrote its ``start``."""
    matrix, columns, start, rows, values = block
    row_start, row_columns, row_values = out
    cursor = row_start[:-1].copy()
    if matrix.shape[0] > 0:
        for j in range(matrix.shape[0]):
            for i in range(matrix.shape[1]):
                x = matrix[j, i]
                if x != 0.0:
                    e = cursor[i]
                    row_columns[e] = j
                    row_values[e] = x
                    cursor[i] = e + 1
        return
    for t in range(columns.shape[0]):
        for s in range(start[t], start[t + 1]):
            if values[s] != 0.0:
                i = rows[s]
                e = cursor[i]
                row_columns[e] = columns[t]
                row_values[e] = values[s]
                cursor[i] = e + 1


@kernel
def single_sums(by_rows, r, sums, sizes):
    """Add sum_i r_i x_ij to sums[j] and sum_i |r_i x_ij| to sizes[j], from entries in row order."""
    row_start, row_columns, row_values = by_rows
    for i in range(row_start.shape[0] - 1):
        for e in range(row_start[i], row_start[i + 1]):
            p = r[i] * row_values[e]
            sums[row_columns[e]] += p
            sizes[row_columns[e]] += abs(p)


@kernel
def expand(block, by_rows, tuples, repeats, made, r, offsets, bounded, sums, sizes):
    """Add the sums of products times one more column to ``sums`` and ``sizes``, in place.

    For each product k with last (smallest) column a, and for all columns c < a (c <= a with ``repeats``),
    adds sum_i r_i phi_ik x_ic to sums[offsets[k] + c] and, if ``bounded``, sum_i |r_i phi_ik x_ic| to
    sizes[offsets[k] + c].
    """
    row_start, row_columns, row_values = by_rows
    for k in range(tuples.shape[0]):
        level = _advance(block, tuples, k, made)
        end = tuples[k, level] + repeats
        base = offsets[k]
        for j in range(made.counts[level]):
            i = made.at[level, j]
            p = r[i] * made.value[level, j]
            if bounded:
                for e in range(row_start[i], row_start[i + 1]):
                    c = row_columns[e]
                    if c >= end:
                        break
                    g = p * row_values[e]
                    sums[base + c] += g
                    sizes[base + c] += abs(g)
            else:
                for e in range(row_start[i], row_start[i + 1]):
                    c = row_columns[e]
                    if c >= end:
                        break
                    sums[base + c] += p * row_values[e]


@kernel
def pair_sums(x, r, first, last, repeats, offsets, sums):
    """Add sum_i r_i x_ia x_ic to sums[offsets[a - first] + c] for first <= a < last, c < a + repeats.

    x : float64 (n, m), C-contiguous.
    """
    n = x.shape[0]
    for a in range(first, last):
        end = a + repeats
        table = sums[offsets[a - first] : offsets[a - first] + end]
        i = 0
        # four rows at a time need a quarter of the loads and stores of the table
        while i + 4 <= n:
            p0, p1 = r[i] * x[i, a], r[i + 1] * x[i + 1, a]
            p2, p3 = r[i + 2] * x[i + 2, a], r[i + 3] * x[i + 3, a]
            if p0 != 0.0 or p1 != 0.0 or p2 != 0.0 or p3 != 0.0:
                x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
                for c in range(end):
                    table[c] += (p0 * x0[c] + p1 * x1[c]) + (p2 * x2[c] + p3 * x3[c])
            i += 4
        while i < n:
            p0 = r[i] * x[i, a]
            if p0 != 0.0:
                for c in range(end):
                    table[c] += p0 * x[i, c]
            i += 1
