"""Model files of strangers: damaged, of other versions, or inconsistent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite, set_header
from waves import Problem

import fcl
from fcl.errors import ModelFileError
from fcl.stagewise.model import StagewiseModel


@pytest.fixture(scope="module")
def content(tmp_path_factory: Any) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.fcl"
    Problem().train("columns", block=3).model.save(path)
    return bytes(path.read_bytes())


@pytest.fixture
def path(content: bytes, tmp_path: Path) -> Path:
    (tmp_path / "m.fcl").write_bytes(content)
    return tmp_path / "m.fcl"


def test_damage_is_noticed_or_harmless(content: bytes, path: Path) -> None:
    weights = StagewiseModel.load(path).weights
    for size in range(0, len(content), 97):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"m\.fcl: "):
            fcl.load_model(path)
    for at in np.random.default_rng(1).choice(len(content), 80, replace=False).tolist():
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            again: Any = fcl.load_model(path)
        except ModelFileError:
            continue
        assert np.array_equal(again.weights.features, weights.features)


def test_same_content_same_bytes(content: bytes, path: Path) -> None:
    fcl.load_model(path).save(path, overwrite=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format is 'other', expected 'fcl-model'"),
        ({"version": 4, "fcl_version": "9.9"}, "format version 4.*made by a newer fcl"),
        ({"version": True}, "version must be an integer"),
        ({"family": {"family": "kmers", "d": 3, "length": 8, "origin": 0}}, r"m\.fcl: "),
        ({"family": 3}, "family: expected an object"),
        ({"labels": None}, "labels: expected 3 different labels"),
        ({"labels": ["a", "b"]}, "labels: expected 3 different labels"),
        ({"labels": ["a", "b", "a"]}, "labels: expected 3 different labels"),
        ({"n_outputs": 2, "labels": ["a", "b"]}, r"features\.npy: expected finite values of shape"),
        ({"n_outputs": 1 << 60}, "labels: expected"),
        ({"n_rows": 0}, "n_rows: expected a whole number"),
        ({"best_number": -1}, "best_number: expected a whole number"),
        ({"column_names": [[9, "x"]]}, r"column_names: expected columns in \[0, 4\)"),
        ({"certificate": {"objective": 1}}, "certificate.bound is missing"),
        ({"history": [{"number": 1}]}, r"history\[0\].loss is missing"),
        ({"has_offset": 1}, "has_offset: expected true or false"),
    ],
)
def test_headers(path: Path, changes: dict[str, Any], message: str) -> None:
    set_header(path, **changes)
    with pytest.raises(ModelFileError, match=message):
        fcl.load_model(path)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"block": 0}, "settings.block: expected a whole number"),
        ({"block": 1 << 61}, r"intercepts\.npy: expected finite values"),
        ({"update": "gls"}, "loss: the update gls has no squared loss"),
        ({"alpha": -1.0}, "settings.alpha"),
        ({"class_weight": [["a", -1], ["b", 1]]}, "settings.class_weight"),
    ],
)
def test_settings(path: Path, setting: dict[str, Any], message: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        header = json.loads(members["header.json"])
        header["settings"] |= setting
        members["header.json"] = json.dumps(header).encode()

    rewrite(path, change)
    with pytest.raises(ModelFileError, match=message):
        fcl.load_model(path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("features", np.full(12, np.nan), "expected finite values"),
        ("features", np.zeros(11), r"expected finite values of shape \(4, 3\)"),
        ("features", np.zeros((4, 3)), "must be a vector of <f8"),
        ("intercepts", np.zeros(9, ">f8"), "must be a vector of <f8, got >f8"),
        ("calibration", np.zeros(1), "calibration"),
        ("features", np.array([{}], object), "features"),
    ],
)
def test_arrays(path: Path, name: str, array: np.ndarray, message: str) -> None:
    stored = npy(array, pickle=array.dtype == object)
    rewrite(path, lambda members: members.update({f"{name}.npy": stored}))
    with pytest.raises(ModelFileError, match=message):
        fcl.load_model(path)
