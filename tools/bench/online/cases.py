"""The rows that the benchmarks of this folder share: shuffled once, as CSR matrices in memory."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fcl
from tools.bench import cases, common

Floats = npt.NDArray[np.float64]
#: What the cases are, for titles.
TITLES = {
    "20news": "20 newsgroups",
    "celegans": "C. elegans, k-mers of d = 4",
    "pairs-comp": "pairs of words, comp.*",
    "pairs-rec": "pairs of words, rec.*",
}
#: Newsgroups of a case of pairs; words of a text that form pairs, of words that so many texts have.
GROUPS = {"pairs-comp": range(1, 6), "pairs-rec": range(7, 11)}
PAIRED, LEAST_TEXTS = 30, 100


@dataclass(frozen=True)
class Case:
    """Rows and labels of a problem of two classes."""

    name: str
    X: Any  # CSR float64
    y: Floats

    @property
    def matrix(self) -> tuple[Any, Any, Floats]:
        """indptr, ids and values, as loops over rows take them."""
        return self.X.indptr.astype(np.int64), self.X.indices.astype(np.int64), self.X.data

    def optimum(self, C: float, tol: float) -> tuple[Floats, float, Any]:
        """Weights and intercept of fcl's certified optimum of |w|_1 + C sum of losses, and the model."""
        result = fcl.train(fcl.open_data(self.X, y=self.y), "columns", C=C, tol=tol)
        w = np.zeros(self.X.shape[1])
        w[result.model.ids] = result.model.weights
        return w, float(result.model.intercept), result.model


def pairs(name: str) -> Case:
    """Pairs of words of the same text of 20 newsgroups, some groups against the others.

    The order of the words is not at hand, so that pairs take the place of bigrams: of each text those of
    the 30 words of the largest count times log inverse frequency, among the words that 100 texts have.
    Rows have length 1.
    """
    from scipy import sparse

    held = np.load(common.SHARED / "20news_is_test.npy").astype(bool)
    X = sparse.load_npz(common.SHARED / "20news_counts.npz").tocsr()[~held]
    group = np.load(common.SHARED / "20news_y.npy")[~held]
    texts = np.bincount(X.indices, minlength=X.shape[1])
    X = X[:, texts >= LEAST_TEXTS]
    rarity = np.log(X.shape[0] / texts[texts >= LEAST_TEXTS])
    found, sizes = [], []
    for i in range(X.shape[0]):
        row = slice(X.indptr[i], X.indptr[i + 1])
        words = X.indices[row].astype(np.int64)
        some = np.argsort(-X.data[row] * rarity[words], kind="stable")[:PAIRED]
        words = np.sort(words[some])
        first, second = np.triu_indices(len(words), 1)
        found.append(words[first] * X.shape[1] + words[second])
        sizes.append(len(first))
    features, ids = np.unique(np.concatenate(found), return_inverse=True)
    values = np.repeat(1.0 / np.sqrt(np.maximum(sizes, 1)), sizes)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    y = np.where(np.isin(group, GROUPS[name]), 1.0, -1.0)
    order = np.random.default_rng(0).permutation(len(y))
    matrix = sparse.csr_matrix((values, ids, indptr), (len(y), len(features)))
    return Case(name, matrix[order], y[order])


def load(name: str, every: int = 160, unit_rows: bool = False) -> Case:
    """20 newsgroups (one group against the others), its pairs of words, or windows of C. elegans.

    The features of windows are all k-mers with d = 4.

    every : take every k-th window
    unit_rows : scale the rows of 20 newsgroups to length 1
    """
    from scipy import sparse

    if name in GROUPS:
        return pairs(name)
    folder = cases.made(argparse.Namespace(case=name, every=every, d=4, data=None))
    X = sparse.load_npz(folder / "X.npz").tocsr()
    y = np.load(folder / "y.npy").astype(np.float64)
    if unit_rows and name == "20news":
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        X = sparse.diags(1.0 / np.where(length > 0.0, length, 1.0)) @ X
    order = np.random.default_rng(0).permutation(len(y))
    return Case(name, sparse.csr_matrix(X)[order], y[order])
