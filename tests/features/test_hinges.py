"""Hinges of columns: their knots and names; contracts have their prices and models."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.errors import InputError, ScaleWarning
from fcl.features import Hinges, parse_features
from fcl.features.generator.contract import decode, encode

N = 400
RNG = np.random.default_rng(5)
#: Columns of very different units, one of few values, one of two, a constant, and times.
X = np.column_stack(
    [
        1e6 * RNG.normal(size=N),
        1e-6 * RNG.normal(size=N),
        RNG.integers(0, 4, N),
        RNG.integers(0, 2, N),
        np.full(N, -7.0),
        1e9 + RNG.normal(size=N),
    ]
)
ABOVE = np.maximum(0.0, 1e-6 * X[:, 0] - 0.5), np.maximum(0.0, -0.3 - 1e6 * X[:, 1])
NUMBER = ABOVE[0] - 2.0 * ABOVE[1] + 0.3 * np.abs(X[:, 2] - 2.0) + 0.1 * RNG.normal(size=N)
Y = np.where(NUMBER + 0.3 * RNG.normal(size=N) > np.median(NUMBER), 1, 0)


def fitted(x: np.ndarray, **options: Any) -> Hinges:
    made = Hinges(**options)
    made.fit(np.asfortranarray(x))
    return made


# -- the class -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 16, 500])
def test_knots_are_distinct_quantiles_inside_the_range(n: int) -> None:
    made = fitted(X, n=n)
    for j, column in enumerate(X.T):
        shares = np.arange(1, n + 1) / (n + 1)
        every = np.unique(np.quantile(column, shares, method="inverted_cdf"))
        inner = every[(every > column.min()) & (every < column.max())]
        assert made.knots_[made.starts_[j] : made.starts_[j + 1]].tolist() == inner.tolist()
    assert np.diff(made.starts_).tolist()[2:5] == [min(n, 2), 0, 0]
    assert made.n_features == 6 + 2 * len(made.knots_)
    sd = X.std(axis=0)
    np.testing.assert_allclose(made.scales_, np.where(sd > 0.0, sd, 7.0), rtol=5e-3)
    # only times are far from 0
    assert made.shifts_[:5].tolist() == [0.0] * 5 and abs(made.shifts_[5] - 1e9) < 2.0


def test_names_are_found_again() -> None:
    names = ["a", "a - 3", "max(0, a)", "(b)", "c / 2", "5"]
    for options in ({"n": 9}, {"n": 9, "scale": False}):
        made = fitted(X, **options)
        every = np.arange(made.n_features)
        for given in (None, names):
            texts = [made.describe(j, given) for j in every]
            assert len(set(texts)) == len(texts)
            assert made.find([*texts, "max(0, a", "max(0, x0 - 1e9)", ""], given).tolist() == [
                *every, -1, -1, -1,
            ]  # fmt: skip
    ages = np.array([[20.0], [30.0], [37.5], [50.0], [-4.0]])
    made = fitted(ages, n=9)
    assert [made.describe(j, ["age"]) for j in (0, 1, 2, 4)] == [
        f"{text} / {ages.std():.3g}" for text in ("age", "max(0, age - 20)", "max(0, 20 - age)",
                                                  "max(0, 30 - age)")
    ]  # fmt: skip
    made = fitted(ages - 100.0, n=1, scale=False)
    assert [made.describe(j) for j in range(3)] == ["x0", "max(0, x0 + 70)", "max(0, -70 - x0)"]
    times = fitted(1e9 + np.arange(5.0)[:, None] / 4, n=3, scale=False)  # knots need more digits
    assert times.describe(1, ["t"]) == "max(0, t - 1000000000.25)"
    assert times.describe(0, ["t"]) == "t - 1000000000.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hinges:n=0", "hinges: n must be a whole number of at least 1, got 0"),
        ("hinges:n=-3", "hinges: n must be a whole number of at least 1, got -3"),
        ("hinges:n=2.5", "hinges: n must be a whole number of at least 1, got 2.5"),
        ("hinges:n=true", "hinges: n must be a whole number of at least 1, got True"),
        ("hinges:n=1000000", "hinges: n must be at most 10000, got 1000000"),
        ("hinges:scale=2", "scale must be true or false, got '2'"),
        ("hinges:knots=3", "knots=3"),
        ("hingse", "did you mean hinges"),
    ],
)
def test_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_features(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"knots_": np.zeros(4)},
        {"knots_": np.array([1.0, np.nan, 0.0, 1.0])},
        {"knots_": [0.0, 1.0, 0.0, 1.0]},
        {"knots_": np.array([0.0, 1.0, 2.0])},
        {"knots_": np.array([[0.0, 1.0, 2.0, 3.0]])},
        {"starts_": np.array([0, 4, 2])},
        {"starts_": np.array([0, 1, 4])},  # three knots of a column for n = 2
        {"starts_": np.array([0, 4])},
        {"starts_": np.array([0.0, 2.0, 4.0])},
        {"starts_": np.array([-1, 2, 4])},
        {"scales_": np.array([1.0, 0.0])},
        {"scales_": np.ones(3)},
        {"shifts_": np.array([0.0, np.inf])},
        {"shifts_": 3},
        {"n_features": 11},
    ],
)
def test_a_damaged_state_is_refused(changes: dict[str, Any]) -> None:
    made = fitted(RNG.normal(size=(50, 2)), n=2)
    state = {key: decode(encode(value)) for key, value in made.state().items()}
    again = Hinges(2)
    again.restore(state)
    again.check_restored(2)
    again.restore(state | changes)
    with pytest.raises(InputError, match="features hinges: expected"):
        again.check_restored(2)


# -- models ----------------------------------------------------------------------------------------


def test_wild_scales() -> None:
    """Divided columns give the same model in any units; undivided ones need standardize."""
    data = fcl.open_data(X[:, :3], y=Y)
    units = np.array([2.0**-30, 2.0**40, 1.0])  # divisors differ by their rounding
    options: dict[str, Any] = {"C": 0.5, "tol": 1e-7}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        one = fcl.train(data, "hinges:n=4", **options)
        other = fcl.train(fcl.open_data(X[:, :3] * units, y=Y), "hinges:n=4", **options)
    assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=1e-2)
    with pytest.warns(ScaleWarning, match="standardize"):
        raw = fcl.train(data, "hinges:n=4,scale=false", **options)
    assert 1 not in raw.model.family.columns_read(raw.model.ids)
    # deviations of each feature
    even = fcl.train(data, "hinges:n=4,scale=false", standardize=True, **options)
    again = fcl.train(data, "hinges:n=4", standardize=True, **options)
    assert even.certificate.objective == pytest.approx(again.certificate.objective, rel=2e-7)
    assert {0, 1} <= set(even.model.family.columns_read(even.model.ids).tolist())
