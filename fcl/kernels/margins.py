"""Margins of positional k-mers: tables by window code, and patterns that are matched one by one.

The module :mod:`fcl.kernels.kmers` defines windows, codes and patterns.
"""

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.kmers import CHUNK, code_of_row, unknown_windows, window_codes


@kernel
def choose_tables(positions, longer, totals, most, costs, extra, stops, letters):
    """Choose the tables that neighbouring positions share, so that a row takes the least time.

    A table covers some letters, beginning at its first position. Patterns that reach further, and those
    of positions without a table, are matched one by one. Times are in patterns that are matched.

    positions : int64 (n,), increasing.
    longer : int64 (n, d + 1), the number of patterns of each position with more than 0, 1, .. d letters.
    totals : float64 (n,); the sum of the positions of a table stays below ``most``.
    costs : float64 (>= 2,), the time of a table by its letters.
    extra : the time that a position takes, beyond that of its patterns, if some of them are matched.
    stops : int64 (n,), overwritten with the end of a table that begins at each position, as an index of
        ``positions``; the index of the position itself if no table should begin there.
    letters : int64 (n,), overwritten with the number of letters of the table; 0 if none begins there.
    """
    n, d = positions.shape[0], longer.shape[1] - 1
    least = np.zeros(n + 1)  # the time of all patterns from each position on
    for first in range(n - 1, -1, -1):
        least[first] = longer[first, 0] + extra + least[first + 1]
        stops[first], letters[first] = first, 0
        for size in range(1, costs.shape[0]):
            cost, total = costs[size], 0.0
            for t in range(first, n):
                total += totals[t]
                room = min(positions[first] + size - positions[t], d)
                if room <= 0 or cost >= least[first] or not total < most:
                    break
                if longer[t, room] > 0:
                    cost += longer[t, room] + extra
                if cost + least[t + 1] <= least[first]:  # of equal choices, the longest table
                    least[first] = cost + least[t + 1]
                    stops[first], letters[first] = t + 1, size


@kernel
def fold_table(cares, values, weights, d, table):
    """Write the margin of every code, the sum of the weights of the patterns that match it, to ``table``.

    cares, values : int64 (k,).
    weights : float64 (k,), or int32 (k,) in steps.
    table : of the same dtype, (4^d,), overwritten.
    """
    table[:] = 0
    full = (1 << (2 * d)) - 1
    for j in range(cares.shape[0]):
        free = full & ~cares[j]
        w = weights[j]
        sub = 0
        while True:
            table[values[j] | sub] += w
            sub = (sub - free) & free
            if sub == 0:
                break


@kernel
def spread_table(own, after, shared):
    """Add the table of one position to one that it shares with neighbours, for each of their letters.

    own : (4^d,).
    after : number of letters of the shared table that follow those of the position.
    shared : (4^span,), changed in place.
    """
    size, n_after = own.shape[0], 4**after
    for start in range(0, shared.shape[0], size * n_after):
        part = shared[start : start + size * n_after]
        if after == 0:
            for c in range(size):
                part[c] += own[c]
        elif after == 1:
            # a loop over four cells would take as long to set up as the additions
            fours = part.reshape((size, 4))
            for c in range(size):
                x = own[c]
                fours[c, 0] += x
                fours[c, 1] += x
                fours[c, 2] += x
                fours[c, 3] += x
        else:
            rows = part.reshape((size, n_after))
            for c in range(size):
                row = rows[c]
                for i in range(n_after):
                    row[i] += own[c]


@kernel
def add_margins(planes, k, d, table, step, codes, m):
    """Add ``step * table[code of the window at k]`` to the margins of a block of rows, in place.

    table : int32 (4^d,), or float64 with a step of 1.
    """
    n_rows = m.shape[0]
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        part = m[start:stop]
        for i in range(stop - start):
            part[i] += step * table[codes[i]]


@kernel
def add_two_margins(planes, k, d, first, e, second, codes, m):
    """Add the margins of d letters at k and of e letters at k + 1, in place.

    The result equals that of two calls of :func:`add_margins`, bit for bit. One call reads the margins,
    and the letters that the windows share, only once.

    first, second : float64 (4^d,) and (4^e,).
    """
    n_rows, span = m.shape[0], max(d, e + 1)
    after_first = np.uint32(2 * (span - d))
    after_second, mask = np.uint32(2 * (span - 1 - e)), np.uint32((1 << (2 * e)) - 1)
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, span, start, stop, codes)
        part = m[start:stop]
        for i in range(stop - start):
            code = codes[i]
            part[i] = (part[i] + first[code >> after_first]) + second[(code >> after_second) & mask]


@kernel
def add_patterns(planes, k, d, cares, values, weights, codes, sums, m):
    """Add to the margins of a block of rows the weights of the patterns that match at k, in place.

    Like :func:`add_margins` without a table, and with the same rounding: the weights of a row are summed
    in the order of the patterns. The loops compile to vector instructions, so a comparison takes a
    fraction of the time of a look-up.

    sums : float64 (CHUNK,), overwritten.
    """
    n_rows, n_patterns = m.shape[0], cares.shape[0]
    for start in range(0, n_rows, CHUNK):
        n = min(n_rows - start, CHUNK)
        window_codes(planes, k, d, start, start + n, codes)
        sums[:] = 0.0
        whole = n_patterns - n_patterns % 4
        for j in range(0, whole, 4):  # four at a time, since reading and writing the sums counts
            care0, care1 = np.uint32(cares[j]), np.uint32(cares[j + 1])
            care2, care3 = np.uint32(cares[j + 2]), np.uint32(cares[j + 3])
            fixed0, fixed1 = np.uint32(values[j]), np.uint32(values[j + 1])
            fixed2, fixed3 = np.uint32(values[j + 2]), np.uint32(values[j + 3])
            w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
            for i in range(n):
                code, total = codes[i], sums[i]
                total += w0 if (code & care0) == fixed0 else 0.0
                total += w1 if (code & care1) == fixed1 else 0.0
                total += w2 if (code & care2) == fixed2 else 0.0
                total += w3 if (code & care3) == fixed3 else 0.0
                sums[i] = total
        for j in range(whole, n_patterns):
            care, fixed, w = np.uint32(cares[j]), np.uint32(values[j]), weights[j]
            for i in range(n):
                sums[i] += w if (codes[i] & care) == fixed else 0.0
        part = m[start : start + n]
        for i in range(n):
            part[i] += sums[i]


@kernel
def mend_margins(block, k, d, cares, values, weights, buffers, m):
    """Correct margins at position k for the windows with unknown letters, in place.

    The fast loops have counted each unknown letter as an A. This subtracts what they added, and adds the
    weights of the matching patterns that have wildcards at all unknown letters.
    """
    count = unknown_windows(block, k, d, buffers)
    for e in range(count):
        row = buffers.rows[e]
        code = np.int64(code_of_row(block.planes, k, d, row))
        unknown = np.int64(buffers.masks[row])
        right = 0.0
        wrong = 0.0
        for j in range(cares.shape[0]):
            if code & cares[j] == values[j]:
                wrong += weights[j]
                if unknown & cares[j] == 0:
                    right += weights[j]
        m[row] += right - wrong
        buffers.masks[row] = 0
