"""Jobs of every command refuse what does not fit their data: one message, and no file is left."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waves import Problem

import fcl
from tests.cli import test_covariates as covariates_of
from tests.cli.conftest import save as save_arrays
from tests.cli.refusals import Refuses, parametrized

TOO_LARGE = 2**62 + 1
MOST = r"expected a whole number of at least \d and at most 2\^62, got 4611686018427387905"

# -- doors: each gives the words of a command, for a working folder with letters in ``data``


def line(given: str) -> list[Any]:
    return shlex.split(given)


def save(folder: str, **arrays: Any) -> None:
    save_arrays(Path(folder), **arrays)


def windows(given: tuple[Callable[..., dict[str, Any]], str]) -> list[Any]:
    """1,500 windows and labels, some of which are changed, and options."""
    change, options = given
    rng = np.random.default_rng(11)
    X, y = rng.integers(0, 4, (1500, 16), dtype=np.uint8), rng.integers(0, 2, 1500)
    arrays = {"X": X, "y": y} | change(X, y)
    save("d", **{name: values for name, values in arrays.items() if values is not None})
    return line(
        f"train d --features kmers:d=3 --C 1 --driver inline --out m --log-json l {options}"
    )


def letters(X: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"ACGT", dtype="S1")[X]


def at(row: int, values: np.ndarray, other: Any) -> np.ndarray:
    """The values, with another one in a row."""
    rows = np.arange(len(values)) == row
    return np.where(rows[:, None] if values.ndim == 2 else rows, other, values)


def file(change: Callable[[], str]) -> list[Any]:
    """Files of arrays that are damaged by a function, which gives their name."""
    return line(f"train {change()} --features kmers:d=3 --C 1 --driver inline --out m.fcl")


def damaged_header() -> str:
    content = bytearray(Path("data/X.npy").read_bytes())
    content[10:30] = b"\xff" * 20
    Path("data/X.npy").write_bytes(content)
    return "data"


def classes(given: str) -> list[Any]:
    """Rows of three classes in ``data``; other folders have other rows."""
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 6))
    y = np.array(["a", "b", "c"])[np.arange(60) % 3]
    single, other, constant = y.copy(), y.copy(), x.copy()
    single[7] = other[3] = "z"
    constant[:, 4] = 1.0
    two, absent = y[np.arange(60) % 3 % 2], np.where(y == "c", "a", y)
    arrays: dict[str, Any] = {"X": x, "y": y, "single": single, "pair": x[:, :2], "two": two}
    arrays |= {"one": np.repeat("a", 60), "twos": 2 * (x[:, :3] > 0), "off": x[:, 0]}
    arrays |= {"hole": np.where(x[:, :2] == x[3, 1], np.nan, x[:, :2]), "both": x[:, :2]}
    arrays |= {"halves": np.arange(60) % 3 + 0.5, "age": x[:, 5], "flags": np.int8(x[:, :3] > 0)}
    arrays |= {"codes": random.integers(0, 4, (60, 9)).astype(np.uint8), "constant": constant}
    save("data", **arrays)
    save("valid", X=x, y=other, absent=absent, single=single, both=x[:, :1])
    save("absent", X=x, y=absent)
    save("unlabelled", X=x)
    save("named", X=x, u=random.integers(0, 2, 60), v=random.integers(0, 2, 60))
    if "many" in given:
        save("many", X=np.zeros((20_002, 1), np.float32), y=np.arange(20_002) // 2)
    words = "train data --features columns --C 0.1 --driver inline --out m.fcl "
    return line(given if given.startswith("train ") else words + given)


def softmax(given: str) -> list[Any]:
    return [*classes("--loss softmax"), *line(given)]


def stagewise(given: str) -> list[Any]:
    return ["stagewise", "data", *classes("--out m.fcl")[2:4], "--out", "m.fcl", *line(given)]


def waves(given: str) -> list[Any]:
    """Classes y, numbers t and weights s; generated features."""
    problem = Problem()
    x, few = problem.x, np.where(problem.y == "b", "a", problem.y)
    save("data", X=x, y=problem.y, s=problem.s, t=problem.numbers[:, 0], x2=np.full((300, 2), 2.0))
    save("data", twice=np.hstack([x, x[:, :1]]))
    save("bare", X=x)
    save("few", X=x, y=few)
    Path("run.toml").write_text('featurs = "columns"\n')
    words = "stagewise data --features waves:Waves --block 8 --weights s --out m.fcl "
    return line(given if given.startswith("stagewise ") else words + given)


def path(given: str) -> list[Any]:
    save("data", group=np.arange(600) % 3)
    words = "train data --features kmers:d=2 --memory 1GiB --tol 1e-3 --out m.fcl "
    return line(words + given)


def online(given: str) -> list[Any]:
    random = np.random.default_rng(0)
    save("rows", X=(random.random((300, 30)) < 0.3) * 1.0, y=np.arange(300) % 2)
    return line(f"online rows --features columns --method ogd --alpha 1e-6 --out m.fcl {given}")


def stream(given: str) -> list[Any]:
    """Standard input is empty."""
    return line(f"online {given} --out m.fcl")


@cache
def trained() -> bytes:
    """A model of the letters in ``data``, nearly optimal at C = 0.1."""
    fcl.train(fcl.open_data("data"), "kmers:d=3", C=0.1, tol=1e-5).model.save("trained")
    return Path("trained").read_bytes()


def certify(given: str) -> list[Any]:
    Path("t.fcl").write_bytes(trained())
    Path("w.tsv").write_text("TTT at 3\t0.5\nTTTT at 3\t0.5\n")
    Path("bad.fcl").write_bytes(b"PK\x03\x04")
    return line(f"certify t.fcl data {given}" if given.startswith("--") else f"certify {given}")


def stagewise_model(given: str) -> list[Any]:
    Problem().train("columns", block=8).model.save("s.fcl")
    save("waves", X=Problem().x, y=Problem().y)
    return line(given)


@cache
def model_with_covariates() -> bytes:
    data = covariates_of.write(Path("made.zarr"))
    names = covariates_of.NAMES.split(",")
    found = fcl.train(fcl.open_data(data, covariates=names), "columns", C=0.2, driver="inline")
    found.model.save("made")
    return Path("made").read_bytes()


def covariates(given: dict[str, Any]) -> list[Any]:
    """The rows have other covariates than those of the training."""
    Path("m.fcl").write_bytes(model_with_covariates())
    covariates_of.write(Path("d"), **given)
    return line("predict m.fcl d --out s.npy")


def names_of_covariates(given: str) -> list[Any]:
    covariates_of.write(Path("d.zarr"))
    words = "train d.zarr --features columns --C 0.2 --driver inline --out m.fcl --covariates "
    return line(words + given)


N = covariates_of.N
ROWS = [
    ("lengths differ", windows, (lambda X, y: {"y": y[:-1]}, ""),
     "d:X has 1,500 rows, but d:y has 1,499 values"),
    ("one class", windows, (lambda X, y: {"y": np.zeros_like(y)}, ""),
     "d:y holds only one class, 0, in all 1500 rows"),
    ("three labels", windows, (lambda X, y: {"y": np.arange(1500) % 3}, "--loss logistic"),
     "d:y holds 3 distinct labels .*; expected two"),
    ("nan target", windows, (lambda X, y: {"y": at(7, y, np.nan)}, ""),
     "d:y: row 7 is nan; labels must be finite"),
    ("infinite target", windows, (lambda X, y: {"y": at(7, y, np.inf)}, "--loss squared"),
     "d:y: row 7 is inf; a regression target must be finite"),
    ("nan weight", windows, (lambda X, y: {"w": at(9, y, np.nan)}, "--weights w"),
     "d:w: row 9 is nan; weights must be finite"),
    ("negative weight", windows, (lambda X, y: {"w": at(9, y, -1.0)}, "--weights w"),
     r"d:w: row 9 is -1\.0; weights must not be negative"),
    ("wrong letter", windows, (lambda X, y: {"X": at(1400, letters(X), b"J")}, ""),
     "d:X: row 1400, column 0 is 'J', not a nucleotide"),
    ("code too large", windows, (lambda X, y: {"X": at(1400, X, 9)}, ""),
     "d:X: row 1400, column 0 is 9; expected the codes 0-3"),
    ("two lengths", windows,
     (lambda X, y: {"X": np.array(["ACGTACGT"] * 1499 + ["ACG"])}, ""),
     "d:X: row 1499 has 3 letters, row 0 has 8"),
    ("short window", windows, (lambda X, y: {"X": X[:, :2].copy()}, ""),
     "d:X: windows of 2 letters are shorter than d = 3"),
    ("no rows", windows, (lambda X, y: {"X": X[:0], "y": y[:0]}, ""),
     r"d:X is empty, shape \(0, 16\)"),
    ("budget", windows, (lambda X, y: {}, "--memory 10MiB"), "a budget of 10 MiB is too small"),
    ("block rows", windows, (lambda X, y: {}, "--block-rows 100"),
     "'--block-rows': expected a multiple of 64"),
    ("no target", windows, (lambda X, y: {"y": None}, ""), 'd has no array "y"; it holds "X"'),
    ("npy header", file, damaged_header, r"X\.npy is not a readable \.npy file"),
    ("factor of a family", line, "train data --features 'bag:d=3 * two' --C 1 --out m.fcl",
     r"a number after ' \* ', got 'two'"),
    *((f"{option} of train", line, "train data --features kmers:d=2 --C 0.05 --driver inline "
       f"--out o.fcl --{option} {TOO_LARGE}", f"'--{option}': {MOST}")
      for option in ("seed", "max-passes")),
    *((f"{option} of online", line, "online data --features kmers:d=2 --alpha 0.01 --no-certify "
       f"--out o.fcl --{option} {TOO_LARGE}", f"'--{option}': {MOST}")
      for option in ("seed", "period")),
    *((f"{option} of stagewise", waves, f"--{option} {TOO_LARGE}", f"'--{option}': {MOST}")
      for option in ("visits", "block", "patience")),
]  # fmt: skip

CLASSES = [
    ("class of one row", classes, "--y single", "at least two training rows"),
    ("absent class", classes, "--valid absent", "got no row of 'c'"),
    ("unlabelled", classes, "--valid unlabelled", 'unlabelled has no array "y"'),
    ("classes of columns", classes, "--y pair --loss softmax",
     r"data:pair has shape \(60, 2\); expected one value per row"),
    ("columns of validation", classes, "--y both --loss squared --valid valid",
     r"expected 2 columns of numbers, got shape \(60,\)"),
    ("hole", classes, "--y hole --loss squared",
     "hole, column 1: row 3 is nan; a regression target must be finite"),
    ("numbers", classes, "--y pair", 'for numbers, choose loss="squared"'),
    ("halves", classes, "--y halves", "choose the loss squared, for more classes softmax"),
    ("softmax of flags", classes, "--y flags --loss softmax",
     r"data:flags has shape \(60, 3\).*name one column"),
    ("huber of two", classes, "--y pair --loss huber", "expected one column for huber"),
    ("weights of flags", classes, "--y flags --class-weight balanced",
     "class_weight: expected none with several columns"),
    ("weights of names", classes, "train named --features columns --C 0.1 --driver inline "
     "--y u,v --class-weight balanced --out m.fcl",
     "class_weight: expected none with several columns"),
    ("hinge", classes, "--y two --loss hinge", "choose squared_hinge, or learn with fcl online"),
    ("folds of two", classes, "train data --features columns --y pair --loss squared --path 3 "
     "--cv 3 --out m.fcl", "cv: expected a single column of targets, got 2"),
    ("many classes", classes, "train many --features columns --C 0.1 --driver inline --memory 1GiB "
     "--out m.fcl", r"10,001 classes: without --penalty group, more than 10,000 classes need a "
     r"budget of at least 24 bytes for each row and class, 4\.47 GiB for 20,002 rows"),
    ("many classes in groups", classes, "train many --features columns --C 0.1 --driver inline "
     "--memory 1GiB --penalty group --out m.fcl",
     "a budget of 1 GiB is too small; this job needs at least"),
    ("offset of one", softmax, "--offset off",
     r"each row and output, shape \(60, 3\), got shape \(60,\)"),
    ("offset of two", softmax, "--offset pair", r"shape \(60, 3\), got shape \(60, 2\)"),
    ("unknown label", softmax, "--class-weight a=1,z=2", "there is no label 'z'"),
    ("l1-ratio", softmax, "--penalty elastic:l1_ratio=0", "train a ridge model with fcl stagewise"),
    ("class of one row", stagewise, "--y single", "at least two rows of each class"),
    ("absent class", stagewise, "--valid absent", "got no row of 'c'"),
    ("unlabelled", stagewise, "--valid unlabelled", 'unlabelled has no array "y"'),
    ("numbers", stagewise, "--y pair", "for numbers, .*--regression"),
    ("columns of validation", stagewise, "--y both --regression --valid valid",
     r"valid:both: expected 2 columns of numbers, got shape \(60,\)"),
    ("l1-ratio", stagewise, "--l1-ratio 1", "--l1-ratio: stagewise models have"),
    ("C", stagewise, "--C 1", "--C: stagewise models have"),
    ("singular", stagewise, "--x constant --alpha 0 --block 4",
     "block 2 of 2, features 4 to 5: their Gram matrix is singular at alpha = 0"),
    ("block", stagewise, "--features fourier:n=90000 --block 90000 --memory 2GiB",
     "a budget of 2 GiB is too small; a training in blocks of 90,000 features needs .*; raise memory or"),
]  # fmt: skip

STAGEWISE = [
    ("no out", waves, "stagewise data --features columns", "--out is missing"),
    ("letters", waves, "--features kmers:d=3",
     r"data:X has dtype float64; expected \(n, L\) integers 0-4"),
    ("alpha", waves, "--alpha -1", r"'--alpha': expected a finite number of at least 0, got -1\.0"),
    ("valid-fraction", waves, "--valid-fraction 1",
     "'--valid-fraction': expected at least 0 and below 1"),
    ("penalty", waves, "--penalty l1", "for an L1 penalty use fcl train"),
    ("C", waves, "--C 1", "--C: stagewise models have a ridge penalty"),
    ("block", waves, "--features fourier:n=99999 --block 99999",
     "a budget of 4 GiB is too small; a training in blocks of 99,999 features needs .*; raise memory or"),
    ("numbers", waves, "--y t --valid-fraction 0.1",
     "data:t: expected at least two rows of each class"),
    ("no valid", waves, "--valid none.zarr", r"none\.zarr does not exist"),
    ("certificate", waves, "--update cls --certify", "certify: the update cls has no joint objective"),
    ("bare rows", waves, "--valid bare", 'bare has no array "y"'),
    ("singular", waves, "--x twice --features columns --alpha 0",
     "block 1 of 1, features 0 to 4: their Gram matrix is singular at alpha = 0"),
    ("labels", waves, "--y x2", "x2: expected 0 or 1 in each column, one column for each label, "
     r"got 2\.0 in row 0, column 0"),
    ("two targets", waves, "--regression --y t,y", "y: expected a column of numbers"),
    ("unknown label", waves, "--class-weight z=2", "no label 'z'"),
    ("offset", waves, "--offset t", "expected an offset for each row and output"),
]  # fmt: skip

PATHS = [
    ("no path", path, "--C 1 --cv 3", "--cv needs --path N"),
    ("patience", path, "--C 1 --patience 2", "patience: expected held-out rows beside 2, got none"),
    ("C", path, "--path 5 --C 1", "--C does not go with --path: a path finds its own values"),
    ("writers", path, "--path 5 --driver inline:writers=2", "got 'writers=2'"),
    ("outer", path, "--path 5 --outer 3", "--outer needs --cv"),
    ("refit-alpha", path, "--path 5 --refit-alpha 0.1", "--refit-alpha needs --refit"),
    ("outer half", path, "--path 5 --cv 3 --outer half", "--outer: expected a number of folds, groups"),
    ("outer groups", path, "--path 3 --cv groups:group --outer groups:y", "name the same groups"),
    ("max-active", path, "--path 5 --max-active 0",
     "'--max-active': expected a whole number of at least 1, got 0"),
    ("checkpoint", path, "--path 5 --checkpoint x", "--checkpoint does not go with --path"),
    ("cv and valid", path, "--path 5 --cv 3 --valid-fraction 0.5", "give --cv, --valid or"),
    ("save-oof", path, "--path 5 --save-oof a.npy", "--save-oof needs --cv"),
    ("save-oof text", path, "--path 5 --cv 3 --save-oof a.txt",
     r"--save-oof: expected FILE\.tsv, a table, or FILE\.npy"),
    ("cv half", path, "--path 5 --cv half", "--cv: expected a number of folds, groups:NAME"),
    ("cv of nothing", path, "--path 5 --cv groups:nothing", 'data has no array "nothing"'),
    ("select", path, "--path 5 --select 1se", "--select needs scores of held-out rows: give --cv"),
    ("patience", path, "--path 5 --patience 2", "--patience needs scores of held-out rows"),
    ("no-checkpoint", path, "--path 5 --no-checkpoint", "--no-checkpoint does not go with --path"),
    ("checkpoint-every", path, "--path 5 --checkpoint-every 9s",
     "--checkpoint-every does not go with --path"),
    ("disk-wait", path, "--path 5 --disk-wait 9s", "--disk-wait does not go with --path"),
    ("select least", path, "--path 5 --select least",
     "'--select': expected one of best, 1se, got 'least'"),
]  # fmt: skip

ONLINE = [
    ("q1.1", online, "--table q1.1", r"expected qN\.M with N \+ M from 3 to 31 bits"),
    ("gamma of float32", online, "--table float32 --method ogd:gamma=1",
     r"gamma: expected weights qN\.M, whose rounding it sets"),
    ("max-weight off the grid", online, "--table q2.5 --method ogd:max_weight=0.3",
     r"expected a multiple of 0\.03125 up to 3\.96875"),
    ("max-weight too large", online, "--table q2.5 --method ogd:max_weight=4",
     r"got 4\.0; choose 3\.96875, or more bits"),
    ("rates of ftrl", online, "--method ftrl:rates=global", "got 'rates=global'"),
    ("int16", online, "--table int16",
     "'--table': expected one of float64, float32, q, qN.M, got 'int16'"),
    ("adagrad", online, "--table q2.13 --method truncated-gradient:step=adagrad",
     "with steps implicit or explicit and truncation soft or round, got step adagrad"),
    ("weights", online, "--weights q2.13", r"give --method ogd --table q2\.13"),
    ("memory", online, "--table q2.13 --memory 64MiB", "memory: a budget of 64 MiB is too small"),
    ("no columns", stream, "- --features columns --alpha 1", "--columns is missing"),
    ("passes", stream, "- --columns 20 --features columns --alpha 0.001 --passes 2",
     "--passes: standard input is read once"),
    ("C", stream, "- --columns 3 --features columns --C 1", "--C: .*; give --alpha$"),
    ("data", stream, "data --columns 20 --features columns --alpha 0.001",
     "--columns: expected DATA - "),
]  # fmt: skip

CERTIFY = [
    ("C most", certify, "--C most", "--C: expected a number above 0, or best"),
    ("C -1", certify, "--C -1", r"C must be a finite number above 0, got -1\.0"),
    ("C and alpha", certify, "--C 0.1 --alpha 0.1", "give either C"),
    ("intercept", certify, "--intercept 1", "intercept: expected a model without one"),
    ("radius", certify, "--radius 1e-9", "radius: expected at least the norm of the weights"),
    ("bound of another C", certify, "--bound-from t.fcl --C 0.2",
     r"bound: the model is of another job: C was 0\.1, is 0\.2"),
    ("y", certify, "--y nothing", 'data has no array "nothing"'),
    ("memory", certify, "--memory 64MiB",
     "a budget of 64 MiB is too small; a pass over these rows needs"),
    ("out on model", certify, "--out t.fcl", r"--out t\.fcl: would replace model"),
    ("line of a table", certify, "w.tsv data --features kmers:d=3",
     r"w\.tsv, line 2: 'TTTT at 3' is no feature"),
    ("damaged model", certify, "bad.fcl data", r"bad\.fcl: not a model file"),
    ("stagewise model", stagewise_model, "certify s.fcl waves", "fcl stagewise --certify"),
]  # fmt: skip

COVARIATES = [
    ("absent", covariates, {"obs/age": None}, 'has no array "obs/age"'),
    ("nan", covariates, {"obs/age": np.full(N, np.nan)},
     "covariate obs/age is nan in row 0; expected finite"),
    ("short", covariates, {"obs/age": np.ones(N - 1)},
     f"has {N} rows, but covariate obs/age has {N - 1}"),
    ("text", covariates, {"obs/age": np.array(["old"] * N)},
     "obs/age holds categories, expected numbers"),
    ("level", covariates, {"obs/sex": np.array(["x"] * N)},
     "obs/sex is 'x' in row 0, expected one of the levels"),
    ("wide", covariates, {"obsm/pc": np.ones((N, 3))},
     "obsm/pc has 3 columns, expected 2 as in training"),
    ("unknown", names_of_covariates, "obs/height", 'no array "obs/height"'),
    ("twice", names_of_covariates, "obs/age,obs/age", "expected distinct names"),
    ("group", names_of_covariates, "obs", r'"obs" in d\.zarr is a group, expected an array'),
]  # fmt: skip


@pytest.mark.thin(3)
@parametrized(ROWS, CLASSES, STAGEWISE, PATHS, ONLINE, CERTIFY, COVARIATES)
def test_refused(door: Any, given: Any, message: str, model_file: Path, refuses: Refuses) -> None:
    model_file.unlink()  # the name of what these jobs write
    refuses(door, given, message)
