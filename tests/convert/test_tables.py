"""CSV, TSV and Parquet against plain loops."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from converted import converted, refusal, saved

from fcl.convert.tables import delimited
from tests.convert.conftest import write_parquet

pa = pytest.importorskip("pyarrow")


def test_columns_of_zeros_are_written(tmp_path: Path) -> None:
    """A chunk that is left out would be reported as missing."""
    found = converted(saved(tmp_path, "a.csv", b"a,y\n1,0\n2,0\n"), y="y").group["y"]
    assert found.nchunks_initialized == found.nchunks


def test_standard_input_without_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"1,x,5\n2,x,6\n")))
    monkeypatch.chdir(tmp_path)
    found = converted("-", format="table", no_header=True, y="3", x="1,2")
    assert (found.names, found.y.tolist()) == (["1", "2=x"], [5, 6])


def test_a_long_cell(tmp_path: Path) -> None:
    text = b"a,b,y\n" + b"1,2,0\n" * 20_000 + b"3," + b"4" * (5 << 20) + b",1\n"
    message = refusal(saved(tmp_path, "t.csv", text), y="y", memory="512MiB")
    found = re.search(r"t\.csv: row (\d+) \(.*this row or a row soon after it has more", message)
    assert found and 10_000 < int(found[1]) <= 20_002, message


@pytest.fixture(params=["narrow", "wide"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files with few columns and with many are parsed differently."""
    if request.param == "wide":
        monkeypatch.setattr(delimited, "MOST_COLUMNS", 0)
    return str(request.param)


@pytest.mark.thin(6)
@pytest.mark.parametrize(
    ("content", "options", "names", "x"),
    [
        (b"a,b\n1,2\n3,4", {}, "a,b", [[1, 2], [3, 4]]),
        (b"\n\na,b\r\n\r\n1,2\r\n3,4\r\n", {}, "a,b", [[1, 2], [3, 4]]),
        (b"a,b\n1e3,-.5\n", {}, "a,b", [[1000, -0.5]]),
        (b"a;b\n1,5;2\n", {"decimal": ","}, "a,b", [[1.5, 2]]),
        (b"1,5;2,5\n", {"decimal": ",", "no_header": True}, "1,2", [[1.5, 2.5]]),
        (b'a,b\n"1,5",2\n', {"decimal": ","}, "a,b", [[1.5, 2]]),
        (b'a,b\n"1,234.5",2\n17,3\n', {"thousands": ","}, "a,b", [[1234.5, 2], [17, 3]]),
        (
            b"a;b\n1.234,5;2\n-1.234.567;3\n",
            {"thousands": ".", "decimal": ","},
            "a,b",
            [[1234.5, 2], [-1234567, 3]],
        ),
        (
            b"a,b\n1\xc2\xa0234,1 234.5\n,5\n",
            {"thousands": "space", "missing": "drop"},
            "a,b",
            [[1234, 1234.5]],
        ),
        (b"a\n" + b"1\n" * 1500 + b"1'234\n", {"thousands": "'"}, "a", [[1]] * 1500 + [[1234]]),
        (b"d\n03/04/1970\n3.1.1970 12:00\n", {"date_order": "dmy"}, "d", [[92], [2.5]]),
        (b"d\n03/04/1970\n", {"date_order": "mdy"}, "d", [[62]]),
        (b"a,b\n16777217,0.5\n", {}, "a,b", [[16777217, 0.5]]),
        (b"1,2\n3,4\n", {"no_header": True}, "1,2", [[1, 2], [3, 4]]),
        (b"a,b,c\n1,2,3\n", {"x": "!b"}, "a,c", [[1, 3]]),
        (b"e_a,b,e_c\n1,2,3\n", {"x": "e_*"}, "e_a,e_c", [[1, 3]]),
        (b",b\n7,2\n", {}, "b", [[2]]),
        (b"a,b\n1,3\n2,7\n", {"categorical": "b"}, "a,b=3,b=7", [[1, 1, 0], [2, 0, 1]]),
        (b"a,b\n1,3\n2,x\n", {"categorical": "b"}, "a,b=3,b=x", [[1, 1, 0], [2, 0, 1]]),
        (b"a,b\n1,2\nNA,4\n3,6\n", {"missing": "drop"}, "a,b", [[1, 2], [3, 6]]),
        (b"a,b\n1,2\n,?\n3,6\n", {"missing": "mean", "na": "?"}, "a,b", [[1, 2], [2, 4], [3, 6]]),
        (b"a\nu\nNaN\n", {"missing": "mean"}, "a=u,a=(missing)", [[1, 0], [0, 1]]),
        (b"a\nu\nNaN\n", {"missing": "drop"}, "a=u", [[1]]),
        (b'a,b\n1,5" x\n', {"no_quotes": True}, 'a,b=5" x', [[1, 1]]),
        (b"a,b\n 1 , x \n2,x\n", {}, "a,b=x", [[1, 1], [2, 1]]),
        (b"a,b\n1,1 \n2,  \n3, NA\n", {"missing": "drop"}, "a,b", [[1, 1]]),
        (b"a,b\nNA ,2\n5,2\n", {"missing": "drop"}, "a,b", [[5, 2]]),
        (b"a\tb\n1\t2\n\t\n3\t4\n", {"missing": "mean"}, "a,b", [[1, 2], [2, 3], [3, 4]]),
        (b"a,b\n1e20,9007199254740992\n", {}, "a,b", [[1e20, 2.0**53]]),
        (b"a,b\n9007199254740993,0\n", {"categorical": "a"}, "a=9007199254740993,b", [[1, 0]]),
        (b"a;b\n1,5;2\n2;3,25\n", {}, "a,b", [[1.5, 2], [2, 3.25]]),
        (b"d\n1970-01-02\n1971/01/01 06:00\n", {}, "d", [[1], [365.25]]),
        (
            b"d\n1970-01-02T12:00+12:00\n\nNA\n1970-01-04\n",
            {"missing": "mean"},
            "d",
            [[1], [2], [3]],
        ),
        (b"d\n2021-05-18\n2021-05-18\n", {"categorical": "d"}, "d=2021-05-18", [[1], [1]]),
        (b"d\n2021-02-30\n", {}, "d=2021-02-30", [[1]]),
        (
            b"d,a\n2021-05-18 23:00,7\n,8\n2022-12-18,9\n",
            {"dates": "year,month,weekday,hour", "missing": "drop"},
            "a,d:year,d:month=12,d:month=5,d:weekday=Sun,d:weekday=Tue,d:hour=0,d:hour=23",
            [[7, 2021, 0, 1, 0, 1, 0, 1], [9, 2022, 1, 0, 1, 0, 1, 0]],
        ),
        # a column that begins with many missing values is decided by the first that is there
        (b"a\n" + b"NA\n" * 1100 + b"u\n", {"missing": "drop"}, "a=u", [[1]]),
    ],
)
def test_small_tables(
    content: bytes, options: dict[str, Any], names: str, x: Any, parser: str, tmp_path: Path
) -> None:
    found = converted(saved(tmp_path, "a.csv", content), **options)
    assert found.names == names.split(",") and found.x.tolist() == x
    assert found.y is None
    big = b"16777217" in content or b"1e20" in content
    assert found.x.dtype == (np.float64 if big else np.float32)


