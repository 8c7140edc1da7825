"""Bad input of jobs with several classes: one message, exit code 2, no file left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

COLUMNS = ("--features", "columns")
TRAIN = (*COLUMNS, "--C", "0.1", "--driver", "inline")
SOFTMAX = (*TRAIN, "--loss", "softmax")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``data`` and, for validation, ``valid``."""
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 6))
    y = np.array(["a", "b", "c"])[np.arange(60) % 3]
    single, other = y.copy(), y.copy()
    single[7] = other[3] = "z"
    constant = x.copy()
    constant[:, 4] = 1.0
    codes = random.integers(0, 4, (60, 9)).astype(np.uint8)
    arrays = {"X": x, "y": y, "single": single, "pair": x[:, :2], "constant": constant}
    arrays |= {
        "two": y[np.arange(60) % 3 % 2],
        "one": np.repeat("a", 60),
        "twos": 2 * (x[:, :3] > 0),
    }
    arrays |= {"off": x[:, 0], "hole": np.where(x[:, :2] == x[3, 1], np.nan, x[:, :2])}
    arrays |= {"halves": np.arange(60) % 3 + 0.5, "age": x[:, 5], "flags": np.int8(x[:, :3] > 0)}
    absent = np.where(y == "c", "a", y)
    parts = {
        "data": {**arrays, "codes": codes, "both": x[:, :2]},
        "valid": {"X": x, "y": other, "absent": absent, "single": single, "both": x[:, :1]},
        "absent": {"X": x, "y": absent},
        "unlabelled": {"X": x},
        "named": {"X": x, "u": random.integers(0, 2, 60), "v": random.integers(0, 2, 60)},
        "many": {"X": np.zeros((20_002, 1), np.float32), "y": np.arange(20_002) // 2},
    }
    for name, members in parts.items():
        (tmp_path / name).mkdir()
        for member, values in members.items():
            np.save(tmp_path / name / f"{member}.npy", values)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "data", "options", "message"),
    [
        ("train", "data", (*TRAIN, "--y", "single"), "at least two training rows"),
        ("stagewise", "data", (*COLUMNS, "--y", "single"), "at least two rows of each class"),
        ("train", "data", (*TRAIN, "--valid", "valid"), "3 classes trained on, got 'z' in row 3"),
        ("stagewise", "data", (*COLUMNS, "--valid", "valid"), "trained on, got 'z' in row 3"),
        ("train", "data", (*TRAIN, "--valid", "absent"), "got no row of 'c'"),
        ("stagewise", "data", (*COLUMNS, "--valid", "absent"), "got no row of 'c'"),
        ("train", "data", (*TRAIN, "--valid", "unlabelled"), "unlabelled"),
        ("stagewise", "data", (*COLUMNS, "--valid", "unlabelled"), "unlabelled"),
        ("train", "data", (*TRAIN, "--y", "pair", "--loss", "softmax"), "shape (60, 2)"),
        (
            "train",
            "data",
            (*TRAIN, "--y", "both", "--loss", "squared", "--valid", "valid"),
            "expected 2 columns of numbers, got shape (60,)",
        ),
        (
            "train",
            "data",
            (*SOFTMAX, "--offset", "off"),
            "each row and output, shape (60, 3), got shape (60,)",
        ),
        ("train", "data", (*SOFTMAX, "--offset", "pair"), "shape (60, 3), got shape (60, 2)"),
        ("train", "data", (*TRAIN, "--y", "two", "--offset", "pair"), "one offset for each row"),
        (
            "train",
            "data",
            (*TRAIN, "--y", "hole", "--loss", "squared"),
            "hole, column 1: row 3 is nan; a regression target must be finite",
        ),
        ("train", "data", (*TRAIN, "--y", "pair"), 'for numbers, choose loss="squared"'),
        ("train", "data", (*TRAIN, "--y", "halves"), 'choose loss="softmax"'),
        ("train", "data", (*TRAIN, "--y", "twos"), "expected 0 or 1 in each column"),
        ("train", "data", (*TRAIN, "--y", "flags", "--loss", "softmax"), "name one column"),
        (
            "train",
            "data",
            (*TRAIN, "--y", "pair", "--loss", "huber"),
            "expected one column for huber",
        ),
        ("train", "data", (*SOFTMAX, "--y", "one"), "expected at least two classes"),
        ("train", "data", (*SOFTMAX, "--class-weight", "a=1,z=2"), "there is no label 'z'"),
        (
            "train",
            "data",
            (*TRAIN, "--y", "flags", "--class-weight", "balanced"),
            "several columns",
        ),
        ("train", "named", (*TRAIN, "--y", "u,v", "--class-weight", "balanced"), "several columns"),
        ("train", "data", (*SOFTMAX, "--covariates", "age"), "covariates: expected none"),
        ("train", "data", (*TRAIN, "--y", "two", "--group"), "group: expected several outputs"),
        ("train", "data", (*SOFTMAX, "--l1-ratio", "0"), "train a ridge model with fcl stagewise"),
        (
            "train",
            "data",
            (*COLUMNS, "--y", "pair", "--loss", "squared", "--path", "3", "--cv", "3"),
            "cv: expected a single column of targets, got 2",
        ),
        ("stagewise", "data", (*COLUMNS, "--y", "pair"), "for numbers, give --regression"),
        (
            "stagewise",
            "data",
            (*COLUMNS, "--y", "both", "--regression", "--valid", "valid"),
            "expected 2 columns of numbers",
        ),
        ("stagewise", "data", ("--x", "codes", "--features", "kmers:d=2"), "features kmers:"),
        ("stagewise", "data", ("--x", "codes", "--features", "bag:d=2"), "features bag:"),
        ("stagewise", "data", ("--features", "fourier"), "family with a number of features"),
        (
            "stagewise",
            "data",
            (*COLUMNS, "--l1-ratio", "1"),
            "--l1-ratio: stagewise models have",
        ),
        ("stagewise", "data", (*COLUMNS, "--C", "1"), "--C: stagewise models have"),
        (
            "stagewise",
            "data",
            (*COLUMNS, "--x", "constant", "--alpha", "0", "--block", "4"),
            "block 2 of 2, features 4 to 5: their Gram matrix is singular at alpha = 0",
        ),
        (
            "stagewise",
            "data",
            ("--features", "fourier:n=90000", "--block", "90000", "--memory", "2GiB"),
            "for blocks of 90,000 features, got 2 GiB; raise memory or lower block",
        ),
        (
            "train",
            "many",
            (*TRAIN, "--memory", "1GiB"),
            "10,001 classes: without --group (group=True), more than 10,000 classes need a budget of "
            "at least 24 bytes for each row and class, 4.47 GiB for 20,002 rows",
        ),
        ("train", "many", (*TRAIN, "--group", "--memory", "1GiB"), "this job needs at least"),
    ],
)
def test_one_message_and_no_file(
    run: Callable[..., Result],
    folder: Path,
    command: str,
    data: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    before = sorted(folder.rglob("*"))
    places = {name: folder / name for name in ("valid", "absent", "unlabelled")}
    given = [places.get(word, word) for word in options]
    result = run(command, folder / data, *given, "--out", folder / "m.fcl")
    assert result.exit_code == 2, result.output
    errors = [line for line in result.output.splitlines() if "error: " in line]
    assert len(errors) == 1 and message in errors[0], result.output
    assert sorted(folder.rglob("*")) == before
