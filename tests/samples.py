"""Samples of rows for tests of kernels."""

from __future__ import annotations

import numpy as np

from fcl.kernels import sampling
from fcl.kernels.sampling import SampledRows


def sample_rows(
    q: np.ndarray, tau: float, seed: int, block_rows: int = 1 << 10
) -> tuple[SampledRows, np.ndarray]:
    """A sample of rows, and the number of each row in it, or -1; int64 (len(q),)."""
    n, most = len(q), sampling.most_segments(len(q))
    words = -(-n // block_rows), -(-block_rows // 64)
    wanted, before = np.ones(words, np.uint64), np.ones(words, np.int32)
    inside, codes = np.full(n, 7, np.uint16), np.empty(n, np.uint32)
    weights = np.full(n, np.nan)
    firsts, shared = np.empty(most + 1, np.int64), np.empty(most)
    buffers = wanted, before, inside, codes, firsts, shared, weights
    rows, segments = sampling.choose_rows(q, tau, seed, block_rows, *buffers)
    sample = SampledRows(
        *(wanted, before, inside[:rows], codes[:rows]),
        *(firsts[: segments + 1], shared[:segments], weights[:rows]),
    )
    numbers = np.full(n, -1)
    at = 0
    for i in range(n):
        word = int(wanted[i // block_rows, i % block_rows // 64])
        if word >> i % block_rows % 64 & 1:
            assert (
                sampling.rank(i % block_rows, wanted[i // block_rows], before[i // block_rows])
                == at
            )
            assert inside[at] == i % block_rows
            code = int(codes[at])
            numbers[i] = firsts[code >> 16] + (code & 0xFFFF)
            at += 1
    assert at == rows
    return sample, numbers
