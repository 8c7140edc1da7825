"""Standardised features: the optimum on the explicitly scaled matrix, in the units of the data."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from judge import LOSSES, Problem, confirm
from scipy.sparse import csr_array

import fcl
from fcl.data.prepared import PreparedRows
from fcl.features import Columns, Concat, Fourier, bind_features
from fcl.features.standardized import attach_scales, standardized
from tests import by_name
from tests.drivers.conftest import dense, fit

STRENGTHS = {"logistic": 0.3, "squared": 0.02, "squared_hinge": 0.1}
N, M = 300, 12
#: A column that is the same in all rows.
CONSTANT = 5


def deviations(phi: np.ndarray, s: np.ndarray | None = None) -> np.ndarray:
    """Weighted standard deviations of the columns, in the population form."""
    mean = np.average(phi, axis=0, weights=s)
    found: np.ndarray = np.sqrt(np.average((phi - mean) ** 2, axis=0, weights=s))
    return found


def uneven_rows(sparse: bool = False, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of scales from 1e-5 to 1e5, one of them constant; labels; numbers that follow from both."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(N, M)) + rng.normal(size=M)
    if sparse:
        z[rng.random((N, M)) < 0.6] = 0.0
    z[:, CONSTANT] = 0.1
    labels = np.where(z[:, 0] - z[:, 3] + 0.5 * z[:, 7] + rng.normal(size=N) > 0.0, 1.0, -1.0)
    numbers = 3.0 * z[:, 1] - 2.0 * z[:, 4] + rng.normal(size=N) + 50.0
    return z * 10.0 ** rng.integers(-5, 6, M), labels, numbers


def train(rows: Any, y: np.ndarray, features: Any = "columns", **options: Any) -> Any:
    options = {"standardize": True, "C": 0.3, "tol": 1e-8, "block_rows": 128} | options
    s = options.pop("weights", None)
    return fit(fcl.open_data(rows, y=y, weights=s), features, **options)


def judge(
    result: Any, phi: np.ndarray, y: np.ndarray, s: np.ndarray | None = None, **how: Any
) -> None:
    """The certificate and the optimum, on the matrix of the features that vary, scaled in full."""
    sd = deviations(phi, s)
    varies = np.ptp(phi, axis=0) > 0.0
    w = dense(result.model, phi.shape[1])
    assert not w[~varies].any()
    problem = Problem(
        phi[:, varies] / sd[varies],
        y,
        np.ones(len(y)) if s is None else s,
        result.model.loss,
        result.model.C,
        result.model.options["intercept"],
        result.model.options["l1_ratio"],
        **how,
    )
    best = problem.solve()
    assert result.converged, result.message
    assert result.certificate.n_priced == phi.shape[1]
    assert result.certificate.objective == pytest.approx(best.objective, rel=2e-8)
    confirm(problem, (w * sd)[varies], result.model.intercept, result.certificate, best)


# -- the optimum -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("l1_ratio", "sparse", "intercept"), [(1.0, True, True), (0.4, False, True), (0.4, True, False)]
)
@pytest.mark.parametrize("loss", LOSSES)
def test_optimum(loss: str, l1_ratio: float, sparse: bool, intercept: bool) -> None:
    x, labels, numbers = uneven_rows(sparse)
    y = numbers if loss == "squared" else labels
    s = np.random.default_rng(1).uniform(0.1, 3.0, N)
    result = train(
        csr_array(x) if sparse else x,
        y,
        weights=s,
        loss=loss,
        C=STRENGTHS[loss],
        l1_ratio=l1_ratio,
        intercept=intercept,
    )
    assert 2 <= result.model.n_active < M
    judge(result, x, y, s)
    # prediction, names and the model file: in the units of the data
    margins = x[:, result.model.ids] @ result.model.weights + result.model.intercept
    assert result.model.margins(x) == pytest.approx(margins, rel=1e-9, abs=1e-9)
    named = {row.feature: row.weight for row in result.model.describe()}
    assert named == {
        f"x{j}": w for j, w in zip(result.model.ids, result.model.weights, strict=True)
    }


def test_class_weights_count_in_the_deviations() -> None:
    x, y, _ = uneven_rows(seed=2)
    valid = fcl.open_data(x[:50], y=y[:50])
    result = train(x, y, valid=valid, class_weight={1: 3.0})
    judge(result, x, y, np.where(y > 0.0, 3.0, 1.0))
    found = result.model.history[-1]["validation"]["auprc"]
    margins = result.model.margins(x[:50])
    assert found == pytest.approx(fcl.average_precision(y[:50], margins), abs=1e-12)


def test_rows_of_weight_0_have_no_part() -> None:
    x, y, _ = uneven_rows()
    s = np.ones(N)
    s[::3] = 0.0
    kept = s > 0.0
    x[~kept] *= 1e6
    judge(train(x, y, weights=s), x[kept], y[kept])


def test_a_sample_of_rows() -> None:
    x, y, _ = uneven_rows(seed=3)
    judge(train(x, y, row_view=150, tol=1e-7), x, y)


def test_several_families() -> None:
    # products of the factors of the members, of the columns and of the deviations
    x, y, _ = uneven_rows(seed=4)
    x /= deviations(x) + (np.ptp(x, axis=0) == 0.0)
    x[:, 2] *= 1000.0
    factors = np.linspace(0.5, 2.0, M)
    factors[7] = np.inf
    features = Concat([(Columns(factors.tolist()), 1.5), (Fourier(20, gamma=0.1), 3.0)])
    result = train(x, y, features, l1_ratio=0.7, C=2.0)
    waves = bind_features(Fourier(20, gamma=0.1), fcl.open_data(x, y=y).rows)
    generator: Any = waves.generator  # type: ignore[attr-defined]
    phi = np.hstack([x, generator.columns(np.arange(20), generator.prepare(x))])
    f = np.concatenate([1.5 * factors, np.full(20, 3.0)])
    free = np.isfinite(f)
    assert not np.isin(np.flatnonzero(~free), result.model.ids).any()
    ids = np.searchsorted(np.flatnonzero(free), result.model.ids)
    phi, f = phi[:, free], f[free]
    sd = deviations(phi)
    varies = np.ptp(phi, axis=0) > 0.0
    w = np.zeros(len(f))
    w[ids] = result.model.weights
    parts = (phi[:, varies] / sd[varies], y, np.ones(N), "logistic", 2.0, True, 0.7, f[varies])
    problem = Problem(*parts)
    best = problem.solve()
    assert result.converged and len(ids) > 5 and ids.max() >= M - 1
    assert result.certificate.objective == pytest.approx(best.objective, rel=2e-8)
    own = problem.objective((w * sd)[varies], result.model.intercept)
    # columns of fourier are float32
    assert result.certificate.objective == pytest.approx(own, rel=1e-6)
    assert result.certificate.bound <= best.objective * (1.0 + 1e-6)


@pytest.mark.parametrize("name", ["Above", "Sparse", "Tanh"])
def test_classes_of_a_user(name: str) -> None:
    import generators

    x, y, _ = uneven_rows(sparse=name == "Sparse", seed=5)
    x = np.arcsinh(x)
    rows = csr_array(x) if name == "Sparse" else x
    features = getattr(generators, name)()
    result = train(rows, y, features)
    bound: Any = bind_features(features, fcl.open_data(rows, y=y).rows)
    block = bound.block_of(
        next(bound.form.read(fcl.open_data(rows, y=None).rows, N, None, 0, None))[2]
    )
    phi = bound.generator.columns(np.arange(M), block).astype(np.float64)
    judge(result, phi, y)


# -- other solvers ---------------------------------------------------------------------------------


# -- how deviations are measured -------------------------------------------------------------------


def measured(
    x: Any, s: np.ndarray, block_rows: int, parts: Callable[[int], list[range]], features: Any
) -> np.ndarray:
    """The scales (2, n_features) that a pricer measures, in groups of parts."""
    rows = fcl.open_data(x, y=None).rows
    family: Any = standardized(bind_features(features, rows))
    prepared = PreparedRows(len(s), block_rows, family.record_shape(block_rows))
    for number, (_, _, raw) in enumerate(family.read_rows(rows, block_rows)):
        sides = family.prepare(raw, prepared.writable(number), prepared.block_rows)
        prepared.commit(number, sides)
    scales = np.full((2, family.n_features), np.nan)
    attach_scales(family, scales)
    pricer = family.pricer(prepared, 16)
    for some in parts(pricer.n_parts):
        pricer.measure(s, some)
    return scales


@pytest.mark.parametrize("form", ["dense", "csr", "by columns"])
def test_deviations(form: str) -> None:
    rng = np.random.default_rng(0)
    n, m = 1000, 200
    x = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-8, 9, m)
    x[rng.random((n, m)) < 0.3] = 0.0
    x[:, 10] = 1e6 + rng.choice([-1.0, 1.0], n)
    x[:, 11] = 1e9 + rng.choice([-1e-3, 1e-3], n)
    x[:, 12], x[:, 13], x[:, 14] = 0.1, 0.0, -3e7 / 7.0  # constant
    x[:, 15] = 0.0
    x[n // 2, 15] = 7.0
    x[:, 16] = rng.random(n) < 0.01
    x[: n // 2, 17], x[n // 2 :, 17] = 5.0, 6.0  # constant in every block
    s = rng.uniform(0.5, 2.0, n)
    rows = csr_array(x) if form == "csr" else x
    import generators

    features: Any = generators.NoOptions() if form == "by columns" else Columns()

    def one(k: int) -> list[range]:
        return [range(k)]

    def many(k: int) -> list[range]:
        return [range(p, p + 1) for p in reversed(range(k))]

    scales = measured(rows, s, 128, one, features)
    # the same bits however parts are shared out
    assert scales.tobytes() == measured(rows, s, 128, many, features).tobytes()
    assert (scales[1] == np.abs(x).max(axis=0)).all()
    exact = deviations(x.astype(np.longdouble), s.astype(np.longdouble)).astype(np.float64)
    constant = np.ptp(x, axis=0) == 0.0
    assert constant.sum() == 3 and np.isinf(scales[0, constant]).all()
    np.testing.assert_allclose(scales[0, ~constant], exact[~constant], rtol=1e-12)
    # tiny weights of rows change nothing
    tiny = measured(rows, 1e-300 * s, 128, one, features)
    np.testing.assert_allclose(tiny, scales, rtol=1e-12)


def test_an_offset_that_dwarfs_the_deviation() -> None:
    x, y, _ = uneven_rows(seed=8)
    x[:, 2] = 1e6 + np.where(np.random.default_rng(1).random(N) < 0.7, y, -y)
    result = train(x, y, tol=1e-7)
    sd = deviations(x)
    assert sd[2] == pytest.approx(1.0, rel=0.1)
    varies = np.ptp(x, axis=0) > 0.0
    # an intercept takes up what columns are shifted by
    z = (x[:, varies] - x[:, varies].mean(axis=0)) / sd[varies]
    best = Problem(z, y, np.ones(N), "logistic", 0.3).solve()
    assert 2 in result.model.ids and result.converged
    assert result.certificate.objective == pytest.approx(best.objective, rel=2e-7)
    assert result.certificate.bound <= best.objective * (1.0 + 1e-9)


def test_columns_are_all_constant() -> None:
    _, y, _ = uneven_rows()
    result = train(np.full((N, 3), 2.5), y)
    assert result.converged and result.model.n_active == 0 and result.certificate.gap <= 1e-8


# -- going on --------------------------------------------------------------------------------------


def test_a_writer_dies_while_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = uneven_rows(seed=11)
    monkeypatch.setenv("FCL_FAULT", "writer:0:measure-done:1:kill")
    result = train(x, y, driver="processes", writers=1)
    monkeypatch.delenv("FCL_FAULT")
    judge(result, x, y)


def test_initial() -> None:
    x, y, _ = uneven_rows(seed=10)
    first = train(x, y, C=1.0).model
    again = train(x, y, C=1.0, initial=first)
    judge(again, x, y)
    # the second pass is of the model that was given
    assert again.model.history[1]["objective"] == pytest.approx(
        first.certificate.objective, rel=1e-9
    )
    # on rows where a column with a weight is constant, the weight is left out
    j = int(first.ids[0])
    x[:, j] = x[0, j]
    other = train(x, y, C=1.0, initial=first)
    assert j not in other.model.ids
    judge(other, x, y)


def test_the_model_holds_no_deviations(tmp_path: Path) -> None:
    x, y, _ = uneven_rows()
    with_, without = train(x, y).model, train(x, y, standardize=False, warn=False, tol=0.5).model
    assert with_.family.to_config() == without.family.to_config()
    assert type(with_.family) is type(without.family)
    with_.save(tmp_path / "m.fcl")
    read = fcl.load_model(tmp_path / "m.fcl")
    assert read.options["standardize"] is True
    assert read.margins(x).tobytes() == with_.margins(x).tobytes()
    assert len(json.dumps(read.family.to_config())) < 1000


# -- what is warned of ------------------------------------------------------------------------------


def test_a_plan_has_room_for_the_deviations() -> None:
    x, y, _ = uneven_rows()
    data = fcl.open_data(x, y=y)
    plans = [fcl.plan_training(data, "columns", C=1.0, standardize=on) for on in (False, True)]
    tables = [plan.of("tables of a pass") / plan.most_threads for plan in plans]
    assert tables[1] - tables[0] == (16 + 80) * M


def warned(features: Any, rows: Any, y: np.ndarray, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        by_name.train(fcl.open_data(rows, y=y), features, **({"C": 1e-9, "tol": 1e-1} | options))
    return [str(w.message) for w in found if issubclass(w.category, fcl.ScaleWarning)]


@pytest.mark.parametrize("sparse", [True, False])
def test_uneven_scales_are_warned_of(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4)) + 1e3
    x[:, 0] = 0.1  # constant
    x[:, 1] *= 1e-3 / 1.5
    x[:, 3] *= 15.0
    y = np.where(rng.random(N) < 0.5, 1, -1)
    rows = csr_array(x) if sparse else x
    (text,) = warned("columns", rows, y)
    low, high = np.std(x[:, 1]), np.std(x[:, 3])
    assert f"from {low:.2g} (x1) to {high:.2g} (x3) on {N} rows" in text
    assert "set standardize=True (--standardize), or scale the columns" in text
    assert warned("columns", rows, y, standardize=True) == []
    assert warned("columns", rows, y, warn=False) == []
    assert warned(Columns([1.0, 1e-3, 1.0, 15.0]), rows, y) == []  # the user chose the factors
    x[:, 1] *= 2.0
    x[:, 3] /= 15.0
    assert warned("columns", csr_array(x) if sparse else x, y) == []


def test_a_path_warns_by_the_names_of_columns() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 1e4]
    data = fcl.open_data(pd.DataFrame(x, columns=["age", "income"]), y=np.arange(60) % 2)
    with pytest.warns(fcl.ScaleWarning, match=r"\(age\) to .* \(income\)"):
        fcl.train_path(data, "columns", points=2)


def test_what_to_do_about_products() -> None:
    x, y, _ = uneven_rows()
    assert warned("products:degree=2", x, y) == []  # they are scaled
    (text,) = warned("products:degree=2,scale=false", x, y)
    assert "set products:scale=true, or scale the columns before they are multiplied" in text
    (text,) = warned("columns + products:degree=2", x, y)
    assert "features Columns" in text


def test_zeros_and_ones_are_not_warned_of() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((20_000, 3)) < np.array([0.5, 0.01, 0.0001])
    y = np.where(rng.random(20_000) < 0.5, 1, -1)
    assert warned("columns", csr_array(x.astype(np.float64)), y) == []
    assert warned("products:degree=2", x, y) == []
    codes = rng.integers(0, 4, (200, 8)).astype(np.uint8)
    assert warned("kmers:d=2", codes, y[:200]) == []
    assert warned("bag:d=2", codes, y[:200]) == []
