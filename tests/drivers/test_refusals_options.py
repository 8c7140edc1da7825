"""Options and data that cannot be used: one message, which names the option, the array or the row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from product_matrix import make_rows
from rows import acceptors

import fcl
from fcl.drivers.job import make_job
from fcl.features import Columns, Kmers, Products, bind_features, kept_features
from fcl.options import TrainOptions
from tests import by_name

NAN, INF = float("nan"), float("inf")
N = 150
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, 12))
Z = RANDOM.normal(size=(N, 3))
Y = np.where(X[:, 0] + RANDOM.normal(size=N) > 0.0, 1.0, -1.0)
CLASSES = np.digitize(X[:, 1] + RANDOM.normal(size=N), [-0.5, 0.5])
NAMES = np.array(["a", "b", "c"])[CLASSES]
LEVEL = np.arange(N) % 3
LEVELS = (LEVEL[:, None] == [1, 2]).astype(float)
OTHER_NAMES = np.array(["x", "y", "z"])[CLASSES]
COUNTS = RANDOM.poisson(3.0, N) + 1.0


def labels(*values: float, n: int = 300) -> np.ndarray:
    return np.resize(np.array(values), n)


def job(features: Any = "kmers:d=2", y: Any = "own", s: Any = None, **options: Any) -> Any:
    """A job over 300 windows of ten letters."""
    codes, target = acceptors(10, 300)
    data = fcl.open_data(codes, y=target if isinstance(y, str) else y, weights=s)
    rows = options.pop("valid", None)
    return make_job(data, features, TrainOptions.checked({"C": 1.0} | options), valid=rows)


def valid(codes: Any = None, move: float | None = 0.0, **options: Any) -> None:
    """A job with validation rows, whose labels are moved, or are not there."""
    windows, target = acceptors(10, 300)
    given = windows if codes is None else windows[codes]
    job(valid=fcl.open_data(given, y=None if move is None else target + move), **options)


def letter() -> None:
    codes, y = acceptors(10, 300)
    codes = codes.copy()
    codes[123, 4] = 9
    fcl.train(fcl.open_data(codes, y=y), "kmers:d=2", C=1.0)


def train(
    X: Any = X, y: Any = Y, features: Any = "columns", held: Any = None, **options: Any
) -> fcl.TrainResult:
    """Training on columns; held : columns and targets of validation rows."""
    added = {name: options.pop(name, None) for name in ("weights", "offset", "covariates")}
    if held is not None:
        options["valid"] = fcl.open_data(held[0], y=held[1])
    data = fcl.open_data(X, y=y, **added)
    return by_name.train(data, features, **({"C": 0.2, "tol": 1e-3, "warn": False} | options))


def softmax(y: Any = CLASSES, **options: Any) -> None:
    train(y=y, **{"loss": "softmax"} | options)


def cross(y: Any, loss: str) -> None:
    fcl.train_path(fcl.open_data(X, y=y), "columns", loss=loss, points=3, cv=3)


def begun(first: dict[str, Any], **options: Any) -> None:
    """Training from a model of another job."""
    train(initial=train(**first).model, **options)


def begun_on_letters(features: str = "kmers:d=4", **options: Any) -> None:
    codes, y = acceptors(12, 300)
    data = fcl.open_data(codes, y=y)
    model = fcl.train(data, "kmers:d=4", C=0.3, tol=1e-3).model
    fcl.train(data, features, C=0.3, initial=model, **options)


def predict(offset: Any = None) -> None:
    train(offset=Z[:, 0]).model.margins(X, offset=offset)


def binary(row: int | None) -> None:
    """A number in a row to predict, or numbers in all rows."""
    rows = make_rows(6, N, 8, "counts" if row is None else "binary")
    found = train(rows, features=Products(2, binary=True)).model
    rows[row, 3] = 0.5
    found.margins(rows)


def level() -> None:
    """A level of a covariate that the training has not seen."""
    sites = np.resize(["a", "b"], 10_000)
    rows = np.arange(10_000.0)[:, None] % 7
    known = pd.DataFrame({"site": sites})
    model = train(rows, np.arange(10_000) % 3 % 2, covariates=known).model
    sites[9000] = "c"
    model.margins(rows, covariates=pd.DataFrame({"site": sites}))


def centres(**state: Any) -> None:
    columns = Columns()
    columns.restore({"n_features": 5, **state})
    columns.check_restored(5)


def scales(value: Any) -> None:
    kept = kept_features(Products(2), {"state": {"scales_": value}})
    bind_features(kept, fcl.open_data(X[:, :5], y=None).rows)


def stored_scales() -> None:
    config = train(X * 10.0 ** np.arange(12), features="products:degree=2").model.family.to_config()
    config["state"]["scales_"]["values"][0] = -1.0
    fcl.features.family_from_config(config)


CASES: list[tuple[str, Callable[..., Any], dict[str, Any], str]] = [
    # options
    ("neither C nor alpha", job, {"C": None}, "give either C .* or alpha .*one of them"),
    ("C and alpha", job, {"alpha": 1.0}, "give either C .* or alpha .*not both"),
    ("loss", job, {"loss": "quantile"}, "unknown loss 'quantile'; expected one of logistic"),
    ("group", job, {"group": True},
     "group: expected several outputs, .* got one output of the logistic loss"),
    ("memory of 3 MiB", job, {"memory": "3MiB"},
     r"BudgetError: memory: a budget of 3 MiB is too small; .*--memory \d+MiB"),
    ("class_weight", job, {"class_weight": "even"}, "class_weight must be .* or a dict .*, got 'even'"),
    ("class_weight of no label", job, {"class_weight": {2: 1.0}},
     r"there is no label 2; the labels are -1\.0, 1\.0"),
    ("class_weight of a name", job, {"class_weight": {"x": 1.0}}, "there is no label 'x'"),
    ("class_weight of 0", job, {"class_weight": {1: 0.0}},
     "class_weight of 1 must be a finite number above 0, got 0"),
    ("class_weight twice", job, {"class_weight": {1: 2.0, "1": 2.0}}, "two weights for the label 1.0"),
    ("class_weight of numbers", job, {"class_weight": "balanced", "loss": "squared"},
     "class_weight is for classification"),
    ("C too large", train, {"C": 1e308},
     r"C is 1e\+308 and the sample weights add up to 150, so alpha .* is 0"),
    ("penalty of 0 in float64", train, {"C": 1e300, "l1_ratio": 1e-300},
     "l1_ratio 1e-300: their ratio is 0 in float64; lower C"),
    # families
    *((f"features {text}", job, {"features": text}, message) for text, message in (
        ("kmer:d=3", "unknown family 'kmer'; expected one of kmers"),
        ("kmers", "d is missing"),
        ("kmers:d=0", "d must be from 1 to 12, got 0"),
        ("kmers:d=13", "d must be from 1 to 12, got 13"),
        ("kmers:d=x", "d must be a whole number, got 'x'"),
        ("kmers:k=3", "name one of d, origin; got 'k=3'"),
        ("kmers:d=11", "X: windows of 10 letters are shorter than d = 11; .*d=10"),
        ("products:scale=2", "scale must be auto, true or false, got 2"),
        ("products:scale=yes", "scale must be auto, true or false, got 'yes'"))),
    ("scale and binary", lambda: Products(2, binary=True, scale=True), {},
     "scale and binary were both given"),
    ("standardize of kmers", job, {"features": Kmers(2), "standardize": True},
     "standardize: expected a family that makes all its columns.*got kmers: it has more features"),
    *((f"standardize of {text}", train, {"features": text, "standardize": True},
      f"standardize: expected a family that makes all its columns.*{why}")
      for text, why in (
        ("products:degree=2", "got Products: it has more features than can be measured"),
        ("fourier:per_pass=64", "got Fourier: each pass draws new features"),
        ("columns + products:degree=2", "got Products: it has more features than"))),
    *((f"centres {name}", centres, state, "expected a centre for each") for name, state in (
        ("of nan", {"centred_": np.array([0]), "centres_": np.array([np.nan])}),
        ("out of order", {"centred_": np.array([2, 1]), "centres_": np.ones(2)}),
        ("of no column", {"centred_": np.array([5]), "centres_": np.ones(1)}),
        ("too many", {"centred_": np.array([0]), "centres_": np.ones(2)}),
        ("without columns", {"centres_": np.ones(5)}),
        ("as lists", {"centred_": [0], "centres_": [1.0]}))),
    *((f"scales {name}", scales, {"value": value}, message) for name, value, message in (
        ("as a number", 3, "scales_ of 5 numbers above 0, got 3"),
        ("as a text", "x", "scales_ of 5 numbers above 0, got 'x'"),
        ("cut short", {"dtype": "<f8", "shape": [5], "values": [1.0, 2.0]},
         "products features: cannot reshape"),
        ("of one column", {"dtype": "<f8", "shape": [1], "values": [1.0]},
         "scales_ of 5 numbers above 0"),
        ("of no dtype", {"dtype": "x", "shape": 1, "values": 1}, "data type 'x' not understood"))),
    ("scales below 0", stored_scales, {}, "scales_ of 12 numbers above 0"),
    # targets, weights and letters
    ("no data set", lambda: fcl.train("train.zarr", "kmers:d=2", C=1.0), {},
     r"open it with fcl\.open_data"),  # type: ignore[arg-type]
    ("no target", job, {"y": None}, "arrays in memory: training needs a target"),
    ("one class", job, {"y": labels(1.0)}, "y holds only one class, 1.0"),
    ("three labels", job, {"y": labels(0.0, 1.0, 2.0)}, r"y holds 3 distinct labels \(0.0, 1.0, 2.0\)"),
    ("target inf", job, {"y": labels(0.0, 1.0, INF), "loss": "squared"},
     "y: row 2 is inf; a regression target must be finite"),
    ("target nan", job, {"y": labels(0.5, 1.0, NAN), "loss": "squared"},
     "y: row 2 is nan; a regression target must be finite"),
    ("short target", job, {"y": labels(1.0, -1.0, n=299)}, "X has 300 rows, but y has 299"),
    ("weight nan", job, {"s": labels(1.0, 2.0, NAN)}, "weights: row 2 is nan; weights must be finite"),
    ("one class has weight", job, {"y": labels(1.0, -1.0), "s": labels(1.0, 0.0)},
     "y: only one class is left among the 150"),
    ("letter", letter, {}, r"X: .*row 123, column 4"),
    ("overflowing squares", train,
     {"X": X * np.where(np.arange(12) == 1, 1e200, 1.0), "standardize": True},
     "standard deviation below 1e154, got x1,"),
    ("number among binary ones", binary, {"row": 7}, r"row 7, column 3 is 0\.5.*binary"),
    ("numbers that are not binary", binary, {"row": None}, r"row 0, column \d is.*binary"),
    # validation rows
    ("valid of other length", valid, {"codes": np.s_[:, :9]},
     "windows of 9 letters, but .*windows of 10"),
    ("valid without target", valid, {"move": None}, "validation needs a target"),
    ("valid of other labels", valid, {"move": 1.0}, "labels .* differ from those trained on"),
    ("valid and a fraction", valid, {"valid_fraction": 0.5},
     "either valid or valid_fraction, not both"),
    ("valid of no share", lambda valid: fcl.train(fcl.open_data(X, y=Y), "columns", C=1.0, valid=valid),
     {"valid": 1.5}, ": valid must be strictly between 0 and 1, got 1.5"),
    ("valid lacks a class", softmax, {"held": (X[CLASSES < 2], CLASSES[CLASSES < 2])}, "no row of 2"),
    ("valid of unknown class", softmax, {"held": (X, np.where(np.arange(N) == 0, 9, CLASSES))},
     "expected the labels of the model, .* got 9 in row 0"),
    ("valid of two columns", softmax, {"held": (X, np.column_stack([CLASSES, CLASSES]))},
     r"y has shape \(150, 2\); expected one value per row"),
    *((f"valid of {y.shape[1]} columns", softmax, {"y": X[:, :2], "loss": "squared", "held": (X, y)},
      "expected 2 columns of numbers")
      for y in (X[:, :1], X[:, :4])),
    # several outputs
    *((f"classes by {loss}", softmax, {"loss": loss}, "expected two.*softmax")
      for loss in ("logistic", "squared_hinge")),
    ("classes as labels", softmax, {"y": np.zeros((N, 2))},
     r"y has shape \(150, 2\); expected one value per row"),
    ("one class of softmax", softmax, {"y": np.zeros(N)},
     "expected at least two classes, got only one class"),
    ("class of one row", softmax, {"y": np.where(np.arange(N) == 3, 7, CLASSES)},
     "at least two training rows of weight above 0"),
    ("columns by huber", softmax, {"y": X[:, :2], "loss": "huber"},
     "several columns need one of the losses"),
    ("labels of 0.5", softmax, {"y": np.full((N, 2), 0.5), "loss": "logistic"},
     "expected 0 or 1 in each column"),
    ("many covariates of many classes", softmax,
     {"y": np.arange(N) % 30, "covariates": np.random.default_rng(8).normal(size=(N, 99))},
     "expected at most 1,024 coefficients .*, got 3,000: 99 columns and an intercept for each of 30"),
    ("class_weight of no class", softmax, {"class_weight": {9: 2.0}},
     "class_weight: there is no label 9"),
    *((f"offset of shape {shape}", softmax, {"offset": np.zeros(shape)},
       r"offset for each row and output, shape \(150, 3\), got shape " + re.escape(str(shape)))
      for shape in ((N,), (N, 2))),
    *((f"cv of several columns, {loss}", cross, {"y": y, "loss": loss},
       "cv: expected a single column of targets, got 3")
      for loss, y in (("squared", Z), ("logistic", Z > 0.0))),
    # offsets and covariates
    ("offset nan", train, {"offset": np.full(N, NAN)}, "row 0 is nan; offsets must be finite"),
    ("offset of text", train, {"offset": np.array(["a"] * N)},
     "offset has dtype <U1; offsets must be numeric"),
    ("short offset", train, {"offset": np.zeros(3)}, "X has 150 rows, but offset has 3 values"),
    ("offset of valid missing", train, {"offset": np.zeros(N), "held": (X, Y)},
     "expected an offset as"),
    ("offset of valid alone", lambda: train(valid=fcl.open_data(X, y=Y, offset=Y)), {},
     "expected an offset as"),
    ("prediction without offset", predict, {},
     "expected an offset, since the model was trained with one"),
    ("prediction with a short offset", predict, {"offset": np.zeros(2)}, "offset has 2 values"),
    *((f"covariates of {unit}", train, {"covariates": Z * unit},
      "covariate covariates has values of up to.*unit")
      for unit in (1e150, 1e-150)),
    ("covariate separates", train, {"y": np.sign(Z[:, 0]), "covariates": Z},
     "finite coefficients are optimal, but covariates.* separates"),
    ("level separates", train, {"y": np.where(LEVEL == 1, 1.0, Y), "covariates": LEVELS},
     "finite coefficients are optimal, but covariates.* separates"),
    ("level without counts", train,
     {"y": np.where(LEVEL == 2, 0.0, COUNTS), "covariates": LEVELS, "loss": "poisson"},
     r"but covariates\[1\] separates"),
    ("covariates fit labels", train, {"y": np.sign(Z[:, 0]), "covariates": Z, "loss": "squared_hinge"},
     "fit the targets exactly"),
    ("covariates fit numbers", train, {"y": Z @ [1.0, 2.0, 3.0], "covariates": Z, "loss": "squared"},
     "fit the targets exactly"),
    ("unknown level", level, {}, "site is 'c' in row 9000, expected one of.*'a', 'b'"),
    # models to begin with
    *((f"initial of other features {driver}", begun_on_letters,
      {"features": "kmers:d=3", "driver": driver},
       "initial: expected a model of the same features") for driver in ("auto", "processes")),
    ("initial and resume", begun_on_letters, {"resume": "nowhere"}, "initial: expected no resume"),
    ("initial of other classes", begun,
     {"first": {"y": NAMES, "loss": "softmax"}, "y": OTHER_NAMES, "loss": "softmax"},
     r"expected a model of \['x', 'y', 'z'\], got one of \['a', 'b', 'c'\]"),
    ("initial of fewer classes", begun,
     {"first": {"y": NAMES, "loss": "softmax"}, "y": np.arange(N) % 4, "loss": "softmax"},
     "expected a model of 4 outputs, got one of 3"),
    ("initial of one output", begun, {"first": {}, "y": CLASSES, "loss": "softmax"},
     "initial: expected a model of 3 outputs, got one of 1"),
    ("initial of another loss", begun,
     {"first": {"y": NAMES, "loss": "softmax"}, "y": Z, "loss": "squared"},
     "expected a model of squared loss, got one of softmax loss"),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("door", "given", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_refused(door: Callable[..., Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(fcl.InputError) as caught:
        door(**given)
    assert re.search(message, f"{type(caught.value).__name__}: {caught.value}")
