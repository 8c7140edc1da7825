"""A problem has one answer: from Python, from the command line, and from the estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from jobs import JOBS, Job
from scipy.sparse import issparse
from waves import Problem

import fcl
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise

#: The estimators have no option for the size of blocks, on which sums depend.
COMMON = {"tol": 1e-2, "block_rows": 65_536}
#: Jobs that take long, and others of the same options.
LEFT_OUT = ("products", "products-3", "fourier", "fourier-steps", "kmers-strong", "sparse-strong")
#: Options of the jobs that the estimators call otherwise, or do not have.
PARAMETERS = {"intercept": "fit_intercept", "max_passes": "max_iter"}
BESIDE = ("offset", "covariates")


def command(name: str, *words: Any) -> str:
    """What a command writes on standard output."""
    found = CliRunner().invoke(import_module(f"fcl.cli.{name}").command, [str(w) for w in words])
    assert found.exit_code == 0, found.output
    return found.stdout


def store(path: Path, **arrays: Any) -> str:
    """A file of HDF5, in which sparse rows are as in anndata."""
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            if not issparse(values):
                file[name] = values
                continue
            group = file.create_group(name)
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
            group.attrs["shape"] = values.shape
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(values, part)
    return str(path)


def words_of(options: dict[str, Any]) -> list[str]:
    """Options of training on a command line."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def fitted(job: Job, beside: dict[str, Any]) -> Any:
    """The estimator of a job."""
    X, y = job.rows()
    given = {PARAMETERS.get(name, name): value for name, value in job.options.items()}
    given = {name: value for name, value in given.items() if name not in BESIDE}
    classifies = given.get("loss", "logistic") in ("logistic", "squared_hinge", "softmax")
    kind = fcl.FCLClassifier if classifies else fcl.FCLRegressor
    given = {**given, "tol": COMMON["tol"], "memory": "1GiB", "n_jobs": 1}
    return kind(job.features, **given).fit(X, y, **beside)


def check_same(found: fcl.Model, expected: fcl.Model) -> None:
    assert np.array_equal(found.ids, expected.ids)
    assert found.weights.tobytes() == expected.weights.tobytes()
    assert np.array_equal(found.intercept, expected.intercept)
    assert found.certificate == expected.certificate and found.C == expected.C
    assert found.loss == expected.loss and found.n_rows == expected.n_rows


