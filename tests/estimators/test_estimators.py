"""The estimators as parts of scikit-learn, their data sets, names, warm starts and errors."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn.exceptions
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fcl
from fcl import FCLClassifier, FCLRegressor
from fcl.drivers import executor
from fcl.drivers.train import run_training
from fcl.errors import ConvergenceWarning


@pytest.fixture(name="X")
def rows() -> np.ndarray:
    return make_classification(120, 12, n_informative=5, random_state=0)[0]


@pytest.fixture(name="y")
def labels() -> np.ndarray:
    return make_classification(120, 12, n_informative=5, random_state=0)[1]


@pytest.fixture(name="workers")
def joblib_workers() -> Iterator[None]:
    """End the workers that joblib keeps for reuse."""
    yield
    get_reusable_executor().shutdown(wait=True)


def sequences(n: int = 300, length: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (n, length)).astype(np.uint8)
    return codes, np.where(
        (codes[:, 3] == 1) & (codes[:, 5] == 2) | (rng.random(n) < 0.1), "yes", "no"
    )


# -- forms of X --------------------------------------------------------------------------------


def test_forms_of_rows(X: np.ndarray, y: np.ndarray) -> None:
    X[np.abs(X) < 0.3] = 0.0
    plain = FCLClassifier(C=0.5, tol=1e-10).fit(X, y)
    margins = plain.decision_function(X)
    twice = sparse.coo_array(
        (np.r_[0.5 * X[X != 0], 0.5 * X[X != 0]], tuple(np.tile(i, 2) for i in np.nonzero(X))),
        shape=X.shape,
    )
    matrix = sparse.csr_matrix(X)
    parts = np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2), 2 * matrix.indptr
    doubled = sparse.csr_matrix(parts, X.shape)  # entries that are there twice are added
    for form in (
        X.tolist(),
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        sparse.csr_array(X),
        sparse.csc_matrix(X),
        twice,
        doubled,
        pd.DataFrame(X),
    ):
        other = clone(plain).fit(form, y)
        assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)
        np.testing.assert_allclose(other.decision_function(form), margins, atol=1e-5)
    np.testing.assert_array_equal(doubled.data, parts[0])
    single = clone(plain).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.decision_function(X), margins, atol=1e-4)
    many = np.repeat(X, 600, axis=0)  # more rows than a block of prediction
    np.testing.assert_array_equal(plain.decision_function(many)[::600], margins)


def test_bags_take_sequences_of_any_length() -> None:
    codes, y = sequences()
    n = 12 + np.arange(len(codes)) % 9
    text = ["".join("ACGT"[c] for c in row)[:k] for row, k in zip(codes, n, strict=True)]
    padded = np.where(np.arange(20) < n[:, None], codes, 4).astype(np.uint8)
    model, expected = (FCLClassifier("bag:d=2").fit(rows, y) for rows in (text, padded))
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    margins = model.decision_function(text[:3])
    np.testing.assert_array_equal(margins, expected.decision_function(padded[:3]))


def test_sequences_as_codes_text_and_frames() -> None:
    codes, y = sequences()
    texts = ["".join("ACGT"[c] for c in row) for row in codes]
    one = FCLClassifier("kmers:d=3", C=0.2).fit(codes, y)
    assert one.n_features_in_ == 20 and one.classes_.tolist() == ["no", "yes"]
    for form in (texts, np.array(texts, object), pd.Series(texts), pd.DataFrame({"s": texts})):
        other = FCLClassifier(fcl.Kmers(d=3), C=0.2).fit(form, y)
        np.testing.assert_array_equal(other.coef_, one.coef_)
        np.testing.assert_array_equal(other.predict(texts), one.predict(codes))
    strongest = np.abs(one.coef_[0]).argmax()
    assert "C.G at 3" in one.get_feature_names_out()[strongest]
    assert one.score(codes, y) > 0.9
    assert not hasattr(one, "feature_names_in_")
    assert one.__sklearn_tags__().input_tags.string and not one.__sklearn_tags__().input_tags.sparse


# -- data sets ---------------------------------------------------------------------------------


@pytest.fixture(name="file")
def data_file(tmp_path: Path, X: np.ndarray, y: np.ndarray) -> str:
    with h5py.File(tmp_path / "train.h5", "w") as file:
        group = file.create_group("fold")
        group["X"], group["y"], group["quality"] = X, y, np.arange(len(y)) % 3
        group["kind"] = np.array([b"x", b"y", b"z"])[np.arange(len(y)) % 3]
        group["size"] = X @ np.arange(12.0)
    return f"{tmp_path / 'train.h5'}::/fold"


def test_paths_and_opened_data_sets(file: str, X: np.ndarray, y: np.ndarray) -> None:
    plain = FCLClassifier(C=0.5).fit(X, y)
    opened = fcl.open_data(file)
    for model in (
        FCLClassifier(C=0.5).fit(file),
        FCLClassifier(C=0.5).fit(file, "y"),
        FCLClassifier(C=0.5).fit(Path(file), y.tolist()),
        FCLClassifier(C=0.5).fit(opened),
        FCLClassifier(C=0.5).fit(opened, y),
    ):
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        np.testing.assert_array_equal(model.decision_function(file), plain.decision_function(X))
        np.testing.assert_array_equal(model.predict(opened), plain.predict(X))
        assert model.n_features_in_ == 12 and not hasattr(model, "feature_names_in_")
        assert model.score(file) == model.score(file, "y") == plain.score(X, y)
    weights = np.arange(len(y)) % 3
    by_name = FCLClassifier(C=0.5).fit(file, sample_weight="quality")
    by_hand = FCLClassifier(C=0.5).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(by_name.coef_, by_hand.coef_)
    again = FCLClassifier(C=0.5).fit(opened, sample_weight=weights)
    np.testing.assert_array_equal(again.coef_, by_hand.coef_)
    many = FCLClassifier(C=0.5).fit(file, "kind")
    assert many.classes_.tolist() == ["x", "y", "z"] and many.models_[1].labels == ("not y", "y")
    assert many.set_params(warm_start=True).fit(file, "kind").n_iter_ == 1
    assert many.predict(file).dtype == many.classes_.dtype
    found = many.predict(file) == np.array(["x", "y", "z"])[np.arange(len(y)) % 3]
    assert many.score(file, "kind") == found.mean()
    regressor = FCLRegressor().fit(file, "size")
    assert regressor.score(file, "size") > 0.99


# -- names -------------------------------------------------------------------------------------


def test_names(X: np.ndarray, y: np.ndarray, file: str) -> None:
    names = [f"column {letter}" for letter in "abcdefghijkl"]
    model = FCLClassifier(C=0.05).fit(pd.DataFrame(X, columns=names), y)
    keys = model.feature_keys_
    assert 0 < len(keys) < 12 and model.n_nonzero_ == len(keys) == model.coef_.shape[1]
    assert model.get_feature_names_out().tolist() == [names[k] for k in keys]
    assert (model.feature_names_out_ == model.get_feature_names_out(names)).all()
    with pytest.raises(ValueError, match="not equal to feature_names_in_"):
        model.get_feature_names_out(names[::-1])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert model.get_feature_names_out().tolist() == [f"x{k}" for k in keys]
    assert model.get_feature_names_out(names).tolist() == [names[k] for k in keys]
    with pytest.raises(ValueError, match="length equal to number of features"):
        model.get_feature_names_out(names[:3])
    model.fit(pd.DataFrame(X, columns=names), y).fit(file)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(sklearn.exceptions.NotFittedError):
        FCLClassifier().get_feature_names_out()


@pytest.mark.parametrize(
    "features", ["products:degree=2", "columns + products:degree=2", "columns * 2", "fourier:n=40"]
)
def test_names_of_columns_in_words(X: np.ndarray, y: np.ndarray, features: str) -> None:
    names = [f"column {letter}" for letter in "abcdefghijkl"]
    model = FCLClassifier(features, C=0.1, tol=1e-4)
    plain = model.fit(X, y).get_feature_names_out()
    given = model.get_feature_names_out(names)
    framed = model.fit(pd.DataFrame(X, columns=names), y).get_feature_names_out()
    assert framed.dtype == given.dtype == object and framed.tolist() == given.tolist()
    spoken = plain.tolist()
    if not features.startswith("fourier"):  # of standardised columns, and a few of many
        spoken = [re.sub(r"\bx(\d+)", lambda m: names[int(m[1])], text) for text in spoken]
        assert len(spoken) > 1 and not set(spoken) & set(plain)
    assert given.tolist() == spoken
    if "+" in features:
        assert {text.partition(":")[0] for text in spoken} == {"columns", "products"}


def test_an_empty_model(X: np.ndarray, y: np.ndarray) -> None:
    model = FCLClassifier(C=1e-6).fit(X, y)
    assert model.coef_.shape == (1, 0) and model.n_nonzero_ == 0 and model.n_iter_ == 1
    assert model.converged_ and model.dual_gap_ <= 1e-6
    assert model.sparsify().densify().coef_.shape == (1, 0)
    share = y.mean()
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], share, rtol=1e-6)


def test_paths_are_not_split(file: str, X: np.ndarray, y: np.ndarray) -> None:
    for rows in (file, fcl.open_data(file)):
        with pytest.raises((TypeError, ValueError)):
            cross_val_score(FCLClassifier(), rows, y, cv=2)
    loaded = np.asarray(fcl.open_data(file).rows.read(0, len(y)))
    assert cross_val_score(FCLClassifier(), loaded, y, cv=2).shape == (2,)


# -- weights of all columns --------------------------------------------------------------------


def two_of_twenty() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(2).standard_normal((300, 20))
    return X, 2.0 * X[:, 7] - 3.0 * X[:, 13]


@pytest.mark.parametrize("kind", ["regression", "two classes", "three classes"])
def test_selectors_find_the_columns(kind: str) -> None:
    X, score = two_of_twenty()
    model: Any = FCLRegressor(alpha=0.5) if kind == "regression" else FCLClassifier(C=0.05)
    y = {
        "regression": score,
        "two classes": score > 0.0,
        "three classes": np.digitize(score, [-2.0, 2.0]),
    }[kind]
    getter: dict[str, Any] = {"importance_getter": "column_weights_"}
    for selector in (
        RFE(model, n_features_to_select=2, step=0.5, **getter),
        SelectFromModel(model, max_features=2, **getter),
        SelectFromModel(clone(model).set_params(alpha=None, C=0.02), threshold=1e-5, **getter),
    ):
        assert selector.fit(X, y).get_support(indices=True).tolist() == [7, 13]
    assert clone(model).fit(X, y).coef_.shape[-1] < 20  # its positions are not columns of X


def test_weights_of_all_columns(X: np.ndarray, y: np.ndarray) -> None:
    for labels in (y, y + 2 * (X[:, 0] > 0)):
        model = FCLClassifier(C=0.05).fit(X, labels)
        weights = np.atleast_2d(model.column_weights_)
        assert model.column_weights_.shape == ((12,) if len(weights) == 1 else (4, 12))
        found = model.feature_keys_
        assert 0 < len(found) < 12
        np.testing.assert_array_equal(weights[:, found], model.coef_)
        assert not np.delete(weights, found, axis=1).any()
        margins = X @ weights.T + model.intercept_
        np.testing.assert_allclose(
            margins.squeeze(), model.decision_function(X), rtol=0, atol=1e-12
        )
        before = model.column_weights_
        np.testing.assert_array_equal(model.sparsify().column_weights_, before)
    regressor = FCLRegressor(alpha=0.1).fit(sparse.csr_array(X), X[:, 3])
    assert np.flatnonzero(regressor.column_weights_).tolist() == [3]
    for features in ("products:degree=2", "columns + products:degree=2"):
        other = FCLClassifier(features, C=0.05, tol=1e-3).fit(X, y)
        message = r"expected the family 'columns'.* got .*Products"
        with pytest.raises(AttributeError, match=message):
            other.column_weights_  # noqa: B018
    with pytest.raises(sklearn.exceptions.NotFittedError):
        FCLClassifier().column_weights_  # noqa: B018


# -- the rest of scikit-learn ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("workers")
def test_pipelines_searches_and_pickles(X: np.ndarray, y: np.ndarray, tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), FCLClassifier())
    search = GridSearchCV(pipeline, {"fclclassifier__C": [1e-3, 0.1]}, cv=3, n_jobs=2).fit(X, y)
    assert search.best_params_ == {"fclclassifier__C": 0.1}
    families = {"features": ["columns", fcl.parse_features("columns")]}
    assert GridSearchCV(FCLClassifier(), families, cv=2).fit(X, y).best_score_ > 0.7
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.75
    fitted = search.best_estimator_
    for copy in (pickle.loads(pickle.dumps(fitted)), _through_joblib(fitted, tmp_path)):
        np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    both = MultiOutputRegressor(FCLRegressor()).fit(X, X[:, :2] * 2.0)
    assert both.score(X, X[:, :2] * 2.0) > 0.99
    codes, labels_ = sequences()
    kmers = FCLClassifier(fcl.Kmers(d=2)).fit(codes, labels_)
    copy = pickle.loads(pickle.dumps(clone(kmers).fit(codes, labels_)))
    np.testing.assert_array_equal(copy.predict(codes), kmers.predict(codes))


def _through_joblib(estimator: Any, folder: Path) -> Any:
    joblib.dump(estimator, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


@pytest.mark.slow
@pytest.mark.usefixtures("workers")
def test_processes_but_not_within_workers(X: np.ndarray, y: np.ndarray) -> None:
    model = FCLClassifier(driver="processes", n_jobs=1, tol=1e-8)
    there = clone(model).fit(X, y)
    assert there.model_.options["driver"] == "processes"
    assert there.model_.options["writers"] == 1
    for backend in ("loky", "threading"):
        parallel = joblib.Parallel(n_jobs=2, backend=backend)
        for nested in parallel(joblib.delayed(clone(model).fit)(X, y) for _ in range(2)):
            assert nested.model_.options["driver"] == "inline"
            assert nested.objective_ == pytest.approx(there.objective_, rel=1e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("workers")
def test_processes_for_all_problems_of_a_fit_and_in_a_search(X: np.ndarray, y: np.ndarray) -> None:
    model = FCLClassifier(C=0.5, driver="processes", n_jobs=1, tol=1e-8)
    inline = clone(model).set_params(driver="inline")
    many = y + 2 * (X[:, 0] > 0)
    problems = clone(model).fit(X, many)
    assert len(problems.models_) == 4
    assert problems.objective_ == pytest.approx(inline.fit(X, many).objective_, rel=1e-7)
    copied = pickle.loads(pickle.dumps(problems))
    np.testing.assert_array_equal(copied.coef_, problems.coef_)
    assert FCLRegressor(driver="processes", n_jobs=1).fit(X, X[:, 0]).converged_
    grid = {"C": [0.05, 0.5]}
    searches = [GridSearchCV(model, grid, cv=2, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2)]
    for search in searches:
        assert search.best_estimator_.model_.options["driver"] == "processes"
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*scores)


# -- warm starts -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "driver"), [(2, "inline"), (3, "inline"), (2, "processes")])
def test_warm_start(n_classes: int, driver: str) -> None:
    X, y = make_classification(300, 20, n_informative=8, n_classes=n_classes, random_state=1)

    def begun_at_the_end(model: FCLClassifier) -> bool:
        """Whether the pass after the null model's was at the optimum, for each class."""
        first = [one.history[1]["objective"] for one in model.models_]
        last = [one.certificate.objective for one in model.models_]
        return first == pytest.approx(last, rel=1e-6)

    model = FCLClassifier(C=0.5, warm_start=True, tol=1e-7, driver=driver).fit(X, y)
    assert not begun_at_the_end(model)
    assert begun_at_the_end(model.fit(X, y))
    if driver == "inline":  # certified by that pass; without lock-step the last bound may be older
        assert model.n_iter_ == 1
    assert model.converged_ and model.dual_gap_ <= 1e-7
    fresh = FCLClassifier(C=0.6, tol=1e-7).fit(X, y)
    assert model.set_params(C=0.6).fit(X, y).objective_ == pytest.approx(fresh.objective_, rel=2e-7)
    assert model.converged_
    if driver == "processes":
        # other classes or another family start from zero, otherwise one pass would be enough
        assert begun_at_the_end(model.fit(X, y))
        assert not begun_at_the_end(model.fit(X, y + 1))
        assert not begun_at_the_end(model.fit(X[:, 2:], y + 1))
        return
    # other classes or another family start from zero
    for rows in (X, X[:, 2:]):
        fresh = FCLClassifier(C=0.6, tol=1e-7).fit(rows, y + 1)
        np.testing.assert_array_equal(model.fit(rows, y + 1).coef_, fresh.coef_)


