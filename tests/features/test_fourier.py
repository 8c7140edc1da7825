"""Random Fourier features: their distribution, their values, and how they are found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import kstest
from sklearn.decomposition import PCA

import fcl
from fcl.features import Fourier, bind_features, parse_features, spell_features
from fcl.features.fourier import STEP
from fcl.features.generator.contract import decode, encode


def numbers(n: int = 700, m: int = 5, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.standard_normal((n, m)) * [1.0, 3.0, 0.2, 1.0, 10.0][:m] + [0, 5, 0, -2, 1][:m]


def fitted(x: np.ndarray, **options: Any) -> Fourier:
    made = Fourier(**{"n": 300, **options})
    made.fit(x)
    return made


# -- the random numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "law"), [("gaussian", "norm"), ("laplace", "cauchy")])
def test_frequencies_and_phases_are_as_they_should_be(kernel: str, law: str) -> None:
    made = fitted(numbers(), kernel=kernel, gamma=0.3, seed=4)
    omega, b = made.frequencies(np.arange(4000))
    scale = np.sqrt(2 * 0.3) if kernel == "gaussian" else 0.3
    for row in omega / scale:
        assert kstest(row, law).pvalue > 1e-3
    assert kstest((omega / scale).ravel(), law).pvalue > 1e-3
    assert kstest(b / (2 * np.pi), "uniform").pvalue > 1e-3
    signs = np.sign(omega)  # heavy tails have no correlations
    assert np.abs(np.corrcoef(np.vstack([signs, b - np.pi])) - np.eye(6)).max() < 0.06
    if kernel == "gaussian":
        assert np.abs(np.cov(omega) / (2 * 0.3) - np.eye(5)).max() < 0.06


@pytest.mark.parametrize(
    ("kernel", "metric"), [("gaussian", "sqeuclidean"), ("laplace", "cityblock")]
)
def test_they_approximate_their_kernel(kernel: str, metric: str) -> None:
    x = numbers(60)
    made = fitted(x, kernel=kernel, gamma=0.2, n=20000)
    z = made.prepare(x)
    phi = made.columns(np.arange(20000), z).astype(np.float64)
    exact = np.exp(-0.2 * cdist(z, z, metric))
    # the mean of 20,000 values of a variance of at most 3/2: five standard deviations
    assert np.abs(2.0 * phi @ phi.T / 20000 - exact).max() < 5 * np.sqrt(1.5 / 20000)


def test_another_seed_gives_other_features() -> None:
    x = numbers()
    omega = [fitted(x, seed=seed).frequencies(np.arange(50))[0] for seed in (0, 1, 1 << 40)]
    assert not np.isclose(omega[0], omega[1]).any() and not np.isclose(omega[0], omega[2]).any()


# -- the values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [None, "int8"])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("m", [1, 4, 23])
def test_a_value_has_the_same_bits_in_any_place(kernel: str, m: int, dtype: str | None) -> None:
    """Columns of few features or rows, sums and margins compute what columns of all of them compute."""
    random = np.random.default_rng(m)
    x = random.standard_normal((600, m))
    made = fitted(x, kernel=kernel, dtype=dtype)
    z = made.prepare(x)
    phi = made.columns(np.arange(300), z)
    ids, rows = random.permutation(300), random.permutation(600)
    np.testing.assert_array_equal(made.columns(ids, z[rows]), phi[np.ix_(rows, ids)])
    for some in (slice(0, 1), slice(13, 14), slice(255, 600)):
        np.testing.assert_array_equal(made.columns(ids[:7], z[some]), phi[some, ids[:7]])
        alone = made.columns(ids[:7], made.prepare(x[some]))
        np.testing.assert_array_equal(alone, phi[some, ids[:7]])
    for row, feature in ((0, 0), (311, 77), (599, 299)):
        unit = np.zeros(600)
        unit[row] = 1.0
        np.testing.assert_array_equal(made.gradients(0, 300, z, unit), phi[row])
        found = made.margins(np.array([feature]), np.ones(1), z)
        np.testing.assert_array_equal(found, phi[:, feature])
    r = random.standard_normal(600)
    whole = made.gradients(0, 300, z, r)
    for first, last in ((0, 1), (5, 200), (5, 200), (130, 300)):  # the second from what was kept
        assert (made.gradients(first, last, z, r) == whole[first:last]).all()


def test_the_step() -> None:
    """All its multiples are exact in float32, and so is their quotient by it."""
    k = np.arange(-127, 128)
    assert (np.float32(STEP) * k.astype(np.float32) == STEP * k).all()
    assert (np.float32(STEP) * k.astype(np.float32) / np.float32(STEP) == k).all()
    assert pytest.approx(1.0 / 127.0, rel=5e-7) == STEP


@pytest.mark.parametrize(
    ("kernel", "dtype", "tolerance"),
    [("gaussian", np.float32, 3e-6), ("laplace", np.float64, 1e-9)],
)
def test_eight_bits_against_float64(kernel: str, dtype: type, tolerance: float) -> None:
    x = numbers()
    made = fitted(x, kernel=kernel, dtype="int8")
    z = made.prepare(x)
    phi = made.columns(np.arange(300), z)
    steps = np.rint(phi / STEP)
    assert phi.dtype == dtype and (steps * STEP == phi).all()
    assert set(np.unique(steps)) == set(range(-127, 128))
    assert np.abs(phi).max() <= made.largest(z) == 127.0 * STEP
    # of the cosines without rounding: the next step but where they lie half way, within their error
    omega, b = made.frequencies(np.arange(300))
    exact = 127.0 * np.cos(z.astype(np.float64) @ omega + b)
    allowed = 127.0 * tolerance * np.maximum(1.0, np.abs(z @ omega))
    assert (np.abs(steps - exact) <= 0.5 + allowed).all()
    same = steps == np.rint(exact)
    assert same.mean() > 0.999
    cosines = fitted(x, kernel=kernel).columns(np.arange(300), z)
    assert (steps == np.rint(dtype(127.0) * cosines)).all()


# -- fit and options -------------------------------------------------------------------------------


def test_the_median_of_distances() -> None:
    x = numbers(200)
    z = (x - x.mean(0)) / x.std(0)
    pairs = np.triu_indices(200, 1)
    squares, sums = cdist(z, z, "sqeuclidean")[pairs], cdist(z, z, "cityblock")[pairs]
    assert fitted(x).gamma_ == pytest.approx(1.0 / (2.0 * np.median(squares)), rel=1e-12)
    assert fitted(x, kernel="laplace").gamma_ == pytest.approx(1.0 / np.median(sums), rel=1e-12)
    raw = cdist(x, x, "sqeuclidean")[pairs]
    found = fitted(x, standardise=False)
    assert found.gamma_ == pytest.approx(1.0 / (2.0 * np.median(raw)), rel=1e-12)
    assert (found.prepare(x) == x.astype(np.float32)).all()
    assert fitted(x, gamma=7).gamma_ == 7.0


def test_constant_columns_are_only_centred() -> None:
    x = numbers(50)
    x[:, 2] = 0.1  # whose mean is not exactly 0.1
    made = fitted(x)
    assert made.scale_[2] == 1.0 and (np.abs(made.prepare(x)[:, 2]) < 1e-15).all()


@pytest.mark.parametrize("x", [np.full((30, 3), 2.5), np.ones((1, 3))])
def test_a_bandwidth_of_the_user_for_equal_rows(x: np.ndarray) -> None:
    assert fitted(x, gamma=0.5).gamma_ == 0.5


def test_descriptions() -> None:
    made = fitted(numbers(), gamma=0.5)
    omega, b = made.frequencies(np.array([7]))
    strongest = int(np.abs(omega[:, 0]).argmax())
    text = made.describe(7)
    assert f"{abs(omega[strongest, 0]):.3g} z{strongest}" in text
    assert text.startswith("cos(") and text.endswith(f" + ... + {b[0]:.3g})")
    rounded = fitted(numbers(), gamma=0.5, dtype="int8")
    assert rounded.describe(7) == f"round(127 {text}) / 127"
    assert text.count("z") == 3 and "z" not in fitted(numbers(), standardise=False).describe(7)


def test_values_beyond_float32_are_reported() -> None:
    x = numbers(300)
    made = fitted(x, standardise=False, gamma=1.0)
    x[3, 1] = 1e300
    assert not np.isfinite(made.columns(np.arange(5), made.prepare(x))[3]).any()


# -- principal components --------------------------------------------------------------------------


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("shape", [(700, 30), (20, 30)])  # from the covariance, and from the rows
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_principal_components(standardise: bool, shape: tuple[int, int], kernel: str) -> None:
    random = np.random.default_rng(1)
    x = 5.0 + random.standard_normal(shape) @ random.standard_normal((30, 30)) + random.random(30)
    made = fitted(x, pca=7, standardise=standardise, kernel=kernel)
    inputs = (x - x.mean(0)) / x.std(0) if standardise else x
    peer = PCA(7, svd_solver="full").fit(inputs)
    sign = np.sign((made.components_ * peer.components_).sum(axis=1))
    np.testing.assert_allclose(sign[:, None] * made.components_, peer.components_, atol=1e-10)
    expected = peer.transform(inputs) * sign
    z = made.prepare(x)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-11 if kernel == "laplace" else 2e-5)
    metric = "cityblock" if kernel == "laplace" else "sqeuclidean"
    distances = cdist(expected, expected, metric)[np.triu_indices(shape[0], 1)]
    factor = 1.0 if kernel == "laplace" else 2.0
    assert made.gamma_ == pytest.approx(1.0 / (factor * np.median(distances)), rel=1e-9)
    # a row has the same bits beside any others, and in a model that was read again
    again = Fourier(**made.options())
    again.restore({key: decode(encode(value)) for key, value in made.state().items()})
    again.check_restored(30)
    rows = np.array([3, 4, 17])
    ids = np.arange(300)
    values = made.columns(ids, z)
    assert (again.columns(ids, again.prepare(x[rows])) == values[rows]).all()
    assert made.frequencies(ids)[0].shape == (7, 300)
    assert " p" in made.describe(7).replace("(", " ")


def test_principal_components_are_learnt_from_up_to_20_000_rows() -> None:
    x = np.random.default_rng(2).standard_normal((20_000, 3))
    made = bind_features(
        parse_features("fourier:n=5,pca=2,standardise=true"), fcl.open_data(x, y=None).rows
    ).generator
    assert made == Fourier(5, pca=2, standardise=True) == parse_features(spell_features(made))
    peer = PCA(2).fit((x - x.mean(0)) / x.std(0)).components_
    np.testing.assert_allclose(np.abs(made.components_), np.abs(peer), atol=1e-9)


@pytest.mark.parametrize(
    ("text", "standardise"),
    [
        ("fourier:n=5", True),
        ("fourier:n=5,pca=2", False),
        ("fourier:n=5,pca=2,standardise=true", True),
        ("fourier:n=5,standardise=false", False),
    ],
)
def test_components_are_of_centred_columns_by_default(text: str, standardise: bool) -> None:
    """The value is stored, so that a model or a text of any version keeps its meaning."""
    made: Any = parse_features(text)
    assert made.standardise is standardise and made.options()["standardise"] is standardise
    assert f"standardise={str(standardise).lower()}" in spell_features(made)
    assert Fourier(**made.options()) == made == parse_features(spell_features(made))
    made.fit(numbers())
    assert (made.scale_ == 1.0).all() == (not standardise)
