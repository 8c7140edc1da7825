"""``fcl predict`` on tables: the columns that are read, means of the training rows, messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.convert.run import convert
from fcl.model.labels import encoded_target
from tests.cli.conftest import ok

Run = Callable[..., Result]
RNG = np.random.default_rng(2)
#: Training rows: a number whose mean is 2.5, and a category.
NUMBERS, COLOURS = np.arange(60) % 6, RNG.choice(["red", "blue", "green"], 60)
LABELS = np.where((COLOURS == "red") ^ (NUMBERS > 3) ^ (RNG.random(60) < 0.1), "yes", "no")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fcl.Model:
    """A model of the columns a, colour=blue, colour=green, colour=red of train.zarr; also in m.fcl."""
    monkeypatch.chdir(tmp_path)
    lines = map("{},{},{}\n".format, NUMBERS, COLOURS, LABELS)
    Path("train.csv").write_text("a,colour,y\n" + "".join(lines))
    convert(["train.csv"], "train.zarr", y="y", memory="4GiB")
    found = fcl.train(fcl.open_data("train.zarr"), "columns", C=5.0).model
    found.save("m.fcl")
    return found


def margin(model: fcl.Model, number: float, colour: str) -> float:
    weights = {row.feature: row.weight for row in model.describe()}
    return model.intercept + weights["a"] * number + weights.get(f"colour={colour}", 0.0)


def scores(text: str) -> list[float]:
    return [float(line.split("\t")[1]) for line in text.splitlines()[1:]]


def test_columns_that_the_model_does_not_read(model: fcl.Model, run: Run) -> None:
    """An id with 1,100 texts, empty cells, mixed kinds and an unknown category do not matter."""
    import pyarrow
    from pyarrow import parquet

    n = 1100
    numbers, colours = RNG.integers(0, 9, n), RNG.choice(["red", "violet", "blue"], n)
    columns = {
        "id": [f"id{i}" for i in range(n)],
        "colour": colours.tolist(),
        "note": ["" if i % 3 else "text" for i in range(n)],
        "a": numbers.tolist(),
        "mixed": [str(i) if i % 2 else "x" for i in range(n)],
    }
    lines = map(",".join, zip(*(map(str, values) for values in columns.values()), strict=True))
    Path("t.csv").write_text("\n".join([",".join(columns), *lines, ""]))
    more = {"lists": [[i] for i in range(n)], "big": [2**60 + 1] * n}
    parquet.write_table(pyarrow.table(columns | more), "t.parquet")
    expected = [margin(model, *row) for row in zip(numbers, colours, strict=True)]
    for name, unread in (("t.csv", 3), ("t.parquet", 5)):
        result = ok(run("predict", "m.fcl", name, "--out", "-"))
        np.testing.assert_allclose(scores(result.stdout), expected, rtol=1e-6)
        assert f"columns: left out {unread} of the table" in result.stderr
    Path("u.csv").write_text("id,colour\n1,red\n")
    result = run("predict", "m.fcl", "u.csv", "--out", "-")
    assert result.exit_code == 2 and "the model: u.csv has no column for 'a'" in result.stderr
    result = run("predict", "m.fcl", "t.csv", "--x", "a,colour", "--out", "-")
    assert result.exit_code == 2 and "the model names the columns of X; leave out" in result.stderr


def test_missing_values_get_the_means_of_the_training_rows(model: fcl.Model, run: Run) -> None:
    # a model of an earlier version does not know them
    old = replace(model, column_record=replace(model.column_record, means={}))
    old.save("old.fcl")
    for other in (1, 9):
        Path("t.csv").write_text(f"colour,a\nred,\nred,{other}\n")
        for file, like in (("old.fcl", ("--like", "train.zarr")), ("m.fcl", ())):
            result = ok(run("predict", file, "t.csv", "--out", "-", "--missing", "mean", *like))
            expected = [margin(model, 2.5, "red"), margin(model, other, "red")]
            np.testing.assert_allclose(scores(result.stdout), expected, rtol=1e-6)
    message = (
        "t.csv: the column 'a' has missing values, and the mean of the training rows is not known: give "
        "--like TRAIN.zarr, the output of fcl convert for the training data, or --missing drop"
    )
    result = run("predict", "old.fcl", "t.csv", "--out", "-", "--missing", "mean")
    assert (result.exit_code, result.stdout) == (2, "") and message in result.stderr
    # a text without a value needs no mean; it is in no category of the training rows
    Path("u.csv").write_text("colour,a\n,3\n")
    result = run("predict", "m.fcl", "u.csv", "--out", "-", "--missing", "mean")
    np.testing.assert_allclose(scores(result.stdout), [margin(model, 3, "")], rtol=1e-6)


def test_tables_are_read_as_the_training_table(model: fcl.Model, run: Run) -> None:
    numbers = (f"{i % 28 + 1:02}.03.2021;{i % 7},5;{i % 5 or ''}" for i in range(60))
    lines = map("{};{}\n".format, numbers, LABELS)
    Path("own.csv").write_text("day;a;b;y\n" + "".join(lines))
    options = ("--date-order", "dmy", "--missing", "mean", "--decimal", ",")
    ok(run("train", "own.csv", "--y", "y", "--C", "5", "--out", "own.fcl", *options, "--quiet"))
    found = ok(run("predict", "own.fcl", "own.csv", "--out", "-"))
    expected = ok(run("predict", "own.fcl", "own.csv", "--out", "-", *options))
    assert found.stdout == expected.stdout
    assert "read as the training rows: --missing mean --decimal , --date-order dmy" in found.stderr
    ok(run("convert", "own.csv", "again.zarr", "--like", "own.fcl.data.zarr"))
    read = [fcl.open_data(f"{name}.zarr", y=None).rows for name in ("own.fcl.data", "again")]
    assert np.array_equal(*(rows.read(0, 60) for rows in read))
    refused = run("predict", "own.fcl", "own.csv", "--out", "-", "--missing", "error")
    assert refused.exit_code == 2 and "give --missing mean" in refused.stderr


def test_models_without_names_know_no_means(model: fcl.Model, run: Run) -> None:
    X = np.column_stack([NUMBERS, COLOURS == "red"]).astype(float)
    unnamed = fcl.train(fcl.open_data(X, y=LABELS), "columns", C=5.0).model
    unnamed.save("u.fcl")
    Path("t.csv").write_text("colour,a\n4,1\n7,0\n")
    result = run("predict", "u.fcl", "t.csv", "--out", "-")
    expected = unnamed.margins(np.array([[4.0, 1], [7, 0]]))
    np.testing.assert_allclose(scores(result.stdout), expected, rtol=1e-12)
    result = run("predict", "u.fcl", "t.csv", "--out", "-", "--missing", "mean")
    assert (
        result.exit_code == 2 and "--missing mean: the means of the training rows" in result.stderr
    )


def test_labels_that_the_model_does_not_know(model: fcl.Model, run: Run) -> None:
    """A message without names of numpy, and nothing on standard output."""
    message = "expected the labels of the model, 'no' and 'yes', got "
    with pytest.raises(fcl.InputError, match=f"{message}0.5 in row 0"):
        encoded_target(model, np.array([0.5]), "y")
    numbers = replace(model, labels=(np.float64(0), np.float64(1)))
    with pytest.raises(fcl.InputError, match=r"of the model, 0\.0 and 1\.0, got 'no' in row 0"):
        encoded_target(numbers, np.array(["no"]), "y")
    Path("t.csv").write_text("a,colour,y\n1,red,maybe\n")
    result = run("predict", "m.fcl", "t.csv", "--y", "y", "--out", "-")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert f"{message}'maybe' in row 0" in result.stderr
    Path("d").mkdir()
    np.save("d/X.npy", np.ones((70_000, 4)))
    y = np.full(70_000, "yes")
    y[-1] = "nix"
    np.save("d/y.npy", y)
    for more in ((), ("--explain", "1")):
        result = run("predict", "m.fcl", "d", "--y", "y", "--out", "-", *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "got 'nix' in row 69999" in result.stderr


def test_nothing_is_written_if_no_row_can_be_scored(model: fcl.Model, run: Run) -> None:
    Path("d").mkdir()
    np.save("d/X.npy", np.ones((3, 9)))
    for more in ((), ("--explain", "1")):
        result = run("predict", "m.fcl", "d", "--out", "-", *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "d:X has 9 columns, but the model was trained on 4" in result.stderr