@pytest.mark.thin(6)
@pytest.mark.parametrize("name", [name for name in JOBS if name not in LEFT_OUT])
def test_training(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    X, y = job.rows()
    beside = {key: value for key, value in job.arguments().items() if key in BESIDE}
    model = job.train(**COMMON).model
    margins = model.margins(X, **beside)

    data, out, scores = tmp_path / "d.h5", tmp_path / "m.fcl", tmp_path / "s.npy"
    store(data, X=X, y=y, **beside)
    options = {key: value for key, value in job.options.items() if key not in BESIDE}
    if isinstance(options.get("limits"), dict):  # a command reads a table
        lines = ("\t".join([key, *ends.split(":")]) for key, ends in options["limits"].items())
        (tmp_path / "limits.tsv").write_text("\n".join(lines))
        options["limits"] = tmp_path / "limits.tsv"
    words = ["--features", job.features, *words_of({**options, **COMMON})]
    words += [word for key in beside for word in (f"--{key}", key)]
    more = ["--driver", "inline", "--memory", "1GiB", "--no-checkpoint"]
    command("train", data, *words, *more, "--out", out)
    check_same(fcl.load_model(out), model)
    given = ["--offset", "offset"] if "offset" in beside else []
    command("predict", out, data, "--out", scores, *given)
    np.testing.assert_array_equal(np.load(scores), margins)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = fitted(job, beside)
    check_same(estimator.models_[0], model)
    if hasattr(estimator, "decision_function"):
        np.testing.assert_array_equal(estimator.decision_function(X, **beside), margins)
    np.testing.assert_array_equal(estimator.predict(X, **beside), model.predict(X, **beside))
    if isinstance(estimator, fcl.FCLClassifier):
        right = estimator.predict(X, **beside) == y
        share = np.mean(right if right.ndim == 1 else right.all(axis=1))
        assert estimator.score(X, y, **beside) == pytest.approx(share)
    if job.options.get("loss", "logistic") in ("logistic", "softmax"):
        found = estimator.predict_proba(X, **beside)
        np.testing.assert_allclose(found, model.predict_proba(X, **beside), rtol=1e-12, atol=1e-15)


@cache
def numbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    X = random.normal(size=(400, 20))
    score = X[:, 0] - X[:, 1] + 0.5
    y = np.where(score + random.logistic(size=400) > 0.0, "yes", "no")
    return X, y, random.choice([0.0, 1.0, 2.0], 400)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
def test_paths(loss: str, tmp_path: Path) -> None:
    """The same folds give the same scores, choice and model."""
    X, y, s = numbers()
    target: Any = {"logistic": y, "softmax": np.digitize(X[:, 0], [-0.5, 0.5])}.get(loss, X[:, 1])
    own = {} if loss == "squared" else {"class_weight": "balanced"}
    folds, alphas = np.arange(400) % 3, [0.1, 0.02]
    data = fcl.open_data(X, y=target, weights=s)
    options: dict[str, Any] = {"loss": loss, "tol": 1e-4, **own}
    path = fcl.train_path(
        data, "columns", alphas=alphas, cv=folds, patience=None, memory="1GiB", **options
    )
    kind = fcl.FCLRegressorCV if loss == "squared" else fcl.FCLClassifierCV
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]
    estimator = kind(alphas=alphas, cv=splits, **options).fit(X, target, s)
    np.testing.assert_array_equal(estimator.scores_, path.scores.folds)
    assert estimator.C_ == path.chosen.C
    np.testing.assert_array_equal(estimator.models_[0].weights, path.chosen.model.weights)

    # the command has no list of alphas: points up to the largest C
    C_max, out = float(1.0 / (0.02 * s.sum())), tmp_path / "m.fcl"
    here = fcl.train_path(
        data, "columns", points=3, C_max=C_max, cv=folds, patience=None, memory="1GiB", **options
    )
    words = [*words_of({"loss": loss, "tol": 1e-4, **own}), "--weights", "s"]
    stored = target.astype("S") if loss == "logistic" else target
    store(tmp_path / "d.h5", X=X, y=stored, s=s, folds=folds)
    given = ["--path", 3, "--C-max", repr(C_max), "--cv", "folds:folds", "--driver", "inline"]
    command(
        "train", tmp_path / "d.h5", "--features", "columns", *words, *given, "--memory", "1GiB",
        "--save-oof", tmp_path / "oof.npy", "--out", out,
    )  # fmt: skip
    check_same(fcl.load_model(out), here.chosen.model)
    np.testing.assert_array_equal(np.load(tmp_path / "oof.npy"), here.oof)


@pytest.mark.parametrize("update", ["ls", "gls", "cls", "regression"])
def test_stagewise_models(update: str, tmp_path: Path) -> None:
    problem = Problem()
    numeric = update == "regression"
    options = {"block": 10, "visits": 2, "alpha": 0.5}
    options |= {} if numeric else {"update": update}
    y = problem.numbers if numeric else problem.y
    data = problem.data(y)
    settings = Settings(**options, valid_fraction=0.0)
    model = train_stagewise(
        data, "fourier:n=30", settings, numbers=numeric, running=StagewiseRunOptions(cores=1)
    ).model
    expected = model.margins(problem.x)

    out, scores = tmp_path / "m.fcl", tmp_path / "s.npy"
    store(tmp_path / "d.h5", X=problem.x, y=y if numeric else y.astype("S"), s=problem.s)
    words = [*words_of(options), "--weights", "s", "--valid-fraction", "0"]
    words += ["--regression"] if numeric else []
    command("stagewise", tmp_path / "d.h5", "--features", "fourier:n=30", *words, "--out", out)
    command("predict", out, tmp_path / "d.h5", "--out", scores)
    np.testing.assert_array_equal(np.load(scores), expected)

    kind: Callable[..., Any] = fcl.StagewiseRegressor if numeric else fcl.StagewiseClassifier
    estimator = kind("fourier:n=30", **options, validation_fraction=0.0, n_jobs=1)
    estimator.fit(problem.x, y, problem.s)
    found = estimator.predict(problem.x) if numeric else estimator.decision_function(problem.x)
    np.testing.assert_array_equal(found, expected)
