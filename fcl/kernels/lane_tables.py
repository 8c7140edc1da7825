"""Tables of sums of positional k-mers for several outputs; see :mod:`fcl.kernels.lanes`."""

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.kmers import CHUNK, code_of_row, in_steps, unknown_windows, window_codes
from fcl.kernels.lanes import LANES


@kernel
def _inverse_of(inverses, lane):
    """1 / step of a lane; None if the rows' numbers are in steps already."""
    return None if inverses is None else inverses[lane]


@kernel
def add_to_lanes(planes, k, d, rows, inverses, codes, table):
    """Add the rows' numbers, in steps, to the lanes of ``table[code of the window at k]``, in place.

    rows : LaneRows of a block.
    inverses : float64 (LANES,), 1 / step; or None if the numbers are in steps already.
    table : int64 (4^d * LANES,).
    """
    a_inverse, b_inverse = _inverse_of(inverses, 0), _inverse_of(inverses, 1)
    c_inverse, d_inverse = _inverse_of(inverses, 2), _inverse_of(inverses, 3)
    n_rows = rows.a.shape[0]
    for start in range(0, n_rows, CHUNK):
        stop = min(n_rows, start + CHUNK)
        window_codes(planes, k, d, start, stop, codes)
        a, b = rows.a[start:stop], rows.b[start:stop]
        c, e = rows.c[start:stop], rows.d[start:stop]
        for i in range(stop - start):
            at = np.int64(codes[i]) * LANES
            table[at] += in_steps(a[i], a_inverse)
            table[at + 1] += in_steps(b[i], b_inverse)
            table[at + 2] += in_steps(c[i], c_inverse)
            table[at + 3] += in_steps(e[i], d_inverse)


@kernel
def take_unknown_lanes(block, k, d, rows, inverses, buffers, table, n, items):
    """Move the windows with unknown letters from ``table`` to the list of items, in place.

    Does for all lanes what :func:`fcl.kernels.kmers.take_unknown` does for one output.
    """
    count = unknown_windows(block, k, d, buffers)
    first = np.uint32(3 << (2 * (d - 1)))
    for e in range(count):
        row = buffers.rows[e]
        code = code_of_row(block.planes, k, d, row)
        values = items.values[:, n]
        values[0] = in_steps(rows.a[row], _inverse_of(inverses, 0))
        values[1] = in_steps(rows.b[row], _inverse_of(inverses, 1))
        values[2] = in_steps(rows.c[row], _inverse_of(inverses, 2))
        values[3] = in_steps(rows.d[row], _inverse_of(inverses, 3))
        for lane in range(LANES):
            table[np.int64(code) * LANES + lane] -= values[lane]
        if buffers.masks[row] & first == 0:
            items.code[n] = code
            items.mask[n] = buffers.masks[row]
            n += 1
        buffers.masks[row] = 0
    return n


@kernel
def lane_pattern_sums(table, items, cares, values, d, out):
    """Write the sums of each pattern, from table and items, to ``out``, int64 (k, LANES)."""
    full = (1 << (2 * d)) - 1
    for j in range(cares.shape[0]):
        free = full & ~cares[j]
        s0 = s1 = s2 = s3 = 0
        sub = 0
        while True:
            at = (values[j] | sub) * LANES
            s0 += table[at]
            s1 += table[at + 1]
            s2 += table[at + 2]
            s3 += table[at + 3]
            sub = (sub - free) & free
            if sub == 0:
                break
        out[j, 0], out[j, 1], out[j, 2], out[j, 3] = s0, s1, s2, s3
        for e in range(items.code.shape[0]):
            code, unknown = np.int64(items.code[e]), np.int64(items.mask[e])
            if unknown & cares[j] == 0 and code & cares[j] == values[j]:
                for lane in range(LANES):
                    out[j, lane] += items.values[lane, e]
