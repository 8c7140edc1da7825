"""Jobs that do not go on from a checkpoint: one message, and the checkpoint stays as it is."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import set_array, set_header
from rows import acceptors

import fcl
from fcl.data.fingerprint import _spaced_blocks
from fcl.features import Fourier
from fcl.files.folder import CheckpointFolder
from tests.drivers.conftest import fit

N = 300
RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(N, 12))
Z = RANDOM.normal(size=(N, 3))
Y = np.where(X[:, 0] + RANDOM.normal(size=N) > 0.0, 1.0, -1.0)
CLASSES = np.digitize(X[:, 1] + RANDOM.normal(size=N), [-0.5, 0.5])
SOFTMAX = {
    "X": X,
    "y": np.array(["a", "b", "c"])[CLASSES],
    "features": "columns",
    "loss": "softmax",
}
CODES, LABELS = acceptors(14, N)
MANY = acceptors(14, 6000)


def changed(codes: np.ndarray, *rows: int) -> np.ndarray:
    """Windows with another letter in some rows."""
    codes = codes.copy()
    codes[rows, 5] = (codes[rows, 5] + 1) % 4
    return codes


def train(
    X: Any = CODES, y: Any = LABELS, features: Any = "kmers:d=3", **options: Any
) -> fcl.TrainResult:
    added = {name: options.pop(name, None) for name in ("weights", "offset", "covariates")}
    return fit(fcl.open_data(X, y=y, **added), features, **({"C": 1.0, "tol": 1e-9} | options))


def resume(folder: Path, job: dict[str, Any], edit: Any = None, **changes: Any) -> None:
    """Begin a job, edit its last checkpoint, and resume it with other options or data."""
    train(**job, max_passes=2, checkpoint=folder)
    if edit is not None:
        for path in sorted(folder.glob("*.fcl-ckpt"))[:-1]:
            path.unlink()
        edit(next(folder.glob("*.fcl-ckpt")))
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        train(**(job | {"checkpoint": folder} | changes), resume=folder)
    finally:
        assert {path: path.read_bytes() for path in folder.iterdir()} == kept


def heavy_weights(path: Path) -> None:
    set_array(path, "ids", np.array([0, 5, 17]))
    set_array(path, "weights", np.array([1e100, -1e100, 1e50]))


def bound_of_nan(path: Path) -> None:
    set_header(path, "state", bound=math.nan)


def four_outputs(path: Path, arrays_too: bool = False) -> None:
    """A header of one output more; arrays_too : with weights and intercepts that fit it."""
    arrays = CheckpointFolder(path.parent).load().arrays
    set_header(path, "state", n_outputs=4)
    for name, array in arrays.items() if arrays_too else ():
        if name.endswith("weights"):
            set_array(path, name, np.zeros(array.size // 3 * 4))
        if name.endswith("covariates"):
            set_array(path, name, np.zeros(4))


def passed_over() -> int:
    """A row that the fingerprint does not contain."""
    hashed = np.zeros(6000, bool)
    for start, stop in _spaced_blocks(6000):
        hashed[start:stop] = True
    return int(np.flatnonzero(~hashed)[-1])


ROW = passed_over()
COLUMNS = {"X": X, "y": Y, "features": "columns", "C": 0.3}
WEIGHTED = {"l1_ratio": 0.4, "class_weight": {1: 3.0}}
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    # data
    ("other letters", {}, {"X": changed(CODES, 70, 201)},
     r"^(?!.*block [02]).*fingerprint was .*training rows 64-127 \(block 1\) differ: checksum was "
     r".*training rows 192-255 \(block 3\) differ"),
    ("other label", {}, {"y": LABELS * np.where(np.arange(N) == 7, -1.0, 1.0)},
     r"^(?!.*block).*the data differ: fingerprint was "),
    ("weights", {}, {"weights": np.ones(N)}, r"^(?!.*block).*the data differ: fingerprint was "),
    ("fewer rows", {}, {"X": CODES[:280], "y": LABELS[:280]},
     r"fingerprint was .*training rows 256-299 \(block 4\) differ"),  # now 256-279
    ("fewer blocks", {}, {"X": CODES[:200], "y": LABELS[:200]},
     "there were 5 blocks of rows, there are 4"),
    # block_rows, which nobody has changed, follows from the number of rows
    *((f"fewer rows, the same {name}", {"block_rows": 65536, "C": None} | how,
       {"X": CODES[:200], "y": LABELS[:200]},
       "block_rows was 320, is 256; the data differ: fingerprint was ")
      for name, how in (("C", {"C": 1.0}), ("alpha", {"alpha": 0.003}))),
    ("row that the fingerprint passes over", {"X": MANY[0], "y": MANY[1], "block_rows": 512},
     {"X": changed(MANY[0], ROW)}, rf"^(?!.*fingerprint).*\(block {ROW // 512}\) differ"),
    ("other offset", COLUMNS | {"offset": np.zeros(N)}, {"offset": np.ones(N)},
     "the data differ: fingerprint"),
    ("no offset", COLUMNS | {"offset": np.zeros(N)}, {"offset": None}, "offset was True, is False"),
    ("other covariates", COLUMNS | {"covariates": Z}, {"covariates": Z + 1e-9},
     "the data differ: fingerprint was "),
    ("fewer covariates", COLUMNS | {"covariates": Z}, {"covariates": Z[:, :2]},
     r"covariates was \[.*2\]'\], is \[.*1\]'\]"),
    ("other names of classes", SOFTMAX, {"y": np.array(["x", "y", "z"])[CLASSES]},
     "the data differ: fingerprint was "),
    ("other classes", SOFTMAX, {"y": np.arange(N) % 4}, "n_outputs was 3, is 4"),
    # options
    *((f"other {name}", {}, {name: value}, message) for name, value, message in (
        ("C", 2.0, "C was 1.0, is 2.0"),
        ("seed", 1, "seed was 0, is 1"),
        ("intercept", False, "intercept was True, is False"),
        ("loss", "squared_hinge", "loss was 'logistic', is 'squared_hinge'"),
        ("block_rows", 128, "block_rows was 64, is 128"),
        ("valid_fraction", 0.2, "valid_fraction was not given, is 0.2"))),
    *((f"{name}, {driver}", job | {"driver": driver}, changes, message)
      for driver in ("inline", "processes") for name, job, changes, message in (
        ("no weights of the penalty", WEIGHTED, {"l1_ratio": 1.0, "class_weight": None},
         "class_weight was.*l1_ratio was 0.4, is 1.0"),
        ("other l1_ratio", WEIGHTED, {"l1_ratio": 0.5}, "job: l1_ratio was 0.4, is 0.5"),
        ("other class_weight", WEIGHTED, {"class_weight": "balanced"},
         "class_weight was .*, is 'balanced'"),
        ("not standardized", COLUMNS | {"standardize": True, "tol": 1e-12}, {"standardize": False},
         "standardize was True, is False"))),
    *((f"dtype {dtype}", COLUMNS | {"features": Fourier(per_pass=150, dtype=dtype)},
       {"features": Fourier(per_pass=150, dtype=None if dtype else "int8")}, "features was ")
      for dtype in (None, "int8")),
    ("other group", SOFTMAX, {"group": True}, "group was False, is True"),
    ("other loss of outputs", SOFTMAX, {"loss": "logistic", "y": CLASSES == 1},
     "loss was 'softmax', is 'logistic'"),
    # edited files
    *((f"forged {name}, {driver}", {}, {"edit": edit, "driver": driver, "checkpoint": None}, message)
      for driver in ("inline", "processes") for name, edit, message in (
        ("weights worse than none", heavy_weights, "expected at most that of the model without features"),
        ("bound", bound_of_nan, r"state\.bound: expected a number, got nan"))),
    ("forged number of outputs", SOFTMAX, {"edit": four_outputs}, "holds no intact checkpoint"),
    ("forged outputs", SOFTMAX, {"edit": lambda path: four_outputs(path, True)},
     "n_outputs was 4, is 3"),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("job", "changes", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_refused(
    job: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(fcl.InputError) as caught:
        resume(tmp_path / "c", job, **changes)
    assert re.search(message, f"{type(caught.value).__name__}: {caught.value}")
    assert "edit" in changes or "is of another job: " in str(caught.value)
