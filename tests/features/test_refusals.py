"""What families of features refuse: options, texts, patterns, ids, rows, and columns that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generators import Listed
from product_matrix import bound_rows
from scipy.sparse import csr_array

import fcl
from fcl.data.memory import MemoryReader
from fcl.errors import InputError
from fcl.features import (
    Bag,
    BagFamily,
    Columns,
    Concat,
    Fourier,
    KmerFamily,
    Kmers,
    Products,
    bind_features,
    family_from_config,
    parse_features,
)
from fcl.features.products.numbering import count_products
from fcl.testing import check_generator
from tests.cli.refusals import of, parametrized
from tests.families import Shares
from tests.features.test_fourier import numbers
from tests.pricing import Pricing
from tests.windows import make_windows

M = 40  #: columns with penalty factors
CODES = make_windows(1, 100, 8, "none")

# -- doors: each does what is refused


def call(given: Callable[[], Any]) -> None:
    given()


def bag(given: dict[str, Any]) -> None:
    Bag(**given)


def fourier(given: dict[str, Any]) -> None:
    Fourier(**given)


def fit(given: tuple[np.ndarray, dict[str, Any]]) -> None:
    """Fourier features of some rows."""
    x, options = given
    Fourier(**{"n": 300, **options}).fit(x)


def config(given: dict[str, Any]) -> None:
    """A description of a family, from a file; messages are short and can be shown."""
    with pytest.raises(InputError) as found:
        family_from_config({"options": {}, "state": {}, "form": {}} | given, ())
    assert len(str(found.value)) < 1000 and str(found.value).isprintable()
    raise found.value


def bind(given: tuple[Any, Any]) -> Any:
    spec, rows = given
    return bind_features(spec, fcl.open_data(rows, y=None).rows)


def pattern(given: tuple[str, int]) -> None:
    KmerFamily(3, 9).feature_id(*given)


def factors(given: list[float]) -> None:
    fcl.train(fcl.open_data(np.eye(M), y=np.arange(M) % 2), Columns(factors=given), C=1.0)


def rows_of(given: str) -> None:
    """Features that no row can list."""
    bind((parse_features(given), np.random.default_rng(0).random((20, 5)))).row_view()


def listed(given: str) -> None:
    """A class whose lists of features of a row have a fault."""
    check_generator(Listed(4, given), np.random.default_rng(0).random((100, 3)), training=False)


def wide(given: str) -> None:
    """A pass over 2^40 columns would not come to its end."""
    at = np.arange(80)
    rows = csr_array((np.ones(80), (at, at << 33)), shape=(80, 1 << 40))
    fcl.train(fcl.open_data(rows, y=at % 2), given, C=1.0)


def broken_factors() -> Any:
    family: Any = bind((Concat([Kmers(2), (Shares("AC"), 2.0)]), CODES))
    return family_from_config(family.to_config() | {"factors": [1.0, -1.0]})


def damaged_components() -> None:
    made = Fourier(n=300, pca=2)
    made.fit(numbers())
    made.components_ = made.components_[:1]
    made.check_restored(5)


def large_products() -> None:
    family, prepared = bound_rows(np.full((8, 2), 1e20), Products(2), False, 64)
    Pricing(family, prepared, 3)


HUGE = np.ones((60, 3))
HUGE[:30, 1] = 1e300
LETTERS = MemoryReader(np.zeros((3, 5), np.uint8), "X")
RANDOM = np.random.default_rng(0).normal(size=(20, 745))
BANDWIDTH = r"gives no bandwidth .* set gamma"
OPTIONS = [
    *of(bag, [
        ("d 0", {"d": 0}, "from 1 to 12, got 0"),
        ("d 11", {"d": 11, "wildcards": True}, "from 1 to 10 with wildcards, got 11"),
        ("d 2.5", {"d": 2.5}, r"d must be a whole number.* got 2\.5"),
        ("value", {"d": 4, "value": "sum"}, "value must be .* got 'sum'"),
        ("strands", {"d": 4, "strands": "two"}, "strands must be .* got 'two'"),
        ("presence", {"d": 11, "value": "presence", "wildcards": True}, "from 1 to 10 with wildcards"),
    ]),
    *of(fourier, [
        ("gamma 0", {"gamma": 0.0}, r"fourier: gamma must be a finite number above 0, got 0\.0"),
        ("gamma -1", {"gamma": -1}, "fourier: gamma must be a finite number above 0, got -1"),
        ("gamma nan", {"gamma": np.nan}, "fourier: gamma must be a finite number above 0, got nan"),
        ("n 0", {"n": 0}, "fourier: n must be a whole number of at least 1, got 0"),
        ("n 1e5", {"n": 1e5}, r"fourier: n must be a whole number .* got 100000\.0"),
        ("n 2^41", {"n": 1 << 41}, "fourier: n must be at most"),
        ("seed", {"seed": -1}, "fourier: seed must be a whole number of at least 0, got -1"),
        ("kernel", {"kernel": "sigmoid"}, "kernel must be one of gaussian, laplace, got 'sigmoid'"),
        ("dtype", {"dtype": "float16"}, "fourier: dtype must be one of int8, got 'float16'"),
        ("standardise", {"standardise": 1}, "fourier: standardise must be True or False"),
        ("per_pass", {"n": 5, "per_pass": 2},
         "per_pass applies only if n is not given: omit n or per_pass"),
        ("pca", {"pca": 0}, "fourier: pca must be a whole number of at least 1, got 0"),
        ("per_pass 0", {"per_pass": 0}, "fourier: per_pass must be a whole number of at least 1"),
    ]),
    *of(Kmers, [(f"d {d!r}", d, f"kmers: d must be (from 1 to 12|a whole number), got {d!r}$")
                for d in (0, 13, -1, 2.0, True, "3")]),
    *of(Products, [(f"degree {d!r}", d, f"products: degree must be .*, got {d!r}$")
                   for d in (0, -1, 2.0, True, "two", 65)]),
    *of(Concat, [
        ("empty", [], r"Concat: expected a list of families, .* got \[\]"),
        ("a text", "kmers:d=2", "Concat: expected a list of families, .* got 'kmers:d=2'"),
        ("a family", Kmers(2), "Concat: expected a list of families, .* got Kmers"),
        ("a number", [3], "Concat: expected a family such as .* got 3"),
        ("factor 0", [(Kmers(2), 0.0)], r"Concat: factor must be a finite number above 0, got 0\.0"),
        ("factor a", [(Kmers(2), "a")], "Concat: factor must be a finite number above 0, got 'a'"),
    ]),
    *of(parse_features, [
        ("factor x", "kmers:d=2 * x", r"a number after ' \* ', got 'x'"),
        ("two factors", "kmers:d=2 * 2 * 3", r"expected one factor after ' \* '"),
        ("factor 0", "kmers:d=2 * 0", r"factor must be a finite number above 0, got 0\.0"),
        ("factor inf", "kmers:d=2 * inf", "factor must be a finite number above 0, got inf"),
        ("no member", "kmers:d=2 + ", "features '': unknown family ''"),
        ("unknown member", "kmers:d=2 + nothing:d=3", "unknown family 'nothing'"),
        ("unknown", "smoke:d=3", "unknown family 'smoke'"),
        ("no d", "kmers", "d is missing"),
        ("d x", "kmers:d=x", "whole number, got 'x'"),
        ("k", "kmers:k=3", "got 'k=3'"),
        ("d alone", "kmers:d", "got 'd'"),
        ("slip", "colums", "did you mean columns[?]"),
        ("slip of an option", "columns:factor=[1]", "did you mean factors[?]"),
        ("slip of a class", "fcl.features.plain:Column", "did you mean fcl.features.plain:Columns[?]"),
        ("dot", "fcl.features.plain.Columns", "did you mean fcl.features.plain:Columns[?]"),
        ("open list", "columns:factors=[1", r"expected a list such as .* got '\[1'"),
    ]),
    ("text of a file", call, lambda: parse_features("kmers:d=3 + antigravity:Fly:speed=3", ()),
     "--import antigravity"),
    *of(config, [
        ("module", {"family": "antigravity:fly"}, "--import antigravity"),
        ("function", {"family": "os:system"},
         r"os:system is not a subclass of fcl\.features\.Generator"),
        ("function of a part", {"family": "os:path.join"},
         r"os:path\.join is not a subclass of fcl\.features\.Generator"),
        ("function of fcl", {"family": "fcl:train"},
         "the module fcl has no class train|fcl:train is not a subclass"),
        ("script", {"family": "__main__:Evil"}, "script or notebook"),
        ("long", {"family": "a" * 160_000 + ":b"},
         r"class b of the module aaa.*\.\.\., which fcl imports"),
        ("escapes", {"family": "x\x1b[2J" * 50 + ":b"}, r"module x\\x1b\[2J"),
        ("colon", {"family": ":"}, "expected module:Class, got ':'"),
        ("accents", {"family": "é" * 99}, "unknown family 'ééé"),
        ("none", {"family": None}, "expected the name of its family of features, got None"),
        ("table", {"family": {"a": 1}}, r"expected the name of its family of features, got \{'a'"),
    ]),
    ("smoke", family_from_config, {"family": "smoke", "d": 3}, "unknown family 'smoke'"),
    ("colour", family_from_config, {"family": "kmers", "d": 3, "colour": 1},
     "bad description of its kmers features: .*'colour'"),
    ("factors", call, broken_factors, "factor must be a finite number above 0"),
]  # fmt: skip

ROWS = [
    *of(pattern, [(repr(given), (given, 0), f"expected at most 3 letters .* got '{given}'")
                  for given in ("", ".A", "ACGT", "AN", "A C", "-")]),
    *of(pattern, [(f"position {at}", ("ACG", at), f"from 0 to 6, got {at}") for at in (-1, 7)]),
    *of(call, [(f"id {id}", lambda id=id: KmerFamily(3, 9).patterns(np.array([3, id])),
                rf"id {id} is outside 0 \.\. 699") for id in (-1, 700)]),
    *of(call, [
        ("id of a bag", lambda: BagFamily(3, 9).describe(64), r"id 64 is outside 0 \.\. 63"),
        ("pattern of a bag", lambda: BagFamily(3, 9).feature_id("AC"), "3 letters of ACGT, got 'AC'"),
        ("wildcard of a bag", lambda: BagFamily(3, 9, wildcards=True).feature_id(".AC"),
         r"the first not '\.', got '\.AC'"),
        ("id of several", lambda: bind((Concat([Kmers(2), (Bag(2), 2.0)]), CODES)).describe(156),
         r"id 156 is outside 0"),
        ("d of a window", lambda: Kmers(6).bind(LETTERS),
         r"X: windows of 5 letters .* d = 6; choose kmers:d=5"),
        ("other windows", lambda: KmerFamily(3, 6).check_rows(LETTERS),
         r"windows of 5 letters, but .* windows of 6"),
        ("components", damaged_components, "components_: expected 2 x 5 finite numbers"),
        ("products beyond float32", large_products, r"1e\+20.*scale"),
    ]),
    *of(bind, [
        ("rows of two kinds", (Concat([Kmers(2), Columns()]), CODES),
         "kmers reads sequences and Columns reads numbers"),
        # each may have nearly 2^62 features; ids of both would leave int64
        ("two large families", (Concat([Products(8), Products(8)]), RANDOM),
         r"2\^62 features together, got 4,939,310,570,310,141,298 \(Products 2,469,655,285,155"),
        ("many products", (Products(8), np.ones((2, 1000))), f"{count_products(1000, 8, True):,}"),
    ]),
    *of(fit, [
        ("constant", (np.full((30, 3), 2.5), {}), BANDWIDTH),
        ("one row", (np.ones((1, 3)), {}), BANDWIDTH),
        *((f"squares, gamma {gamma}", (HUGE, {"gamma": gamma}),
           "the squares of column 1 overflow float64; divide") for gamma in (None, 1.0)),
        ("pca 6", (numbers(), {"pca": 6}),
         "fourier: pca: expected at most 5, because the 700 rows of the sample vary in no more"),
        ("pca of copies", (numbers()[:, [0, 1, 0, 1]], {"pca": 3}),
         "fourier: pca: expected at most 2, .* got 3"),
        ("pca of ones", (np.ones((20, 3)), {"pca": 1}), "fourier: pca: expected at most 0"),
        ("pca of many", (np.ones((2, 1 << 19)), {"pca": 3}),
         "fourier: pca: expected at most 2 components of 524,288 columns"),
    ]),
    *of(factors, [
        ("few", [1.0] * (M - 1), f"expected {M} penalty factors, one per column, got {M - 1}"),
        ("zero", [1.0] * (M - 1) + [0.0], f"above 0, got 0 for column {M - 1}"),
        ("nan", [1.0] * (M - 1) + [np.nan], f"above 0, got nan for column {M - 1}"),
    ]),
    *of(rows_of, [
        ("generator", "generators:Hinges", "cannot list"),
        ("fourier", "fourier", "cannot list"),
        ("products", "products:degree=4", "at most 3 columns"),
    ]),
    *of(listed, [
        ("values", "values", "nonzeros: expected .* columns"),
        ("missing", "missing", "outside the family"),
        ("twice", "twice", "listed twice"),
        ("short", "short", "expected an indptr"),
    ]),
    *of(wide, [(features, features, "at most 2,147,483,648 columns, got 1099511627776")
               for features in ("columns", "products:degree=1", "fourier:n=8")]),
]  # fmt: skip


@pytest.mark.slow
@parametrized(OPTIONS, ROWS)
def test_refused(door: Any, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        door(given)
