"""Products of columns in different units, which are divided by their standard deviations first."""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge import Problem
from product_matrix import make_rows, product_matrix, stored

import fcl
from fcl.errors import ScaleWarning
from fcl.features import Products, bind_features, kept_features
from fcl.report.make import make_report
from tests import by_name
from tests.drivers.conftest import check, dense

N = 1500
RNG = np.random.default_rng(11)
MONEY = np.round(RNG.lognormal(11.0, 0.7, N), 2)
FLAG = RNG.integers(0, 2, N).astype(float)
X = np.column_stack([MONEY, RNG.integers(0, 40, N), FLAG, RNG.normal(size=N), np.full(N, -7.0)])
#: X in comparable units: the constant becomes -1
SCALED = X / np.where(np.ptp(X, axis=0) > 0.0, X.std(axis=0), 7.0)
EVERY = product_matrix(SCALED, 2, repeats=True)
_ODDS = 2.0 * (MONEY - MONEY.mean()) / MONEY.std() * FLAG - 2.4
Y = np.where(RNG.random(N) < 1.0 / (1.0 + np.exp(-_ODDS)), 1.0, -1.0)  # about 12 % are positive
NAMES = ["money", "year", "flag", "noise", "one"]


def problem(C: float = 0.02, loss: str = "logistic") -> Problem:
    return Problem(EVERY, Y, np.ones(N), loss, C)


@pytest.mark.parametrize(
    ("options", "sparse"),
    [({}, True), ({"row_view": 256}, False), ({"driver": "processes", "writers": 1}, False)],
)
def test_the_optimum_of_scaled_columns(options: dict[str, Any], sparse: bool) -> None:
    data = fcl.open_data(stored(X, sparse), y=Y)
    result = by_name.train(data, "products:degree=2", C=0.02, tol=1e-6, block_rows=512, **options)
    check(result, problem(), rel=2e-6)
    margins = EVERY @ dense(result.model, EVERY.shape[1]) + result.model.intercept
    np.testing.assert_allclose(result.model.margins(data), margins, rtol=1e-10, atol=1e-12)


def test_single_precision_rows_lose_nothing() -> None:
    """Rows of float32 are divided in float64."""
    rows = np.column_stack([np.floor(MONEY), X[:, 1:]]).astype(np.float32)
    result = fcl.train(fcl.open_data(rows, y=Y), "products:degree=2", C=0.02, tol=1e-6)
    exact = rows.astype(np.float64)
    exact /= np.where(np.ptp(exact, axis=0) > 0.0, exact.std(axis=0), 7.0)
    phi = product_matrix(exact, 2, repeats=True)
    check(result, Problem(phi, Y, np.ones(N), "logistic", 0.02), rel=2e-6)


def test_which_columns_are_scaled(caplog: pytest.LogCaptureFixture) -> None:
    """Only if deviations differ by more than a factor of 100; a rare flag does not mean another unit."""

    def divisors(x: np.ndarray, sparse: bool = False, **options: Any) -> np.ndarray | None:
        rows = fcl.open_data(stored(x, sparse), y=None).rows
        return bind_features(Products(2, **options), rows).generator.divisors

    expected = np.where(np.ptp(X, axis=0) > 0.0, X.std(axis=0), 7.0)
    for sparse in (False, True):
        for options in ({}, {"scale": "auto"}, {"scale": True}):
            np.testing.assert_allclose(divisors(X, sparse, **options), expected, rtol=1e-12)
        assert divisors(X, sparse, scale=False) is None
        rare = np.zeros((2000, 3))
        rare[:, 0], rare[5, 1], rare[:, 2] = np.arange(2000) % 2, 1.0, np.arange(2000) % 11
        assert divisors(rare, sparse) is None
        even = RNG.normal(size=(100, 2)) * [1.0, 60.0]
        assert divisors(even, sparse) is None
        assert divisors(even * [1.0, 3.0], sparse) is not None
        np.testing.assert_allclose(
            divisors(np.array([[0.0, 5.0, 1.0], [0.0, 5.0, 2.0]]), sparse, scale=True), [1, 5, 0.5]
        )
    assert divisors((X > 1.0), scale=True) is None  # stored as booleans, which are binary
    assert divisors((X > 1.0).astype(float), binary=True) is None
    caplog.set_level(logging.INFO, "fcl.columns")
    data = fcl.open_data(X, y=Y)
    for features in ("products:degree=2", "products:scale=true", "products:scale=false"):
        caplog.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fcl.train(data, features, C=0.001, max_passes=1, tol=0.99)
        assert ("features products: columns are divided" in caplog.text) == (features[9] == "d")


