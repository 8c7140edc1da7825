"""Several outputs of a user's class, and of a family of which each pass draws a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import generators
import numpy as np
import pytest
from explicit import prepare

from fcl import open_data
from fcl.features import bind_features, parse_features
from fcl.features.generator import pricing
from fcl.features.prices import PriceQuery, RowVector
from fcl.features.run import price_each, run
from tests.families import AboveOfSeveral

N, M, K = 300, 70, 5


def _table() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, M)) * (rng.random((N, M)) < 0.4)


def _bound(features: Any) -> tuple[Any, Any]:
    """A family, and its prepared rows."""
    x = _table()
    family = bind_features(features, open_data(x, y=np.zeros(N)).rows)
    return family, prepare(family, x, 128)


def _rows() -> list[RowVector]:
    values = np.random.default_rng(1).normal(size=(K, N)) * np.arange(1.0, K + 1.0)[:, None]
    return [RowVector(own) for own in values]


@pytest.mark.parametrize("number", [0, 3])
def test_a_pass_prices_what_it_draws_and_what_is_watched(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "LEAST_ROOM", 1)  # several groups of parts, and of outputs
    monkeypatch.setattr(pricing, "PART_FEATURES", 50)
    family, prepared = _bound(parse_features("fourier:per_pass=128"))
    drawn = family.features_in_pass(number)
    assert drawn == range(128 * number, 128 * (number + 1))
    watched = np.array([drawn[5], drawn[0], max(0, drawn.start - 7)])
    every = np.union1d(drawn, watched)
    made: Any = family.generator  # type: ignore[attr-defined]
    phi = made.columns(every, made.prepare(_table())).astype(np.float64)
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts), watched, 3.0, 5.0, number=number)
    rows = _rows()
    for found, own in zip(price_each(pricer, [query] * K, rows, range(3)), rows, strict=True):
        g = own.values @ phi
        size = np.abs(g)
        np.testing.assert_allclose(found.watched, g[np.searchsorted(every, watched)], atol=1e-9)
        np.testing.assert_allclose(found.gradients, g[np.searchsorted(every, found.ids)], atol=1e-9)
        assert found.n_priced == len(every) and found.largest >= size.max() * (1.0 - 1e-12)
        over = float(np.sum(np.maximum(size - 5.0, 0.0) ** 2))
        assert found.excess.sum() == pytest.approx(over, rel=1e-9)
        alone = run(pricer, query, own, range(3))
        assert set(alone.ids) <= set(found.ids) and alone.largest == found.largest
        sums = run(pricer, replace(query, find=False, power=2), own, range(3)).watched
        exact = (own.values @ phi**2)[np.searchsorted(every, watched)]
        np.testing.assert_allclose(sums, exact, rtol=1e-9, atol=1e-9)


def test_a_column_is_made_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    family, prepared = _bound(generators.Tanh())
    made: list[int] = []
    right = generators.Tanh.columns

    def counted(self: Any, ids: Any, block: Any) -> np.ndarray:
        made.append(len(ids))
        return right(self, ids, block)

    monkeypatch.setattr(generators.Tanh, "columns", counted)
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts), threshold=3.0)
    price_each(pricer, [query] * K, _rows(), range(3))
    assert sum(made) == 3 * M


def test_sums_of_several_outputs_have_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    family, prepared = _bound(AboveOfSeveral())
    monkeypatch.setattr(AboveOfSeveral, "gradients_of_several", lambda *a: np.ones(3))
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts))
    with pytest.raises(Exception, match=r"several gradients\(.*expected float64 \(5, "):
        price_each(pricer, [query] * K, _rows(), range(3))
