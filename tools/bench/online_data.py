"""The rows of the benchmarks of online learning, shuffled once, as CSR matrices."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from tools.bench import data
from tools.bench.common import shared
from tools.bench.data import Rows

#: Newsgroups of the pairs of words; words of a text that form pairs, of words that so many texts have.
GROUPS = {"pairs-comp": range(1, 6), "pairs-rec": range(7, 11)}
PAIRED, LEAST_TEXTS = 30, 100
#: Columns of noise, and the probability of a 1 in them.
NOISE, OFTEN = 1000, 0.05


def rows_of(name: str = "20news", every: int = 160, unit: bool = True, rows: int = 800) -> Rows:
    """The rows of a name, in random order.

    Parameters
    ----------
    name : str
        "20news" (one group against the others), "celegans" (all k-mers with d = 4), "example" (the same
        of examples/celegans), "a9a", "pairs-comp", "pairs-rec", "random P K" (rows of K of P features),
        or "squared" and "logistic" (the synthetic rows of the paper on projections).
    every : int
        Take every k-th window.
    unit : bool
        Scale the rows of 20 newsgroups to length 1.
    rows : int
        Of the synthetic rows.
    """
    from scipy import sparse

    if name in GROUPS:
        return pairs(name)
    if name.startswith("random"):
        return random_rows(*map(int, name.split()[1:]))
    if name in ("squared", "logistic"):
        return synthetic(rows, name)
    if name == "20news":
        found = data.newsgroups(scale="unit" if unit else "")
    elif name == "a9a":
        found = data.a9a()
    elif name == "example":
        found = data.example(every, every, 4)
        tests = sparse.csr_matrix(data.all_kmers(found.tests, 4))
        found = replace(found, x=data.all_kmers(found.x, 4), tests=tests)
    else:
        found = data.kmers(every=every)
    return found.shuffled()


def pairs(name: str) -> Rows:
    """Pairs of words of the same text of 20 newsgroups, some groups against the others.

    The order of the words is not at hand, so that pairs take the place of bigrams: of each text those of
    the 30 words of the largest count times log inverse frequency, among the words that 100 texts have.
    Rows have length 1.
    """
    from scipy import sparse

    held = np.load(shared("20news_is_test.npy")).astype(bool)
    X = sparse.load_npz(shared("20news_counts.npz")).tocsr()[~held]
    group = np.load(shared("20news_y.npy"))[~held]
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
    return Rows(sparse.csr_matrix((values, ids, indptr), (len(y), len(features))), y).shuffled()


def random_rows(p: int, k: int, n: int = 0) -> Rows:
    """Rows of k random features of p with normal values, and random labels."""
    from scipy import sparse

    random, n = np.random.default_rng(2), n or (8000 if k <= 100 else 2000)
    ids = np.sort(random.integers(0, p // k, (n, k)) + np.arange(k) * (p // k), axis=1)
    values = random.normal(size=n * k) / np.sqrt(k)
    X = sparse.csr_matrix((values, ids.ravel(), np.arange(0, n * k + 1, k)), (n, p))
    return Rows(X, random.choice([-1.0, 1.0], n))


def synthetic(n: int, loss: str) -> Rows:
    """The paper's rows: n of n features, half of the true weights 0, unit noise or 10 % flips."""
    from scipy import sparse

    random = np.random.default_rng(0)
    X = random.normal(size=(n, n))
    truth = np.where(random.random(n) < 0.5, random.normal(size=n), 0.0)
    y = X @ truth + random.normal(size=n)
    if loss == "logistic":
        y = np.sign(X @ truth) * np.where(random.random(n) < 0.9, 1.0, -1.0)
    return Rows(sparse.csr_matrix(X), y)


def with_noise(name: str = "wdbc", noise: bool = True) -> Rows:
    """Scaled rows, with or without 1,000 columns of noise; ``notes`` has the number of other columns.

    name : wdbc, magic04, a9a, splice, diabetes, or 20news. A fifth of the rows, or those of a test file,
    are held out.
    """
    from scipy import sparse

    if name == "20news":
        found = data.newsgroups(group="half", scale="log").shuffled()
        return replace(found, notes={"informative": found.x.shape[1], "title": name})
    tests: Any = None
    of_tests: Any = np.empty(0)
    if name == "a9a":
        found = data.a9a("dense")
        X, y, tests, of_tests = found.x, found.y, found.tests, found.of_tests
    elif name == "wdbc":
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        y = 2.0 * y - 1.0
    elif name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
        y = (y - y.mean()) / y.std()
    elif name == "splice":
        X, y = splice_letters()
    else:
        X, y = data.magic_rows()
    random = np.random.default_rng(0)
    order = random.permutation(len(y))
    X, y = X[order], y[order]
    if tests is None:
        cut = len(y) // 5
        tests, of_tests, X, y = X[:cut], y[:cut], X[cut:], y[cut:]
    if name not in ("a9a", "splice"):  # columns of 0 and 1
        mean, sd = X.mean(axis=0), X.std(axis=0)
        X, tests = (X - mean) / sd, (tests - mean) / sd
    notes = {"informative": X.shape[1], "title": name}
    wide = [np.hstack([part, random.random((len(part), NOISE)) < OFTEN]) for part in (X, tests)]
    X, tests = (sparse.csr_matrix(part) for part in (wide if noise else (X, tests)))
    return Rows(X, y, tests=tests, of_tests=of_tests, notes=notes)


def splice_letters() -> tuple[Any, Any]:
    """Letters at 60 places, each a column; junctions of either kind against none."""
    with shared("uci_splice.csv").open() as file:
        rows = [(row["label"], row["sequence"].strip()) for row in csv.DictReader(file)]
    letters = np.array([list(sequence) for _, sequence in rows])
    y = np.array([-1.0 if label == "N" else 1.0 for label, _ in rows])
    X = (letters[:, :, None] == np.unique(letters)).reshape(len(letters), -1).astype(float)
    return X[:, X.any(axis=0)], y


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
