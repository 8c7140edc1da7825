"""Samples of rows: which rows are chosen, and how a sample numbers them.

The rows of a sample lie in *segments* of at most 65,536 rows, so that the number of a row within its
segment fits in uint16. All rows of a segment share one weight, except in segments of rows that keep their
own curvature as their weight. A loop over entries in a segment with a shared weight reads no weights,
which takes half the time.
"""

import math
from typing import NamedTuple

import numpy as np

from fcl.kernels.bits import population, splitmix
from fcl.kernels.compilation import kernel

#: Maximum rows of a segment.
SEGMENT_ROWS = 1 << 16
#: Rows of at least tau times two to this power keep their own weight. Below, weights are powers of the
#: root of two times tau.
DOUBLINGS = 4
ROOT = math.sqrt(2.0)
#: Kinds of segments: rows with their own weights, and one for each shared weight.
KINDS = 2 * DOUBLINGS + 2
#: Number of bins of curvatures, four per factor of two, in units of the largest curvature. Rows fall into
#: bins up to that unit; the bins above it are values of tau for small samples of very many rows.
BINS = 512
_LOWEST = -100.0


class SampledRows(NamedTuple):
    """A sample of rows, as :func:`choose_rows` writes it."""

    wanted: np.ndarray  # uint64 (blocks, words), bitmaps of the chosen rows
    before: np.ndarray  # int32 (blocks, words), how many rows are chosen before each word
    inside: np.ndarray  # uint16 (rows,), in their order: their numbers within their blocks
    codes: np.ndarray  # uint32 (rows,), in the same order: 65,536 * segment + number within it
    firsts: np.ndarray  # int64 (segments + 1,), number of the first row of each segment
    shared: np.ndarray  # float64 (segments,), weight of all rows of a segment, or 0: their own
    q: np.ndarray  # float64 (rows,), weights by number


def most_segments(n_rows):
    """The number of segments that a sample of at most ``n_rows`` rows may have."""
    return KINDS + n_rows // SEGMENT_ROWS


def bin_edges():
    """Lower edges of the bins of :func:`curvature_histogram`, float64 (BINS,), in the same units."""
    return 2.0 ** (np.arange(BINS) / 4.0 + _LOWEST)


@kernel
def curvature_histogram(q, unit, counts, sums):
    """Count rows and sum curvatures by bins of q / unit; rows without curvature do not count.

    counts, sums : float64 (BINS,), overwritten; sums are of q / unit. Bin 0 also holds all smaller q.
    """
    counts[:] = 0.0
    sums[:] = 0.0
    for i in range(q.shape[0]):
        if q[i] <= 0.0:
            continue
        x = q[i] / unit
        k = 0
        if x > 0.0:
            k = int(np.floor(4.0 * (np.log2(x) - _LOWEST)))
            k = min(max(k, 0), BINS - 1)
        counts[k] += 1.0
        sums[k] += x


@kernel
def _uniform(seed, row):
    """A number in [0, 1) for a row, from a hash."""
    return np.float64(splitmix(np.uint64(seed), row + 1) >> np.uint64(11)) / 9007199254740992.0


@kernel
def _kind(q, tau, seed, row):
    """Kind of the segment of a row: -1 if it is not chosen, 0 if it keeps its own weight.

    Kind c > 0 has the weight ``_weight(c, tau)``.
    """
    if not q > 0.0:
        return -1
    if tau == 0.0:
        return 0
    chance = _uniform(seed, row)
    if q < tau:
        return 1 if chance * tau < q else -1
    ratio = q / tau
    if ratio >= 2.0**DOUBLINGS:
        return 0
    half, power = math.frexp(ratio)
    above = 2.0 * half >= ROOT
    low = ROOT if above else 1.0
    high = 2.0 if above else ROOT
    kind = 2 * power if above else 2 * power - 1
    # between two weights: the upper one with the probability that makes the weight unbiased
    return kind + 1 if chance * (high - low) < 2.0 * half - low else kind


@kernel
def _weight(kind, tau):
    """The weight that all rows of a kind > 0 share."""
    doubled = tau * 2.0 ** ((kind - 1) // 2)
    return doubled if kind % 2 == 1 else ROOT * doubled


@kernel
def choose_rows(q, tau, seed, block_rows, wanted, before, inside, codes, firsts, shared, weights):
    """Sample the rows, row i with probability min(1, q_i / tau); returns their number, and the segments'.

    A hash of (seed, i) decides whether row i is chosen. Sums over the sample are unbiased: a row has the
    weight tau if q_i < tau, its own if tau is 0 or far below q_i, and otherwise one of the two nearest
    powers of the root of two times tau, at random, which adds at most 3 % of q_i^2 to the variance.

    wanted, before, inside, codes, firsts, shared, weights : overwritten with the sample
        (:class:`SampledRows`; ``weights`` is its q); ``inside``, ``codes`` and ``weights`` have room for
        all rows, ``firsts`` and ``shared`` for :func:`most_segments`.
    """
    wanted[:] = np.uint64(0)
    counts = np.zeros(KINDS, np.int64)
    n = 0
    for b in range(wanted.shape[0]):
        first = b * block_rows
        for i in range(first, min(first + block_rows, q.shape[0])):
            place = i - first
            if place & 63 == 0:
                before[b, place >> 6] = n
            kind = _kind(q[i], tau, seed, i)
            if kind >= 0:
                wanted[b, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
                inside[n] = place
                codes[n] = kind
                counts[kind] += 1
                n += 1
    following = np.empty(KINDS, np.int64)  # code of the next row of each kind
    n_segments = 0
    total = 0
    for kind in range(KINDS):
        following[kind] = n_segments * SEGMENT_ROWS
        for begin in range(0, counts[kind], SEGMENT_ROWS):
            firsts[n_segments] = total
            shared[n_segments] = 0.0 if kind == 0 else _weight(kind, tau)
            total += min(SEGMENT_ROWS, counts[kind] - begin)
            n_segments += 1
    firsts[n_segments] = total
    n = 0
    for b in range(wanted.shape[0]):
        first = b * block_rows
        for i in range(first, min(first + block_rows, q.shape[0])):
            if not (wanted[b, (i - first) >> 6] >> np.uint64((i - first) & 63)) & np.uint64(1):
                continue
            kind = np.int64(codes[n])
            code = following[kind]
            following[kind] += 1
            codes[n] = code
            segment = code // SEGMENT_ROWS
            own = shared[segment] == 0.0
            number = firsts[segment] + code % SEGMENT_ROWS
            weights[number] = q[i] if own else shared[segment]
            n += 1
    return n, n_segments


@kernel
def rank(row, words, before):
    """How many rows are chosen before a row of a block, given the block's part of the sample."""
    w = np.uint64(row) >> np.uint64(6)
    below = (np.uint64(1) << (np.uint64(row) & np.uint64(63))) - np.uint64(1)
    return before[w] + np.int64(population(words[w] & below))


@kernel
def choose_by(inclusion, seed, chosen):
    """Write whether each row is chosen: with probability ``inclusion``, by a hash of (seed, row)."""
    for i in range(inclusion.shape[0]):
        chosen[i] = _uniform(seed, i) < inclusion[i]
