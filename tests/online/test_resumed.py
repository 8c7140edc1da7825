"""Learners and runs that are cut and resumed, and estimators, give the bits of a whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from online_eager import dense_point, stream
from stops import After
from windows import examples

import fcl
from fcl.online import OnlineOptions, make_learner
from tests.online.conftest import LABELS, ROWS, feed

CASES: list[dict[str, Any]] = [
    {"method": "ftrl"},
    {"method": "ftrl", "l1_ratio": 0.5, "weights": "float32"},
    {"method": "ftrl", "weights": "q2.6"},
    {"method": "truncated-gradient"},
    {"method": "truncated-gradient", "step": "adagrad", "theta": 0.2},
    {"method": "truncated-gradient", "l1_ratio": 0.5, "decay": 0.5},
    {"method": "truncated-gradient", "truncation": "round", "theta": 0.05, "weights": "float32"},
    {"method": "truncated-gradient", "weights": "float32", "rate": 1e-4, "alpha": 1.0},
    {"method": "truncated-gradient", "weights": "q2.6"},
    *(
        {"method": "ogd", "rate": 0.25, "weights": weights}
        for weights in ("float32", "q2.13", "q5.10")
    ),
]


def name_of(options: dict[str, Any]) -> str:
    return "-".join(map(str, options.values()))


@pytest.mark.slow
@pytest.mark.parametrize("own", CASES, ids=name_of)
@drawn(st.integers(0, 2**31), st.lists(st.integers(0, 60), max_size=4), st.integers(0, 60))
@examples(15)
def test_cuts_and_saving_change_no_bit(
    own: dict[str, Any], seed: int, cuts: list[int], stop: int
) -> None:
    X, y, s = stream(seed, 60, 5, "logistic")
    elastic = "decay" in own  # with which truncated gradient has one factor for all
    factors = np.array([2.0] * 4 + [np.inf] if elastic else [1.0, 0.5, 2.0, 1.0, np.inf])
    options = {"alpha": 0.02, "period": 3, "seed": seed, **own}
    method = options.pop("method")
    whole, cut, again = (
        make_learner(method, 5, OnlineOptions(**options), factors) for _ in range(3)
    )
    feed(whole, X, y, s)
    whole.end_pass()
    feed(whole, X, y, s)
    feed(cut, X, y, s, cuts)
    cut.end_pass()
    feed(cut, X[:stop], y[:stop], s[:stop])
    cut.point()
    again.restore(cut.saved())
    feed(again, X[stop:], y[stop:], s[stop:])
    assert np.array_equal(again.state, whole.state)
    for a, b in zip(again.point(), whole.point(), strict=True):
        assert np.array_equal(a, b)
    assert not dense_point(whole)[0][4]
    again.end_pass()
    whole.end_pass()
    for name, array in whole.saved().items():
        assert np.array_equal(again.saved()[name], array)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    *({"method": method, "weights": weights} for method in ("ftrl", "truncated-gradient")
      for weights in ("q", "q2.4", "q2.27")),
    {"method": "truncated-gradient", "period": 3, "average": True},
    {"method": "truncated-gradient", "period": 3, "truncation": "subgradient", "theta": 0.02},
    {"method": "ogd", "weights": "q2.5", "gamma": 0.5, "max_weight": 2.0},
    {"method": "ogd", "weights": "q2.26"},
    {"method": "ogd", "weights": "q2.13", "rates": "global"},
    {"method": "ogd", "weights": "float32", "rates": "global", "max_weight": 0.25},
], ids=name_of)  # fmt: skip
def test_resumed_runs_and_estimators(tmp_path: Path, options: dict[str, Any]) -> None:
    data = fcl.open_data(ROWS, y=LABELS)
    own = {"alpha": 1e-3, "rate": 0.3, "passes": 2, **options}
    given: dict[str, Any] = {"features": "columns", "block_rows": 256, "certify": False} | own
    whole = fcl.train_online(data, **given)
    for calls in (3, 11):
        part = fcl.train_online(data, **given, should_stop=After(calls))
        part.save(tmp_path / f"{calls}.fcl")
        more = fcl.train_online(data, resume=tmp_path / f"{calls}.fcl", passes=2, certify=False)
        assert more.model.weights.tobytes() == whole.model.weights.tobytes()
        assert more.model.intercept == whole.model.intercept
        assert more.state.table.tobytes() == whole.state.table.tobytes()
    chosen = "q2.13" if options.get("weights") == "q" else options.get("weights")
    expected = options if chosen is None else options | {"weights": chosen}
    assert {name: whole.model.options[name] for name in options} == expected
    if options.get("weights") != "q":  # which estimators do not have
        found = fcl.FCLOnlineClassifier(**own, random_state=0).fit(ROWS, LABELS)
        plain = fcl.train_online(data, **(given | {"block_rows": 65_536}))
        assert np.array_equal(found.models_[0].weights, plain.model.weights)