def test_the_spelling_of_options_and_a_warning() -> None:
    assert fcl.features.spell_features(fcl.parse_features("products:scale=auto")) == (
        "products:degree=2,binary=false"  # as in version 0.1, whose jobs can be resumed
    )
    with pytest.warns(ScaleWarning, match="set products:scale=true"):
        fcl.train(fcl.open_data(X * [1, 1, 1, 1e-3, 1], y=Y), "products:scale=false", C=1e-12)


def test_a_stored_model_predicts_and_is_certified(tmp_path: Path) -> None:
    data = fcl.open_data(X, y=Y)
    result = by_name.train(data, "products:degree=2 + columns * 1e6", C=0.02, tol=1e-6, warn=False)
    result.model.save(tmp_path / "m.fcl")
    model = fcl.load_model(tmp_path / "m.fcl")
    few = fcl.open_data(X[:3], y=None)  # test rows do not decide about scales
    np.testing.assert_array_equal(model.margins(few), result.model.margins(data)[:3])
    found = fcl.certify(model, data)
    assert found.certificate.objective == pytest.approx(result.certificate.objective, rel=1e-12)


def test_weights_of_another_program_are_of_plain_columns() -> None:
    x = X[:, 1:4] * [1e3, 1.0, 1e-3]
    phi, w = product_matrix(x, 2, repeats=True), np.zeros(9)
    w[[0, 4]] = 1e-5, -2e-3
    data = fcl.open_data(x, y=Y)
    found = fcl.certify((w, -2.0), data, features="products:degree=2", C=0.01)
    expected = Problem(phi, Y, np.ones(N), "logistic", 0.01).objective(w, -2.0)
    assert found.own_objective == pytest.approx(expected, rel=1e-12)


