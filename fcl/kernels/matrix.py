"""Sums over the columns of a matrix that is stored column by column, dense or sparse.

Dense: ``matrix`` (m, n), whose row j is column j. Sparse: :class:`Entries`.
"""

from typing import NamedTuple

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.ordered import first_from


class Entries(NamedTuple):
    """The entries of sparse rows in column order, without the empty columns."""

    columns: np.ndarray  # int64, increasing
    start: np.ndarray  # int64: the entries of columns[t] are at start[t] : start[t + 1]
    rows: np.ndarray  # uint16, increasing within a column
    values: np.ndarray


@kernel
def weighted_sum(column, c, r):
    """The sum of r_i (column_i - c)."""
    n = column.shape[0]
    # eight independent sums: additions to a single sum would wait for each other
    g0 = g1 = g2 = g3 = g4 = g5 = g6 = g7 = 0.0
    i = 0
    while i + 8 <= n:
        g0 += r[i] * (column[i] - c)
        g1 += r[i + 1] * (column[i + 1] - c)
        g2 += r[i + 2] * (column[i + 2] - c)
        g3 += r[i + 3] * (column[i + 3] - c)
        g4 += r[i + 4] * (column[i + 4] - c)
        g5 += r[i + 5] * (column[i + 5] - c)
        g6 += r[i + 6] * (column[i + 6] - c)
        g7 += r[i + 7] * (column[i + 7] - c)
        i += 8
    while i < n:
        g0 += r[i] * (column[i] - c)
        i += 1
    return ((g0 + g1) + (g2 + g3)) + ((g4 + g5) + (g6 + g7))


@kernel
def dense_sums(matrix, centres, r, out):
    """Write sum_i r[k, i] (matrix[j, i] - centres[j]) to out[k, j]; centres : None for zeros.

    A column stays in the cache for all rows of ``r``.
    """
    for j in range(matrix.shape[0]):
        for k in range(r.shape[0]):
            centre = 0.0 if centres is None else centres[j]
            out[k, j] = weighted_sum(matrix[j], centre, r[k])


@kernel
def dense_moments(matrix, s, out):
    """Write the moments of column j, as defined in fcl.features.Generator.moments, to out[:, j].

    The first value is the origin, so that a large offset costs no digits. The sum of squares is corrected
    for the rounding error in the sum of deviations.
    """
    total = 0.0
    for i in range(s.shape[0]):
        total += s[i]
    for j in range(matrix.shape[0]):
        shift = np.float64(matrix[j, 0])
        low = high = shift
        moved = 0.0
        for i in range(s.shape[0]):
            x = np.float64(matrix[j, i])
            moved += s[i] * (x - shift)
            low = min(low, x)
            high = max(high, x)
        mean = moved / total
        squares = left = 0.0
        for i in range(s.shape[0]):
            d = (np.float64(matrix[j, i]) - shift) - mean
            squares += s[i] * d * d
            left += s[i] * d
        out[0, j] = shift
        out[1, j] = mean
        out[2, j] = max(squares - left * left / total, 0.0)
        out[3, j] = low
        out[4, j] = high


@kernel
def dense_margins(matrix, ids, centres, weights, out):
    """Add weights[k] times (column ids[k] - centres[k]) to ``out``, in place.

    centres : None for zeros.
    """
    for k in range(ids.shape[0]):
        w, column = weights[k], matrix[ids[k]]
        c = 0.0 if centres is None else centres[k]
        for i in range(out.shape[0]):
            out[i] += w * (column[i] - c)


@kernel
def sparse_sums(entries, first, last, r, out):
    """Write sum_i r_i x_ij to out[j - first] for all columns first <= j < last that have entries."""
    columns, start, rows, values = entries
    t = first_from(columns, first)
    while t < columns.shape[0] and columns[t] < last:
        g = 0.0
        for e in range(start[t], start[t + 1]):
            g += r[rows[e]] * values[e]
        out[columns[t] - first] = g
        t += 1


@kernel
def sparse_sums_of_several(entries, first, last, r, out):
    """Like :func:`sparse_sums` for all rows of ``r``; writes to out[:, j - first].

    Four outputs at a time, or two: an addition need not wait for that of another output. The last ones
    may be summed a second time.
    """
    columns, start, rows, values = entries
    K = r.shape[0]
    t = first_from(columns, first)
    while t < columns.shape[0] and columns[t] < last:
        j, begin, end = columns[t] - first, start[t], start[t + 1]
        for at in range(0, K, 4):
            if K >= 4:
                k = min(at, K - 4)
                a, b, c, d = r[k], r[k + 1], r[k + 2], r[k + 3]
                ga = gb = gc = gd = 0.0
                for e in range(begin, end):
                    i, value = rows[e], values[e]
                    ga += a[i] * value
                    gb += b[i] * value
                    gc += c[i] * value
                    gd += d[i] * value
                out[k, j], out[k + 1, j], out[k + 2, j], out[k + 3, j] = ga, gb, gc, gd
                continue
            for pair in range(0, K, 2):
                k = max(0, min(pair, K - 2))
                a, b = r[k], r[min(k + 1, K - 1)]
                ga = gb = 0.0
                for e in range(begin, end):
                    i, value = rows[e], values[e]
                    ga += a[i] * value
                    gb += b[i] * value
                out[k, j], out[min(k + 1, K - 1), j] = ga, gb
        t += 1


