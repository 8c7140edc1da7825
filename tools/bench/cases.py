"""The problems on which ``peers.py`` compares solvers, made once as files.

The folder of a case has ``X.npz``, CSR float64, and ``y.npy``; where fcl makes the features itself also
its input, ``seq.npy`` or ``columns.npy``; and ``made.npy``, the seconds that it took to make the files.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.bench import common

#: Files of 20 newsgroups.
NEWS = ("is_test.npy", "counts.npz", "y.npy")
#: Cases whose features fcl generates itself.
GENERATED = ("celegans", "products")
#: Size of the generated texts, and of the wide sparse table, which has WIDE_ROW nonzeros in each row.
TEXT_ROWS, TEXT_WORDS = 50_000, 74_000
WIDE_ROWS, WIDE_COLUMNS, WIDE_ROW = 84_700, 359_000, 359
#: Rows of MAGIC, columns of noise beside its own, and factors of a product.
MAGIC_ROWS, MAGIC_NOISE, DEGREE = 6_000, 4, 3
PRODUCTS = f"products:degree={DEGREE}"


def all_kmers(codes: npt.NDArray[np.uint8], d: int) -> Any:
    """Make all positional k-mers with wildcards of windows without unknown letters, CSR float64."""
    from scipy import sparse

    n, length = codes.shape
    per_position = 4 * 5 ** (d - 1)
    columns = []
    for position in range(length - d + 1):
        for mask in range(2 ** (d - 1)):  # which letters after the first are wildcards
            code = codes[:, position].astype(np.int32)
            for k in range(1, d):
                code = 5 * code + (4 if mask >> (k - 1) & 1 else codes[:, position + k])
            columns.append(position * per_position + code)
    indices = np.stack(columns, axis=1)
    indices.sort(axis=1)
    indptr = np.arange(n + 1, dtype=np.int64) * indices.shape[1]
    shape = (n, (length - d + 1) * per_position)
    return sparse.csr_matrix((np.ones(indices.size), indices.ravel(), indptr), shape)


def celegans(folder: Path, args: argparse.Namespace) -> None:
    """Save windows of C. elegans, and the matrix of all their k-mers."""
    codes, y = common.load(common.windows_folder(args.data), args.every)
    _save(folder, all_kmers(codes, args.d), y.astype(np.float64))
    np.save(folder / "seq.npy", codes)


def a9a(folder: Path, args: argparse.Namespace) -> None:
    """Save a9a: census income, 123 binary columns."""
    from sklearn.datasets import load_svmlight_file

    with gzip.open(common.SHARED / "a9a.gz") as file:
        X, y = load_svmlight_file(file, n_features=123)
    _save(folder, X, y)


def newsgroups(folder: Path, args: argparse.Namespace) -> None:
    """Save 20 newsgroups: word counts, one group against the others."""
    from scipy import sparse

    held = np.load(common.SHARED / "20news_is_test.npy").astype(bool)
    X = sparse.load_npz(common.SHARED / "20news_counts.npz").tocsr()
    group = np.load(common.SHARED / "20news_y.npy")
    X, group = X[~held], group[~held]
    _save(folder, X, np.where(group == 0, 1.0, -1.0))


def text(folder: Path, args: argparse.Namespace) -> None:
    """Save generated texts: counts of words of Zipf frequencies, and labels by a planted model.

    A text has 60 to 240 words. 400 of the 20,000 most frequent words have a weight in the planted model.
    """
    random = np.random.default_rng(0)
    X = _texts(random, random.integers(60, 241, TEXT_ROWS))
    _save(folder, X, _planted(random, X, random.choice(20_000, 400, replace=False), 1.5))


def reviews(folder: Path, args: argparse.Namespace) -> None:
    """Save texts such as reviews: two balanced classes, thousands of weak features.

    Lengths are lognormal around 170 words of Zipf frequencies. 6,000 of the words from the 50th to the
    30,000th have a small weight in the planted model, so that models have thousands of features.
    """
    random = np.random.default_rng(5)
    X = _texts(random, np.clip(random.lognormal(np.log(170.0), 0.55, TEXT_ROWS), 20, 1500))
    weak = random.choice(np.arange(50, 30_000), 6_000, replace=False)
    _save(folder, X, _planted(random, X, weak, 0.6))


def wide(folder: Path, args: argparse.Namespace) -> None:
    """Save a wide sparse table, 0.1 % nonzeros at uniformly random places, and labels by a planted model.

    1,000 columns have a weight in the planted model.
    """
    from scipy import sparse

    random = np.random.default_rng(0)
    columns = random.integers(0, WIDE_COLUMNS, WIDE_ROWS * WIDE_ROW, dtype=np.int32)
    values = random.normal(size=len(columns))
    starts = np.arange(0, len(columns) + 1, WIDE_ROW)
    X = sparse.csr_matrix((values, columns, starts), (WIDE_ROWS, WIDE_COLUMNS))
    X.sum_duplicates()
    _save(folder, X, _planted(random, X, random.choice(WIDE_COLUMNS, 1_000, replace=False), 4.0))


def products(folder: Path, args: argparse.Namespace) -> None:
    """Save products of up to three columns of MAGIC and noise, standardised, in the order of fcl."""
    random = np.random.default_rng(0)
    with gzip.open(common.SHARED / "magic04.data.gz", "rt") as file:
        lines = [line.strip().split(",") for line in file if line.strip()]
    chosen = [lines[i] for i in random.permutation(len(lines))[:MAGIC_ROWS]]
    y = np.array([1.0 if line[-1] == "g" else -1.0 for line in chosen])
    Z = np.array([line[:-1] for line in chosen], np.float64)
    Z = np.column_stack([Z, random.normal(size=(len(Z), MAGIC_NOISE))])
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    of_degree = itertools.combinations_with_replacement
    factors = [of_degree(range(Z.shape[1]), k) for k in range(1, DEGREE + 1)]
    ordered = [sorted(some, key=lambda columns: columns[::-1]) for some in factors]
    X = np.column_stack([Z[:, list(columns)].prod(axis=1) for some in ordered for columns in some])
    _save(folder, X, y)
    np.save(folder / "columns.npy", Z)


def _texts(random: np.random.Generator, sizes: npt.NDArray[Any]) -> Any:
    """Counts of words of Zipf frequencies in texts of these sizes, CSR float64."""
    from scipy import sparse

    sizes = sizes.astype(np.int64)
    frequency = 1.0 / (np.arange(TEXT_WORDS) + 3.0)
    words = random.choice(TEXT_WORDS, sizes.sum(), p=frequency / frequency.sum())
    rows = np.repeat(np.arange(TEXT_ROWS), sizes)
    return sparse.coo_matrix((np.ones(len(words)), (rows, words)), (TEXT_ROWS, TEXT_WORDS)).tocsr()


def _planted(
    random: np.random.Generator, X: Any, columns: npt.NDArray[np.int64], size: float
) -> npt.NDArray[np.float64]:
    """Labels of a logistic model with normal weights on some columns, both equally frequent."""
    weights = np.zeros(X.shape[1])
    weights[columns] = random.normal(0.0, size, len(columns))
    margins = X @ weights
    chance = 1.0 / (1.0 + np.exp(np.median(margins) - margins))
    return np.where(random.random(len(margins)) < chance, 1.0, -1.0)


def _save(folder: Path, X: Any, y: npt.NDArray[np.float64]) -> None:
    from scipy import sparse

    X = sparse.csr_matrix(X, dtype=np.float64)
    X.sort_indices()
    sparse.save_npz(folder / "X.npz", X, False)
    np.save(folder / "y.npy", y)


CASES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "celegans": celegans,
    "a9a": a9a,
    "20news": newsgroups,
    "text": text,
    "reviews": reviews,
    "wide": wide,
    "products": products,
}


def made(args: argparse.Namespace) -> Path:
    """Make the folder of a case once; it also stores how many seconds that took."""
    if args.case == "celegans":
        windows = common.windows_folder(args.data)
        sources = [windows / "seq.npy", windows / "y.npy"]
        name = f"peers-{args.every}-{args.d}"
    else:
        files = {
            "a9a": ["a9a.gz"],
            "20news": [f"20news_{x}" for x in NEWS],
            "products": ["magic04.data.gz"],
        }.get(args.case, [])
        sources, name = [common.SHARED / file for file in files], f"peers-{args.case}"
        missing = [source.name for source in sources if not source.exists()]
        if missing:
            sys.exit(
                f"This case needs {', '.join(missing)} in shared/data beside the repository, "
                "but found none there."
            )
    folder = common.derived(name, *sources)
    if not (folder / "made.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        CASES[args.case](folder, args)
        np.save(folder / "made.npy", time.perf_counter() - begun)
    return folder


def tiny(folder: Path, like: Path, d: int) -> None:
    """Save a few random rows of the same types as a case, for imports and compilation.

    Sparse rows have so many columns that fcl does not use the whole Hessian, and so loads all kernels.
    """
    from scipy import sparse

    random = np.random.default_rng(0)
    y = np.tile([1.0, -1.0], 100)
    if (like / "seq.npy").exists():
        codes = random.integers(0, 4, (len(y), d + 4)).astype(np.uint8)
        codes[:, 0] = np.where(y > 0, 0, 2)
        np.save(folder / "seq.npy", codes)
        X = all_kmers(codes, d)
    else:
        width = 20 if (like / "columns.npy").exists() else 400
        X = sparse.random(len(y), width, 0.5, format="csr", random_state=0)
    if (like / "columns.npy").exists():
        np.save(folder / "columns.npy", X.toarray())
        X = sparse.random(len(y), math.comb(20 + DEGREE, DEGREE) - 1, 0.5, format="csr")
    _save(folder, X, y)
