"""Classes that fail in a run, whose state is saved, and classes that only seem to fail."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import generators
import numpy as np
import pytest
import scipy.sparse

import fcl
from fcl.features import Generator
from fcl.features.generator import bind
from fcl.files.folder import CheckpointFolder
from fcl.run.events import Event, PassDone
from tests import by_name

DRIVERS = ("inline", "processes")
BLOCK_ROWS = 64
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 70))
Y = np.where(X[:, 0] - X[:, 5] + 0.5 * RNG.normal(size=300) > 0, 1, -1)
#: The first value of row block 2, at which a class may fail.
MARK = float(X[2 * BLOCK_ROWS, 0])


def train(features: Generator | str, data: Any = None, **options: Any) -> fcl.TrainResult:
    defaults: dict[str, Any] = {"C": 0.1, "tol": 1e-9, "block_rows": BLOCK_ROWS, "memory": "1GiB"}
    if options.get("driver") == "processes":
        defaults["writers"] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        return by_name.train(data or fcl.open_data(X, y=Y), features, **(defaults | options))


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_was_reached_is_saved(tmp_path: Path, driver: str) -> None:
    """A fault in the third pass saves a checkpoint, from which a fixed class resumes."""
    late = tmp_path / "late"

    def progress(event: Event) -> None:
        if isinstance(event, PassDone) and event.number == 1:
            late.touch()

    features = generators.Later("raise", MARK, str(late))
    folder = tmp_path / "checkpoint"
    with pytest.raises(fcl.GeneratorError, match="the table is gone"):
        train(features, checkpoint=folder, driver=driver, progress=progress, tol=1e-12)
    saved = CheckpointFolder(folder).load()
    assert saved.history and saved.state["objective"] < saved.history[0]["objective"]
    late.unlink()  # mended
    result = train(features, resume=folder, driver=driver, tol=1e-7)
    assert result.converged
    objectives = [h["objective"] for h in result.model.history]
    assert objectives[: len(saved.history)] == [h["objective"] for h in saved.history]
    assert objectives == sorted(objectives, reverse=True)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_class_that_was_changed_before_a_resume(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        train(generators.Tanh(), driver=driver, checkpoint=tmp_path, max_passes=2)
    monkeypatch.setattr(generators.Tanh, "columns", lambda self, ids, block: block[:, ids] / 50)
    with pytest.raises(fcl.InputError, match="the features differ"):
        train(generators.Tanh(), driver=driver, resume=tmp_path)


# -- faster ways -----------------------------------------------------------------------------------


def test_a_value_at_a_cut_is_not_a_fault() -> None:
    """Rounding may change a single row, because matrix products round differently for each shape."""
    rows = fcl.open_data(X, y=None).rows
    family = bind(generators.AtACut(), rows)
    whole, half = (family.generator.columns(np.arange(9), x) for x in (X, X[::2]))
    assert (whole[::2] != half).sum() in range(1, 10)  # the cut of this test is one


def test_words_that_fail_spoil_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators.Above, "describe", lambda self, feature: {}[feature])
    model = train(generators.Above(), driver="inline", tol=1e-2).model
    assert "describe raised KeyError" in model.describe(top=1)[0].feature
    names = [f"c{k}" for k in range(20)]
    assert "describe raised KeyError" in model.family.describe(1, names)
    # names of columns for a class that asks for them
    monkeypatch.setattr(generators.Above, "describe", lambda self, feature: f"own {feature}")
    assert model.family.describe(1, names) == model.family.describe(1) == "own 1"
    ask = lambda self, feature, names=None: names[feature] if names else "none"  # noqa: E731
    monkeypatch.setattr(generators.Above, "describe", ask)
    assert model.family.describe(1, names) == "c1" and model.family.describe(1) == "none"


# -- where the class is ----------------------------------------------------------------------------


# -- rows ------------------------------------------------------------------------------------------


def test_fit_sees_the_training_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    fit = generators.Tanh.fit

    def watch(self: Any, sample: np.ndarray) -> None:
        seen.append(np.array(sample))
        fit(self, sample)

    monkeypatch.setattr(generators.Tanh, "fit", watch)
    s = np.ones(len(X))
    s[:100] = 0.0
    data = fcl.open_data(X, y=Y, weights=s)
    train(generators.Tanh(), data, valid_fraction=0.5, driver="inline", tol=1e-1)
    held = np.random.default_rng([0, 0xFC1]).random(len(X)) < 0.5
    np.testing.assert_array_equal(seen[0], X[~held & (s > 0)])


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "softmax"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_rounding_of_margins_is_not_another_column(driver: str, loss: str) -> None:
    """Residuals at the level of rounding, which balancing changes by as much."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 4)) * 1000.0
    y, covariates = X[:, 0] / 1000.0, rng.standard_normal((20, 1))
    if loss == "softmax":
        y, covariates = np.argsort(np.argsort(y)) // 7, None
    data = fcl.open_data(X, y=y, covariates=covariates)
    for features in ("columns", generators.OwnColumns()):
        result = by_name.train(
            data, features, C=1e7, loss=loss, tol=1e-6, driver=driver, max_passes=30, warn=False
        )
        assert result.certificate.objective < 1e6


def test_good_classes_converge() -> None:
    sparse = fcl.open_data(scipy.sparse.csr_array(np.abs(X)), y=Y)
    assert train(generators.Sparse(), sparse, driver="inline", tol=1e-1).converged
    assert train("generators:NoOptions", driver="inline", tol=1e-2).converged


def test_blocks_of_a_prediction_are_numbered() -> None:
    family = bind(generators.Later("raise", MARK), fcl.open_data(X, y=Y).rows)
    scorer = family.scorer(np.array([0]), np.ones(1))
    for block in (0, 1):
        scorer.margins(X[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS])
    with pytest.raises(fcl.GeneratorError, match="on row block 2 raised"):
        scorer.margins(X[2 * BLOCK_ROWS :])
