"""Dense columns of large mean are centred where the intercept is free; the job is that of x - centre."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fcl
from fcl.estimators import FCLRegressor
from fcl.features import Columns, bind_features
from fcl.features.centred import centres, uncentred, with_centres, with_centres_at
from fcl.features.generator.binding import centres_of
from fcl.model.centres import folded, unfolded
from tests import by_name

RNG = np.random.default_rng(5)
N = 240
#: quarters of seconds around a time, days written as numbers, years, and columns that stay as they are
MOVED = np.array([1.7e9, 20200131.0, 2005.0, 0.0, 0.0])
MEASURED = np.column_stack(
    [
        RNG.integers(-100, 100, N) * 0.25,
        RNG.integers(-12, 13, N) * 1.0,
        RNG.integers(-8, 9, N) * 1.0,
        RNG.normal(size=N),
        RNG.integers(0, 2, N) * 1.0,
    ]
)
SIGNAL = MEASURED[:, 0] / 15 + MEASURED[:, 2] / 4 + MEASURED[:, 3] + RNG.normal(size=N)
CLASSES = np.digitize(SIGNAL, [-1.0, 1.0])


def moved(X: np.ndarray = MEASURED, by: np.ndarray = MOVED) -> tuple[np.ndarray, np.ndarray]:
    """The columns at their places, and minus their centres, both exact in float64."""
    far = X + by
    return far, far - centres_of(far)


class Copied(Columns):
    """A class that may compute other features than the columns."""


@pytest.mark.parametrize(
    ("column", "is_centred"),
    [
        (1.7e9 + MEASURED[:, 0], True),
        (2005.0 + MEASURED[:, 2], True),
        (-1e-3 + 1e-9 * MEASURED[:, 3], True),
        (MEASURED[:, 3] + 10.0, False),
        (MEASURED[:, 3], False),
        (np.full(N, 1.7e9), False),
        (np.arange(N) > 0, False),  # bits
        (np.where(np.arange(N) > 20, 1.7e9, 0.0), False),
        (1e300 + 1e290 * MEASURED[:, 3], False),  # squares overflow
    ],
)
def test_columns_of_large_mean_and_small_spread_are_centred(
    column: np.ndarray, is_centred: bool
) -> None:
    column = column.astype(np.float64)
    (found,) = centres_of(column[:, None])
    assert (found != 0.0) == is_centred
    if is_centred:
        left = column - found
        assert abs(left.mean()) <= left.std()
        exact = column.astype(np.longdouble) - np.longdouble(found)
        assert (left == exact).all()


@pytest.mark.parametrize(
    ("spec", "rows", "intercept", "is_centred"),
    [
        (Columns(), moved()[0], True, True),
        (Columns([1.0, 2.0, 1.0, 1.0, np.inf]), moved()[0].astype(np.float32), True, True),
        (fcl.Concat([Columns(), Columns()]), moved()[0], True, True),
        (Columns(), moved()[0], False, False),
        (Columns(), scipy.sparse.csr_array(moved()[0]), True, False),
        (Copied(), moved()[0], True, False),
    ],
)
def test_who_is_centred(spec: Any, rows: Any, intercept: bool, is_centred: bool) -> None:
    data = fcl.open_data(rows, y=SIGNAL)
    options = {"C": 1.0, "loss": "squared", "intercept": intercept, "warn": False}
    found = by_name.train(data, spec, **options, max_passes=30)
    assert bool(found.model.centres) == is_centred
    assert found.converged or not intercept or not is_centred
    family = bind_features(spec, data.rows)
    plain = uncentred(with_centres(family, data.rows))
    assert plain.to_config() == family.to_config() == found.model.family.to_config()


OPTIONS: dict[str, dict[str, Any]] = {
    "squared": {},
    "logistic": {"loss": "logistic", "y": SIGNAL > 0},
    "huber": {"loss": "huber:delta=1"},
    "weights": {"weights": 10 ** RNG.uniform(-3, 4, N), "offset": RNG.normal(size=N)},
    "covariates": {"covariates": RNG.normal(size=(N, 2))},
    "elastic net": {"l1_ratio": 0.5},
    "standardize": {"standardize": True},
    "softmax": {"loss": "softmax", "y": CLASSES},
    "group": {"loss": "softmax", "y": CLASSES, "group": True},
    "targets": {"y": np.column_stack([SIGNAL, SIGNAL**2])},
    "concat": {"features": "columns + fourier:n=8"},
    "valid": {"valid_fraction": 0.25},
    "processes": {"driver": "processes"},
}


def train(X: np.ndarray, name: str, **more: Any) -> fcl.TrainResult:
    options = {"C": 2.0, "loss": "squared", "tol": 1e-9, "warn": False} | OPTIONS[name] | more
    added = {key: options.pop(key, None) for key in ("weights", "offset", "covariates")}
    data = fcl.open_data(X, y=options.pop("y", SIGNAL), **added)
    return by_name.train(data, options.pop("features", "columns"), **options)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "concat"])
def test_the_job_is_that_of_columns_minus_centres(name: str, tmp_path: Path) -> None:
    """Bit for bit, since the differences are exact; predictions too, also from a file.

    Steps of the driver ``processes`` depend on the time.
    """
    far, _ = moved()
    found = train(far, name)
    one = found.model
    near = far - [one.centres.get(j, c) for j, c in enumerate(centres_of(far))]
    expected = train(near, name)
    other = expected.model
    assert found.converged and not other.centres
    assert {0, 2} <= set(one.centres)
    if name == "processes":
        objective = expected.certificate.objective
        assert found.certificate.objective == pytest.approx(objective, rel=1e-9)
        return
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.constants, other.intercepts)
    assert found.certificate == expected.certificate
    assert (one.support == (far[:, one.ids] != 0.0).sum(axis=0)).all() or name == "valid"
    # the intercept of the plain columns, in 64 bits more
    at = np.array([one.centres.get(j, 0.0) for j in one.ids.tolist()], np.longdouble)
    plain = other.intercepts - (one.weights.T.astype(np.longdouble) @ at).reshape(-1)
    np.testing.assert_allclose(one.intercepts, plain.astype(np.float64), rtol=1e-15)
    rows = {"offset": OPTIONS[name].get("offset"), "covariates": OPTIONS[name].get("covariates")}
    margins = one.margins(far, **rows)
    np.testing.assert_array_equal(margins, other.margins(near, **rows))
    one.save(tmp_path / "m.fcl")
    again = fcl.load_model(tmp_path / "m.fcl")
    np.testing.assert_array_equal(again.margins(far, **rows), margins)
    assert again.header() == one.header()


def test_members_of_a_concat_are_centred() -> None:
    found = train(moved()[0], "concat", tol=1e-6)
    assert found.converged and {0, 2} <= set(found.model.centres)
    X = moved()[0]
    family = with_centres_at(found.model.family, found.model.centres)
    ids = found.model.ids
    np.testing.assert_array_equal(
        centres(family, ids), [found.model.centres.get(j, 0.0) for j in ids.tolist()]
    )
    P = 2.0 * float(np.sum((SIGNAL - found.model.margins(X)) ** 2))
    P += float(np.abs(found.model.weights).sum())
    assert found.certificate.objective == pytest.approx(P, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows_and_a_sample_of_them(dtype: Any) -> None:
    """Cached columns are float32 here; rows that are read as float32 keep their values."""
    rng = np.random.default_rng(2)
    X = rng.integers(-40, 40, (6000, 3)) * 128.0
    y = X[:, 0] / 1e4 + rng.normal(size=6000)
    far = (X + 1.7e9 // 128 * 128).astype(dtype)
    near = far.astype(np.float64) - centres_of(far)
    for view in ("all", 2000):
        results = [
            fcl.train(
                fcl.open_data(rows, y=y), "columns", C=1.0, loss="squared", row_view=view, tol=1e-6
            )
            for rows in (far, near)
        ]
        one, other = results
        assert one.converged and one.certificate == other.certificate
        np.testing.assert_array_equal(one.model.margins(far), other.model.margins(near))


@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_resumed_jobs_keep_their_centres(driver: str, tmp_path: Path) -> None:
    far, near = moved()
    options = {"driver": driver, "tol": 1e-13}
    cut = train(far, "squared", **options, max_passes=1, checkpoint=tmp_path)
    assert not cut.converged
    whole = train(near, "squared", driver="inline")
    resumed = train(far, "squared", **options | {"tol": 1e-9}, resume=tmp_path)
    assert resumed.converged and resumed.model.centres
    objective = resumed.certificate.objective
    assert objective == pytest.approx(whole.certificate.objective, rel=1e-9)
    # a job of the version before has no centres, and its numbers belong to the plain columns
    from fcl.files.folder import CheckpointFolder

    saved = CheckpointFolder(tmp_path).load()
    assert "centres_" in saved.family["state"]


def test_start_certificate_and_compact_model(tmp_path: Path) -> None:
    far, near = moved()
    found, expected = train(far, "squared"), train(near, "squared")
    data = fcl.open_data(far, y=SIGNAL)
    started = by_name.train(
        data, "columns", C=2.0, loss="squared", tol=1e-9, initial=found.model, warn=False
    )
    assert started.passes <= 3 and started.model.centres == found.model.centres
    proved = fcl.certify(found.model, data)
    assert proved.certificate.gap <= 1e-9
    assert proved.intercept == pytest.approx(found.model.intercept, rel=1e-15)
    rounded = found.model.with_weights(np.round(found.model.weights, 2))
    other = expected.model.with_weights(np.round(expected.model.weights, 2))
    np.testing.assert_array_equal(rounded.margins(far), other.margins(near))
    some = found.model.ids[1:]
    fewer = found.model.with_weights(
        found.model.weights[1:], ids=some, support=found.model.support[1:]
    )
    left = expected.model.with_weights(
        expected.model.weights[1:], ids=some, support=expected.model.support[1:]
    )
    np.testing.assert_array_equal(fewer.margins(far), left.margins(near))


@pytest.mark.slow
def test_paths_folds_and_refits() -> None:
    far, near = moved()
    options = {"loss": "squared", "points": 4, "tol": 1e-9, "refit": True, "warn": False}
    one, other = (
        by_name.train_path(fcl.open_data(X, y=SIGNAL), "columns", cv=3, **options)
        for X in (far, near)
    )
    np.testing.assert_allclose(one.scores.mean, other.scores.mean, rtol=1e-9)
    assert one.refit is not None and other.refit is not None
    assert one.refit.model.centres
    np.testing.assert_allclose(
        one.refit.model.margins(far), other.refit.model.margins(near), rtol=1e-9, atol=1e-9
    )


def test_estimators_have_the_intercept_of_the_plain_columns() -> None:
    far, near = moved()
    one, other = (FCLRegressor(alpha=0.01).fit(X, SIGNAL) for X in (far, near))
    np.testing.assert_array_equal(one.predict(far), other.predict(near))
    plain = far.astype(np.longdouble) @ one.coef_.ravel() + one.intercept_
    np.testing.assert_allclose(plain.astype(np.float64), one.predict(far), atol=1e-6)


def test_the_intercept_is_folded_without_loss() -> None:
    weights, at = RNG.normal(size=5), 1e9 * RNG.normal(size=5)
    intercept, rest = folded(0.1, weights, at)
    assert unfolded(intercept, rest, weights, at) == 0.1
    exact = np.longdouble(0.1) - (weights.astype(np.longdouble) * at).sum()
    assert intercept == pytest.approx(float(exact), rel=1e-15)