def test_dates_of_training_rows_and_of_others(tmp_path: Path) -> None:
    """Other rows have the parts of the training rows, whatever their options."""
    train = saved(tmp_path, "a.csv", b"d,a\n2021-05-18,1\n2021-06-19,2\n")
    converted(train, dates="days,month")
    (tmp_path / "others").mkdir()
    others = saved(tmp_path / "others", "b.csv", b"a,d\n5,2021-06-01\n6,2021-07-01\n")
    found = converted(others, like=str(tmp_path / "out.zarr"))
    assert found.names == ["d", "a", "d:month=5", "d:month=6"]
    assert found.x.tolist() == [[18779, 5, 0, 1], [18809, 6, 0, 0]]
    assert "d:month='7' (1)" in found.notes


@pytest.mark.parametrize("parts", ["days", "month", "days,month"])
def test_dates_of_two_files(parts: str, tmp_path: Path) -> None:
    """The first file says which columns are dates; another text in the second one is named."""
    paths = [
        saved(tmp_path, "a.csv", b"d,a\n2021-05-18,1\n2021-06-18,2\n"),
        saved(tmp_path, "b.csv", b"d,a\n2022-05-18,3\n"),
    ]
    found = converted(*paths, dates=parts)
    days = [[18765.0], [18796.0], [19130.0]] if "days" in parts else [[], [], []]
    months = [[0, 1, 0], [0, 0, 1], [0, 1, 0]]
    rows = zip(days, [1, 2, 3], months, strict=True)
    expected = [[*day, a, *(month[1:] if "month" in parts else [])] for day, a, month in rows]
    assert found.x.tolist() == expected
    saved(tmp_path, "b.csv", b"d,a\nsoon,3\n2022-05-18,4\n")
    message = refusal(*paths, dates=parts)
    assert "b.csv: row 2" in message and "'d' holds the text 'soon', but dates in" in message


def test_dates_in_parquet(tmp_path: Path) -> None:
    times = pa.array([86_400_000, None, 216_000_000], pa.timestamp("ms"))
    columns = {"t": times, "d": pa.array([1, 2, 3], pa.date32()), "s": ["2021-05-18"] * 3}
    found = converted(write_parquet(tmp_path / "a.parquet", columns), missing="mean")
    assert found.names == ["t", "d", "s=2021-05-18"]
    assert found.x.tolist() == [[1, 1, 1], [1.75, 2, 1], [2.5, 3, 1]]


def test_parquet_says_what_text_is(tmp_path: Path) -> None:
    columns = {"w": ["3", "4a", "1,5"], "n": [1, 2, 3]}
    path = write_parquet(tmp_path / "a.parquet", columns)
    assert converted(path).names == ["w=1,5", "w=3", "w=4a", "n"]


