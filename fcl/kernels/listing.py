"""The nonzero features of rows, listed row by row.

Each kernel writes the rows ``rows`` of a block as a CSR matrix: the features of the r-th of them are
``ids[indptr[r]:indptr[r + 1]]``, distinct, with the values at the same places. ``indptr`` is int64
(len(rows) + 1,), ``ids`` int32 or int64, ``values`` float32 or float64; the caller makes them large
enough.
"""

import numpy as np

from fcl.kernels.bags import reverse_complement
from fcl.kernels.compilation import kernel
from fcl.kernels.ordered import first_from


@kernel
def list_sparse(starts, columns, data, rows, indptr, ids, values):
    """Write the entries of sparse rows to indptr, ids and values."""
    at = 0
    indptr[0] = 0
    for r in range(rows.shape[0]):
        first, last = starts[rows[r]], starts[rows[r] + 1]
        for e in range(first, last):
            ids[at], values[at] = columns[e], data[e]
            at += 1
        indptr[r + 1] = at


@kernel
def list_dense(matrix, rows, indptr, ids, values):
    """Write the entries other than 0 of dense rows to indptr, ids and values."""
    at = 0
    indptr[0] = 0
    for r in range(rows.shape[0]):
        for j in range(matrix.shape[1]):
            x = matrix[rows[r], j]
            if x != 0.0:
                ids[at] = j
                values[at] = x
                at += 1
        indptr[r + 1] = at


@kernel
def spread_window(codes, row, k, d, out, at, base):
    """Write ``base`` plus the five codes of all patterns that match the window at k to ``out``.

    Letters beyond the end of the row count as unknown. A window whose first letter is unknown matches no
    pattern. Returns the number of patterns.

    at : where the first one is written.
    """
    if codes[row, k] > 3:
        return 0
    out[at] = codes[row, k]
    n = 1
    for t in range(1, d):
        letter = codes[row, k + t] if k + t < codes.shape[1] else np.uint8(4)
        if letter > 3:
            for i in range(at, at + n):
                out[i] = 5 * out[i] + 4
        else:
            for i in range(n - 1, -1, -1):  # from the last, so that none is overwritten
                code = 5 * np.int64(out[at + i])
                out[at + 2 * i] = code + letter
                out[at + 2 * i + 1] = code + 4
            n *= 2
    for i in range(at, at + n):
        out[i] += base
    return n


@kernel
def list_kmers(codes, rows, d, indptr, ids, values):
    """Write the positional k-mers of rows to indptr, ids and values; codes : uint8 (n, L), 0-4."""
    at = 0
    indptr[0] = 0
    per_position = 4 * 5 ** (d - 1)
    for r in range(rows.shape[0]):
        for k in range(codes.shape[1] - d + 1):
            at += spread_window(codes, rows[r], k, d, ids, at, k * per_position)
        indptr[r + 1] = at
    for e in range(at):
        values[e] = 1.0


@kernel
def list_bag(codes, rows, d, radix, canonical, presence, found, indptr, ids, values):
    """Write the k-mers of rows without their positions to indptr, ids and values, and ``found``.

    codes : uint8 (n, L), 0-4.
    canonical : int32 (n_features,), the canonical codes, increasing; empty with one strand.
    found : int64 (L * 2^(d - 1),), or (L,) with radix 4.
    """
    at = 0
    indptr[0] = 0
    length = codes.shape[1]
    for r in range(rows.shape[0]):
        n = 0
        for k in range(length if radix == 5 else length - d + 1):
            if radix == 5:
                n += spread_window(codes, rows[r], k, d, found, n, 0)
                continue
            code = np.int64(0)
            known = True
            for t in range(d):
                known = known and codes[rows[r], k + t] < 4
                code = 4 * code + codes[rows[r], k + t]
            if known:
                found[n] = code
                n += 1
        if canonical.shape[0]:
            for e in range(n):
                least = min(found[e], reverse_complement(found[e], d, radix))
                found[e] = first_from(canonical, least)
        found[:n].sort()
        for e in range(n):
            if e == 0 or found[e] != found[e - 1]:
                ids[at] = found[e]
                values[at] = 1.0
                at += 1
            elif not presence:
                values[at - 1] += 1.0
        indptr[r + 1] = at


@kernel
def list_products(starts, columns, data, first, repeats, indptr, ids, values):
    """Write the products of up to three entries of each row to indptr, ids and values.

    starts, columns, data : the entries of all the rows, their columns increasing within a row.
    first : int64 (degree + 1,), the first id of each degree; see ``features.products.numbering``.
    """
    at = 0
    indptr[0] = 0
    more = 1 if repeats else 0  # a column that may repeat is raised by 1 for each later factor
    for r in range(starts.shape[0] - 1):
        for i in range(starts[r], starts[r + 1]):
            a = np.int64(columns[i])
            ids[at] = a
            values[at] = data[i]
            at += 1
            if first.shape[0] == 2:
                continue
            for j in range(starts[r], i + more):
                b = np.int64(columns[j])
                x = np.float64(data[i]) * data[j]
                ids[at] = first[1] + (a + more) * (a + more - 1) // 2 + b
                values[at] = x
                at += 1
                if first.shape[0] == 3:
                    continue
                c3, c2 = a + 2 * more, b + more
                base = first[2] + c3 * (c3 - 1) // 2 * (c3 - 2) // 3 + c2 * (c2 - 1) // 2
                for k in range(starts[r], j + more):
                    ids[at] = base + columns[k]
                    values[at] = x * data[k]
                    at += 1
        indptr[r + 1] = at