class Named(FCLClassifier):
    def __init__(self, name: str = "a", C: float = 1.0) -> None:
        super().__init__(C=C)
        self.name = name


def test_subclasses_with_parameters_of_their_own(X: np.ndarray, y: np.ndarray) -> None:
    """All other parameters have the defaults of the class above."""
    given = clone(Named("b", C=0.2)).fit(X, y)
    assert given.get_params() == {"name": "b", "C": 0.2}
    np.testing.assert_array_equal(given.coef_, FCLClassifier(C=0.2).fit(X, y).coef_)


def test_warm_start_of_the_regressor_and_without_an_intercept(X: np.ndarray) -> None:
    y = X @ np.arange(12.0) + 5.0
    model = FCLRegressor(warm_start=True, tol=1e-8).fit(X, y)
    assert model.fit(X, y).n_iter_ == 1
    model.set_params(fit_intercept=False).fit(X, y)
    fresh = FCLRegressor(fit_intercept=False, tol=1e-8).fit(X, y)
    assert model.intercept_ == 0.0 and model.objective_ == pytest.approx(fresh.objective_, rel=1e-7)


@pytest.mark.parametrize("features", ["columns", "columns + products:degree=2"])
def test_warm_start_on_other_values_and_rows(features: str) -> None:
    X, y = make_classification(300, 20, n_informative=8, random_state=1)
    other = X.copy()
    other[5, 0] += 1e-9  # the first column is one that probes look at
    model = FCLClassifier(features, C=0.05, warm_start=True, tol=1e-5).fit(X, y)
    cold = model.n_iter_
    assert model.fit(other, y).n_iter_ == 1 < cold
    assert model.fit(X[:299], y[:299]).converged_ and model.dual_gap_ <= 1e-5
    fresh = FCLClassifier(features, C=0.05, tol=1e-7).fit(X[:299], y[:299])
    assert model.objective_ == pytest.approx(fresh.objective_, rel=2e-5)


