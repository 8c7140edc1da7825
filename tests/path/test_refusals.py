"""Paths that are refused: one message, which names the option, the fold or the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit

import fcl
from fcl.data.columns import ColumnRecord
from fcl.errors import InputError
from fcl.path.folds import fold_of_rows
from tests.path.conftest import Killed, kill_after, rows, split, train_path

LABELS = np.arange(60) % 7 - 4
GROUPS = np.repeat(["b", "a", "c"], 4)
THIRDS = np.arange(60) % 3


def whole(_: Path, **options: Any) -> None:
    train_path(split()[0], **options)


def public(_: Path, **options: Any) -> None:
    fcl.train_path(split()[0], "kmers:d=2", **options)


def few(_: Path, n: int = 60, y: Any = None, weights: Any = None, **options: Any) -> None:
    codes, labels = rows(n=n)
    data = fcl.open_data(codes, y=labels if y is None else y, weights=weights)
    train_path(data, warn=False, **{"points": 3, "C_max": 0.5, "block_rows": 64} | options)


def sampled(_: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    fcl.train_path(fcl.open_data(X, y=X[:, 0] > 0), "fourier:per_pass=50")


def folds(_: Path, split: Any, groups: Any = None) -> None:
    data = fcl.open_data(np.zeros((12, 1)), y=np.arange(12) % 2)
    fold_of_rows(split, data, groups, True, 0)


def table(folder: Path, content: str) -> None:
    (folder / "path.json").write_text(content)
    train_path(split()[0], folder=folder)


def other(folder: Path, first: Any = None, held: bool = False, **options: Any) -> None:
    """A path in the folder of another one."""
    data, valid = split()
    train_path(data, folder=folder, **{"points": 3, "patience": None} | (first or {}))
    train_path(data, folder=folder, **{"points": 3} | ({"valid": valid} if held else {}) | options)


def killed(folder: Path, rows_too: bool = False, alike: bool = False, **options: Any) -> None:
    """A path that was killed, and goes on with other rows or options."""
    data, valid = split()
    with pytest.raises(Killed):
        train_path(data, folder=folder, progress=kill_after(2))
    if alike:  # the fingerprint samples the rows; each of their blocks is compared with the state
        valid.fingerprint = data.fingerprint  # type: ignore[method-assign]
    train_path(valid if rows_too else data, folder=folder, **options)


def damaged(folder: Path, edit: Callable[[Path, Path], Any]) -> None:
    data, _ = split()
    train_path(data, folder=folder, points=3)
    edit(folder / "point-02.fcl", folder / "point-03.fcl")
    train_path(data, folder=folder, points=3)


def renamed(folder: Path, run: Callable[..., Any], names: Any) -> None:
    """The same numbers, in columns of other names."""
    X = np.random.default_rng(0).normal(size=(90, 3))
    first, second = (fcl.open_data(X, y=X[:, 0] > 0) for _ in range(2))
    first.column_record, second.column_record = ColumnRecord(["a", "b", "c"]), ColumnRecord(names)
    assert first.fingerprint() != second.fingerprint()
    for data in (first, second):
        run(data, folder)


def path_of(data: fcl.DataSet, folder: Path) -> None:
    fcl.train_path(data, "columns", points=2, folder=folder)


def job_of(data: fcl.DataSet, folder: Path) -> None:
    resume = folder if (folder / "lock").exists() else None
    given: dict[str, Any] = {"C": 0.1, "tol": 1e-2, "memory": "1GiB", "resume": resume}
    fcl.train(data, "columns", checkpoint=folder, **given)


CASES: list[tuple[str, Callable[..., None], dict[str, Any], str]] = [
    # options
    ("C", public, {"C": 1.0}, "C: a path finds its own values"),
    ("C_max too small", whole, {"C_max": 1e-9}, "C_max: expected a number above"),
    ("alphas and C_max", whole, {"alphas": [0.1], "C_max": 1.0}, "give either alphas or C_max"),
    ("alphas twice", whole, {"alphas": [0.1, 0.1]}, "alphas: expected distinct numbers, got 0.1 twice"),
    ("alphas below 0", whole, {"alphas": [0.1, -1.0]}, "alphas: expected finite numbers above 0"),
    ("alphas of text", whole, {"alphas": ["a"]}, "alphas: expected numbers above 0"),
    ("1se alone", whole, {"select": "1se"}, "select: expected held-out rows for '1se', got none"),
    ("patience alone", whole, {"patience": 2}, "patience: expected held-out rows for 2, got none"),
    ("min_gain alone", whole, {"min_gain": 0.1}, "min_gain: expected held-out rows for 0.1, got none"),
    ("groups alone", whole, {"groups": [1] * 280}, "groups: expected cv or valid"),
    ("sampled", sampled, {}, "a path needs a family whose passes price all features"),
    ("constant target", few, {"n": 64, "y": np.ones(64), "loss": "squared", "C_max": None},
     "no feature varies with the target"),
    # folds
    ("cv and a part", whole, {"cv": 3, "valid_fraction": 0.2}, "give either valid, valid_fraction or cv"),
    ("one fold", whole, {"cv": 1}, "cv: expected 2 to 280 folds"),
    ("labels of folds", whole, {"cv": [0, 1]}, "cv: expected one label for each of 280 rows"),
    ("one group", whole, {"cv": 3, "groups": [0] * 280},
     "cv: expected at least 2 groups to hold out, got 1 group"),
    ("two groups", whole, {"cv": 3, "groups": [0, 1] * 140}, "cv: expected 2 to 2 folds for 2 groups"),
    ("rows held out twice", folds, {"split": ShuffleSplit(4, test_size=0.5, random_state=0)},
     "holds each row out once"),
    *((f"group in two folds of {name}", folds, {"split": how, "groups": GROUPS},
       "row 1 is in another fold than other rows of its group")
      for name, how in (("labels", np.arange(12) % 2), ("a splitter", KFold(12)))),
    ("fold of one class", few, {"y": LABELS > 0, "cv": np.where(LABELS > 0, 0, THIRDS % 2)},
     "fold 1 of 2: y: only one class is left"),
    ("fold without weight", few, {"cv": THIRDS, "weights": (THIRDS != 1) * 1.0},
     "fold 2 has no rows of weight above 0 held out"),
    ("folds of one row", few, {"n": 90, "cv": np.arange(90)},
     "got one label in each of 90 folds, whose AUPRC"),
    # outer folds
    ("outer alone", few, {"outer": 3}, "outer: expected cv beside it"),
    ("outer of one fold", few, {"outer": 1, "cv": 3}, "outer: expected 2 to 60 folds"),
    ("outer labels", few, {"outer": [0, 1], "cv": 3}, "outer: expected one label for each of 60 rows"),
    ("splitter of all rows", few, {"outer": 2, "cv": PredefinedSplit(THIRDS)},
     "expected a splitter of 30 rows"),
    ("outer fold without weight", few, {"outer": THIRDS, "cv": 2, "weights": (THIRDS != 1) * 1.0},
     "outer: fold 2 has no rows of weight above 0 held out"),
    # the folder
    ("other points", other, {"points": 4}, "points was 3, is 4"),
    ("smaller C_max", other, {"C_max": 1e-3}, "C_max was not given, is 0.001"),
    ("other valid", other, {"held": True}, "valid was not given, is"),
    ("cv begun", other, {"cv": 2}, "folds was not given, is"),
    ("other max_passes", other, {"max_passes": 9}, "max_passes was not given, is 9"),
    ("other folds", other, {"first": {"cv": np.arange(280) % 2}, "cv": 1 - np.arange(280) % 2},
     r"another job: folds was [0-9a-f]{12}, is [0-9a-f]{12}\. Resume"),
    ("killed, other rows", killed, {"rows_too": True}, "the path is of another job: the data differ"),
    ("killed, other l1_ratio", killed, {"l1_ratio": 0.5}, "another job: l1_ratio was 1.0, is 0.5"),
    ("killed, other loss", killed, {"loss": "squared_hinge"},
     "another job: loss was 'logistic', is 'squared_hinge'"),
    ("killed, rows alike", killed, {"rows_too": True, "alike": True},
     "there were 3 blocks of rows, there are 2"),
    *((f"{what} of renamed columns, {case}", renamed, {"run": run, "names": names}, message)
      for what, run, message in (("path", path_of, r"fingerprint was .*names of its columns"),
                                 ("job", job_of, r"fingerprint was .*names of its columns"))
      for case, names in (("permuted", ["b", "a", "c"]), ("unnamed", None))),
    ("table cut short", table, {"content": "{"}, "expected the table of a path.* got Expecting property"),
    ("table of another format", table, {"content": '{"format": "other"}'}, "got format 'other'"),
    ("table without points", table, {"content": '{"format": "fcl-path 1", "points": 3}'},
     "expected the table of a path.* got grid is missing"),
    ("table of an empty point", table,
     {"content": '{"format": "fcl-path 1", "points": [{}], "grid": [1]}'}, r"points\[0\]\.C is missing"),
    ("point missing", damaged, {"edit": lambda second, third: second.unlink()},
     r"ModelFileError: .*point-02\.fcl.*; remove the folder .*--overwrite"),
    ("point of another C", damaged, {"edit": lambda second, third: third.rename(second)},
     r"point-02\.fcl: expected a model at C"),
]  # fmt: skip


@pytest.mark.thin(2)
@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")
@pytest.mark.parametrize(
    ("door", "given", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_refused(
    door: Callable[..., None], given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        door(tmp_path, **given)
    assert re.search(message, f"{type(caught.value).__name__}: {caught.value}")
