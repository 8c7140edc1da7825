"""Hashed rows: the features of a family share 2^bits places, and values at the same place add up.

Rows are CSR, as in :mod:`fcl.kernels.online`.
"""

import numpy as np

from fcl.kernels.compilation import kernel

#: An odd number near 2^64 over the golden ratio (Knuth, "The art of computer programming" 3, 6.4).
FACTOR = np.uint64(0x9E3779B97F4A7C15)
#: Lowest bits of an id that its place keeps, so that neighbours stay in one line of the cache.
KEPT_BITS = 3


@kernel
def place_of(feature, bits):
    """The place of a feature: the high bits of a product, and its own lowest bits."""
    high = (np.uint64(feature) >> np.uint64(KEPT_BITS)) * FACTOR
    low = np.uint64(feature) & np.uint64((1 << KEPT_BITS) - 1)
    return (high >> np.uint64(64 + KEPT_BITS - bits)) << np.uint64(KEPT_BITS) | low


@kernel
def hash_rows(indptr, ids, values, bits, last, out_indptr, out_ids, out_values):
    """Write rows with the places of their features, each place once in a row, to the last three.

    last : int32 (a power of two, above twice the entries of the longest row), filled with -1: scratch
        memory, from a place to its last entry in ``out_ids``.

    Returns the number of entries.
    """
    mask, at = np.uint64(last.shape[0] - 1), 0
    out_indptr[0] = 0
    for i in range(indptr.shape[0] - 1):
        first = at
        for e in range(indptr[i], indptr[i + 1]):
            place = place_of(ids[e], bits)
            slot = place & mask
            # entries before ``first`` are of other rows, so that their slots are free
            while last[slot] >= first and np.uint64(out_ids[last[slot]]) != place:
                slot = (slot + np.uint64(1)) & mask
            if last[slot] >= first:
                out_values[last[slot]] += values[e]
                continue
            last[slot] = at
            out_ids[at], out_values[at] = place, values[e]
            at += 1
        out_indptr[i + 1] = at
    return at


@kernel
def add_sums(indptr, ids, values, v, power, first, out):
    """Add sum_i v_i x_ij^power to ``out`` for the features j from ``first`` on; 0^0 is 0.

    out : float64, of as many features.
    """
    stop = first + out.shape[0]
    for i in range(v.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            j, x = np.int64(ids[e]), np.float64(values[e])
            if first <= j < stop and x != 0.0:
                out[j - first] += v[i] * (1.0 if power == 0 else x if power == 1 else x * x)


@kernel
def write_margins(indptr, ids, values, weights, out):
    """Write sum_j x_ij w_j of each row; ``weights`` has all features."""
    for i in range(out.shape[0]):
        m = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            m += weights[ids[e]] * values[e]
        out[i] = m
