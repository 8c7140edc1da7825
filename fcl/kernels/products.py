"""Products of columns of a block of numbers, dense or sparse, and their sums against residuals.

A block is given as five arrays. Dense: ``matrix`` (m, n), whose row j is column j; the others are empty.
Sparse: ``matrix`` is empty; the entries of column ``columns[t]`` (int64, increasing) are at
``start[t] : start[t + 1]`` of ``rows`` uint16 and ``values``.

A product is a row of ``tuples`` int64 (k, depth): its columns, the largest first, padded with -1.
Adjacent products with equal first columns share the work for these columns. A call needs three buffers:
for the product of the first 1, 2, ... factors, ``at`` int32 (depth, n) and ``value`` float64 (depth, n)
hold the rows where it is not 0 and its values there, and ``count`` int64 (depth,) their number.
"""

import numpy as np

from fcl.kernels import kernel


@kernel
def _first(matrix, columns, start, rows, values, column, at, value):
    """Write the rows and values of the nonzero entries of a column; returns their number."""
    n = 0
    if matrix.shape[0] > 0:
        for i in range(matrix.shape[1]):
            x = matrix[column, i]
            if x != 0.0:
                at[n] = i
                value[n] = x
                n += 1
        return n
    t = np.searchsorted(columns, column)
    if t < columns.shape[0] and columns[t] == column:
        for e in range(start[t], start[t + 1]):
            if values[e] != 0.0:
                at[n] = rows[e]
                value[n] = values[e]
                n += 1
    return n


@kernel
def _times(matrix, columns, start, rows, values, column, n_before, at, value, at_new, value_new):
    """Multiply a product of ``n_before`` entries by a column, write the result; returns its count."""
    n = 0
    if matrix.shape[0] > 0:
        for k in range(n_before):
            x = matrix[column, at[k]]
            if x != 0.0:
                at_new[n] = at[k]
                value_new[n] = value[k] * x
                n += 1
        return n
    t = np.searchsorted(columns, column)
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
def _advance(matrix, columns, start, rows, values, tuples, k, at, value, count):
    """Make product k in the buffers, reusing the factors shared with product k - 1; returns its level."""
    depth = tuples.shape[1]
    level = 0
    if k > 0:
        while level < depth and tuples[k, level] >= 0 and tuples[k, level] == tuples[k - 1, level]:
            level += 1
    while level < depth and tuples[k, level] >= 0:
        column = tuples[k, level]
        if level == 0:
            count[0] = _first(matrix, columns, start, rows, values, column, at[0], value[0])
        else:
            count[level] = _times(
                matrix,
                columns,
                start,
                rows,
                values,
                column,
                count[level - 1],
                at[level - 1],
                value[level - 1],
                at[level],
                value[level],
            )
        level += 1
    return level - 1


@kernel
def product_columns(matrix, columns, start, rows, values, tuples, at, value, count, out):
    """Write the products to out (k, n), which must be zero on entry."""
    for k in range(tuples.shape[0]):
        level = _advance(matrix, columns, start, rows, values, tuples, k, at, value, count)
        for j in range(count[level]):
            out[k, at[level, j]] = value[level, j]


@kernel
def product_bits(matrix, columns, start, rows, values, tuples, at, value, count, out):
    """Set the bits of the rows where a product is not 0 in out, uint64 (k, words), zero on entry."""
    for k in range(tuples.shape[0]):
        level = _advance(matrix, columns, start, rows, values, tuples, k, at, value, count)
        for j in range(count[level]):
            i = at[level, j]
            out[k, i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@kernel
def product_margins(matrix, columns, start, rows, values, tuples, at, value, count, weights, out):
    """Add weights[k] times product k to ``out``, in place."""
    for k in range(tuples.shape[0]):
        level = _advance(matrix, columns, start, rows, values, tuples, k, at, value, count)
        w = weights[k]
        for j in range(count[level]):
            out[at[level, j]] += w * value[level, j]


@kernel
def product_sums(matrix, columns, start, rows, values, tuples, at, value, count, r, power, out):
    """Add sum_i r_i phi_ik^power to out[k]; power 0 sums r_i over the rows where phi_ik is not 0."""
    for k in range(tuples.shape[0]):
        level = _advance(matrix, columns, start, rows, values, tuples, k, at, value, count)
        g = 0.0
        for j in range(count[level]):
            x = value[level, j]
            if power == 2:
                x *= x
            elif power == 0:
                x = 1.0
            g += r[at[level, j]] * x
        out[k] += g


# -- a block in row order --------------------------------------------------------------------------


@kernel
def count_rows(matrix, columns, start, rows, values, row_start):
    """Write to row_start, int64 (n + 1,), where each row begins when nonzero entries are in row order."""
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
def write_rows(matrix, columns, start, rows, values, row_start, cursor, row_columns, row_values):
    """Write the nonzero entries in row order, columns increasing, to row_columns int32 and row_values.

    cursor : int64 (n,), overwritten.
    """
    cursor[:] = row_start[:-1]
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
def single_sums(row_start, row_columns, row_values, r, sums, sizes):
    """Add sum_i r_i x_ij to sums[j] and sum_i |r_i x_ij| to sizes[j], from entries in row order."""
    for i in range(row_start.shape[0] - 1):
        for e in range(row_start[i], row_start[i + 1]):
            p = r[i] * row_values[e]
            sums[row_columns[e]] += p
            sizes[row_columns[e]] += abs(p)


@kernel
def expand(
    matrix,
    columns,
    start,
    rows,
    values,
    row_start,
    row_columns,
    row_values,
    tuples,
    repeats,
    at,
    value,
    count,
    r,
    offsets,
    bounded,
    sums,
    sizes,
):
    """Add the sums of products times one more column to ``sums`` and ``sizes``, in place.

    For each product k with last (smallest) column a, and for all columns c < a (c <= a with ``repeats``),
    adds sum_i r_i phi_ik x_ic to sums[offsets[k] + c] and, if ``bounded``, sum_i |r_i phi_ik x_ic| to
    sizes[offsets[k] + c].

    row_start, row_columns, row_values : the block in row order.
    """
    for k in range(tuples.shape[0]):
        level = _advance(matrix, columns, start, rows, values, tuples, k, at, value, count)
        end = tuples[k, level] + repeats
        base = offsets[k]
        for j in range(count[level]):
            i = at[level, j]
            p = r[i] * value[level, j]
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
