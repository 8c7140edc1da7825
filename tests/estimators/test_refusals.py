"""What the estimators refuse: one message, which names the parameter, the argument or the row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_classification

import fcl
from fcl import (
    FCLClassifier,
    FCLClassifierCV,
    FCLOnlineClassifier,
    FCLOnlineRegressor,
    FCLRegressor,
    FCLRegressorCV,
    StagewiseClassifier,
    StagewiseRegressor,
)

X, Y = make_classification(120, 12, n_informative=5, random_state=0)
Z = np.column_stack([np.arange(120) % 7, np.arange(120) % 3]).astype(float)
LABELS = (X[:, :3] > 0).astype(int)
ANSWERS = np.where(Y, "yes", "no")
FRAME = pd.DataFrame(X, columns=[f"c{j}" for j in range(12)])
CODES = np.random.default_rng(0).integers(0, 4, (300, 20)).astype(np.uint8)
OF_CODES = CODES[:, 3] == 1
UNEVEN = ["".join("ACGT"[c] for c in row)[: 12 + i % 9] for i, row in enumerate(CODES)]


class Refused(ValueError):
    """The error of a prediction, not of the fit before it."""


def fit(estimator: Any, rows: Any = X, y: Any = Y, **more: Any) -> None:
    estimator.fit(rows, y, **more)


def binary(**parameters: Any) -> None:
    FCLClassifier(**parameters).fit(X, Y)


def online(**parameters: Any) -> None:
    FCLOnlineClassifier(**parameters).fit(X, ANSWERS)


def searched(**parameters: Any) -> None:
    FCLClassifierCV(**parameters).fit(X[:40], Y[:40])


def predict(estimator: Any, rows: Any = X, y: Any = Y, new: Any = X, **more: Any) -> None:
    """Predictions for other rows, or without what the rows of the training have beside them."""
    estimator.fit(rows, y, **more)
    try:
        estimator.predict(new)
    except fcl.InputError as error:
        raise Refused(str(error)) from error


def stream(rows: Any, y: Any, classes: Any = None, **more: Any) -> None:
    """A later part of a stream, which changes nothing where it is refused."""
    found = FCLOnlineClassifier(rate=0.1).partial_fit(FRAME, ANSWERS, ["no", "yes"], **more)
    before = found.coef_.toarray()
    try:
        found.partial_fit(rows, y, classes)
    finally:
        assert np.array_equal(found.coef_.toarray(), before)


def begin(classes: Any = None, **parameters: Any) -> None:
    """The first part of a stream."""
    FCLOnlineClassifier(**parameters).partial_fit(X, ANSWERS, classes)


def damaged(form: str, place: int, value: int, use: Any) -> None:
    """A sparse matrix whose places have been changed since it was made."""
    y = [0, 1, 1]
    rows = sparse.csr_matrix(([1.0] * 6, [1, 0, 1, 0, 1, 0], [0, 2, 4, 6]), shape=(3, 2))
    found = FCLClassifier().fit(rows, y)
    rows = rows.asformat(form)
    places = rows.col if form == "coo" else rows.indptr
    places[min(place, len(places) - 1)] = value if form != "coo" or value else 2
    use(found, rows, y)


USES: dict[str, Callable[..., Any]] = {
    "fit": lambda found, rows, y: FCLClassifier().fit(rows, y),
    "predict": lambda found, rows, y: found.predict(rows),
    "open_data": lambda found, rows, y: fcl.open_data(rows, y=y),
    "covariates": lambda found, rows, y: found.fit(np.eye(3), y, covariates=rows),
}
MISSING: dict[str, Any] = {
    "None": np.array(["a", None] * 30, object),
    "NaN": np.array(["a", np.nan] * 30, object),
    "NA": np.array(["a", pd.NA] * 30, object),
    "NaT": np.array(["a", pd.NaT] * 30, object),
    "string": pd.Series(["a", pd.NA] * 30, dtype="string"),
    "objects": pd.Series(["a", None] * 30, dtype=object),
    "categorical": pd.Series(["a", None] * 30, dtype="category"),
    "booleans": np.array([True, None] * 30, object),
}
LEARNERS: dict[str, Callable[[Any], Any]] = {
    "open_data": lambda y: fcl.open_data(X[:60], y=y),
    "partial_fit": lambda y: FCLOnlineClassifier().partial_fit(X[:60], y, classes=["a", "b"]),
} | {
    kind.__name__: lambda y, kind=kind: kind("columns").fit(X[:60], y)
    for kind in (
        FCLClassifier, FCLRegressor, FCLClassifierCV, FCLOnlineClassifier, StagewiseClassifier,
        StagewiseRegressor,
    )
}  # fmt: skip

CASES: list[tuple[str, Callable[..., Any], dict[str, Any], str]] = [
    # parameters
    ("C and alpha", binary, {"C": 0.5, "alpha": 0.1},
     "either C or alpha, got C=0.5 and alpha=0.1; set C=None"),
    ("neither C nor alpha", binary, {"C": None}, "give either C .* or alpha"),
    *((f"loss {loss}", binary, {"loss": loss},
       f"loss must be one of logistic, squared_hinge, softmax, got '{loss}'")
      for loss in ("hinge", "squared", "poisson")),
    ("loss of a regressor", fit, {"estimator": FCLRegressor(loss="logistic")},
     "loss must be one of squared, huber, poisson, pinball, got 'logistic'"),
    ("family", binary, {"features": "nothing"}, "unknown family 'nothing'"),
    ("class_weight", binary, {"class_weight": "even"},
     r"class_weight must be .* or a dict with a weight for each label, such as \{0: 2\.0\}, got 'even'"),
    ("list of class_weight", binary, {"class_weight": [1, 2]},
     r'class_weight must be "balanced" or a dict with a weight for each label, .* got \[1, 2\]'),
    ("class of class_weight", binary, {"class_weight": {7: 1.0}},
     r"class_weight: there is no label 7; the labels are 0, 1"),
    ("class_weight below 0", binary, {"class_weight": {0: -1.0}},
     "class_weight of 0 must be a finite number above 0, got -1"),
    ("random_state", binary, {"random_state": "x"}, "^ValueError: 'x' cannot be used to seed"),
    ("n_jobs", binary, {"n_jobs": 0}, "n_jobs must be None or a nonzero integer, got 0"),
    ("n_jobs of 1.5", binary, {"n_jobs": 1.5}, "n_jobs must be None or a nonzero integer, got 1.5"),
    ("small memory", binary, {"memory": "1MiB"}, "BudgetError: memory: a budget of 1 MiB is too small"),
    ("online radius", online, {"radius": 1.0}, "radius: method ftrl has no such option"),
    ("online loss", online, {"loss": "huber"}, "loss must be one of logistic, .*, got 'huber'"),
    ("C of another word", binary, {"C": "best"}, 'C: expected a number above 0, None or "auto", got'),
    ("C auto and alpha", binary, {"C": "auto", "alpha": 0.1}, "either C or alpha, got C='auto'"),
    ("C auto by processes", binary, {"C": "auto", "driver": "processes"}, 'driver: expected "inline"'),
    ("groups without folds", fit, {"estimator": FCLClassifier(), "groups": Y},
     'groups: expected C="auto"'),
    ("labels by C auto", fit, {"estimator": FCLClassifier(C="auto"), "y": LABELS},
     "y: expected a single column for FCLClassifier"),
    ("number of alphas", searched, {"alphas": 0}, "alphas must be a whole number of at least 1, got 0"),
    ("alphas of 0", searched, {"alphas": [0.0]}, "alphas: expected finite numbers above 0"),
    ("cv", searched, {"cv": 1}, "cv: expected 2 to 40 folds"),
    ("stagewise n_jobs", fit, {"estimator": StagewiseClassifier(n_jobs=0)},
     "n_jobs must be None or a nonzero integer, got 0"),
    # targets
    ("one class", fit, {"estimator": FCLClassifier(), "y": ["a"] * 120}, "got only one class, 'a'"),
    ("no target", fit, {"estimator": FCLClassifier("kmers:d=3"), "rows": CODES, "y": None}, "requires y"),
    ("counts below 0", fit, {"estimator": FCLRegressor(loss="poisson"), "y": -Z[:, 0]},
     "y: poisson loss needs targets of at least 0, got -1 in row 1"),
    ("counts of 0", fit, {"estimator": FCLRegressor(loss="poisson"), "y": 0.0 * Z[:, 0]},
     "y: all targets of training rows are 0"),
    ("labels with class_weight", fit, {"estimator": FCLClassifier(class_weight="balanced"), "y": LABELS},
     "class_weight: expected None, since a row with several labels"),
    ("labels by squared_hinge", fit, {"estimator": FCLClassifier(loss="squared_hinge"), "y": LABELS},
     "several columns need FCLClassifier.loss='logistic'"),
    ("several numbers by poisson", fit, {"estimator": FCLRegressor(loss="poisson"), "y": 1.0 * LABELS},
     "several columns need FCLRegressor.loss='squared'"),
    *((f"search over labels by {loss}", fit, {"estimator": FCLClassifierCV(cv=3, loss=loss), "y": LABELS},
       f"y: expected a single column for FCLClassifierCV with loss '{loss}'")
      for loss in ("logistic", "softmax")),
    ("search over several numbers", fit, {"estimator": FCLRegressorCV(), "y": 1.0 * LABELS},
     "y: expected a single column for FCLRegressorCV"),
    ("stagewise labels", fit,
     {"estimator": StagewiseClassifier(update="gls", loss="softmax"), "y": LABELS},
     "loss: softmax is for one class in each row"),
    *((f"label missing as {kind}, {door}", LEARNERS[door], {"y": y},
       r"InputError: y: row 1 is missing \(NA\), as are 30 of 60")
      for door in LEARNERS for kind, y in MISSING.items()),
    # rows, and what is beside them
    ("opened already", fit, {"estimator": FCLClassifier(), "rows": fcl.open_data(X, y=Y), "y": "y"},
     "is opened already: expected y"),
    ("opened without target", fit,
     {"estimator": FCLClassifier(), "rows": fcl.open_data(X, y=None), "y": None},
     "training needs a target"),
    ("opened, short target", fit,
     {"estimator": FCLClassifier(), "rows": fcl.open_data(X, y=Y), "y": Y[1:]},
     "y has 119 values for 120 rows"),
    ("no such file", fit, {"estimator": FCLClassifier(), "rows": "nowhere.zarr"},
     "nowhere.zarr does not exist"),
    ("column twice", fit, {"estimator": FCLRegressor(), "rows": pd.DataFrame(Z, columns=[1, 1])},
     "X: the data frame has several columns '1'; rename them"),
    ("uneven sequences", fit, {"estimator": FCLClassifier("kmers:d=2"), "rows": UNEVEN, "y": OF_CODES},
     r"all sequences must have the same length \(for bags pad"),
    *((f"sparse letters, {door.__name__}", door,
       {"estimator": FCLClassifier("kmers:d=2"), "y": OF_CODES, **rows},
       r": X is a sparse matrix \(csr_matrix\), .*not sequences")
      for door, rows in ((fit, {"rows": sparse.csr_matrix(CODES)}),
                         (predict, {"rows": CODES, "new": sparse.csr_matrix(CODES)}))),
    *((f"damaged {form} {place} {value}, {use}", damaged,
       {"form": form, "place": place, "value": value, "use": how},
       "covariates is a sparse matrix" if use == "covariates"
       else r"X: the sparse matrix is damaged|X\.indptr")
      for form in ("csr", "csc", "bsr", "coo")
      for place, value in ((2, -1), (1, 2**31 - 1), (3, 9), (3, 0)) for use, how in USES.items()),
    *((f"offset missing, {kind.__name__}", predict, {"estimator": kind(), "offset": X[:, 0]},
       "Refused: .*expected an offset, since the model")
      for kind in (FCLRegressor, FCLOnlineClassifier, FCLOnlineRegressor)),
    ("covariates missing", predict, {"estimator": FCLClassifier(), "covariates": Z},
     "Refused: .*expected the covariate covariates, with which"),
    # parts of a stream
    ("first part without classes", begin, {}, "classes: expected all classes of the stream"),
    ("stream of balanced classes", begin, {"class_weight": "balanced", "classes": ["no", "yes"]},
     "class_weight: expected a dict for partial_fit, got 'balanced'"),
    ("part of fewer columns", stream, {"rows": X[:, 1:], "y": ANSWERS},
     "X has 11 features, but FCLOnlineClassifier"),
    ("part of other names", stream, {"rows": FRAME.rename(columns={"c0": "other"}), "y": ANSWERS},
     "feature names should match"),
    ("part of other classes", stream, {"rows": FRAME, "y": ANSWERS, "classes": ["no", "maybe"]},
     r"classes: expected those of the first call, \['no', 'yes'\], got \['maybe', 'no'\]"),
    ("part of an unknown class", stream, {"rows": FRAME, "y": np.where(Y, "yes", "maybe")},
     r"y: expected classes \['no', 'yes'\], got 'maybe'"),
    ("part without offset", stream, {"rows": FRAME, "y": ANSWERS, "offset": X[:, 0]},
     "expected an offset, as in the first call"),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("door", "given", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_refused(door: Callable[..., Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        door(**given)
    kind = type(caught.value)
    assert issubclass(kind, fcl.InputError | Refused) or "^ValueError" in message
    assert re.search(message, f"{kind.__name__}: {caught.value}")
