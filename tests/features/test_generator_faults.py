"""Classes that fail in a run: the message names class, features and block, and the state is saved."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path
from typing import Any

import generators
import numpy as np
import pytest
import scipy.sparse

import fcl
from fcl.drivers.events import Event, PassDone
from fcl.errors import RepeatedDeaths
from fcl.features import Fourier, Generator
from fcl.features.generator import bind
from fcl.model.checkpoint import CheckpointFolder

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
        return fcl.train(data or fcl.open_data(X, y=Y), features, **(defaults | options))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("shape", r"expected shape \(64, 35\), rows by features, got \(63, 35\)"),
        ("nan", r"feature 0 is nan at row 3 of the block"),
        ("raise", r"raised RuntimeError: the table is gone"),
    ],
)
def test_a_fault_at_the_first_pass(driver: str, how: str, says: str) -> None:
    where = r"^features Later: columns\(35 features, 0 to 34\) on row block 2:? ?"
    with pytest.raises(fcl.GeneratorError, match=where + says):
        train(generators.Later(how, MARK), driver=driver)


def test_writers_that_die_of_the_features() -> None:
    says = (
        r"^the writer died 3 times without progress in between: (in the task \w+, parts \d+ to \d+, "
        r"which runs code of the features Later: writer 0 \(pid \d+\) was killed by signal 9"
        r"[^;]*; ){2}"
    )
    with pytest.raises(RepeatedDeaths, match=says):
        train(generators.Later("die", MARK), driver="processes")


def test_text_instead_of_numbers() -> None:
    with pytest.raises(fcl.GeneratorError, match="expected real numbers, got dtype <U"):
        train(generators.Later("dtype", MARK), driver="inline")


def test_values_that_the_cache_cannot_hold() -> None:
    with pytest.raises(fcl.GeneratorError, match=r"got 1e\+200 for feature 0 on row block 2"):
        train(generators.Later("huge", MARK), C=1e-190, driver="inline")


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


@pytest.mark.parametrize("binary", [False, True], ids=["values", "binary"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_another_column_each_time(driver: str, binary: bool) -> None:
    """The cached column differs from the priced one; no other check would find this."""
    with pytest.raises(
        fcl.GeneratorError, match=r"features Unsteady: feature \d+ has the gradient .* cache"
    ):
        train(generators.Unsteady(binary), driver=driver)


def test_another_column_before_the_start() -> None:
    with pytest.raises(
        fcl.GeneratorError,
        match=r"a different column for feature \d+ when it is called a second time",
    ):
        train(generators.Unsteady(sly=False), driver="inline")


class Loose(generators.Tanh):
    """Learns an attribute whose name is not stored."""

    def fit(self, sample: Any) -> None:
        super().fit(sample)
        self.factor = 2.0

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return super().columns(ids, block) * self.factor


def test_what_is_not_stored() -> None:
    says = "has no attribute 'factor'.*set factor, which is not stored: .* must end in _"
    with pytest.raises(fcl.GeneratorError, match=says):
        train(Loose(), driver="inline")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_class_that_was_changed_before_a_resume(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        train(generators.Tanh(), driver=driver, checkpoint=tmp_path, max_passes=2)
    monkeypatch.setattr(generators.Tanh, "columns", lambda self, ids, block: block[:, ids] / 50)
    with pytest.raises(fcl.InputError, match="its features had other columns"):
        train(generators.Tanh(), driver=driver, resume=tmp_path)


# -- faster ways -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "gives", "says"),
    [
        ("gradients", lambda *_: np.ones(3), r"gradients\(features 0 to 34\) on row block 0: .*35"),
        ("gradients", lambda *_: None, r"gradients\(features 0 to 34\).*got NoneType"),
        (
            "largest",
            lambda *_: np.nan,
            r"largest on the sample of 300 rows that fit got: .*got nan",
        ),
        ("largest", lambda *_: "many", r"largest on the sample of .*got 'many'"),
        (
            "margins",
            lambda *_: np.full(64, np.inf),
            r"margins\(.*\) on the sample of .*: expected float64 \(300,",
        ),
        ("power_sums", lambda *_: np.ones(3), r"power_sums on row block 0: expected float64 \(1, "),
        ("power_sums", lambda *_: 1 / 0, r"power_sums on row block 0 raised ZeroDivisionError"),
        ("prepare", lambda _, b: b[:-1], r"prepare: expected an array \(300, c\).*\(299, 70\)"),
        ("prepare", lambda _, b: 1 / 0, r"prepare raised ZeroDivisionError"),
        ("fit", lambda *_: 1 / 0, r"fit on a sample of 300 rows raised ZeroDivisionError"),
    ],
)
def test_faster_ways(monkeypatch: pytest.MonkeyPatch, method: str, gives: Any, says: str) -> None:
    monkeypatch.setattr(generators.Above, method, gives)
    with pytest.raises(fcl.GeneratorError, match=f"features Above: {says}"):
        train(generators.Above(), driver="inline")


def test_gradients_that_do_not_belong_to_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    right = generators.Above.gradients
    monkeypatch.setattr(generators.Above, "gradients", lambda *a: 1.01 * right(*a))
    with pytest.raises(fcl.GeneratorError, match=r"gradients\(\) must agree with it"):
        train(generators.Above(), driver="inline")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Centered", r"must depend only on the feature and the row"),
        ("ScaledByBlock", r"learn statistics of the data in fit\(\)"),
        (
            "SignsOfCentered",
            r"in a block of every second row .*: (True|False) instead of (True|False) at row \d+ of X",
        ),
        ("PreparesCentered", r"prepare\(\) or columns\(\) returns a different column"),
        ("SlightlyWrongMargins", r"margins\(16 features, 0 to 69\) .* where the columns give"),
        ("SmallLargest", r"says that no \|value\| exceeds 0\.01, but feature \d+ is"),
    ],
)
def test_what_is_wrong_on_the_sample(name: str, says: str) -> None:
    with pytest.raises(fcl.GeneratorError, match=f"features {name}: .*{says}"):
        train(getattr(generators, name)(), driver="inline")


def test_sparse_rows_that_depend_on_the_block() -> None:
    data = fcl.open_data(scipy.sparse.csr_array(np.abs(X)), y=Y)
    with pytest.raises(
        fcl.GeneratorError,
        match=r"features SparseByBlock: .*depend only on the feature and the row",
    ):
        train(generators.SparseByBlock(), data, driver="inline")
    assert train(generators.Sparse(), data, driver="inline", tol=1e-1).converged


def test_a_value_at_a_cut_is_not_a_fault() -> None:
    """Rounding may change a single row, because matrix products round differently for each shape."""
    rows = fcl.open_data(X, y=None).rows
    family = bind(generators.AtACut(), rows)
    whole, half = (family.generator.columns(np.arange(9), x) for x in (X, X[::2]))
    assert (whole[::2] != half).sum() in range(1, 10)  # the cut of this test is one


def test_rows_are_named_as_the_data_number_them() -> None:
    """Not as the sample numbers them, which leaves out rows of weight 0."""
    s = np.ones(len(X))
    s[:100] = 0.0
    positive = np.abs(X) + 0.1
    positive[123, 0] = -1.0
    says = (
        r"^features NotFinite: columns\(16 features, 0 to 69\) on the sample of 200 rows that fit got: "
        r"feature 0 is nan at row 123 of "
    )
    with pytest.raises(fcl.GeneratorError, match=says):
        train(generators.NotFinite(), fcl.open_data(positive, y=Y, weights=s), driver="inline")


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


class Refusing(Fourier):
    def fit(self, sample: Any) -> None:
        raise fcl.InputError("no rows like that")


def test_what_is_meant_for_the_user() -> None:
    """Messages of built-in families are unchanged; those of other classes name the class."""
    says = r"^features fourier: the median distance between 300 rows of the sample is 0"
    with pytest.raises(fcl.InputError, match=says) as found:
        train("fourier:n=8", fcl.open_data(np.ones((300, 4)), y=Y), driver="inline")
    assert not isinstance(found.value, fcl.GeneratorError)
    says = r"^features Refusing: fit on a sample of 300 rows raised InputError: no rows like that"
    with pytest.raises(fcl.GeneratorError, match=says):
        train(Refusing(n=8), driver="inline")


# -- where the class is ----------------------------------------------------------------------------


def _in_a_module_without_a_file(monkeypatch: pytest.MonkeyPatch) -> Generator:
    module = types.ModuleType("fleeting")
    made = type("Fleeting", (generators.Tanh,), {"__module__": "fleeting"})
    module.Fleeting = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fleeting", module)
    return made()


@pytest.mark.parametrize("driver", DRIVERS)
def test_classes_that_nobody_finds_again(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    """Refused before a row is read."""

    class Inside(generators.Tanh):
        pass

    in_a_script = type("Script", (generators.Tanh,), {"__module__": "__main__"})
    replaced = type("Tanh", (generators.Tanh,), {"__module__": "generators"})
    for features, says in (
        (Inside(), "defined inside a function"),
        (in_a_script(), "defined in a script or notebook"),
        (
            _in_a_module_without_a_file(monkeypatch),
            "another process cannot import its module fleeting",
        ),
        (replaced(), "generators:Tanh is no longer the class of these features"),
    ):
        with pytest.raises(fcl.GeneratorError, match=says):
            train(features, driver=driver)


def test_a_class_that_fails_in_the_child_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_alone.py").write_text(
        "import sys\n"
        "if 'pytest' not in sys.modules:\n    raise OSError('no licence here')\n"
        "from generators import Tanh\nclass Mine(Tanh):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        fcl.InputError,
        match=r"^(writer|trainer) 0 \(pid \d+\) failed at its start, in a separate process: "
        r".*mine_alone:Mine cannot be imported.*no licence here",
    ):
        train("mine_alone:Mine", driver="processes")


def test_options_of_a_class() -> None:
    with pytest.raises(fcl.InputError, match=r"name one of scale; got 'size=1'"):
        train("generators:Tanh:size=1")
    with pytest.raises(fcl.InputError, match="it has none; got 'x=1'"):
        train("generators:NoOptions:x=1")
    assert train("generators:NoOptions", driver="inline", tol=1e-2).converged
    with pytest.raises(fcl.GeneratorError, match=r"under their own names, raised AttributeError"):
        train("generators:LostOption")


# -- rows ------------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_the_model() -> None:
    model = train(generators.Tanh(), driver="inline", tol=1e-2).model
    with pytest.raises(fcl.InputError, match="71 columns, but the model was trained on 70"):
        model.margins(np.zeros((5, 71)))
    bad = X.copy()
    bad[217, 33] = np.inf
    with pytest.raises(fcl.InputError, match="row 217, column 33 is inf"):
        model.margins(bad)


@pytest.mark.parametrize("driver", DRIVERS)
def test_rows_that_are_not_finite(driver: str, tmp_path: Path) -> None:
    bad = X.copy()
    bad[217, 33] = np.nan
    np.save(tmp_path / "X.npy", bad)
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(fcl.InputError, match="row 217, column 33 is nan"):
        train(generators.Tanh(), fcl.open_data(tmp_path), driver=driver)


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


@pytest.mark.parametrize(
    "broken",
    [
        {"columns": lambda self, ids, block: None},
        {"columns": lambda self, ids, block: np.full((len(block), len(ids)), np.nan)},
        {"gradients": lambda self, *args: np.zeros(99)},
        {"margins": lambda self, *args: 1 / 0},
        {"largest": lambda self, block: -1.0},
        {"penalty_factors": lambda self, ids: -np.ones(len(ids))},
        {"fit": lambda self, sample: 1 / 0},
    ],
    ids=lambda broken: next(iter(broken)),
)
def test_families_of_fcl_are_never_a_users_fault(
    broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, method in broken.items():
        monkeypatch.setattr(fcl.features.Columns, name, method)
    rows = np.random.default_rng(0).normal(size=(len(Y), 3))
    with pytest.raises(fcl.InputError) as found:
        train("columns", fcl.open_data(rows, y=Y), driver="inline", C=10.0)
    assert not isinstance(found.value, fcl.GeneratorError)


def test_values_that_overflow_in_a_family_of_fcl() -> None:
    rows = np.random.default_rng(0).normal(size=(len(Y), 3)) * 1e200
    with pytest.raises(fcl.InputError, match=r"feature .* inf") as found:
        train("products:degree=2", fcl.open_data(rows, y=Y), driver="inline")
    assert not isinstance(found.value, fcl.GeneratorError)


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
        result = fcl.train(
            data, features, C=1e7, loss=loss, tol=1e-6, driver=driver, max_passes=30, warn=False
        )
        assert result.certificate.objective < 1e6