def test_an_initial_model_of_other_units() -> None:
    """Weights are converted, so that the first margins equal the margins of the initial model."""
    data = fcl.open_data(X, y=Y)
    begin = by_name.train(data, "products:scale=false", C=1e-11, tol=0.5, warn=False).model
    assert len(begin.ids)
    result = fcl.train(data, "products:degree=2", C=0.02, tol=1e-6, initial=begin)
    check(result, problem(), rel=2e-6)
    one = by_name.train(data, "products:degree=2", C=0.02, initial=begin, max_passes=1, warn=False)
    units = product_matrix(X, 2, repeats=True)[0] / EVERY[0]
    start = problem().objective(dense(begin, 20) * units, begin.intercept)
    assert one.model.history[1]["objective"] == pytest.approx(start, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_jobs_of_earlier_versions_stay_unscaled(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of version 0.1 has neither the option nor divisors; a new one has them."""
    x = X[:, 1:4] * [0.05, 1.0, 200.0]
    data = fcl.open_data(x, y=Y)
    options = {
        "C": 0.002,
        "tol": 1e-6,
        "checkpoint": tmp_path / "c",
        "driver": driver,
        "warn": False,
    }
    with monkeypatch.context() as patch:
        patch.setattr(Products, "measured_rows", 0)
        by_name.train(data, "products:degree=2", max_passes=1, **options)
    result = by_name.train(data, "products:degree=2", resume=tmp_path / "c", **options)
    plain = product_matrix(x, 2, repeats=True)
    check(result, Problem(plain, Y, np.ones(N), "logistic", 0.002), rel=2e-6)
    # a resumed job takes the divisors of its checkpoint, and measures nothing
    options["checkpoint"] = tmp_path / "d"
    by_name.train(data, "products:degree=2", max_passes=1, **options)
    with monkeypatch.context() as patch:
        patch.setattr(Products, "measured_rows", 0)
        result = by_name.train(data, "products:degree=2", resume=tmp_path / "d", **options)
    check(
        result,
        Problem(product_matrix(x / x.std(0), 2, True), Y, np.ones(N), "logistic", 0.002),
        rel=2e-6,
    )


#: columns of which the second is a year: 2000 is subtracted from it
DATES = np.column_stack([RNG.normal(size=N), np.floor(RNG.normal(2000.3, 8.0, N)), FLAG])


@pytest.mark.parametrize("options", [{}, {"row_view": 256}, {"driver": "processes", "writers": 1}])
def test_years_are_centred(
    options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fcl.columns")
    data = fcl.open_data(DATES.astype(np.float32), y=Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = by_name.train(
            data, "products:degree=2", C=0.02, tol=1e-6, block_rows=512, **options
        )
    assert "subtracted: 2000 from x1; products:centre=false" in caplog.text
    phi = product_matrix(DATES.astype(np.float32) - [0.0, 2000.0, 0.0], 2, repeats=True)
    check(result, Problem(phi, Y, np.ones(N), "logistic", 0.02), rel=2e-6)
    result.model.save(tmp_path / "m.fcl")
    model = fcl.load_model(tmp_path / "m.fcl")
    few = fcl.open_data(DATES[:3].astype(np.float32), y=None)
    np.testing.assert_array_equal(model.margins(few), result.model.margins(data)[:3])
    margins = phi @ dense(model, phi.shape[1]) + model.intercept
    np.testing.assert_allclose(model.margins(data), margins, rtol=1e-10, atol=1e-12)


def test_which_columns_are_centred() -> None:
    def bound(x: np.ndarray, sparse: bool = False, **options: Any) -> Any:
        rows = fcl.open_data(stored(x, sparse), y=None).rows
        return bind_features(Products(2, **options), rows)

    family = bound(DATES)
    every = [family.describe(j) for j in range(family.n_features)]
    assert "x0 * (x1 - 2000)" in every
    assert "(x1 - 2000)^2" in every
    np.testing.assert_array_equal(family.find(every), np.arange(len(every)))
    assert (family.find(["x1", "x0 * x1", "(x1 - 1999)", "(x0 - 2000)"]) == -1).all()
    negative = bound(DATES * [1, -1, 1])
    assert "(x1 + 2000)^2" in [negative.describe(j) for j in range(9)]
    for other in (
        bound(DATES, sparse=True),
        bound(DATES, centre=False),
        bound(DATES - [0, 1950, 0]),
        bound((DATES > 0.0).astype(float), binary=True),
    ):
        assert other.generator.shifts is None
    assert Products(2, centre="auto") == Products(2, centre=True) == Products(2)
    assert fcl.parse_features("products:centre=false").centre is False
    with pytest.raises(fcl.InputError, match="centre must be auto, true or false"):
        Products(2, centre=2)


def test_jobs_of_earlier_versions_stay_uncentred(tmp_path: Path) -> None:
    data = fcl.open_data(DATES, y=Y)
    options: dict[str, Any] = {"C": 1e-5, "checkpoint": tmp_path / "c", "warn": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Products, "measured_rows", 0)
        by_name.train(data, "products:degree=2", max_passes=1, **options)
    result = by_name.train(data, "products:degree=2", resume=tmp_path / "c", **options)
    assert result.model.family.generator.shifts is None
    with pytest.raises(fcl.InputError, match="shifts_ is"):
        fcl.train(data, "products:degree=2", C=1e-5, initial=result.model)
    found = by_name.train(
        data, "products:degree=2,centre=false", C=1e-5, initial=result.model, warn=False
    )
    assert found.model.family.generator.shifts is None


def test_online_learners_list_scaled_products() -> None:
    for sparse in (False, True):
        x = make_rows(3, 300, 5, "large signed").astype(np.float64) * [1, 1e3, 1, 1, 1]
        x[:, 2] += 0.0 if sparse else 1e5
        rows = fcl.open_data(stored(x, sparse), y=None).rows
        family = bind_features(Products(3), rows)
        shifts = 0.0 if sparse else family.generator.shifts
        assert sparse or np.count_nonzero(shifts) == 1
        phi = product_matrix((x - shifts) / family.generator.divisors, 3, repeats=True)
        found = np.zeros_like(phi)
        (_, _, raw), *_ = family.read_rows(rows, 300)
        row = 0
        for chunk in family.row_view().chunks(raw):
            for own in range(len(chunk)):
                some = slice(chunk.indptr[own], chunk.indptr[own + 1])
                found[row, chunk.ids[some]] = chunk.values[some]
                row += 1
        np.testing.assert_allclose(found, phi, rtol=1e-12)


def test_estimators_scale_and_score_alike() -> None:
    model = fcl.FCLClassifier("products:degree=2", C=0.02, tol=1e-6).fit(X, Y)
    best = problem().solve(1e-8)
    assert model.objective_ == pytest.approx(best.objective, rel=2e-6)


def test_kept_features_of_a_damaged_checkpoint() -> None:
    spec = fcl.parse_features("products:degree=2 + columns")
    for config in ({}, {"members": 3}, {"members": [{}]}, {"members": [{"state": 1}, {}]}):
        assert kept_features(spec, config) == spec


@pytest.mark.slow
def test_a_path_finds_the_signal_or_says_that_there_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = fcl.open_data(X, y=Y)
    rows: dict[str, Any] = {"cv": 4}
    found = by_name.train_path(data, "products:degree=2", points=12, **rows)
    strongest = found.chosen.model.describe(1)[0].feature
    assert set(re.findall(r"x\d", strongest)) == {"x0", "x2"}, strongest
    share = (Y > 0).mean()
    assert found.chosen.empty == pytest.approx(share, abs=0.05) and not found.has_no_gain
    noise = fcl.open_data(np.random.default_rng(2).normal(size=(N, 3)), y=Y)
    none = by_name.train_path(noise, "products:degree=2", points=6, folder=tmp_path / "p", **rows)
    assert "is not clearly better than one without features: AUPRC" in caplog.text
    assert none.has_no_gain
    path = tmp_path / "m.fcl"
    none.chosen.model.save(path)
    (tmp_path / "p").rename(f"{path}.path")
    page = re.sub(r"\s+", " ", make_report(path).html)
    assert "It is not clearly better than a model without features: AUPRC" in page


@pytest.mark.slow
def test_folds_follow_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that version 0.1 began stays unscaled, also in folds that it had not reached."""
    x = X[:, 1:4] * [0.05, 1.0, 200.0]
    data, done = fcl.open_data(x, y=Y), []

    def stops() -> bool:
        return len(done) > 0

    def note(event: Any) -> None:
        if type(event).__name__ == "PointDone":
            done.append(event)

    options: dict[str, Any] = {"points": 4, "cv": 2, "folder": tmp_path / "p", "warn": False}
    with monkeypatch.context() as patch:
        patch.setattr(Products, "measured_rows", 0)
        with pytest.raises(KeyboardInterrupt):
            by_name.train_path(
                data, "products:degree=2", progress=note, should_stop=stops, **options
            )
    assert len(done) >= 1
    found = by_name.train_path(data, "products:degree=2", **options)
    models = [point.model for points in [found.points, *found.fold_points] for point in points]
    assert all(model.family.generator.divisors is None for model in models)
    options["folder"] = tmp_path / "q"
    found = by_name.train_path(data, "products:degree=2", **options)
    models = [point.model for points in [found.points, *found.fold_points] for point in points]
    assert not any(model.family.generator.divisors is None for model in models)
