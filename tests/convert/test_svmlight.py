"""svmlight files against a plain loop over their words."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from converted import converted, refusal, saved


def test_ids_and_zeros(tmp_path: Path) -> None:
    """Ids begin at 0 if one is 0, in any line; zeros are not stored."""
    text = b"# made for a test\r\n1 qid:7 2:0 4:1.5\r\n\r\n0 qid:8 # 0:4\r\n2 qid:8 0:-1"
    found = converted(saved(tmp_path, "a.svm", text))
    assert found.x.tolist() == [[0, 0, 0, 0, 1.5], [0] * 5, [-1, 0, 0, 0, 0]]
    assert "ids: from 0" in found.notes and found.x.dtype == np.float32
    assert (found.group["X/data"][:] != 0).all()
    assert found.group["obs/group"][:].tolist() == [7, 8, 8]


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
