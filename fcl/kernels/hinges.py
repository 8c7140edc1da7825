"""Hinges of dense columns: max(0, x - t) and max(0, t - x) of column x and knot t.

A matrix (m, n) holds column j in row j. ``knots`` float64 are the knots of all columns, increasing within
a column; the knots of column j are knots[starts[j] : starts[j + 1]].
"""

import numpy as np

from fcl.kernels.compilation import inlined, kernel
from fcl.kernels.matrix import dense_sums


@inlined
def value_at(x, centre, side, scale):
    """The feature of side 1 or -1 with the knot ``centre``, or of side 0, (x - centre) / scale."""
    moved = np.float64(x) - centre
    if side == 0:
        return moved / scale
    return max(0.0, side * moved) / scale


@kernel
def columns(matrix, places, centres, sides, scales, out):
    """Write feature k, of column places[k] of the matrix, to out[k]."""
    for k in range(places.shape[0]):
        column, centre, side, scale = matrix[places[k]], centres[k], sides[k], scales[k]
        for i in range(out.shape[1]):
            out[k, i] = value_at(column[i], centre, side, scale)


@kernel
def margins(matrix, places, centres, sides, scales, weights, out):
    """Add weights[k] times feature k to ``out``, in place."""
    for k in range(places.shape[0]):
        column, centre, side, scale = matrix[places[k]], centres[k], sides[k], scales[k]
        w = weights[k]
        for i in range(out.shape[0]):
            out[i] += w * value_at(column[i], centre, side, scale)


@inlined
def plant(knots, depth, tree):
    """Write increasing knots to ``tree`` as a search tree: the children of node k are 2 k and 2 k + 1.

    It has 2^depth - 1 nodes, from 1 on; infinity is in those without a knot.
    """
    for level in range(depth):
        for at in range(1 << level):
            place = ((2 * at + 1) << (depth - 1 - level)) - 1
            tree[(1 << level) + at] = knots[place] if place < knots.shape[0] else np.inf


@inlined
def find_bins(column, depth, tree, bins):
    """Write the number of knots below each value to ``bins``.

    The steps have no branches, which nothing could predict; four searches do not wait for each other.
    """
    n, leaves = column.shape[0], np.int64(1) << depth
    for i in range(0, n - 3, 4):
        a = b = c = d = np.int64(1)
        x, y = np.float64(column[i]), np.float64(column[i + 1])
        z, u = np.float64(column[i + 2]), np.float64(column[i + 3])
        for _ in range(depth):
            a = 2 * a + np.int64(tree[a] < x)
            b = 2 * b + np.int64(tree[b] < y)
            c = 2 * c + np.int64(tree[c] < z)
            d = 2 * d + np.int64(tree[d] < u)
        bins[i], bins[i + 1], bins[i + 2], bins[i + 3] = (
            a - leaves,
            b - leaves,
            c - leaves,
            d - leaves,
        )
    for i in range(n - n % 4, n):
        a, x = np.int64(1), np.float64(column[i])
        for _ in range(depth):
            a = 2 * a + np.int64(tree[a] < x)
        bins[i] = a - leaves


@kernel
def sums(matrix, knots, starts, shifts, scales, r, tree, bins, lanes, out):
    """Write the sums of all features of some columns to ``out``: sum_i r[k, i] phi_ij to out[k, j].

    The features of a column are (x - shift) / scale, then the two hinges of each knot, the rising one
    first. A row adds to the bin between two knots the distances of its value from both. The sum of a
    hinge at a knot is then the sum at the next knot, plus the distance between them for each row beyond
    that one, plus the rows of the bin between them: terms of one sign for positive r, so that no digits
    are lost, and no work for each row and knot.

    starts : int64 (m + 1,), relative to ``knots``.  shifts, scales : float64 (m,).
    tree : float64 (2^depth,), buffer, for up to 2^depth - 1 knots of a column.
    bins : int32 (>= n,), buffer.  lanes : float64 (> knots of a column, 4, 3), buffer.
    """
    base = 0
    for j in range(matrix.shape[0]):
        column, own = matrix[j], knots[starts[j] : starts[j + 1]]
        n_knots, scale = own.shape[0], scales[j]
        if n_knots:
            depth = 0
            while n_knots >> depth:
                depth += 1
            plant(own, depth, tree)
            find_bins(column, depth, tree, bins)
        for k in range(r.shape[0]):
            rows, found = r[k], out[k, base : base + 1 + 2 * n_knots]
            dense_sums(
                matrix[j : j + 1], shifts[j : j + 1], r[k : k + 1], out[k : k + 1, base : base + 1]
            )
            found[0] /= scale
            if not n_knots:
                continue
            lanes[: n_knots + 1] = 0.0
            for i in range(column.shape[0]):
                b, v, x = bins[i], rows[i], np.float64(column[i])
                lane = lanes[b, i & 3]  # four sums: additions to one would wait for each other
                lane[0] += v
                lane[1] += v * (x - own[max(b - 1, 0)])
                lane[2] += v * (own[min(b, n_knots - 1)] - x)
            for b in range(n_knots + 1):
                for part in range(3):
                    four = lanes[b, :, part]
                    four[0] = (four[0] + four[1]) + (four[2] + four[3])
            beyond = total = 0.0
            for t in range(n_knots - 1, -1, -1):
                if t + 1 < n_knots:
                    total += beyond * (own[t + 1] - own[t])
                total += lanes[t + 1, 0, 1]
                beyond += lanes[t + 1, 0, 0]
                found[1 + 2 * t] = total / scale
            beyond = total = 0.0
            for t in range(n_knots):
                if t:
                    total += beyond * (own[t] - own[t - 1])
                total += lanes[t, 0, 2]
                beyond += lanes[t, 0, 0]
                found[2 + 2 * t] = total / scale
        base += 1 + 2 * n_knots
