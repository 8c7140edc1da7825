"""The rows of the benchmarks of online learning, shuffled once, as CSR matrices."""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from tools.bench import data
from tools.bench.common import shared
from tools.bench.data import Rows


def rows_of(name: str = "20news", every: int = 160, unit: bool = True) -> Rows:
    """The rows of a name, in random order.

    Parameters
    ----------
    name : str
        "20news" (one group against the others), "example" (all k-mers with d = 4 of examples/celegans),
        or "a9a".
    every : int
        Take every k-th window.
    unit : bool
        Scale the rows of 20 newsgroups to length 1.
    """
    from scipy import sparse

    if name == "20news":
        found = data.newsgroups(scale="unit" if unit else "")
    elif name == "a9a":
        found = data.a9a()
    else:
        found = data.example(every, every, 4)
        tests = sparse.csr_matrix(data.all_kmers(found.tests, 4))
        found = replace(found, x=data.all_kmers(found.x, 4), tests=tests)
    return found.shuffled()


def long_sequences(n: int = 2000, length: int = 20_000) -> Rows:
    """Random sequences, in which half of the rows have 50 copies of each of 5 patterns, the others 40."""
    found: list[Any] = []
    for rows, seed in ((n, 1), (n // 2, 2)):
        random = np.random.default_rng(seed)
        codes = random.integers(0, 4, (rows, length), dtype=np.uint8)
        patterns = np.random.default_rng(0).integers(0, 4, (5, 6), dtype=np.uint8)
        y = random.integers(0, 2, rows)
        for row, label in zip(codes, y, strict=True):
            for pattern in patterns:
                starts = random.integers(0, length - 6, random.poisson(50 if label else 40))
                row[starts[:, None] + np.arange(6)] = pattern
        found += [codes, y]
    return Rows(found[0], found[1], "bag:d=6", tests=found[2], of_tests=found[3])


def less_ram_rows(name: str = "a9a") -> Rows:
    """All products of up to three columns of a9a, or log counts of 20 newsgroups, float32 in int32 ids.

    ``notes`` has the bits that weights need before the point.
    """
    if name == "20news":
        found = data.newsgroups(group="half", scale="log").shuffled()
        X = found.x.astype(np.float32)
        return Rows(X, found.y, notes={"before": 4, "title": "20 newsgroups"})
    parts = [products_of_a9a(file) for file in ("a9a.gz", "a9a.t.gz")]
    (X, y), (tests, of_tests) = parts
    notes = {"before": 2, "title": "a9a, products"}
    return Rows(X, y, tests=tests, of_tests=of_tests, notes=notes)


def products_of_a9a(name: str, p: int = 123) -> tuple[Any, Any]:
    """Products of one, two and three of the binary columns, numbered by their columns."""
    from scipy import sparse

    with gzip.open(shared(name), "rt") as file:
        lines = [line.split() for line in file]
    y = np.array([float(line[0]) for line in lines])
    ids, counts = [], []
    for line in lines:
        own = np.array([int(cell.split(":")[0]) - 1 for cell in line[1:]])
        two, three = (np.array(list(combinations(own, k))).T for k in (2, 3))
        pairs = two[1] * (two[1] - 1) // 2 + two[0]
        triples = three[2] * (three[2] - 1) * (three[2] - 2) // 6
        triples += three[1] * (three[1] - 1) // 2 + three[0]
        ids.append(np.concatenate([own, p + pairs, p + p * (p - 1) // 2 + triples]))
        counts.append(len(ids[-1]))
    every = np.concatenate(ids).astype(np.int32)
    indptr = np.cumsum([0, *counts])
    values = np.ones(len(every), np.float32)
    # the order of the ids within a row is kept: a learner takes them in this order
    return sparse.csr_matrix((values, every, indptr), (len(y), 310_247)), y
