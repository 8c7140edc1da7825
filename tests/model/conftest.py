"""Small models made by hand, data of named columns, checkpoints, and what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pandas as pd
import pytest

import fcl
from fcl.convert.contract import OutputLayout
from fcl.data.columns import ColumnRecord, KnownVariants, Variant
from fcl.features import Family, KmerFamily, bind_features, parse_features
from fcl.files import schema
from fcl.files.columns import COLUMN_KEYS, record_from_header, record_to_header
from fcl.files.compact import Encoding, round_weights
from fcl.files.folder import Checkpoint, CheckpointFolder
from fcl.model import Certificate, Model

# -- models of real k-mers

LENGTH = 12
#: Changes for a model of three classes.
SEVERAL: dict[str, Any] = {
    "weights": np.array([[0.5, 0, -2], [0, 0.25, 1.5], [3, -1, 0]]),
    "intercept": [0.5, -1.0, 0.25],
    "loss": "softmax",
    "labels": ("apple", "fig", "pear"),
}


def make_model(**changes: Any) -> Model:
    family = KmerFamily(3, LENGTH, 0)
    values: dict[str, Any] = {
        "family": family,
        "ids": [3, 250, 999],
        "weights": [0.1, -2.5, 1 / 3],
        "support": [40, 2, 7],
        "intercept": -0.7,
        "loss": "logistic",
        "C": 0.1,
        "alpha": 0.1,
        "labels": (0, 1),
        "n_rows": 100,
        "sum_weights": 100.0,
        "fingerprint": "ab" * 32,
        "certificate": Certificate(12.5, 12.4, 0.008, 1.01, family.n_features, passes=3),
        "options": {"seed": 0, "memory": 1 << 30},
        "history": [{"number": 1, "gap": np.float64(0.1)}],
        "created": "2026-01-02T03:04:05+00:00",
        "fcl_version": "0.1",
    }
    return Model(**(values | changes))


def make_compact() -> Model:
    """The same with weights that are multiples of 2^-7."""
    weights = round_weights(np.array([0.1, -2.5, 1 / 3]), np.arange(3), 7, "nearest", 0)
    return make_model(weights=weights, history=[], encoding=Encoding(7, "nearest", loss=0.25))


@pytest.fixture
def model() -> Model:
    return make_model()


@pytest.fixture
def path(tmp_path: Path, model: Model) -> Path:
    """The file of the model."""
    model.save(tmp_path / "m.fcl")
    return tmp_path / "m.fcl"


@pytest.fixture
def windows() -> np.ndarray:
    """Codes, 4 (unknown) among them."""
    return np.random.default_rng(5).integers(0, 5, (700, LENGTH), dtype=np.uint8)


# -- checkpoints


def make_checkpoint(**changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "options": {"C": 0.1, "seed": 3, "block_rows": 256, "tol": 1e-3, "memory": 1 << 30},
        "family": {"family": "kmers", "d": 3},
        "fingerprint": "ab" * 32,
        "n_rows": 600,
        "block_checksums": np.array([1, 2**64 - 1, 3], np.uint64),
        "state": checkpoints.state(),
        "arrays": checkpoints.arrays(),
        "history": [{"number": 1, "gap": 0.1}],
        "elapsed": 12.25,
        "driver": "inline",
    }
    return Checkpoint(**(values | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[CheckpointFolder]:
    with CheckpointFolder(tmp_path / "ckpt") as folder:
        yield folder


# -- data of named columns

NAMES = ["age", "a * b", "x=(1)", "colour=red", "colour=blue", "height"]
#: The names in another order.
TURNED = ["colour=red", "height", "age", "colour=blue", "x=(1)", "a * b"]
FRAME = pd.DataFrame(np.random.default_rng(6).normal(size=(90, 6)), columns=NAMES)
_X = FRAME.to_numpy()
Y = _X[:, 0] + _X[:, 1] * _X[:, 3] - _X[:, 4] ** 2 + _X[:, 2] > 0


def trained(features: Any, data: Any, C: float = 2.0) -> Model:
    return fcl.train(fcl.open_data(data, y=Y), features, C=C).model


def layout(names: list[str] | None, width: int, kind: Any = "dense") -> OutputLayout:
    return OutputLayout(kind, np.dtype(np.float64), width, names)


def stored(folder: Path, names: list[str] | None) -> str:
    """FRAME as Zarr data in the layout of anndata, with its columns in the order of ``names``."""
    import zarr

    group = zarr.open_group(folder, mode="w", zarr_format=2)
    x = _X if names is None else FRAME.assign(q=9.0, zip=-3.0)[names].to_numpy()
    group.create_array("X", data=x)
    group.create_array("y", data=Y.astype(np.int64))
    if names is not None:
        var = group.create_group("var", attributes={"_index": "_index"})
        var.create_array("_index", data=np.array(names, "U"))
    return str(folder)


RECORD = ColumnRecord(
    {0: "rs1", 4: "c=2"},
    first_id=1,
    variants=KnownVariants({0: Variant("A", "G", 0.5, "X", 7), 4: Variant("C", "0", 1.5)}),
    means={"rs1": 0.25},
    categories={"c": ["2", "u"]},
    offset="obs/o",
)


def record_header(record: ColumnRecord = RECORD) -> dict[str, Any]:
    """The record as a model file has it."""
    header: dict[str, Any] = json.loads(json.dumps(record_to_header(record)))
    return header


def read_back(header: dict[str, Any]) -> ColumnRecord:
    return record_from_header(schema.record(**COLUMN_KEYS)("", header))


# -- models of other programs

VW = Path(__file__).parent / "vw"  # files that Vowpal Wabbit 9.11.9 wrote
#: The columns with which they were trained; with eight, several have the same hash.
FOUR = ["age", "x1", "height_cm", "3"]
EIGHT = [*FOUR, "b", "c", "dd", "e9"]


def family_of(features: str = "columns", width: int = 4) -> Family:
    """Features bound to rows of some columns, or letters."""
    rows = np.random.default_rng(0).integers(0, 4, (30, width)).astype(np.uint8)
    if not features.startswith(("kmers", "bag")):
        rows = rows.astype(float)
    return bind_features(parse_features(features), fcl.open_data(rows, y=None).rows)
