"""A table of families of features, each with its explicit matrix, computed one by one with numpy.

The contract suite of tests/contracts/test_families.py checks each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse

from fcl.data import open_data
from fcl.data.prepared import PreparedRows
from fcl.features import Concat, Generator, bind_features, parse_features
from fcl.features.base import BitColumns, Columns, ListedColumns, StepColumns
from fcl.features.hashed import hashed_family
from fcl.features.prices import Prices
from fcl.features.standardized import attach_scales, standardized
from fcl.features.support import SupportFamily
from tests import brute, generators
from tests.bag_matrix import matrix as bag_matrix
from tests.product_matrix import divided, make_rows, product_matrix, stored
from tests.windows import INTERPRETED, make_windows

#: Makes rows from a seed and their number.
Rows = Callable[[int, int], Any]
#: Makes the matrix of a bound family from these rows.
Matrix = Callable[[Any, Any], np.ndarray]


class Shares(Generator):
    """The share of each letter in the window, and whether the letter is absent: values, not binary."""

    rows = "sequences"

    def __init__(self, letters: str = "ACGT") -> None:
        self.letters = letters

    def fit(self, sample: np.ndarray) -> None:
        self.n_features = 2 * len(self.letters)

    def columns(self, ids: np.ndarray, block: np.ndarray) -> np.ndarray:
        codes = np.array(["ACGT".index(c) for c in self.letters])
        share = (block[:, :, None] == codes).mean(axis=1)
        return np.hstack([share, share == 0.0])[:, ids]


class Alone(Generator):
    """Whether the window begins with each letter: binary, prepared in a form of its own."""

    rows = "sequences"
    binary = True

    def __init__(self) -> None:
        pass

    def fit(self, sample: np.ndarray) -> None:
        self.n_features = 4

    def prepare(self, block: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(block[:, :1])

    def columns(self, ids: np.ndarray, block: np.ndarray) -> np.ndarray:
        return block == ids


class AboveOfSeveral(generators.Above):
    """With sums of several outputs of its own."""

    def gradients_of_several(self, first: int, last: int, block: Any, residuals: Any) -> np.ndarray:
        return np.stack([self.gradients(first, last, block, own) for own in residuals])


@dataclass(frozen=True)
class Case:
    """A family of features.

    Attributes
    ----------
    name : str
    features : object
        What :func:`bind_features` or :func:`parse_features` takes.
    rows, matrix : callable
    factor : float
        The penalty factor of all features.
    factors : callable, optional
        Penalty factors by family and matrix, if they are not all ``factor``.
    wrap : callable, optional
        Wraps the bound family, given the reader of the rows.
    patches : dict
        Constants with other values, so that the work is divided otherwise; the results stay the same.
    error : float
        How much a value of the family may differ from the matrix.
    measured : bool
        Whether the pricer has to measure the columns before it prices them.
    """

    name: str
    features: Any
    rows: Rows
    matrix: Matrix
    factor: float = 1.0
    factors: Callable[[Any, np.ndarray], np.ndarray] | None = None
    wrap: Callable[[Any, Any], Any] | None = None
    patches: dict[str, Any] = field(default_factory=dict)
    error: float = 0.0
    measured: bool = False

    def spec(self) -> Any:
        return parse_features(self.features) if isinstance(self.features, str) else self.features

    def bind(self, rows: Any) -> Any:
        family = bind_features(self.spec(), rows)
        return self.wrap(family, rows) if self.wrap else family


@dataclass(frozen=True)
class Bound:
    """A family over rows.

    source, raw : the rows as the user gives them, and as the family reads them.
    prepared : their prepared form.
    phi : the matrix, float64 (n, p).
    f : the penalty factors, float64 (p,).
    """

    case: Case
    family: Any
    source: Any
    raw: Any
    prepared: PreparedRows
    phi: np.ndarray
    f: np.ndarray


#: The matrices so far, by case, seed and number of rows.
MATRICES: dict[tuple[str, int, int], np.ndarray] = {}


@contextmanager
def bound(
    case: Case, seed: int, n: int, block_rows: int = 128, scratch: Path | None = None
) -> Iterator[Bound]:
    """The family of a case over random rows, while its constants are patched."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in case.patches.items():
            patch.setattr(name, value)
        source = case.rows(seed, n)
        rows = open_data(source, y=None).rows
        family = case.bind(rows)
        prepared = PreparedRows(n, block_rows, family.record_shape(block_rows), scratch)
        for _ in family.fill(prepared, rows):
            pass
        ((_, _, raw),) = family.read_rows(rows, n)
        pricer = family.pricer(prepared, 1)
        if case.measured:
            pricer.measure(np.ones(n), range(pricer.n_parts))
        key = case.name, seed, n
        if key not in MATRICES:
            MATRICES[key] = case.matrix(family, source)
        phi = MATRICES[key]
        f = np.full(phi.shape[1], case.factor)
        if case.factors is not None:
            f = case.factors(family, phi)
        yield Bound(case, family, source, raw, prepared, phi, f)
        prepared.close()


