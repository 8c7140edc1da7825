"""svmlight files against a plain loop over their words."""

from __future__ import annotations

import bz2
import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from converted import converted, refusal, saved

from fcl.convert import svmlight

RNG = np.random.default_rng(5)


def text_of(base: int, end: str = "\n", qid: bool = False) -> tuple[bytes, np.ndarray, np.ndarray]:
    """60 random rows, with comments and empty lines; the last id of row 7 is the largest."""
    x = np.where(RNG.random((60, 9)) < 0.3, RNG.integers(-9, 9, (60, 9)) / 4, 0)
    x[7, 8], x[3] = 2.5, 0
    x[5, 0] = 1.0  # so that the first id occurs
    y = RNG.integers(0, 7, 60) / 2
    lines = ["# made for a test"]
    for i, row in enumerate(x):
        entries = "".join(f" {j + base}:{v}" for j, v in enumerate(row) if v or (i + j) % 11 == 0)
        lines.append(f"{y[i]}{f' qid:{i // 4}' * qid}{entries} {'# a comment 0:4' * (i % 3 == 0)}")
        lines += [""] * (i % 7 == 0)
    return end.join(lines).encode(), x, y


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize(
    ("end", "pack", "qid"),
    [("\n", bytes, False), ("\r\n", gzip.compress, True), ("\n", bz2.compress, True)],
)
def test_rows(
    base: int, end: str, pack: Any, qid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svmlight, "_SLICE", 200)  # bytes: many slices
    content, x, y = text_of(base, end, qid)
    found = converted(saved(tmp_path, "a.svm", pack(content)))
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, y)
    assert f"ids: from {base}" in found.notes
    assert found.summary.rows_in == 60 and (found.x.dtype == np.float32)
    assert (found.group["X/data"][:] != 0).all()
    if qid:
        assert found.group["obs/group"][:].tolist() == [i // 4 for i in range(60)]


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, x, _ = text_of(0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(converted("-", format="svmlight").x, x)


def test_options(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.svm", b"1 1:1 3:2\n0 2:1\n")
    assert converted(path).x.tolist() == [[1, 0, 2], [0, 1, 0]]
    assert converted(path, zero_based="yes").x.tolist() == [[0, 1, 0, 2], [0, 0, 1, 0]]
    assert converted(path, columns=5).x.shape == (2, 5)
    second = saved(tmp_path, "b.svm", b"7 4:16777217\n")
    assert converted(path, second, dtype="float64").x.tolist()[2] == [0, 0, 0, 16777217]
    zero = saved(tmp_path, "c.svm", b"7 0:3\n")  # decides for both files
    assert converted(path, zero).x.tolist() == [[0, 1, 0, 2], [0, 0, 1, 0], [3, 0, 0, 0]]
    assert converted(path, zero).group["obs/source_row"][:].tolist() == [0, 1, 2]


def test_names_and_the_columns_of_other_files(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.svm", b"1 1:1 3:2\n0 2:1\n")
    names = saved(tmp_path, "names.txt.gz", gzip.compress("a\nb b\nc\nß".encode()))
    found = converted(path, names=str(names))
    assert found.x.tolist() == [[1, 0, 2, 0], [0, 1, 0, 0]]
    assert found.names == ["a", "b b", "c", "ß"] and "column 'a' has the id 1" in found.notes
    (tmp_path / "out.zarr").rename(tmp_path / "train.zarr")
    train = str(tmp_path / "train.zarr")
    # without an id 0 in these lines: ids begin at 1 as in the training data
    other = saved(tmp_path, "b.svm", b"1 2:5 5:1 7:1\n1 4:0\n2\n")
    found = converted(other, like=train)
    assert found.x.tolist() == [[0, 5, 0, 0], [0] * 4, [0] * 4] and found.names is not None
    assert (
        found.names[1] == "b b"
        and "ids: left out 2 values beyond the columns of --like" in found.notes
    )
    assert converted(other, like=train, zero_based="yes").x[0].tolist() == [0, 0, 5, 0]
    unnamed = converted(saved(tmp_path, "c.svm", b"1 0:2 1:1\n"))
    assert unnamed.names is None
    (tmp_path / "out.zarr").rename(tmp_path / "zero.zarr")
    found = converted(other, like=str(tmp_path / "zero.zarr"))
    assert found.x.shape == (3, 2) and not found.x.any() and found.names is None

    assert "--columns and --like each decide" in refusal(other, columns=4, like=train)
    table = saved(tmp_path, "t.csv", b"y,b\n1,2\n0,3\n")
    converted(table, y="y")
    assert "from svmlight files" in refusal(path, like=str(tmp_path / "out.zarr"))
