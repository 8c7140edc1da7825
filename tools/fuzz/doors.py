"""The same rows through every door: text, Zarr, Python, a compact model. numpy computes the margins.

A door may refuse rows that do not fit the model. What it accepts must have the margins that follow from
the weights of the model and the numbers that were drawn here.
"""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz.case import Case, Trial
from tools.fuzz.run import run_inside
from tools.fuzz.stock import write_plink

#: Bits after the point of the weights of compact models.
BITS = 20


@dataclass
class Rows:
    """Test rows in a file, beside the training rows.

    matrix : float64 (n, k), in the columns ``names`` of the training rows; NaN is a missing value.
    means : of the training rows, which stand for missing values.
    """

    train: str
    test: str
    names: list[str]
    matrix: np.ndarray
    means: np.ndarray
    convert: list[str] = field(default_factory=list)  #: options for training and test rows
    train_only: list[str] = field(default_factory=list)
    loss: str = "logistic"
    is_text: bool = True
    fits: bool = True  #: whether no door may refuse the rows


def doors(case: Case) -> Trial:
    """Rows of svmlight, a table or PLINK, or a data frame, through every door."""
    make = case.rng.choice((_svmlight, _table, _table, _plink, None))
    case.note("frame" if make is None else make.__name__[1:])
    if make is None:
        return Trial(call=lambda: _frame(case))
    return Trial(call=lambda: _through(case, make(case)))


