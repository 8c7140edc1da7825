"""Training with several outputs: classes, targets and labels."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fcl
from fcl import InputError, open_data

TOL = 1e-8


def _classes(n=150, p=12, k=3, seed=0):
    """Rows (n, p), and classes 0 .. k - 1 that depend on a few columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    weights = np.zeros((p, k))
    weights[:3] = 1.5 * rng.normal(size=(3, k))
    return X, (X @ weights + rng.gumbel(size=(n, k))).argmax(axis=1)


def _train(X, y, features="columns", C=0.2, loss="softmax", **options):
    options = {"tol": TOL, "warn": False, **options}
    return fcl.train(open_data(X, y=y), features, C=C, loss=loss, **options)


def _whole(model, p):
    """Weights (p, K) of all columns."""
    weights = np.zeros((p, model.n_outputs))
    weights[model.ids] = model.weights
    return weights


def _softmax(X, y, W, b, C, s=None, offset=0.0, group=False, rho=1.0):
    """The objective, by its definition."""
    margins = X @ W + b + offset
    losses = np.logaddexp.reduce(margins, axis=1) - margins[np.arange(len(y)), y]
    sizes = np.linalg.norm(W, axis=1) if group else np.abs(W).sum(axis=1)
    penalty = rho * sizes.sum() + 0.5 * (1.0 - rho) * (W**2).sum()
    return penalty + C * (losses * (1.0 if s is None else s)).sum()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # about the argument penalty
@pytest.mark.filterwarnings("ignore:Inconsistent values:UserWarning")
def test_softmax_is_that_of_another_solver():
    X, y = _classes()
    result = _train(X, y)
    other = LogisticRegression(penalty="l1", C=0.2, solver="saga", tol=1e-10, max_iter=20_000)
    other.fit(X, y)
    best = _softmax(X, y, other.coef_.T, other.intercept_, 0.2)
    model, certificate = result.model, result.model.certificate
    assert result.converged
    assert certificate.gap <= TOL
    assert certificate.objective == pytest.approx(best, rel=1e-7)
    assert certificate.bound <= best * (1.0 + 1e-12)
    own = _softmax(X, y, _whole(model, 12), model.intercept, 0.2)
    assert certificate.objective == pytest.approx(own, rel=1e-12)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)


def test_two_classes_are_the_binary_model():
    X, y = _classes(k=2)
    several, one = _train(X, y), _train(X, y, loss="logistic")
    assert several.model.certificate.objective == pytest.approx(one.model.certificate.objective)
    difference = _whole(several.model, 12) @ [-1.0, 1.0]
    weights = np.zeros(12)
    weights[one.model.ids] = one.model.weights
    np.testing.assert_allclose(difference, weights, atol=1e-4)


def test_relabelling_permutes():
    X, y = _classes()
    first, other = _train(X, y).model, _train(X, np.array([2, 0, 1])[y]).model
    np.testing.assert_allclose(_whole(other, 12)[:, [2, 0, 1]], _whole(first, 12), atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"l1_ratio": 0.5},
        {"group": True},
        {"group": True, "l1_ratio": 0.7},
        {"intercept": False},
        {"block_rows": 64},
        {"row_view": 100},
        {"class_weight": "balanced"},
        {"standardize": True},
    ],
    ids=str,
)
def test_options(options):
    X, y = _classes()
    result = _train(X, y, tol=1e-6, **options)
    model = result.model
    assert result.converged, result.message
    W, scale = _whole(model, 12), np.ones(12)
    if "standardize" in options:
        scale = X.std(axis=0)
    s = 150 / (3 * np.bincount(y)[y]) if "class_weight" in options else None
    rho, group = options.get("l1_ratio", 1.0), "group" in options
    own = _softmax(X / scale, y, W * scale[:, None], model.intercept, 0.2, s, 0.0, group, rho)
    assert model.certificate.objective == pytest.approx(own, rel=1e-10)
    if group:
        assert ((W != 0.0).all(axis=1) | (W == 0.0).all(axis=1)).all()
        np.testing.assert_allclose(W.sum(axis=1), 0.0, atol=1e-4)
    if options.get("intercept") is False:
        assert not model.intercept.any()


@pytest.mark.parametrize("features", ["fourier:n=40", "products:degree=2"])
def test_families(features):
    X, y = _classes()
    assert _train(X, y, features, tol=1e-4).converged