def test_warm_start_of_a_family_that_learns_falls_away(X: np.ndarray, y: np.ndarray) -> None:
    options: dict[str, Any] = {"features": "fourier:n=100", "tol": 1e-5}
    model = FCLClassifier(warm_start=True, **options).fit(X, y)
    assert model.fit(X, y).n_iter_ == 1
    other = X.copy()
    other[5, 0] += 1e-3
    fresh = FCLClassifier(**options).fit(other, y)
    np.testing.assert_array_equal(model.fit(other, y).coef_, fresh.coef_)
    assert model.n_iter_ == fresh.n_iter_ > 1


# -- what is proved ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
def test_the_scope_of_the_certificate(X: np.ndarray, y: np.ndarray) -> None:
    many = y + 2 * (X[:, 0] > 0)
    whole = FCLClassifier(C=0.1).fit(X, y)
    assert whole.certificate_scope_ == "all features of the family"
    assert whole.fit(X, many).certificate_scope_ == ["all features of the family"] * 4
    options: dict[str, Any] = {"features": "fourier:per_pass=200", "max_iter": 3}
    for model in (FCLClassifier(**options).fit(X, y), FCLRegressor(**options).fit(X, X[:, 0])):
        certificate = model.model_.certificate
        assert model.certificate_scope_ == certificate.scope_text
        assert f"{certificate.n_priced:,} sampled features" in certificate.scope_text
        assert certificate.n_priced < model.model_.family.n_features
    scopes = FCLClassifier(**options).fit(X, many).certificate_scope_
    assert len(scopes) == 4 and all("sampled features" in scope for scope in scopes)


