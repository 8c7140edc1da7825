"""When numbers of tables and svmlight files need float64; test rows follow the training rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted import converted, refusal, saved

import fcl
from fcl.cli.umbrella import main
from fcl.convert import svmlight
from fcl.convert.contract import Budget
from fcl.convert.precision import Precision
from fcl.convert.run import convert
from tests.convert.conftest import write_parquet

pytest.importorskip("pyarrow")
RNG = np.random.default_rng(4)
BUDGET = Budget(64 << 20, 1 << 20)
TIMES = 1_700_000_000.5 + np.arange(60.0)
EQUAL, FAR, HOLD = (
    "makes different values equal in",
    "moves values too far in",
    "cannot hold values of",
)


def table(**columns: Any) -> bytes:
    rows = zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(repr, row)) for row in rows)]).encode()


def expected_fault(x: np.ndarray) -> str | None:
    """The rules with the sets of all values, for a column of a few thousand fractions."""
    values = np.unique(x)
    rounded = values.astype(np.float32)
    if np.abs(rounded - values).max() > 1e-4 * np.ptp(values):
        moved = FAR
    else:
        moved = ""
    places = {}
    for value, cell in zip(values.tolist(), rounded.tolist(), strict=True):
        places.setdefault(cell, []).append(value)
    several = sum(max(own) - min(own) > 2**-49 * abs(max(own)) for own in places.values())
    return EQUAL if several > 0.01 * len(places) else moved or None


COLUMNS = {
    "times": (TIMES, EQUAL),
    "times or 0": (np.append(TIMES, 0.0), EQUAL),
    "two values and an outlier": (np.array([0, 1, 1 + 1e-9]), EQUAL),
    "negative": (-TIMES, EQUAL),
    "a constant": (np.full(9, 1700000000.5), FAR),
    "large mean": (1e5 + 0.5 * np.arange(3) / 7, FAR),
    "tenths": (np.arange(-5000, 5000) / 10, None),
    "six digits": (np.round(RNG.normal(0, 1000, 5000), 2), None),
    "17 digits": (RNG.random(20_000), None),
    "sums of tenths": (np.append(np.cumsum(np.full(30, 0.1)), np.arange(30) / 10), None),
    "zeros of both signs": (np.array([0.0, -0.0, 0.5]), None),
    "constant tenth": (np.full(5, 0.25), None),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name: str) -> None:
    values, wanted = COLUMNS[name]
    assert expected_fault(values) == wanted
    for rows in (values, values[::-1], RNG.permutation(values)):
        for step in (7, 100_000):
            precision = Precision(BUDGET)
            x = np.column_stack([np.full(len(rows), 0.5), rows])
            x[::3, 0] = np.nan
            for start in range(0, len(x), step):
                precision.add_rows(x[start : start + step])
            assert precision.fault() == (None if wanted is None else (1, wanted))


@pytest.mark.parametrize("value", [16777217.0, 1e39, 1e-60])
def test_values_that_float32_cannot_hold(value: float) -> None:
    precision = Precision(BUDGET)
    precision.add_rows(np.array([[0.5, 1.0], [1.5, value]]))
    assert precision.fault() == (1, HOLD) and precision.changed == 1
    assert precision.beyond == (1 if value == 1e39 else None)


def test_a_single_pair_of_equal_values_among_few() -> None:
    precision = Precision(BUDGET)
    precision.add_rows(np.append(np.arange(997) / 4, [500.000001, 500.000002])[:, None])
    assert precision.fault() == (0, EQUAL)


def test_many_values_are_sampled() -> None:
    """A million different values, of which float32 keeps 1 in 128, beside as many that it keeps."""
    times = RNG.permutation(1.7e9 + np.arange(1_000_000) + 0.5)
    times[::1000] = 0.0
    fine = RNG.permutation(np.arange(1_000_000) / 8)
    precision = Precision(BUDGET)
    for start in range(0, len(times), 5000):
        block = slice(start, start + 5000)
        precision.add_rows(np.column_stack([fine[block], times[block]]))
    assert precision.fault() == (1, EQUAL)
    assert len(precision._cells.keys) <= 2 * 1024


def test_memory_is_bounded() -> None:
    precision = Precision(Budget(4 << 20, 1 << 16))
    for _ in range(3):
        precision.add_rows(RNG.random((20, 50_000)))
        precision.add_entries(np.arange(10_000_000, 10_000_100), np.full(100, 0.1), 1)
    assert precision.fault() is None
    assert len(precision._count) <= (4 << 20) // 4 // 48
    assert len(precision._cells.keys) <= (4 << 20) // 8 // 96


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables(form: str, tmp_path: Path) -> None:
    columns = {"size": np.arange(60) / 10, "time": TIMES, "y": np.arange(60) % 2}
    path = saved(tmp_path, "a.csv", table(**columns))
    if form == "parquet":
        path = write_parquet(tmp_path / "a.parquet", columns)
    found = converted(path, y="y")
    np.testing.assert_array_equal(found.x, np.column_stack([columns["size"], TIMES]))
    assert (
        "numbers: float64, float32 makes different values equal in the column 'time'" in found.notes
    )
    found = converted(path, y="y", dtype="float32")
    assert found.x.dtype == np.float32 and len(np.unique(found.x[:, 1])) == 1
    assert "float32, which makes different values equal in the column 'time'" in found.notes
    # neither a target nor weights, which are always float64, decide about X
    found = converted(path, y="time")
    assert found.x.dtype == np.float32 and found.y.tolist() == TIMES.tolist()


def test_svmlight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svmlight, "_SLICE", 200)  # bytes: many slices
    lines = [
        f"1 1:0.1 3:{value!r}" if at % 2 else "0 2:0.7" for at, value in enumerate(TIMES.tolist())
    ]
    path = saved(tmp_path, "a.svm", "\n".join(lines).encode())
    found = converted(path)
    assert found.x.dtype == np.float64
    np.testing.assert_array_equal(found.x[:, 2], np.where(np.arange(60) % 2, TIMES, 0))
    assert "float32 makes different values equal in the column x2" in found.notes.replace("'", "")
    whole = saved(tmp_path, "b.svm", b"1 1:16777217\n0 2:1\n")
    assert converted(whole).x.tolist() == [[16777217, 0], [0, 1]]
    assert "give --dtype float64" in refusal(whole, dtype="float32")
    # a column that is 0 in some rows has a spread of 1e6, and a constant one, in all rows, has none
    text = b"1 1:1000000.03\n" * 3
    sparse, full = saved(tmp_path, "c.svm", text + b"0 2:1\n"), saved(tmp_path, "d.svm", text)
    assert converted(sparse).x.dtype == np.float32
    assert converted(full).x.dtype == np.float64


def test_like_keeps_the_dtype(tmp_path: Path) -> None:
    train = saved(tmp_path, "a.csv", table(size=np.arange(60) / 10, time=TIMES))
    convert([train], tmp_path / "wide.zarr")
    few = saved(tmp_path, "b.csv", table(size=[0.0, 5.0], time=[0.5, 1.5]))
    assert converted(few).x.dtype == np.float32
    assert converted(few, like=str(tmp_path / "wide.zarr")).x.dtype == np.float64
    convert([few], tmp_path / "short.zarr")
    assert converted(train, like=str(tmp_path / "short.zarr")).x.dtype == np.float32
    huge = saved(tmp_path, "c.csv", table(size=[0.0, 5.0], time=[0.5, 1e39]))
    assert converted(huge, like=str(tmp_path / "short.zarr")).x[1, 1] == 1e39


def test_rows_of_a_model_are_rounded_like_training_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each row of a file alone has the margin that it has among the training rows."""
    n = 200
    for name, time in {"wide": 1_700_000_000.5 + np.arange(n), "short": RNG.random(n)}.items():
        columns = {"size": RNG.random(n), "time": time}
        y = np.where(time + columns["size"] > np.median(time), 1, -1)
        train = saved(tmp_path, f"{name}.csv", table(**columns, y=y))
        convert([train], tmp_path / f"{name}.zarr", y="y")
        model = fcl.train(fcl.open_data(tmp_path / f"{name}.zarr"), features="columns", C=0.1).model
        model.save(tmp_path / f"{name}.fcl")
        assert fcl.load_model(tmp_path / f"{name}.fcl").column_record.numbers == (
            "float64" if name == "wide" else "float32"
        )
        margins = model.margins(tmp_path / f"{name}.zarr")
        for row in (0, 7):
            one = saved(
                tmp_path,
                "one.csv",
                table(**{key: col[row : row + 1] for key, col in columns.items()}),
            )
            out = tmp_path / "one.tsv"
            arguments = [tmp_path / f"{name}.fcl", one, "--out", out, "--overwrite"]
            with pytest.raises(SystemExit, match="0"):
                main(["predict", *map(str, arguments)])
            head, line = out.read_text().splitlines()
            found = float(line.split("\t")[head.split("\t").index("margin")])
            assert found == pytest.approx(margins[row], rel=1e-12, abs=1e-12)
    many = saved(tmp_path, "few.csv", table(size=[0.0, 5.0], time=[0.5, 1e9]))
    convert([many], tmp_path / "few.zarr")
    fcl.load_model(tmp_path / "wide.fcl").margins(tmp_path / "few.zarr")
    assert "stored as float32, and the training data as float64" in caplog.text
