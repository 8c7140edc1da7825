"""Rows and features beyond the memory of other solvers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import peers
from tools.bench.runner import Clock, Figures


def sampled_kmers(codes: Any, d: int, ids: Any, block_rows: int = 1 << 16) -> Any:
    """Make columns of the k-mers with wildcards of windows (n, L) without unknown letters, CSR float64.

    ids : the columns, sorted. For each position, a table lists the chosen patterns of each word of d
    letters, so that a row takes one look-up for each position, however many patterns a word has.
    """
    from scipy import sparse

    n, length = codes.shape
    positions, each, n_words = length - d + 1, 4 * 5 ** (d - 1), 4**d
    letters = np.arange(n_words)[:, None] // 4 ** np.arange(d - 1, -1, -1) % 4
    patterns = np.empty((n_words, 2 ** (d - 1)), np.int32)
    for mask in range(2 ** (d - 1)):  # which letters after the first are wildcards
        pattern = letters[:, 0]
        for k in range(1, d):
            pattern = 5 * pattern + (4 if mask >> (k - 1) & 1 else letters[:, k])
        patterns[:, mask] = pattern
    lists, lengths = [], np.empty((positions, n_words), np.int64)
    for position in range(positions):
        first, last = np.searchsorted(ids, [position * each, (position + 1) * each])
        column = np.full(each, -1, np.int32)
        column[ids[first:last] - position * each] = np.arange(first, last)
        found = column[patterns]
        words, which = np.nonzero(found >= 0)
        some = found[words, which]
        lists.append(some[np.lexsort((some, words))])
        lengths[position] = np.bincount(words, minlength=n_words)
    every, counts = np.concatenate(lists), lengths.ravel()
    starts = np.cumsum(counts) - counts
    indices, indptr = [], np.zeros(n + 1, np.int64)
    for at in range(0, n, block_rows):
        block = codes[at : at + block_rows]
        words = np.zeros((len(block), positions), np.int64)
        for k in range(d):
            words = 4 * words + block[:, k : k + positions]
        places = (words + n_words * np.arange(positions)).ravel()
        own = counts[places]
        ends = np.cumsum(own)
        indices.append(every[np.repeat(starts[places] - (ends - own), own) + np.arange(ends[-1])])
        indptr[at + 1 : at + len(block) + 1] = indptr[at] + ends[positions - 1 :: positions]
    joined = np.concatenate(indices)
    return sparse.csr_matrix((np.ones(len(joined)), joined, indptr), (n, len(ids)))


def beyond_memory(
    parts: Path, clock: Clock, method: str = "liblinear", letters: int = 2, sampled: int = 0,
    every: int = 20, C: float = 0.03, tol: float = 1e-2,
) -> Figures:  # fmt: skip
    """Another solver on every k-th row of chromosomes I to IV, at k times C; scored on rows of V.

    Its features are all k-mers of so few letters that the matrix fits, or a random sample of those of
    ``letters`` letters, as in the paper. It is scored on every fourth row of V.
    """
    from sklearn.metrics import average_precision_score

    from tools.bench.data import TRAIN, VALID, all_kmers

    ids = None
    if sampled:
        n_features = (141 - letters + 1) * 4 * 5 ** (letters - 1)
        ids = np.sort(np.random.default_rng(0).choice(n_features, sampled, replace=False))

    def matrix(codes: Any, some: Any) -> Any:
        return all_kmers(codes, letters) if some is None else sampled_kmers(codes, letters, some)

    codes = np.load(parts / TRAIN / "seq.npy", mmap_mode="r")[::every]
    y = np.load(parts / TRAIN / "y.npy")[::every].astype(np.float64)
    since = time.perf_counter()
    X = matrix(np.ascontiguousarray(codes), ids)
    making = time.perf_counter() - since
    few = np.sort(np.concatenate([np.flatnonzero(y == side)[:100] for side in (-1.0, 1.0)]))
    peers.SOLVERS[method](X[few], y[few], 1.0, 1e-1, Clock())  # imports and compiles
    w, _ = peers.SOLVERS[method](X, y, every * C, tol, clock)
    used, scores = np.flatnonzero(w), []
    tests = np.load(parts / VALID / "seq.npy", mmap_mode="r")[::4]
    for at in range(0, len(tests), 1 << 16):
        part = np.ascontiguousarray(tests[at : at + (1 << 16)])
        some = None if ids is None else ids[used]
        scores.append(matrix(part, some) @ (w if some is None else w[used]))
    truth = np.load(parts / VALID / "y.npy")[::4] > 0
    area = average_precision_score(truth, np.concatenate(scores))
    return {"features": X.shape[1], "rows": X.shape[0], "nonzeros": X.nnz, "making": making,
            "active": len(used), "AUPRC": float(area)}  # fmt: skip