def test_sequences():
    rng = np.random.default_rng(1)
    windows = rng.integers(0, 4, size=(200, 12)).astype(np.uint8)
    y = np.where(windows[:, 3] == 1, windows[:, 7] % 3, 2)
    result = _train(windows, y, "kmers:d=3", C=0.1, tol=1e-4)
    assert result.converged
    assert result.model.predict(windows).shape == (200,)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_separate_outputs_are_separate_models(loss):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 10))
    Y = X @ (rng.normal(size=(10, 3)) * (rng.random((10, 3)) < 0.4)) + rng.normal(size=(120, 3))
    if loss == "logistic":
        Y = (Y > 0).astype(int)
    joint = _train(X, Y, loss=loss, C=0.1)
    single = [_train(X, Y[:, k], loss=loss, C=0.1).model for k in range(3)]
    total = sum(model.certificate.objective for model in single)
    assert joint.converged
    assert joint.model.certificate.objective == pytest.approx(total, rel=1e-7)
    weights = _whole(joint.model, 10)
    for k, model in enumerate(single):
        alone = np.zeros(10)
        alone[model.ids] = model.weights
        np.testing.assert_allclose(weights[:, k], alone, atol=1e-4)


def test_offsets_shift_the_margins():
    X, y = _classes()
    offset = np.random.default_rng(3).normal(size=(150, 3))
    data = open_data(X, y=y, offset=offset)
    model = fcl.train(data, "columns", C=0.2, loss="softmax", tol=1e-6).model
    own = _softmax(X, y, _whole(model, 12), model.intercept, 0.2, offset=offset)
    assert model.certificate.objective == pytest.approx(own, rel=1e-10)


def test_resumed_bit_for_bit(tmp_path):
    X, y = _classes(p=40)
    whole = _train(X, y)
    stopped = _train(X, y, max_passes=2, checkpoint=tmp_path / "c")
    assert not stopped.converged
    again = _train(X, y, resume=tmp_path / "c", checkpoint=tmp_path / "c", max_passes=1000)
    np.testing.assert_array_equal(again.model.ids, whole.model.ids)
    np.testing.assert_array_equal(again.model.weights, whole.model.weights)


def test_processes():
    X, y = _classes()
    one, several = _train(X, y, tol=1e-6), _train(X, y, tol=1e-6, driver="processes", writers=2)
    assert several.converged
    assert several.model.certificate.objective == pytest.approx(
        one.model.certificate.objective, rel=2e-6
    )


def test_the_model_file(tmp_path):
    X, y = _classes()
    names = np.array(["low", "middle", "high"])[y]
    model = _train(X, names).model
    model.save(tmp_path / "m.fcl")
    again = fcl.load_model(tmp_path / "m.fcl")
    assert again.labels == ("high", "low", "middle")
    np.testing.assert_array_equal(again.margins(X), model.margins(X))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariates": np.ones((150, 1))}, "covariates: expected none with several classes"),
        ({"loss": "logistic"}, "expected two"),
        ({"loss": "huber"}, "several columns need one of the losses"),
    ],
)
def test_bad_input(options, words):
    X, y = _classes()
    if options.get("loss") == "huber":
        y = np.column_stack([y, y]).astype(float)
    with pytest.raises(InputError, match=words):
        _train(X, y, **options)


@pytest.mark.parametrize("kind", ["softmax", "squared", "logistic"])
def test_validation_and_paths(kind):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 6))
    Y = X[:, :3] + rng.normal(size=(150, 3))
    y = {"softmax": Y.argmax(axis=1), "squared": Y, "logistic": (Y > 0).astype(int)}[kind]
    model = _train(X, y, loss=kind, tol=1e-3, valid_fraction=0.3).model
    (score,) = (v for k, v in model.history[-1]["validation"].items() if k != "n_rows")
    held = np.random.default_rng([0, 0xFC1]).random(150) < 0.3
    if kind == "squared":
        assert score == pytest.approx(((Y - model.margins(X))[held] ** 2).mean())
    elif kind == "softmax":
        p = model.predict_proba(X)[held, y[held]]
        assert score == pytest.approx(-np.log(p).mean())
    data = open_data(X, y=y)
    path = fcl.train_path(data, "columns", loss=kind, points=3, valid_fraction=0.3, refit=True)
    assert path.refit.model.n_outputs == 3
    if kind == "softmax":
        assert fcl.train_path(data, "columns", loss=kind, points=3, cv=3).oof.shape == (150, 3)
    else:
        with pytest.raises(InputError, match="cv: expected a single column of targets, got 3"):
            fcl.train_path(data, "columns", loss=kind, points=3, cv=3)