def _lines(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    path.write_bytes("".join(line + end for line in lines).encode())


# -- rows ------------------------------------------------------------------------------------------


def _svmlight(case: Case) -> Rows:
    numbers, base, width = case.numbers, case.rng.choice((0, 1)), case.rng.randint(2, 6)
    n = 60
    X = np.where(numbers.random((n, width)) < 0.6, numbers.normal(size=(n, width)).round(3), 0.0)
    X[0] = np.arange(1, width + 1)  # all ids occur
    T = X[: case.rng.choice((n, n, 1, 3))].copy()
    if case.chance(0.5):
        T[:, 0] = 0.0
        case.note("without the first id")
    if case.chance(0.3):
        T = T[:, : case.rng.randint(1, width)]
        case.note("fewer columns")
    more = np.zeros((len(T), int(case.chance(0.3))))
    more[: more.shape[1]] = 2.5

    def write(name: str, x: np.ndarray) -> str:
        labels = np.where(X[:, 0] + X[:, -1] > 0, 1, -1)
        _lines(
            case.folder / name,
            (
                " ".join([str(y), *(f"{j + base}:{float(row[j])!r}" for j in np.flatnonzero(row))])
                for row, y in zip(x, labels, strict=False)
            ),
        )
        return name

    case.note(f"ids from {base}, {more.shape[1]} more")
    filled = np.zeros((len(T), width))
    filled[:, : T.shape[1]] = T
    more_columns = np.zeros((len(T), width - T.shape[1] + more.shape[1]))
    more_columns[:, width - T.shape[1] :] = more
    test = write("test.svm", np.column_stack([T, more_columns]))
    names = [str(j) for j in range(width)]
    return Rows(write("train.svm", X), test, names, filled, np.zeros(width))


def _table(case: Case) -> Rows:
    rng, numbers, n = case.rng, case.numbers, 60
    base = rng.choice((0.0, 100.0, 1.7e9))
    a = numbers.normal(size=n).round(4)
    b = base + numbers.integers(0, 40, n) * 0.25
    wards, cities = ["2", "3", "10"], ["Rome", "Oslo", "Bonn"]
    at_ward, at_city = numbers.integers(0, 3, n), numbers.integers(0, 3, n)
    at_ward[:3] = at_city[:3] = range(3)
    missing = numbers.random(n) < rng.choice((0.0, 0.2))
    missing[:4] = False
    signal = a + (b - b.mean()) / 5 + (at_city == 1) + (at_ward == 2) * 0.5
    y = (signal > np.median(signal)).astype(int)
    shown = ["" if m else f"{v:.4f}" for m, v in zip(missing, a, strict=True)]
    texts = {
        "a": shown,
        "b": [f"{v:.2f}" for v in b],
        "ward": [wards[k] for k in at_ward],
        "city": [cities[k] for k in at_city],
        "y": [str(v) for v in y],
    }
    train = _table_file(case, "train", texts, ",")
    spelling = rng.choice(("{}", "{}.0", "0{}", " {}"))
    test = {name: list(values) for name, values in texts.items()}
    test["ward"] = [spelling.format(v) for v in test["ward"]]
    known_city = np.ones(n, bool)
    for i in range(n):
        if case.chance(0.05):
            test["city"][i] = rng.choice(("oslo", "Paris", "Oslo2", "OSLO"))
            known_city[i] = False
    if case.chance(0.3):
        del test["y"]
    if case.chance(0.3):
        test["note"] = ["x"] * n
    if case.chance(0.3):
        order = list(test)
        rng.shuffle(order)
        test = {name: test[name] for name in order}
    case.note(
        f"ward {spelling!r}, {n - known_city.sum()} unknown cities, {', '.join(test)}, b {base:g}"
    )
    name = _table_file(case, "test", test, rng.choice(",\t"))
    columns = {"a": np.where(missing, np.nan, a), "b": b}
    columns |= {f"ward={ward}": at_ward == k for k, ward in enumerate(wards)}
    columns |= {f"city={city}": (at_city == k) & known_city for k, city in enumerate(cities)}
    matrix = np.column_stack([np.asarray(values, float) for values in columns.values()])
    means = np.array([a[~missing].mean(), *[0.0] * (matrix.shape[1] - 1)])
    options = ["--missing", "mean", "--categorical", "ward"]
    return Rows(train, name, list(columns), matrix, means, options, ["--y", "y"], fits=False)


def _table_file(case: Case, name: str, columns: dict[str, list[str]], mark: str) -> str:
    name += ".csv" if mark == "," else ".tsv"
    rows = zip(*columns.values(), strict=True)
    _lines(case.folder / name, (mark.join(row) for row in [tuple(columns), *rows]))
    return name


def _plink(case: Case) -> Rows:
    numbers, n, m = case.numbers, 40, case.rng.randint(3, 9)
    counts = numbers.integers(0, 3, (n, m)).astype(float)
    counts[:3] = np.arange(3)[:, None]
    alleles = [tuple(case.rng.sample("ACGT", 2)) for _ in range(m)]
    names = ["." if case.chance(0.2) else f"rs{j}" for j in range(m)]
    y = counts[:, 0] - counts[:, 1] + 0.3 * numbers.normal(size=n)
    write_plink(case.folder, "train", counts, names, list(range(m)), alleles, y)
    test, order = counts.copy(), numbers.permutation(m) if case.chance(0.4) else np.arange(m)
    test[numbers.random(test.shape) < case.rng.choice((0.0, 0.1))] = np.nan
    turned = numbers.random(m) < case.rng.choice((0.0, 0.5))
    shown = np.where(turned, 2.0 - test, test)[:, order]
    swapped = [alleles[j][::-1] if turned[j] else alleles[j] for j in order]
    write_plink(case.folder, "test", shown, [names[j] for j in order], order.tolist(), swapped, y)
    case.note(
        f"{turned.sum()} exchanged, {np.isnan(test).sum()} missing, {names.count('.')} unnamed"
    )
    columns = [str(j) for j in range(m)]
    return Rows(
        "train.bed", "test.bed", columns, test, counts.mean(axis=0),
        loss="squared", is_text=False, fits="." not in names,
    )  # fmt: skip


# -- doors -----------------------------------------------------------------------------------------


def _through(case: Case, rows: Rows) -> list[str]:
    """Train on the training rows, and send the test rows through all doors."""
    import fcl

    def run(*words: str) -> int:
        done = run_inside(
            [*words, "--quiet"] if words[0] != "inspect" else list(words), case.folder
        )
        if done.code not in (0, 2) or "Traceback" in done.errors:
            found.append(f"{' '.join(words)}: exit code {done.code}: {done.errors[-300:]}")
        return done.code

    found: list[str] = []
    if run("convert", rows.train, "train.zarr", *rows.convert, *rows.train_only) != 0:
        return [*found, "the training rows were refused"]
    train = ["train", "train.zarr", "--features", "columns", "--C", "3", "--loss", rows.loss]
    if run(*train, "--driver", "inline", "--no-checkpoint", "--out", "m.fcl") != 0:
        return [*found, "no model"]
    model = fcl.load_model(case.folder / "m.fcl")
    expected, sizes = _margins(model, rows)
    has_missing = np.isnan(rows.matrix).any()
    tests = {"predict": rows.test}
    if rows.is_text:
        content = (case.folder / rows.test).read_bytes()
        for prefix, changed in {
            "gz": gzip.compress(content),
            "crlf": content.replace(b"\n", b"\r\n"),
            "bom": b"\xef\xbb\xbf" + content,
        }.items():
            name = f"{prefix}-{rows.test}" + (".gz" if prefix == "gz" else "")
            (case.folder / name).write_bytes(changed)
            tests[prefix] = name
    for door, more in {"like": ["--like", "train.zarr"], "alone": []}.items():
        # rows converted alone are filled with means of their own, as a note says
        # and svmlight rows without an entry do not tell how many columns there are
        is_empty = rows.test.endswith(".svm") and not np.nan_to_num(rows.matrix).any()
        if door == "like" or not (has_missing or is_empty):
            if run("convert", rows.test, f"{door}.zarr", *rows.convert, *more) == 0:
                tests[door] = f"{door}.zarr"
            elif rows.fits:
                found.append(f"door {door}: rows that fit were refused")
    refused = []
    for door, name in tests.items():
        options = [] if name.endswith(".zarr") else rows.convert
        out = f"{door}.tsv"
        if run("predict", "m.fcl", name, *options, "--out", out) != 0:
            refused.append(door)
            if rows.fits and door != "bom":
                found.append(f"door {door}: rows that fit were refused")
            continue
        head, *lines = [line.split("\t") for line in (case.folder / out).read_text().splitlines()]
        margins = np.array([float(cells[head.index("margin")]) for cells in lines])
        found += _compared(door, margins, expected, sizes)
        if name.endswith(".zarr"):
            margins_of = partial(model.margins, case.folder / name)
            found += _python(f"{door}, Python", margins_of, expected, sizes)
    case.note("refused: " + (", ".join(refused) or "none"))
    if run("convert", "m.fcl", "small.fcl", "--bits", str(BITS)) == 0 and "like" in tests:
        small = fcl.load_model(case.folder / "small.fcl")
        rounding = 0.5**BITS * (np.abs(np.nan_to_num(rows.matrix)).sum(axis=1) + 1.0)
        margins_of = partial(small.margins, case.folder / tests["like"])
        found += _python("compact", margins_of, expected, sizes + rounding)
    return found


def _margins(model: Any, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Margins of the rows by numpy, and how far from them rounding may lead."""
    if rows.convert:  # a table, whose columns have names
        by_name = {row.feature: row.weight for row in model.describe()}
        weights = np.array([by_name.pop(name, 0.0) for name in rows.names])
        if by_name:
            raise AssertionError(f"the model has other columns: {list(by_name)}")
    else:
        weights = np.zeros(len(rows.names))
        weights[model.ids] = model.weights
    matrix = np.where(np.isnan(rows.matrix), rows.means, rows.matrix)
    terms = matrix * weights
    away = np.abs(weights * (matrix - matrix.mean(axis=0))).sum(axis=1)
    sizes = 1e-6 + 1e-6 * away + 1e-14 * np.abs(terms).sum(axis=1)
    return float(model.intercept) + terms.sum(axis=1), sizes


def _compared(door: str, margins: np.ndarray, expected: np.ndarray, sizes: np.ndarray) -> list[str]:
    if margins.shape != expected.shape:
        return [f"door {door}: {len(margins)} margins of {len(expected)} rows"]
    off = np.abs(margins - expected)
    if (off <= sizes).all():
        return []
    return [f"door {door}: margins off by up to {off.max():.3g} of {np.abs(expected).max():.3g}"]


def _python(
    door: str, call: Callable[[], Any], expected: np.ndarray, sizes: np.ndarray
) -> list[str]:
    import fcl

    try:
        return _compared(door, np.asarray(call()), expected, sizes)
    except fcl.InputError:
        return []


def _frame(case: Case) -> list[str]:
    """A data frame whose columns come in another order, or under other names, for an estimator."""
    import pandas as pd

    import fcl

    n, width = 50, case.rng.randint(2, 5)
    names: Any = case.rng.choice(
        (
            [f"c{j}" for j in range(width)],
            list(range(width)),
            [10 * j for j in range(width)],
            pd.MultiIndex.from_tuples([("a", j) for j in range(width)]),
            pd.date_range("2020-01-01", periods=width),
        )
    )
    X = pd.DataFrame(case.numbers.normal(size=(n, width)), columns=names)
    y = (X.iloc[:, 0] - 0.5 * X.iloc[:, 1] > 0).astype(int)
    model = fcl.FCLClassifier("columns", C=3.0)
    try:
        model.fit(X, y)
    except (fcl.InputError, TypeError, ValueError) as error:
        return [] if not isinstance(X.columns[0], str) else [f"refused: {error}"]
    weights = np.zeros(width)
    weights[model.model_.ids] = model.model_.weights
    expected = X.to_numpy() @ weights + float(model.model_.intercept)
    found = []
    for what in ("same", "order", "gone", "renamed", "more"):
        order = case.numbers.permutation(width) if what == "order" else np.arange(width)
        other = X.iloc[:, order[: width - (what == "gone")]]
        if what == "renamed":
            other = other.set_axis([f"z{j}" for j in range(width)], axis=1)
        elif what == "more":
            other = pd.concat([pd.Series(np.ones(n), name="other"), other], axis=1)
        try:
            with warnings.catch_warnings():  # of scikit-learn
                warnings.simplefilter("ignore")
                margins = model.decision_function(other)
        except (fcl.InputError, TypeError, ValueError):
            if what == "same":
                found.append("the training rows were refused")
            continue
        found += _compared(f"frame, {what}", margins, expected, np.full(n, 1e-6))
    return found
