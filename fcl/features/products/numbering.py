"""Ids of products: by degree, then in the combinatorial number system.

A product of k columns c_1 > c_2 > ... > c_k has, among the products of its degree, the number

    C(c_1, k) + C(c_2, k - 1) + ... + C(c_k, 1)

(D. H. Lehmer; Knuth, The Art of Computer Programming 4A, 7.2.1.3). If columns may repeat,
c_1 >= ... >= c_k, this formula is applied to the distinct numbers c_1 + k - 1 > c_2 + k - 2 > ... > c_k.
Within a degree, ids are therefore ordered by the largest column first, and the number of a product does
not depend on the total number of columns.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fcl.types import Ids


def count_products(n_columns: int, degree: int, repeats: bool) -> int:
    """The exact number of products of 1 to ``degree`` columns."""
    if repeats:
        return math.comb(n_columns + degree, degree) - 1
    return sum(math.comb(n_columns, k) for k in range(1, degree + 1))


class Numbering:
    """Ids 0 .. n_features - 1 of the products of 1 to ``degree`` of ``n_columns`` columns.

    There must be fewer than 2^62 products.

    repeats : whether a column may occur more than once in a product.
    """

    def __init__(self, n_columns: int, degree: int, repeats: bool) -> None:
        self.n_columns = n_columns
        self.degree = degree
        self.repeats = repeats
        counts = [
            math.comb(n_columns + k - 1 if repeats else n_columns, k) for k in range(1, degree + 1)
        ]
        #: the first id of each degree from 1 on, and the number of products: int64 (degree + 1,)
        self.first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        self.n_features = int(self.first[-1])
        # C(c, i) for i >= 3 and every c that occurs; i = 1 and i = 2 are computed directly
        self._tables: dict[int, Ids] = {}
        below = np.arange(n_columns + 1 if degree > 2 else 0, dtype=np.int64)
        below = below * (below - 1) // 2
        for i in range(3, degree + 1):
            # C(c, i) = sum of C(x, i - 1) over x < c
            size = n_columns + (i - 1 if repeats else 0)
            table = np.concatenate([np.zeros(1, np.int64), np.cumsum(below)])[:size]
            self._tables[i] = table
            below = table

    def ids(self, tuples: npt.NDArray[np.integer]) -> Ids:
        """Ids of products, int64 (n,).

        tuples : (n, degree), the columns of each product in decreasing order, padded with -1.
        """
        tuples = np.asarray(tuples, np.int64)
        lengths = (tuples >= 0).sum(axis=1)
        out = self.first[lengths - 1].copy()
        for k in np.unique(lengths):
            here = np.flatnonzero(lengths == k)
            for j in range(int(k)):
                i = int(k) - j
                column = tuples[here, j] + (i - 1 if self.repeats else 0)
                out[here] += self._choose(column, i)
        return out

    def tuples(self, ids: Ids) -> Ids:
        """The columns of products: int64 (n, degree), decreasing in each row, padded with -1."""
        ids = np.asarray(ids, np.int64)
        out = np.full((len(ids), self.degree), -1, np.int64)
        degrees = np.searchsorted(self.first, ids, side="right")
        for k in np.unique(degrees):
            here = np.flatnonzero(degrees == k)
            rest = ids[here] - self.first[k - 1]
            for j in range(int(k)):
                i = int(k) - j
                column = self._highest(rest, i)
                rest = rest - self._choose(column, i)
                out[here, j] = column - (i - 1 if self.repeats else 0)
        return out

    def below(self) -> Ids:
        """Number of products of columns below c, for c = 0 .. n_columns: int64 (n_columns + 1,)."""
        c = np.arange(self.n_columns + 1, dtype=np.int64)
        total = np.zeros(len(c), np.int64)
        for k in range(1, self.degree + 1):
            # the tables end before c = n_columns, for which the count is known
            raised = c[:-1] + (k - 1 if self.repeats else 0)
            total[:-1] += self._choose(raised, k)
        total[-1] = self.n_features
        return total

    def _choose(self, c: Ids, i: int) -> Ids:
        """C(c, i) for every c that occurs."""
        if i == 1:
            return c
        if i == 2:
            return c * (c - 1) // 2
        return self._tables[i][c]

    def _highest(self, number: Ids, i: int) -> Ids:
        """The highest c with C(c, i) <= number."""
        if i == 1:
            return number
        if i > 2:
            return np.searchsorted(self._tables[i], number, side="right") - 1
        c = ((1.0 + np.sqrt(1.0 + 8.0 * number.astype(np.float64))) / 2.0).astype(np.int64)
        c -= c * (c - 1) // 2 > number  # corrects the rounding of the root
        c += c * (c + 1) // 2 <= number
        return c