def test_a_class_of_one_row():
    X, y = _classes()
    y = np.append(y[:-1], 7)
    with pytest.raises(InputError, match="at least two training rows of weight above 0"):
        _train(X, y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("group", [False, True])
def test_offsets_that_leave_no_row_any_curvature(group):
    X, y = _classes(k=4)
    offset = 1e6 * np.random.default_rng(1).normal(size=(150, 4))
    data = open_data(X, y=y, offset=offset)
    result = fcl.train(
        data, "columns", C=0.2, loss="softmax", group=group, max_passes=5, warn=False
    )
    assert 0.0 < result.certificate.gap < 1.0


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("options", [{"tol": 1e-3}, {"max_passes": 1}, {"row_view": 100}], ids=str)
def test_a_constant_for_all_classes_costs_nothing(group, options):
    X, y = _classes(k=5)
    for driver in ("inline", "processes"):
        model = _train(X, y, C=0.5, group=group, driver=driver, **options).model
        assert model.n_active
        middle = model.weights.mean(axis=1) if group else np.median(model.weights, axis=1)
        np.testing.assert_allclose(middle, 0.0, atol=1e-14)
        assert abs(model.intercept.mean()) < 1e-13
        own = _softmax(X, y, _whole(model, 12), model.intercept, 0.5, group=group)
        assert model.certificate.objective == pytest.approx(own, rel=1e-12)
        assert model.certificate.bound <= own


def test_an_initial_model_has_the_same_outputs():
    X, y = _classes()
    numbers = np.column_stack([X[:, 0], X[:, 1], X[:, 2]])
    names = np.array(["a", "b", "c"])
    start = _train(X, names[y], tol=1e-4).model
    again = _train(X, names[y], initial=start, tol=1e-4)
    assert again.passes <= 3 and again.certificate.gap <= 1e-4
    other = np.array(["x", "y", "z"])[y]
    message = r"expected a model of \['x', 'y', 'z'\], got one of \['a', 'b', 'c'\]"
    with pytest.raises(InputError, match=message):
        _train(X, other, initial=start)
    with pytest.raises(InputError, match="expected a model of 4 outputs, got one of 3"):
        _train(X, np.arange(len(y)) % 4, initial=start)
    with pytest.raises(
        InputError, match="expected a model of squared loss, got one of softmax loss"
    ):
        _train(X, numbers, loss="squared", initial=start)


def test_a_checkpoint_of_other_classes_is_refused(tmp_path):
    X, y = _classes()
    names = np.array(["a", "b", "c"])
    options = {"tol": 1e-9, "checkpoint": tmp_path / "c", "checkpoint_every": 1e-3}
    _train(X, names[y], max_passes=1, **options)
    for other in (np.array(["x", "y", "z"])[y], np.arange(len(y)) % 4):
        with pytest.raises(InputError, match="is of another job"):
            _train(X, other, resume=tmp_path / "c", **options)


@pytest.mark.parametrize("features", ["columns", "products:degree=2", "columns + columns * 2"])
@pytest.mark.parametrize(
    "options", [{}, {"group": True}, {"group": True, "l1_ratio": 0.5}], ids=str
)
def test_the_smallest_C_of_a_feature_is_exact(features, options):
    X, y = _classes(p=6, k=4)
    C_min = _train(X, y, features, tol=0.1, **options).model.options["C_min"]
    residuals = np.bincount(y) / len(y) - np.eye(4)[y]
    if features == "columns":
        prices = X.T @ residuals
        sizes = np.linalg.norm(prices, axis=1) if "group" in options else np.abs(prices)
        assert C_min == pytest.approx(options.get("l1_ratio", 1.0) / sizes.max(), rel=1e-6)
    for factor in (0.999, 1.02):
        model = _train(X, y, features, C=factor * C_min, **options).model
        assert (model.n_active > 0) == (factor > 1.0)
