"""Columns gathered on a sample of the rows, from the pieces of the cache (:mod:`fcl.kernels.columns`)."""

from typing import NamedTuple

import numpy as np

from fcl.kernels.bits import trailing_zeros
from fcl.kernels.columns import BITS, DENSE, FINE, STEPS, VALUES
from fcl.kernels.compilation import inlined, kernel
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
def _chosen_entries(pieces, j, full, sample, found, held, ends):
    """Write the entries of a column in the sample, segment by segment; returns their number.

    Those in segment s begin at ``sample.firsts[s]`` of ``found`` and ``held``, and end at ``ends[s]``.

    full : whether zeros of a piece that is stored densely are entries too.
    found : uint16, overwritten with the numbers of the rows within their segments.
    held : float32, overwritten with values, or empty if all values are 1.
    ends : uint64, overwritten.
    """
    valued = held.shape[0] > 0
    mask = np.uint32(SEGMENT_ROWS - 1)
    n_segments = ends.shape[0]
    for s in range(n_segments):
        ends[s] = sample.firsts[s]
    for b in range(pieces.kinds.shape[1]):
        offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
        n = np.int64(pieces.counts[j, b])
        kind = pieces.kinds[j, b]
        wanted = sample.wanted[b]
        before = sample.before[b]
        if kind == BITS:
            # a sample of the rows may have fewer words than this, and the arena too
            n_words = (min(pieces.block_rows, pieces.n_rows - b * pieces.block_rows) + 63) >> 6
            words = pieces.arena64[offset >> 3 : (offset >> 3) + n_words]
            for w in range(words.shape[0]):
                word = words[w] & wanted[w]
                while word != 0:
                    row = 64 * w + np.int64(trailing_zeros(word))
                    code = sample.codes[rank(row, wanted, before)]
                    end = ends[code >> np.uint32(16)]
                    found[end] = code & mask
                    if valued:
                        held[end] = 1.0
                    ends[code >> np.uint32(16)] = end + np.uint64(1)
                    word &= word - np.uint64(1)
        elif kind in (DENSE, STEPS):
            last = n - 1
            chosen = (wanted[last >> 6] >> np.uint64(last & 63)) & np.uint64(1)
            own = slice(before[0], rank(last, wanted, before) + np.int64(chosen))
            inside = sample.inside[own]
            codes = sample.codes[own]
            step = pieces.arena32[offset >> 2]
            values = pieces.arena32[offset >> 2 : (offset >> 2) + n]
            steps = pieces.arena8[offset + 8 : offset + 8 + n]
            for e in range(codes.shape[0]):
                if kind == DENSE:
                    value = values[inside[e]]
                else:
                    value = step * np.float32(steps[inside[e]])
                end = ends[codes[e] >> np.uint32(16)]
                # a zero that is no entry is overwritten by the next value: there is room for all rows
                found[end] = codes[e] & mask
                held[end] = value
                ends[codes[e] >> np.uint32(16)] = end + np.uint64((value != 0.0) | full)
        else:
            listed = pieces.arena16[offset >> 1 : (offset >> 1) + n]
            at = (offset + ((2 * n + 7) & ~7)) >> 2
            for first in range(0, n, 64):
                kept = _kept(listed[first : min(first + 64, n)], wanted)
                while kept != 0:
                    e = first + np.int64(trailing_zeros(kept))
                    code = sample.codes[rank(listed[e], wanted, before)]
                    end = ends[code >> np.uint32(16)]
                    found[end] = code & mask
                    if kind == VALUES:
                        held[end] = pieces.arena32[at + e]
                    elif kind == FINE:
                        held[end] = pieces.fine[(at >> 1) + e]
                    elif valued:
                        held[end] = 1.0
                    ends[code >> np.uint32(16)] = end + np.uint64(1)
                    kept &= kept - np.uint64(1)
    total = 0
    for s in range(n_segments):
        total += np.int64(ends[s]) - sample.firsts[s]
    return total


@kernel
def gather_columns(pieces, columns, full, sample, found, held, begin, end, gathered, cross, curve):
    """Write the entries of the listed columns in a sample of the rows, column by column.

    Returns the number of columns written, which is smaller than requested if the buffers are full.

    full : bool (len(columns),), whether zeros of a column that is stored densely are entries too.
    sample : SampledRows.
    found, held : uint16 and float32 buffers for one column, with room for the rows of the sample.
        ``held`` is empty if all values are 1.
    begin, end : the part of ``gathered.rows`` and ``gathered.values`` that may be written.
    gathered : GatheredColumns, whose cuts, rows and values are overwritten.
    cross, curve : float64 (len(columns),), overwritten with sum q_i phi_ij and sum q_i phi_ij^2 over the
        sample.
    """
    valued = held.shape[0] > 0
    n_segments = gathered.firsts.shape[0] - 1
    ends = np.empty(n_segments, np.uint64)
    into = begin
    for t in range(columns.shape[0]):
        n = _chosen_entries(pieces, columns[t], full[t], sample, found, held, ends)
        if into + n > end:
            return t
        cuts = gathered.cuts[t]
        cuts[0] = into
        cross[t] = curve[t] = 0.0
        for s in range(n_segments):
            first = sample.firsts[s]
            count = np.int64(ends[s]) - first
            rows = found[first : first + count]
            into_rows = gathered.rows[into : into + count]
            for e in range(count):  # an assignment of slices takes seconds to compile
                into_rows[e] = rows[e]
            weights = sample.q[first : sample.firsts[s + 1]]
            if valued:
                values = held[first : first + count]
                into_values = gathered.values[into : into + count]
                for e in range(count):
                    into_values[e] = values[e]
                total, squares = _sums(weights, rows, values)
            else:
                total = squares = _sum(weights, rows)
            cross[t] += total
            curve[t] += squares
            into += count
            cuts[s + 1] = into
    return columns.shape[0]


@inlined
def _sum(q, rows):
    """The sum of q over some rows."""
    # two sums, since an addition waits for the last one to the same sum
    a = b = 0.0
    n = rows.shape[0]
    for e in range(0, n - 1, 2):
        a += q[rows[e]]
        b += q[rows[e + 1]]
    if n & 1:
        a += q[rows[n - 1]]
    return a + b


@inlined
def _sums(q, rows, values):
    """The sums of q times the values, and times their squares."""
    g = h = 0.0
    for e in range(rows.shape[0]):
        x = np.float64(values[e])
        weighted = q[rows[e]] * x
        g += weighted
        h += weighted * x
    return g, h


@kernel
def centre(gathered, q, total, cross, curve, centres):
    """Subtract the weighted mean from each gathered column that has an entry in every row, in place.

    q : float64 (rows,), the weights of the sample; ``total`` is their sum.
    cross, curve : as :func:`gather_columns` wrote them; updated for the centred columns.
    centres : float64 (columns,), overwritten with the means, or 0 for columns that are not centred.
    """
    n_rows = q.shape[0]
    for t in range(gathered.cuts.shape[0]):
        centres[t] = 0.0
        first = gathered.cuts[t, 0]
        if gathered.cuts[t, gathered.cuts.shape[1] - 1] - first != n_rows or not total > 0.0:
            continue
        mean = cross[t] / total
        g = 0.0
        h = 0.0
        for i in range(n_rows):
            # entries are in the order of the rows' numbers
            value = np.float32(np.float64(gathered.values[first + i]) - mean)
            gathered.values[first + i] = value
            g += q[i] * value
            h += q[i] * value * value
        centres[t] = mean
        cross[t] = g
        curve[t] = h