# -- what families return ---------------------------------------------------------------------------


def same_bits(a: Prices, b: Prices) -> bool:
    arrays = ("ids", "gradients", "watched", "excess")
    same = all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in arrays)
    return same and (a.largest, a.n_priced, a.reach) == (b.largest, b.n_priced, b.reach)


def values_of(made: Columns) -> np.ndarray:
    """(k, n_rows) of a block."""
    if isinstance(made, BitColumns):
        words = np.ascontiguousarray(made.bits).astype("<u8").view(np.uint8)
        bits = np.unpackbits(words, axis=1, bitorder="little")
        assert not bits[:, made.n_rows : -(-made.n_rows // 64) * 64].any()
        return bits[:, : made.n_rows].astype(np.float64)
    if isinstance(made, StepColumns):
        return made.step * made.steps.astype(np.float64)
    return made.dense() if isinstance(made, ListedColumns) else made.values


# -- rows ------------------------------------------------------------------------------------------


def windows(length: int, unknown: str = "few") -> Rows:
    return lambda seed, n: make_windows(seed, n, length, unknown)


def numbers(m: int, kind: str = "signed", dtype: Any = np.float64, sparse: bool = False) -> Rows:
    return lambda seed, n: stored(make_rows(seed, n, m, kind).astype(dtype), sparse)


def gaussian(m: int) -> Rows:
    return lambda seed, n: np.random.default_rng(seed).normal(size=(n, m))


def dense(source: Any) -> np.ndarray:
    """float64 (n, m)."""
    return np.asarray(source.toarray() if issparse(source) else source, np.float64)


# -- matrices --------------------------------------------------------------------------------------


def kmers(d: int) -> Matrix:
    return lambda family, codes: brute.matrix(codes, d).astype(np.float64)


def products(family: Any, source: Any) -> np.ndarray:
    made = family.generator
    sparse = issparse(source)
    X = source.toarray() if sparse else source
    return product_matrix(divided(X, made, sparse), made.degree, not made.binary)


def cosines(family: Any, source: Any) -> np.ndarray:
    """The cosines in float64; in eight bits, what the class makes, which test_fourier.py checks."""
    made = family.generator
    every = np.arange(made.n_features)
    if made.step:
        return made.columns(every, made.prepare(source)).astype(np.float64)
    z = (source - source.mean(0)) / source.std(0) if made.standardise else source - source.mean(0)
    if made.pca:
        z = (z - z.mean(0)) @ made.components_.T
    omega, b = made.frequencies(every)
    return np.cos(z @ omega + b)


def letters(family: Any, codes: np.ndarray) -> np.ndarray:
    counts = np.stack([(codes == code).sum(axis=1) for code in range(4)], axis=1)
    return np.hstack([counts / codes.shape[1], counts == 0])


def first_letter(family: Any, codes: np.ndarray) -> np.ndarray:
    return (codes[:, :1] == np.arange(4)).astype(np.float64)


def above(family: Any, source: np.ndarray) -> np.ndarray:
    return (source > 0.1 * source.mean(axis=0)).astype(np.float64)


def quarters(family: Any, source: np.ndarray) -> np.ndarray:
    return np.clip(np.round(source * 4.0), -127, 127) / 4.0


def hinges(family: Any, source: np.ndarray) -> np.ndarray:
    low, width = source.min(axis=0), np.ptp(source, axis=0)
    cuts = [low + width * (q + 0.5) / 5 for q in range(5)]
    return np.stack([np.maximum(0.0, source - cut) for cut in cuts], axis=2).reshape(
        len(source), -1
    )


def hinge_matrix(family: Any, source: Any) -> np.ndarray:
    """Each column, then both hinges of each of its knots, divided by what the family learnt."""
    made, parts = family.generator, []
    for j, x in enumerate(np.asarray(source, np.float64).T):
        own = [x - made.shifts_[j]]
        for t in made.knots_[made.starts_[j] : made.starts_[j + 1]]:
            own += [np.maximum(0.0, x - t), np.maximum(0.0, t - x)]
        parts.append(np.column_stack(own) / made.scales_[j])
    return np.hstack(parts)


def pairs(family: Any, source: np.ndarray) -> np.ndarray:
    high = source > 0.5
    return (high[:, :, None] & high[:, None, :]).reshape(len(source), -1).astype(np.float64)


# -- unions and wrappers ---------------------------------------------------------------------------


def union(name: str, *members: Case, factors: tuple[float, ...], **options: Any) -> Case:
    """Several cases with the rows of the first as one family."""

    def matrix(family: Any, source: Any) -> np.ndarray:
        both = zip(members, family.members, strict=True)
        return np.hstack([case.matrix(member, source) for case, member in both])

    def factors_of(family: Any, phi: np.ndarray) -> np.ndarray:
        own = [
            np.full(member.n_features, case.factor)
            if case.factors is None
            else case.factors(member, phi)
            for case, member in zip(members, family.members, strict=True)
        ]
        return np.concatenate([f * part for f, part in zip(factors, own, strict=True)])

    spec = Concat([(case.spec(), f) for case, f in zip(members, factors, strict=True)])
    error = max(case.error for case in members)
    return Case(name, spec, members[0].rows, matrix, factors=factors_of, error=error, **options)


def support(case: Case, step: int) -> Case:
    """Every ``step``-th feature of a family, with its variance as its penalty factor."""

    def wrap(family: Any, rows: Any) -> Any:
        return SupportFamily(family, np.arange(0, family.n_features, step))

    def matrix(family: Any, source: Any) -> np.ndarray:
        return case.matrix(family.inner, source)[:, ::step]

    def variances(family: Any, phi: np.ndarray) -> np.ndarray:
        squares = (phi**2).mean(axis=0)
        return np.maximum(phi.var(axis=0), np.where(squares > 0.0, 1e-12 * squares, 1.0))

    name = f"some of {case.name}"
    return Case(name, case.features, case.rows, matrix, 1.0, variances, wrap, error=case.error)


def scaled(case: Case) -> Case:
    """A family whose features are divided by their standard deviations; constant ones are left out."""

    def wrap(family: Any, rows: Any) -> Any:
        made = standardized(family)
        attach_scales(made, np.empty((2, made.n_features)))
        return made

    def matrix(family: Any, source: Any) -> np.ndarray:
        phi = case.matrix(family, source)
        sd = np.where(np.ptp(phi, axis=0) > 0.0, phi.std(axis=0), np.inf)
        return phi / sd

    return Case(
        f"standardized {case.name}",
        case.features,
        case.rows,
        matrix,
        case.factor,
        case.factors,
        wrap,
        error=max(1e-12, 3.0 * case.error),
        measured=True,
    )


def place(feature: int, bits: int) -> int:
    """The hash of a feature, in Python's integers."""
    high = (feature >> 3) * 0x9E3779B97F4A7C15 & ((1 << 64) - 1)
    return (high >> (67 - bits)) << 3 | (feature & 7)


def hashed(case: Case, bits: int, error: float = 0.0) -> Case:
    """A family whose features share 2^bits weights."""

    def matrix(family: Any, source: Any) -> np.ndarray:
        phi = case.matrix(family.inner, source)
        out = np.zeros((len(phi), 1 << bits))
        for j, column in enumerate(phi.T):
            out[:, place(j, bits)] += column
        return out

    def wrap(family: Any, rows: Any) -> Any:
        return hashed_family(family, bits, rows)

    name = f"hashed {case.name}"
    return Case(name, case.features, case.rows, matrix, wrap=wrap, error=error)


# -- the table -------------------------------------------------------------------------------------

KMERS = "fcl.features.kmers.pricing."
MARGINS = "fcl.features.kmers.margins."
GENERATED = "fcl.features.generator.pricing."
PRODUCTS = "fcl.features.products.pricing."
#: Margins of k-mers from tables that neighbouring positions share.
SHARED = {
    f"{MARGINS}SHARED_ROWS": 1,
    f"{MARGINS}LOOKUP_PATTERNS": 1.5,
    f"{MARGINS}MAKING_PATTERNS": 0.0,
    f"{MARGINS}MOST_MATCHED_IN_PASS": [1] * 10,
}


def sequences() -> Iterator[Case]:
    d = 3 if INTERPRETED else 4
    yield Case("kmers of one letter", "kmers:d=1", windows(5), kmers(1))
    yield Case("kmers", "kmers:d=3", windows(7), kmers(3))
    yield Case("long kmers", f"kmers:d={d},origin=2", windows(d + 2, "many"), kmers(d))
    five = {f"{KMERS}FIVE_LETTERS_FROM": -1.0}
    yield Case("kmers, fifth letter", "kmers:d=3", windows(6, "rows"), kmers(3), patches=five)
    groups = {f"{KMERS}GROUP_BYTES": 3 * 8 * 4**3, "fcl.data.prepared.SMALL_FILE": 0}
    yield Case("kmers, groups", "kmers:d=3", windows(9, "one block"), kmers(3), patches=groups)
    paired = {f"{KMERS}PAIR_LETTERS": (3,), f"{KMERS}PAIR_ROWS": 1} | SHARED
    yield Case("kmers, shared tables", "kmers:d=3", windows(9), kmers(3), patches=paired)
    tables = {f"{MARGINS}{name}": [0] * 10 for name in ("MOST_MATCHED", "MOST_MATCHED_IN_PASS")}
    tables |= {f"{MARGINS}MAX_KEPT_TABLES": 1}
    yield Case("kmers, margin tables", "kmers:d=2", windows(8, "first"), kmers(2), patches=tables)
    yield Case("unknown windows", "kmers:d=2", windows(5, "all"), kmers(2))
    for text in (
        "bag:d=1",
        "bag:d=3",
        "bag:d=3,strands=both",
        "bag:d=3,value=presence",
        "bag:d=2,value=presence,strands=both",
        "bag:d=3,wildcards=true",
        "bag:d=3,wildcards=true,strands=both",
        "bag:d=2,value=presence,wildcards=true",
        "bag:d=3,value=presence,wildcards=true,strands=both",
    ):
        yield Case(text, text, windows(8, "many" if "both" in text else "few"), bag_matrix)
    room = {"fcl.features.bag.search.PATH_ROOM": (1, 1), "fcl.features.bag.pricing.SQUARE_BYTES": 8}
    text = "bag:d=3,value=presence,wildcards=true"
    yield Case("bag, no room", text, windows(9), bag_matrix, patches=room)
    yield Case("bag, few squares", "bag:d=3", windows(9, "last"), bag_matrix, patches=room)
    yield Case("shares", Shares(), windows(7), letters)
    yield Case("first letter", Alone(), windows(5, "rows"), first_letter)


def tables() -> Iterator[Case]:
    def plain(family: Any, source: Any) -> np.ndarray:
        return dense(source)

    f = np.exp(np.linspace(-1.0, 1.0, 30))
    parts = {f"{GENERATED}LEAST_PART": 4, f"{GENERATED}RUN_FEATURES": 12}
    parts |= {f"{GENERATED}LEAST_ROOM": 1, f"{GENERATED}PART_FEATURES": 8}
    for kind, dtype, sparse in (
        ("dense", np.float64, False),
        ("dense float32", np.float32, False),
        ("sparse", np.float64, True),
        ("sparse float32", np.float32, True),
        ("booleans", np.bool_, False),
    ):
        rows = numbers(30, "binary" if kind == "booleans" else "signed", dtype, sparse)
        yield Case(f"columns, {kind}", "columns", rows, plain)
        if dtype == np.float64:
            options: Any = {"factors": lambda family, phi: f, "patches": parts}
            spec = f"columns:factors={f.tolist()}"
            yield Case(f"columns with factors, {kind}", spec, rows, plain, **options)
    for degree, m, kind, more, sparse in (
        (1, 9, "signed", "", False),
        (2, 12, "counts", "", True),
        (3, 5, "small", ",scale=true", False),
        (3, 7, "binary", ",binary=true", True),
        (2, 20, "binary", ",binary=true", False),
        (4, 4, "large signed", ",scale=false", False),
    ):
        text = f"products:degree={degree}{more}"
        yield Case(f"{text} of {kind}", text, numbers(m, kind, np.float32, sparse), products)
    small = {f"{PRODUCTS}BATCH": 7, f"{PRODUCTS}CELLS": 60, f"{PRODUCTS}KEPT_BYTES": 0}
    small |= {f"{PRODUCTS}PIECE_ENTRIES": 700, "fcl.features.products.family.LEAST_PART": 8}
    rows = numbers(7, "counts", np.float32)
    yield Case("products, batches", "products:degree=3", rows, products, patches=small)
    one = small | {f"{PRODUCTS}BATCH": 1, f"{PRODUCTS}CELLS": 1}
    for degree, m in ((2, 15), (4, 5)):
        rows, text = numbers(m, "counts", np.float32), f"products:degree={degree}"
        yield Case(f"{text}, one at a time", text, rows, products, patches=one)
    for kernel, error in (("gaussian", 3e-6), ("laplace", 1e-8)):
        rows, text = gaussian(4), f"fourier:n=150,kernel={kernel}"
        yield Case(text, text, rows, cosines, error=error, patches=parts)
        yield Case(f"{text},dtype=int8", f"{text},dtype=int8", rows, cosines)
    yield Case("components", "fourier:n=40,pca=2", gaussian(5), cosines, error=1e-5)
    for text, rows in (
        ("hinges:n=5", gaussian(4)),
        ("hinges:n=40,scale=false", numbers(9, "large signed", np.float32)),
        ("hinges:n=3", numbers(6, "counts")),
    ):
        few = parts if "false" in text else {}
        yield Case(f"{text} of {rows(0, 1).dtype}", text, rows, hinge_matrix, patches=few)
    yield Case("tanh", generators.Tanh(0.5), gaussian(9), lambda _, x: np.tanh(0.5 * x))
    tanh = Case("tanh, parts", generators.Tanh(), gaussian(30), lambda _, x: np.tanh(x))
    yield Case(tanh.name, tanh.features, tanh.rows, tanh.matrix, patches=parts)
    yield Case("above", generators.Above(), gaussian(9), above)
    yield Case("above of several", AboveOfSeveral(), gaussian(30), above, patches=parts)
    absolute = numbers(9, "signed", np.float64, True)
    yield Case("absolute", generators.Sparse(), absolute, lambda _, x: np.abs(dense(x)))
    yield Case("quarters", generators.Quarters(), gaussian(9), quarters)
    yield Case("hinges", generators.Hinges(), gaussian(5), hinges, error=1e-15)
    yield Case("listed hinges", generators.Listed(), gaussian(5), hinges, error=1e-15)
    yield Case("pairs", generators.Pairs(), gaussian(6), pairs)


def combined(one: dict[str, Case]) -> Iterator[Case]:
    """Unions and wrappers of the others."""
    bag, two = one["bag:d=3,strands=both"], one["long kmers"]
    yield union("kmers and bags", one["kmers"], bag, factors=(1.0, 0.25))
    yield union("binary families", one["kmers"], one["first letter"], factors=(1.0, 2.0))
    few = {"fcl.features.concat.family.SUM_ROWS": 128}
    members = one["kmers"], one["shares"], one["first letter"], one["bag:d=3"], two
    yield union("many families", *members, factors=(1.0, 2.0, 0.5, 1.0, 3.0), patches=few)
    columns = one["columns, dense"], one["columns with factors, dense"]
    yield union("columns twice", *columns, factors=(1.0, 3.0))
    yield union("sparse columns twice", *[one["columns, sparse"]] * 2, factors=(1.0, 1.0))
    eight = one["fourier:n=150,kernel=gaussian,dtype=int8"]
    yield union("eight bits twice", eight, eight, factors=(1.0, 2.0))
    yield union("eight bits and tanh", eight, one["tanh"], factors=(1.0, 1.0))
    splines = one["hinges:n=5 of float64"]
    yield union("hinges and columns", splines, columns[0], factors=(1.0, 2.0))
    yield union("products and columns", one["products, batches"], columns[0], factors=(1.0, 0.5))
    for name, step in (
        ("kmers", 7),
        ("bag:d=3,value=presence,wildcards=true,strands=both", 5),
        ("columns, sparse", 3),
        ("products, batches", 4),
        ("tanh", 2),
    ):
        yield support(one[name], step)
    for name in (
        "columns, dense",
        "columns with factors, sparse",
        "tanh, parts",
        "above",
        "quarters",
    ):
        yield scaled(one[name])
    yield hashed(one["kmers"], 6)
    yield hashed(one["bag:d=3"], 4)
    yield hashed(one["columns, sparse"], 4)
    yield hashed(one["columns, dense float32"], 4, 2e-6)  # of sums in float32


SINGLE = {case.name: case for case in (*sequences(), *tables())}
CASES = SINGLE | {case.name: case for case in combined(SINGLE)}

if INTERPRETED:  # a few small ones of every kernel
    few = (
        "kmers of one letter",
        "kmers, margin tables",
        "bag:d=1",
        "bag:d=2,value=presence,strands=both",
        "bag:d=2,value=presence,wildcards=true",
        "columns, sparse",
        "columns with factors, sparse",
        "products:degree=2 of counts",
        "products:degree=3,binary=true of binary",
        "hashed columns, sparse",
    )
    CASES = {name: CASES[name] for name in few}
