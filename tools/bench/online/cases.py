"""The rows that the benchmarks of this folder share: shuffled once, as CSR matrices in memory."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fcl
from tools.bench import cases

Floats = npt.NDArray[np.float64]
#: What the cases are, for titles.
TITLES = {"20news": "20 newsgroups", "celegans": "C. elegans, k-mers of d = 4"}


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


def load(name: str, every: int = 160, unit_rows: bool = False) -> Case:
    """20 newsgroups (one group against the others), or all k-mers with d = 4 of windows of C. elegans.

    every : take every k-th window
    unit_rows : scale the rows of 20 newsgroups to length 1
    """
    from scipy import sparse

    folder = cases.made(argparse.Namespace(case=name, every=every, d=4, data=None))
    X = sparse.load_npz(folder / "X.npz").tocsr()
    y = np.load(folder / "y.npy").astype(np.float64)
    if unit_rows and name == "20news":
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        X = sparse.diags(1.0 / np.where(length > 0.0, length, 1.0)) @ X
    order = np.random.default_rng(0).permutation(len(y))
    return Case(name, sparse.csr_matrix(X)[order], y[order])
