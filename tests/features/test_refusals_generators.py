"""Classes of features that fail in a run: the message names class, features and block."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generators
import numpy as np
import pytest
import scipy.sparse

import fcl
from fcl.errors import InputError, RepeatedDeaths
from fcl.features import Columns, Fourier
from tests.cli.refusals import of, parametrized
from tests.features.test_generator_faults import DRIVERS, MARK, X, Y, train


class Loose(generators.Tanh):
    """Learns an attribute whose name is not stored."""

    def fit(self, sample: Any) -> None:
        super().fit(sample)
        self.factor = 2.0

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return super().columns(ids, block) * self.factor


class Refusing(Fourier):
    def fit(self, sample: Any) -> None:
        raise fcl.InputError("no rows like that")


# -- doors: each trains, with one driver or with each, in an empty working folder


def call(given: Callable[[], Any]) -> None:
    given()


def inline(given: Callable[[], Any]) -> None:
    """Features that a function makes, or their text; or these and data."""
    made = given()
    train(*made if isinstance(made, tuple) else (made,), driver="inline")


def processes(given: Callable[[], Any]) -> None:
    train(given(), driver="processes")


def above(given: tuple[str, Any]) -> None:
    """The class Above with another method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generators.Above, *given)
        train(generators.Above(), driver="inline")


