"""Families of features with stagewise models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import random_array
from sklearn.linear_model import Ridge

import fcl
from fcl.errors import InputError
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseResult, StagewiseRunOptions, train_stagewise

GENERATORS = Path(__file__).parent.parent.parent / "examples" / "generators"


def fitted(data: fcl.DataSet, features: Any, **options: Any) -> StagewiseResult:
    settings = Settings(**{"valid_fraction": 0.0, "visits": 1, **options})
    return train_stagewise(data, features, settings, running=StagewiseRunOptions(cores=1))


def test_random_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sines of three frequencies and any phase, which no linear model tells apart."""
    monkeypatch.syspath_prepend(str(GENERATORS))
    from rocket import Rocket

    random = np.random.default_rng(0)
    y = random.integers(0, 3, 300)
    turns = np.outer(3.0 + 3.0 * y, np.linspace(0.0, 1.0, 50)) + random.uniform(0, 1, (300, 1))
    x = np.sin(2.0 * np.pi * turns) + 0.3 * random.standard_normal((300, 50))
    train, test = slice(0, 200), slice(200, 300)
    features = Rocket(n=120)
    model = fitted(fcl.open_data(x[train], y=y[train]), features, block=32).model
    assert (model.margins(x[test]).argmax(axis=1) == y[test]).mean() > 0.95

    weights, dilation, bias = features.convolution(4, 50)
    spread = np.zeros((len(weights) - 1) * dilation + 1)
    spread[::dilation] = weights
    values = np.array([np.correlate(row, spread, "valid") for row in x]) + bias
    expected = np.column_stack([values.max(axis=1), (values > 0).mean(axis=1)])
    assert np.allclose(features.columns(np.array([8, 9]), x), expected)
    with pytest.raises(InputError, match=r"Rocket.* at least 9 values, got 5"):
        fitted(fcl.open_data(x[:, :5], y=y), Rocket(n=8))


@pytest.mark.parametrize("kind", ["RandomLogits", "RandomPolynomials"])
def test_random_logits_and_polynomials(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A circle, which no linear model knows; features are the same in any blocks."""
    monkeypatch.syspath_prepend(str(GENERATORS))
    import random_features

    random = np.random.default_rng(0)
    x = random.normal(3.0, 2.0, (600, 2))
    y = (np.square(x - 3.0).sum(axis=1) > 5.5).astype(int)
    features = getattr(random_features, kind)(n=300)
    train = fcl.open_data(x[:400], y=y[:400])
    models = [fitted(train, features, block=block, alpha=0.01).model for block in (300, 77)]
    assert (models[0].margins(x[400:]).argmax(axis=1) == y[400:]).mean() > 0.85
    bound = models[1].family.generator
    whole = bound.columns(np.arange(300), x)
    assert np.array_equal(bound.columns(np.array([5, 256, 299]), x[:9]), whole[:9, [5, 256, 299]])
    z = (x - bound.mean_) / bound.norm_
    A = np.column_stack([z, np.full(len(z), 0.5)]) @ bound.weights(0, 2)
    if kind == "RandomLogits":
        expected = 1.0 / (1.0 + np.exp(-A))
    else:
        expected = A[:, ::2] * A[:, 1::2] / bound.scale**2
    np.testing.assert_allclose(whole[:, :200], expected[:, :200], rtol=1e-3, atol=1e-4)


def test_sparse_rows_give_the_model_of_dense_rows() -> None:
    random = np.random.default_rng(1)
    sparse = random_array((200, 90), density=0.1, format="csr", random_state=random)
    y = random.integers(0, 3, 200)
    found = [
        fitted(fcl.open_data(rows, y=y), "columns", block=40).model.weights.features
        for rows in (sparse, sparse.toarray())
    ]
    assert np.array_equal(*found)


def test_products_are_those_of_the_columns() -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal((100, 3))
    codes = (x[:, 0] * x[:, 1] > 0.0).astype(int)
    model = fitted(fcl.open_data(x, y=codes), "products:degree=2", alpha=0.1).model
    products = np.column_stack([x, *(x[:, [a]] * x[:, a:] for a in range(3))])
    expected = Ridge(alpha=0.1).fit(products, np.eye(2)[codes]).predict(products)
    assert np.allclose(model.margins(x), expected, atol=1e-5)