# -- early ends --------------------------------------------------------------------------------


def test_one_warning_of_both_kinds(X: np.ndarray, y: np.ndarray) -> None:
    many = y + 2 * (X[:, 0] > 0)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning, match="raise max_iter or tol") as seen:
        model = FCLClassifier(C=100.0, max_iter=1, tol=1e-10).fit(X, many)
    assert len(seen) == 1 and issubclass(seen[0].category, ConvergenceWarning)
    assert seen[0].filename == __file__ and "4 of 4 problems" in str(seen[0].message)
    assert not model.converged_ and model.n_iter_ == 1 and model.dual_gap_ > 1e-10
    with pytest.warns(ConvergenceWarning, match="reached max_time"):
        FCLClassifier(max_time=1e-9).fit(X, y)


def test_an_interrupt_is_raised(
    X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = iter([False] * 4 + [True] * 100)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        return run_training(*arguments, **options | {"should_stop": lambda: next(polls)})

    monkeypatch.setattr(executor, "run_training", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FCLClassifier(tol=1e-12).fit(X, y)


def test_verbose_names_the_classes(
    X: np.ndarray, y: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    FCLClassifier(verbose=1).fit(X, y)
    shown = capsys.readouterr()
    written = shown.err
    assert not shown.out and written.startswith("FCLClassifier: fitting class 1 against class 0\n")
    assert "pass 0" in written and "FCLClassifier: converged: relative gap" in written
    labels = np.array(["a", "b", "c"])[(X[:, 0] > 0.0) + 1 * (X[:, 1] > 0.0)]
    FCLClassifier(verbose=1).fit(X, labels)
    written = capsys.readouterr().err
    for k, label in enumerate("abc", 1):
        assert f"fitting class {label!r} against the rest ({k} of 3)\n" in written
    FCLRegressor(verbose=1).fit(X, y)
    assert "FCLRegressor: fitting target y\n" in capsys.readouterr().err
    FCLClassifier().fit(X, y)
    assert not capsys.readouterr().err


# -- parameters --------------------------------------------------------------------------------


def test_seeds(X: np.ndarray, y: np.ndarray) -> None:
    drawn = FCLClassifier(random_state=np.random.RandomState(0)).fit(X, y)
    assert drawn.model_.options["seed"] != 0
    for seed in (5, 2**32 - 1):  # the largest of a RandomState
        assert FCLClassifier(random_state=seed).fit(X, y).model_.options["seed"] == seed


def test_labels_of_text_in_objects(X: np.ndarray) -> None:
    words = np.array(["NA", "nan"] * 60, object)
    assert FCLClassifier().fit(X, words).classes_.tolist() == ["NA", "nan"]


# -- scales of columns ---------------------------------------------------------------------------------


def test_standardized_weights_are_in_the_units_of_the_columns() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 4))
    y = np.digitize(z[:, 0] + 0.3 * z[:, 1], [-0.5, 0.5])
    units = np.array([1e-4, 1.0, 1e3, 1e4])
    X = pd.DataFrame(z * units, columns=["a", "b", "c", "d"])
    options: dict[str, Any] = {"C": 0.5, "standardize": True, "tol": 1e-8}
    scaled = FCLClassifier(**options).fit(z, y)
    model = FCLClassifier(**options).fit(X, y)
    np.testing.assert_allclose(
        model.column_weights_ * units, scaled.column_weights_, rtol=1e-4, atol=1e-6
    )
    assert set(model.feature_names_out_) <= {"a", "b", "c", "d"}
    assert (model.predict(X) == scaled.predict(z)).all()
    # begun at its own weights, in their own units
    model.set_params(warm_start=True).fit(X, y)
    assert model.n_iter_ == 1 and model.converged_


def test_uneven_scales_are_warned_of_once() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 3)) * [1e-3, 1.0, 1e2], columns=["a", "b", "c"])
    y = rng.integers(0, 3, 150)  # a problem for each class
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        FCLClassifier(C=0.01, tol=0.5).fit(X, y)
    (warning,) = [w for w in found if w.category is fcl.ScaleWarning]
    assert "(a) to " in str(warning.message) and "(c) on 150 rows" in str(warning.message)
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", fcl.ScaleWarning)
        FCLClassifier(C=0.01, tol=0.5, standardize=True).fit(X, y)
        FCLClassifier(C=0.01, tol=0.5).fit(X * [10.0, 1.0, 0.01], y)