def test_the_index_of_pandas_is_left_out(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "a.parquet"
    pandas.DataFrame({"a": [1.0, 2, 3]}, index=[7, 5, 6]).to_parquet(path)
    found = converted(path)
    assert found.names == ["a"] and "left out: column 2, '__index_level_0__'" in found.notes
    assert converted(path, x="*").names == ["a", "__index_level_0__"]


@pytest.mark.slow
def test_many_distinct_texts(tmp_path: Path) -> None:
    n = 300_000  # comparing each text with all rows would take minutes
    columns = {"c": [f"c{i % 900}" for i in range(n)], "g": [f"g{i // 2}" for i in range(n)]}
    names = [None if i == 5 else f"name {i}" for i in range(n)]
    path = write_parquet(tmp_path / "a.parquet", columns | {"id": names})
    found = converted(path, groups="g", name="id")
    assert found.group["obs/name"][:].tolist() == [name or "" for name in names]
    group = found.group["obs/group"]
    assert group["categories"][:][group["codes"][:]].tolist() == columns["g"]


def test_parquet_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = {"t": pa.array([1, 2], pa.timestamp("s")), "big": [1, 1 << 60], "a": [1.5, np.nan]}
    write_parquet(path, table)
    assert converted(path, x="a", missing="mean", groups="big", categorical="big").x.tolist() == [
        [1.5],
        [1.5],
    ]


@pytest.mark.parametrize("y", ["b", "c"])
def test_rows_without_a_target_are_dropped(y: str, parser: str, tmp_path: Path) -> None:
    """They count neither for means nor for categories, and their gaps are accepted."""
    text = b"a,b,c,k\n1,1,u,x\n5,,,z\n3,0,v,\n,,,x\n"
    options = {"y": y, "missing_target": "drop", "missing": "mean", "x": "a,k"}
    found = converted(saved(tmp_path, "a.csv", text), **options)
    assert found.names == ["a", "k=x", "k=(missing)"]
    assert found.x.tolist() == [[1, 1, 0], [3, 0, 1]]
    assert found.summary.dropped == {"without a target": 2}
    assert found.group.attrs["fcl"]["means"] == {"a": 2.0}


@pytest.mark.parametrize("layout", ["auto", "dense", "sparse"])
def test_one_hot_is_sparse_if_most_values_are_0(layout: str, tmp_path: Path) -> None:
    rows = [f"{i % 3},{i * 7 % 20}u,{i % 2}" for i in range(100)]
    path = saved(tmp_path, "a.csv", "\n".join(["n,c,y", *rows]).encode())
    found = converted(path, y="y", layout=layout)
    names = sorted(f"{i}u" for i in range(20))
    expected = [[i % 3, *(name == f"{i * 7 % 20}u" for name in names)] for i in range(100)]
    np.testing.assert_array_equal(found.x, np.array(expected, float))
    assert found.summary.layout.kind == ("dense" if layout == "dense" else "sparse")
    assert ("layout: sparse, as 7.9% of the values" in found.notes) == (layout == "auto")


def test_like(tmp_path: Path) -> None:
    first = saved(tmp_path, "a.csv", b"n,c,f,y\n1,u,true,1\n3,v,false,0\n,,true,1\n")
    converted(first, y="y", missing="mean")
    (tmp_path / "out.zarr").rename(tmp_path / "train.zarr")
    second = saved(tmp_path, "b.csv", b"y,more,f,c,n\n0,9,true,w,7\n1,9,true,v,\n0,9,true,,8\n")
    found = converted(second, y="y", missing="mean", like=str(tmp_path / "train.zarr"))
    assert found.names == ["n", "c=u", "c=v", "c=(missing)", "f"]
    # the mean is that of the training rows, and w is no column
    assert found.x.tolist() == [[7, 0, 0, 0, 1], [2, 0, 1, 0, 1], [8, 0, 0, 1, 1]]
    assert "categories: 1 value not in --like" in found.notes
    # the means of training rows are stored even if none of their values is missing
    complete = converted(saved(tmp_path, "d.csv", b"n,f,y\n1,true,1\n3,false,0\n"), y="y")
    assert "one-hot" not in complete.notes
    (tmp_path / "out.zarr").rename(tmp_path / "all.zarr")
    lacking = saved(tmp_path, "e.csv", b"n,f,y\n9,true,1\n,false,0\n")
    found = converted(lacking, y="y", missing="mean", like=str(tmp_path / "all.zarr"))
    assert found.x.tolist() == [[9, 1], [2, 0]]
    third = saved(tmp_path, "c.csv", b"n,f,y\n1,true,1\n")
    message = refusal(third, y="y", like=str(tmp_path / "train.zarr"))
    assert f"--like: {third} has no column for 'c=u'" in message
    assert "no.zarr" in (message := refusal(third, like=str(tmp_path / "no.zarr")))
    assert "does not exist" in message