def columns(given: tuple[str, Any]) -> None:
    """A family of fcl itself with another method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, *given)
        X = np.random.default_rng(0).normal(size=(len(Y), 3))
        train("columns", fcl.open_data(X, y=Y), driver="inline", C=10.0)


def child(given: str) -> None:
    """A module that cannot be imported without pytest."""
    Path("mine_alone.py").write_text(
        "import sys\n"
        "if 'pytest' not in sys.modules:\n    raise OSError('no licence here')\n"
        "from generators import Tanh\nclass Mine(Tanh):\n    pass\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path.cwd())
        train(given, driver="processes")


def inside() -> Any:
    class Inside(generators.Tanh):
        pass

    return Inside()


def of_module(name: str, module: str) -> Any:
    """A subclass that says that it is of another module."""
    return type(name, (generators.Tanh,), {"__module__": module})


FLEETING = types.ModuleType("fleeting")  # without a file
FLEETING.Fleeting = of_module("Fleeting", "fleeting")  # type: ignore[attr-defined]


def scaled(name: str) -> tuple[str, Any]:
    """Gradients of the class that are wrong by 1 per cent."""
    right = getattr(generators.Above, name)
    return name, lambda *given: 1.01 * right(*given)


def model() -> Any:
    return train(generators.Tanh(), driver="inline", tol=1e-2).model


def changed(row: int, column: int, value: float) -> np.ndarray:
    bad = X.copy()
    bad[row, column] = value
    return bad


def left_out() -> fcl.DataSet:
    """Rows of weight 0 are no rows of the sample, but the data number them."""
    positive = np.abs(X) + 0.1
    positive[123, 0] = -1.0
    return fcl.open_data(positive, y=Y, weights=(np.arange(len(X)) >= 100) * 1.0)


def sparse() -> fcl.DataSet:
    return fcl.open_data(scipy.sparse.csr_array(np.abs(X)), y=Y)


AT = r"^features Later: columns\(35 features, 0 to 34\) on row block 2:? ?"
#: Features, and what is wrong with them, with each driver.
EACH: list[tuple[str, Any, str]] = [
    ("shape", lambda: generators.Later("shape", MARK),
     rf"{AT}expected shape \(64, 35\), rows by features, got \(63, 35\)"),
    ("nan", lambda: generators.Later("nan", MARK), f"{AT}feature 0 is nan at row 3 of the block"),
    ("error", lambda: generators.Later("raise", MARK), f"{AT}raised RuntimeError: the table is gone"),
    *((f"another {kind} each time", lambda binary=binary: generators.Unsteady(binary),
       r"features Unsteady: feature \d+ has the gradient .* cache")
      for kind, binary in (("value", False), ("bit", True))),
    ("inside a function", inside, "defined inside a function"),
    ("script", of_module("Script", "__main__"), "defined in a script or notebook"),
    ("no file", FLEETING.Fleeting, "another process cannot import its module fleeting"),
    ("replaced", of_module("Tanh", "generators"),
     "generators:Tanh is no longer the class of these features"),
]  # fmt: skip

CLASSES = [
    *of(inline, EACH),
    *of(processes, EACH),
    *of(inline, [
        ("text", lambda: generators.Later("dtype", MARK), "expected real numbers, got dtype <U"),
        ("another column before the start", lambda: generators.Unsteady(sly=False),
         r"a different column for feature \d+ when it is called a second time"),
        ("not stored", Loose,
         "has no attribute 'factor'.*set factor, which is not stored: .* must end in _"),
        ("own message", lambda: Refusing(n=8),
         r"^features Refusing: fit on a sample of 300 rows raised InputError: no rows like that"),
    ]),
    ("beyond the cache", call, lambda: train(generators.Later("huge", MARK), C=1e-190, driver="inline"),
     r"got 1e\+200 for feature 0 on row block 2"),
    *of(above, [
        ("gradients of 3", ("gradients", lambda *_: np.ones(3)),
         r"features Above: gradients\(features 0 to 34\) on row block 0: .*35"),
        ("no gradients", ("gradients", lambda *_: None),
         r"features Above: gradients\(features 0 to 34\).*got NoneType"),
        ("largest nan", ("largest", lambda *_: np.nan),
         r"features Above: largest on the sample of 300 rows that fit got: .*got nan"),
        ("largest many", ("largest", lambda *_: "many"),
         r"features Above: largest on the sample of .*got 'many'"),
        ("margins", ("margins", lambda *_: np.full(64, np.inf)),
         r"features Above: margins\(.*\) on the sample of .*: expected float64 \(300,"),
        ("power_sums of 3", ("power_sums", lambda *_: np.ones(3)),
         r"features Above: power_sums on row block 0: expected float64 \(1, "),
        ("power_sums", ("power_sums", lambda *_: 1 / 0),
         "features Above: power_sums on row block 0 raised ZeroDivisionError"),
        ("prepare fewer", ("prepare", lambda _, b: b[:-1]),
         r"features Above: prepare: expected an array \(300, c\).*\(299, 70\)"),
        ("prepare", ("prepare", lambda _, b: 1 / 0),
         "features Above: prepare raised ZeroDivisionError"),
        ("fit", ("fit", lambda *_: 1 / 0),
         "features Above: fit on a sample of 300 rows raised ZeroDivisionError"),
        ("wrong gradients", scaled("gradients"), r"gradients\(\) must agree with it"),
    ]),
    *of(inline, [(name, getattr(generators, name), f"features {name}: .*{says}") for name, says in (
        ("Centered", r"must depend only on the feature and the row"),
        ("ScaledByBlock", r"learn statistics of the data in fit\(\)"),
        ("SignsOfCentered", r"in a block of every second row .*: (True|False) instead of (True|False) at "
                            r"row \d+ of X"),
        ("PreparesCentered", r"prepare\(\) or columns\(\) returns a different column"),
        ("SlightlyWrongMargins", r"margins\(16 features, 0 to 69\) .* where the columns give"),
        ("SmallLargest", r"says that no \|value\| exceeds 0\.01, but feature \d+ is"),
    )]),
    *of(inline, [
        ("sparse", lambda: (generators.SparseByBlock(), sparse()),
         "features SparseByBlock: .*depend only on the feature and the row"),
        ("row of the data", lambda: (generators.NotFinite(), left_out()),
         r"^features NotFinite: columns\(16 features, 0 to 69\) on the sample of 200 rows that fit got: "
         r"feature 0 is nan at row 123 of "),
        ("lost option", lambda: "generators:LostOption",
         "under their own names, raised AttributeError"),
    ]),
]  # fmt: skip

#: What is not the fault of a class, so that the message does not say so.
USERS = [
    *of(inline, [
        ("constant", lambda: ("fourier:n=8", fcl.open_data(np.ones((300, 4)), y=Y)),
         "^features fourier: the median distance between 300 rows of the sample is 0"),
        ("overflow", lambda: ("products:degree=2", fcl.open_data(1e200 * X[:, :3], y=Y)),
         "features Products: columns.* feature 3 is inf at row 0 of X"),
        ("size", lambda: "generators:Tanh:size=1", "name one of scale; got 'size=1'"),
        ("no options", lambda: "generators:NoOptions:x=1", "expected no options; got 'x=1'"),
    ]),
    *of(call, [
        ("71 columns", lambda: model().margins(np.zeros((5, 71))),
         "71 columns, but the model was trained on 70"),
        ("infinite", lambda: model().margins(changed(217, 33, np.inf)), "row 217, column 33 is inf"),
    ]),
    *of(columns, [(name, (name, gives), says) for name, gives, says in (
        ("columns", lambda self, ids, block: None, r"Columns: columns\(3 features.*got NoneType"),
        ("columns", lambda self, ids, block: np.full((len(block), len(ids)), np.nan),
         r"Columns: columns\(3 features.* feature 0 is nan at row 0"),
        ("gradients", lambda self, *args: np.zeros(99),
         r"gradients\(features 0 to 2\).*got float64 \(99,\)"),
        ("margins", lambda self, *args: 1 / 0,
         r"margins\(3 features, 0 to 2\).* raised ZeroDivisionError"),
        ("largest", lambda self, block: -1.0, r"largest on row block 0: .*got -1\.0"),
        ("penalty_factors", lambda self, ids: -np.ones(len(ids)),
         r"penalty_factors.*feature 0 has -1\.0"),
        ("fit", lambda self, sample: 1 / 0,
         "Columns: fit on a sample of 300 rows raised ZeroDivisionError"),
    )]),
    ("child", child, "mine_alone:Mine",
     r"^(writer|trainer) 0 \(pid \d+\) failed at its start, in a separate process: "
     r".*mine_alone:Mine cannot be imported.*no licence here"),
]  # fmt: skip


@parametrized(CLASSES)
def test_a_class_is_refused(
    door: Any, given: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fleeting", FLEETING)
    with pytest.raises(fcl.GeneratorError, match=message):
        door(given)


@parametrized(USERS)
def test_refused(
    door: Any, given: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as found:
        door(given)
    assert not isinstance(found.value, fcl.GeneratorError)


@pytest.mark.parametrize("driver", DRIVERS)
def test_stored_rows_that_are_not_finite(driver: str, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", changed(217, 33, np.nan))
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(InputError, match="row 217, column 33 is nan"):
        train(generators.Tanh(), fcl.open_data(tmp_path), driver=driver)


def test_writers_that_die_of_the_features() -> None:
    says = (
        r"^the writer died 3 times without progress in between: (in the task \w+, parts \d+ to \d+, "
        r"which runs code of the features Later: writer 0 \(pid \d+\) was killed by signal 9"
        r"[^;]*; ){2}"
    )
    with pytest.raises(RepeatedDeaths, match=says):
        train(generators.Later("die", MARK), driver="processes")