@kernel
def sparse_moments(entries, first, last, s, out):
    """Like :func:`dense_moments` for the columns first <= j < last; writes to out[:, j - first]."""
    columns, start, rows, values = entries
    total = 0.0
    for i in range(s.shape[0]):
        total += s[i]
    t = first_from(columns, first)
    for j in range(first, last):
        k = j - first
        if t == columns.shape[0] or columns[t] != j:
            out[:, k] = 0.0
            continue
        begin, end = start[t], start[t + 1]
        t += 1
        zeros = end - begin < s.shape[0]
        # a column with zeros needs no shift; one without zeros may have a large offset
        shift = 0.0 if zeros else np.float64(values[begin])
        low = high = shift
        here = moved = 0.0
        for e in range(begin, end):
            x = np.float64(values[e])
            here += s[rows[e]]
            moved += s[rows[e]] * (x - shift)
            low = min(low, x)
            high = max(high, x)
        mean = moved / total
        rest = max(total - here, 0.0) if zeros else 0.0
        squares, left = rest * mean * mean, -rest * mean
        for e in range(begin, end):
            d = (np.float64(values[e]) - shift) - mean
            squares += s[rows[e]] * d * d
            left += s[rows[e]] * d
        out[0, k] = shift
        out[1, k] = mean
        out[2, k] = max(squares - left * left / total, 0.0)
        out[3, k] = low
        out[4, k] = high


@kernel
def sparse_margins(entries, ids, weights, out):
    """Add weights[k] times column ids[k] (increasing) to ``out``, in place."""
    columns, start, rows, values = entries
    t = 0
    for k in range(ids.shape[0]):
        t += first_from(columns[t:], ids[k])
        if t == columns.shape[0]:
            return
        if columns[t] == ids[k]:
            for e in range(start[t], start[t + 1]):
                out[rows[e]] += weights[k] * values[e]


@kernel
def sparse_columns(entries, ids, out):
    """Write the columns ``ids`` (increasing) to out (k, n), which must be zero on entry."""
    columns, start, rows, values = entries
    t = 0
    for k in range(ids.shape[0]):
        t += first_from(columns[t:], ids[k])
        if t == columns.shape[0]:
            return
        if columns[t] == ids[k]:
            for e in range(start[t], start[t + 1]):
                out[k, rows[e]] = values[e]


@kernel
def sparse_powers(entries, ids, power, v, out):
    """Write sum_i v_i x_ij^power over the nonzeros of the columns ``ids`` (increasing) to ``out``.

    power : 0, 1 or 2.  out : float64 (len(ids),), zero on entry.
    """
    columns, start, rows, values = entries
    t = 0
    for k in range(ids.shape[0]):
        t += first_from(columns[t:], ids[k])
        if t == columns.shape[0]:
            return
        if columns[t] == ids[k]:
            total = 0.0
            for e in range(start[t], start[t + 1]):
                x = np.float64(values[e])
                if power == 0:
                    x = np.float64(x != 0.0)
                elif power == 2:
                    x *= x
                total += v[rows[e]] * x
            out[k] = total


@kernel
def listed_columns(entries, ids, start, rows, values):
    """Write the nonzeros of the columns ``ids`` (increasing) to lists that have room for all entries.

    start : int64 (k + 1,); the nonzeros of column ids[k] are at start[k] : start[k + 1].
    values : its dtype may round entries to 0, which are left out.
    """
    columns, begin, own_rows, own_values = entries
    n = t = 0
    start[0] = 0
    for k in range(ids.shape[0]):
        t += first_from(columns[t:], ids[k])
        if t < columns.shape[0] and columns[t] == ids[k]:
            for e in range(begin[t], begin[t + 1]):
                x = values.dtype.type(own_values[e])
                rows[n] = own_rows[e]
                values[n] = x
                n += np.int64(x != 0.0)
        start[k + 1] = n


@kernel
def by_columns(indptr, indices, data, start, rows, values):
    """Write the entries of sparse rows to ``start``, ``rows`` and ``values``, sorted by column, then row.

    start : int64 (columns + 1,), zero on entry; becomes the beginning of each column in ``rows`` uint16
        and ``values``.
    """
    for e in range(indices.shape[0]):
        start[indices[e] + 1] += 1
    for j in range(1, start.shape[0]):
        start[j] += start[j - 1]
    for i in range(indptr.shape[0] - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            at = start[j]
            rows[at] = i
            values[at] = data[e]
            start[j] = at + 1
    # each start has moved to the start of the next column
    for j in range(start.shape[0] - 1, 0, -1):
        start[j] = start[j - 1]
    start[0] = 0


@kernel
def count_chosen(entries, new, counts):
    """Count the entries of each stored column in the rows i with new[i] >= 0; returns their number."""
    _, start, rows, _ = entries
    total = 0
    for t in range(counts.shape[0]):
        n = 0
        for e in range(start[t], start[t + 1]):
            n += np.int64(new[rows[e]] >= 0)
        counts[t] = n
        total += n
    return total


@kernel
def write_chosen(entries, new, out_rows, out_values):
    """Write the entries that :func:`count_chosen` counts, in order; row i becomes new[i]."""
    _, _, rows, values = entries
    n = 0
    for e in range(rows.shape[0]):
        i = new[rows[e]]
        if i >= 0:
            out_rows[n] = i
            out_values[n] = values[e]
            n += 1


@kernel
def append_entries(places, counts, rows, values, free, out_rows, out_values):
    """Append the entries of several columns to those that they have in other arrays.

    places, counts : int64 (columns,), the column in the other arrays, and the number of its entries.
    free : int64, the place of the next entry of each column in ``out_rows``; moved on.
    """
    e = 0
    for t in range(places.shape[0]):
        at = free[places[t]]
        for _ in range(counts[t]):
            out_rows[at] = rows[e]
            out_values[at] = values[e]
            at += 1
            e += 1
        free[places[t]] = at
