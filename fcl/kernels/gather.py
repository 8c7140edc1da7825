"""Columns gathered on a sample of the rows, from the pieces of the cache (:mod:`fcl.kernels.columns`)."""

from typing import NamedTuple

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.bits import trailing_zeros
from fcl.kernels.columns import BITS, DENSE, FINE, ROWS, STEPS, VALUES
from fcl.kernels.sampling import SEGMENT_ROWS, rank


class GatheredColumns(NamedTuple):
    """Columns on a sample of rows, segment by segment (:mod:`fcl.kernels.sampling`).

    The entries of column t in segment s are ``cuts[t, s] : cuts[t, s + 1]``.
    """

    cuts: np.ndarray  # int64 (columns, segments + 1)
    rows: np.ndarray  # uint16, numbers of the rows within their segments
    values: np.ndarray  # float32, or empty for all ones
    firsts: np.ndarray  # int64 (segments + 1,), number of the first row of each segment


@kernel
def _kept(inside, words):
    """A bitmap of which of up to 64 rows, uint16, are set in the bitmap of a block."""
    kept = np.uint64(0)
    # unsigned, because numba would test every signed index for being negative, which takes time
    for e in range(inside.shape[0]):
        row = np.uint64(inside[e])
        bit = (words[row >> np.uint64(6)] >> (row & np.uint64(63))) & np.uint64(1)
        kept |= bit << np.uint64(e)
    return kept


@kernel
def _chosen_entries(pieces, j, full, sample, found, held):
    """Write the codes of the entries of a column in the sample, and their values; returns their number.

    full : whether zeros of a piece that is stored densely are entries too.
    found : uint32, overwritten with codes; held : float32, with values, or empty.
    """
    valued = held.shape[0] > 0
    into = 0
    for b in range(pieces.kinds.shape[1]):
        offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
        n = np.int64(pieces.counts[j, b])
        kind = pieces.kinds[j, b]
        wanted = sample.wanted[b]
        before = sample.before[b]
        begin = into
        if kind == BITS:
            n_words = (min(pieces.block_rows, pieces.n_rows - b * pieces.block_rows) + 63) >> 6
            words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
            for w in range(n_words):
                word = words[w] & wanted[w]
                while word != 0:
                    row = 64 * w + np.int64(trailing_zeros(word))
                    found[into] = sample.codes[rank(row, wanted, before)]
                    into += 1
                    word &= word - np.uint64(1)
        elif kind in (DENSE, STEPS):
            step = pieces.arena32[offset >> 2]
            for w in range((n + 63) >> 6):
                word = wanted[w]
                number = before[w]
                while word != 0:
                    e = 64 * w + np.int64(trailing_zeros(word))
                    if kind == DENSE:
                        value = pieces.arena32[(offset >> 2) + e]
                    else:
                        value = step * np.float32(pieces.arena8[offset + 8 + e])
                    found[into] = sample.codes[number]
                    held[into] = value
                    into += np.int64((value != 0.0) | full)
                    number += 1
                    word &= word - np.uint64(1)
        else:
            inside = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            at = (offset + ((2 * n + 7) & ~7)) >> 2
            for first in range(0, n, 64):
                kept = _kept(inside[first : min(first + 64, n)], wanted)
                while kept != 0:
                    e = first + np.int64(trailing_zeros(kept))
                    found[into] = sample.codes[rank(inside[e], wanted, before)]
                    if kind == VALUES:
                        held[into] = pieces.arena32[at + e]
                    elif kind == FINE:
                        held[into] = pieces.fine[(at >> 1) + e]
                    into += 1
                    kept &= kept - np.uint64(1)
        if valued and kind <= ROWS:
            held[begin:into] = np.float32(1.0)
    return into


@kernel
def gather_columns(pieces, columns, full, sample, found, held, begin, end, gathered, lean, curve):
    """Write the entries of the listed columns in a sample of the rows, column by column.

    Returns the number of columns written, which is smaller than requested if the buffers are full.

    full : bool (len(columns),), whether zeros of a column that is stored densely are entries too.
    sample : SampledRows.
    found, held : uint32 and float32 buffers for one column: one entry more than the sample has rows.
        ``held`` is empty if all values are 1.
    begin, end : the part of ``gathered.rows`` and ``gathered.values`` that may be written.
    gathered : GatheredColumns, whose cuts, rows and values are overwritten.
    lean, curve : float64 (len(columns),), overwritten with sum q_i phi_ij and sum q_i phi_ij^2 over the
        sample.
    """
    valued = held.shape[0] > 0
    n_segments = gathered.firsts.shape[0] - 1
    mask = np.uint32(SEGMENT_ROWS - 1)
    places = np.empty(n_segments, np.int64)
    into = begin
    for t in range(columns.shape[0]):
        n = _chosen_entries(pieces, columns[t], full[t], sample, found, held)
        if into + n > end:
            return t
        places[:] = 0
        for e in range(n):
            places[found[e] >> np.uint32(16)] += 1
        cuts = gathered.cuts[t]
        cuts[0] = into
        for s in range(n_segments):
            into += places[s]
            cuts[s + 1] = into
            places[s] = cuts[s]
        for e in range(n):
            s = found[e] >> np.uint32(16)
            gathered.rows[places[s]] = found[e] & mask
            if valued:
                gathered.values[places[s]] = held[e]
            places[s] += 1
        lean[t], curve[t] = _sums(gathered, t, sample)
    return columns.shape[0]


@kernel
def _sums(gathered, t, sample):
    """sum q_i phi_it and sum q_i phi_it^2 over the sample, for one gathered column."""
    valued = gathered.values.shape[0] > 0
    total = 0.0
    squares = 0.0
    for s in range(sample.firsts.shape[0] - 1):
        begin = gathered.cuts[t, s]
        end = gathered.cuts[t, s + 1]
        q = sample.q[sample.firsts[s] : sample.firsts[s + 1]]
        for e in range(begin, end):
            weight = q[gathered.rows[e]]
            x = np.float64(gathered.values[e]) if valued else 1.0
            total += weight * x
            squares += weight * x * x
    return total, squares


@kernel
def centre(gathered, q, total, lean, curve, centres):
    """Subtract the weighted mean from each gathered column that has an entry in every row, in place.

    q : float64 (rows,), the weights of the sample; ``total`` is their sum.
    lean, curve : as :func:`gather_columns` wrote them; updated for the centred columns.
    centres : float64 (columns,), overwritten with the means, or 0 for columns that are not centred.
    """
    n_rows = q.shape[0]
    for t in range(gathered.cuts.shape[0]):
        centres[t] = 0.0
        first = gathered.cuts[t, 0]
        if gathered.cuts[t, gathered.cuts.shape[1] - 1] - first != n_rows or not total > 0.0:
            continue
        mean = lean[t] / total
        g = 0.0
        h = 0.0
        for i in range(n_rows):
            # entries are in the order of the rows' numbers
            value = np.float32(np.float64(gathered.values[first + i]) - mean)
            gathered.values[first + i] = value
            g += q[i] * value
            h += q[i] * value * value
        centres[t] = mean
        lean[t] = g
        curve[t] = h
