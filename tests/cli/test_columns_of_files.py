"""What a model knows of its columns holds in every way in which rows come in.

Expected margins are sums of weights times the values in the rows, by numpy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.metrics import average_precision_score

import fcl
from fcl.cli.online import command as online
from fcl.convert import run as conversion
from fcl.drivers.initial import fitting
from fcl.drivers.online.train import train_online
from fcl.report.measured import measure
from tests import by_name
from tests.cli.conftest import ok

Run = Callable[..., Result]
RNG = np.random.default_rng(11)
N, P = 80, 5
X = np.where(RNG.random((N, P)) < 0.5, RNG.normal(size=(N, P)).round(3), 0.0)
X[0] = np.arange(1, P + 1)  # all ids occur
Y = np.where(X[:, 1] - X[:, 2] + X[:, 0] + 0.3 * RNG.normal(size=N) > 0, 1, -1)
close = partial(np.testing.assert_allclose, atol=1e-6)
#: Test rows without a value in the first column.
T = X * (np.arange(P) > 0)


def convert(source: str, out: str, **options: Any) -> Any:
    return conversion.convert([source], out, memory="4GiB", **options)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def svm(name: str, x: np.ndarray, base: int, y: np.ndarray = Y) -> str:
    """Write rows as svmlight lines whose ids begin at ``base``."""
    with open(name, "w") as file:
        for row, label in zip(x, y, strict=False):
            words = [f"{j + base}:{float(row[j])!r}" for j in np.flatnonzero(row).tolist()]
            file.write(" ".join([str(label), *words]) + "\n")
    return name


def expected(model: fcl.Model, x: np.ndarray) -> np.ndarray:
    """Margins of rows whose column j is the training column j; further columns have no weight."""
    weights = np.zeros(max(P, x.shape[1]))
    weights[model.ids] = model.weights
    margins: np.ndarray = model.intercept + x @ weights[: x.shape[1]]
    return margins


def scores(run: Run, model: str, data: str, *more: object) -> np.ndarray:
    result = ok(run("predict", model, data, "--out", "-", "--quiet", *more))
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    at = lines[0].index("margin")
    return np.array([float(cells[at]) for cells in lines[1:]])


# -- svmlight --------------------------------------------------------------------------------------


@pytest.fixture(params=[0, 1])
def base(request: pytest.FixtureRequest) -> int:
    """The first id of the training rows; the model is in m.fcl."""
    convert(svm("train.svm", X, request.param), "train.zarr")
    fcl.train(fcl.open_data("train.zarr"), "columns", C=1.0).model.save("m.fcl")
    return int(request.param)


@pytest.mark.slow
def test_ids_are_those_of_the_training_rows(base: int, run: Run) -> None:
    model = fcl.load_model("m.fcl")
    assert model.column_record.first_id == base
    wider = np.column_stack([T, np.zeros(N)])
    wider[3, P] = 2.0  # an id that the training rows lack
    for rows in (T, T[:1], T[:, :3], wider):
        want = expected(model, rows)
        svm("t.svm", rows, base)
        close(scores(run, "m.fcl", "t.svm"), want)
        convert("t.svm", "t.zarr", overwrite=True)
        close(scores(run, "m.fcl", "t.zarr"), want)
        data = fcl.open_data("t.zarr")
        close(model.margins("t.zarr"), want)
        close(model.explain(data).margins, want)
        found = (
            measure(model, data).predictions.margins.values if len(rows) > 1 else np.unique(want)
        )
        close(found, np.unique(want))
    # the first id of these rows is stated, so that columns are positions
    convert(svm("t.svm", T, 1 - base), "t.zarr", overwrite=True,
            zero_based="yes" if base else "no")  # fmt: skip
    stated = ("--zero-based", "yes" if base else "no")
    close(scores(run, "m.fcl", "t.svm", *stated), expected(model, T))
    close(scores(run, "m.fcl", "t.zarr"), expected(model, T))
    result = run("predict", "m.fcl", "t.zarr", "--out", "o.npy")
    assert "columns: matched by position; ids begin at" in result.stderr


def test_the_certificate_of_rows_matched_by_id(base: int) -> None:
    """Objective and loss at the weights of the model, by numpy; the intercept is fitted."""
    convert(svm("t.svm", T, base), "t.zarr")
    model = fcl.load_model("m.fcl")
    found = fcl.certify(model, fcl.open_data("t.zarr"), C=1.0)
    own = expected(model, T) - model.intercept
    shifts = np.linspace(-3, 3, 6001)
    loss = min(np.logaddexp(0.0, -Y * (own + b)).sum() for b in shifts)
    assert found.objective == pytest.approx(np.abs(model.weights).sum() + loss, rel=1e-6)
    convert(svm("u.svm", np.column_stack([T, X[:, 0]]), base), "u.zarr")
    with pytest.raises(fcl.InputError, match="1 of them are not among the 5 of the model"):
        fcl.certify(model, fcl.open_data("u.zarr"))


@pytest.mark.slow
def test_validation_rows_are_matched_by_id(base: int) -> None:
    """The metric of the shifted rows is that of the right margins; the driver does not matter."""
    convert(svm("v.svm", T, base), "v.zarr")
    train = fcl.open_data("train.zarr")
    for driver in ("inline", "processes"):
        result = by_name.train(
            train, "columns", C=1.0, valid=fcl.open_data("v.zarr"), driver=driver, writers=1
        )
        margins = expected(result.model, T)
        want = average_precision_score(Y, margins)
        assert want < 0.99  # other columns would score lower
        assert result.history[-1]["validation"]["auprc"] == pytest.approx(want, rel=1e-12)


def test_rows_of_zeros(base: int, run: Run) -> None:
    """The model knows the columns, which such rows do not name."""
    model = fcl.load_model("m.fcl")
    svm("t.svm", np.zeros((3, P)), base)
    np.testing.assert_allclose(
        scores(run, "m.fcl", "t.svm"), np.full(3, model.intercept), atol=1e-12
    )
    result = run("convert", "t.svm", "t.zarr")
    assert result.exit_code == 2 and "expected entries ID:VALUE, found none" in result.stderr


def test_an_id_that_the_training_rows_do_not_have(run: Run) -> None:
    convert(svm("train.svm", X, 1), "train.zarr")
    fcl.train(fcl.open_data("train.zarr"), "columns", C=1.0).model.save("m.fcl")
    convert(svm("t.svm", X, 0), "t.zarr")
    for data, message in (
        ("t.zarr", "t.zarr: the ids of the columns begin at 0, but at 1 in the training data"),
        ("t.svm", "the id is 0, but ids begin at 1"),
    ):
        result = run("predict", "m.fcl", data, "--out", "o.tsv")
        assert result.exit_code == 2 and message in result.stderr and not Path("o.tsv").exists()
    with pytest.raises(
        fcl.InputError, match=r"initial: t.zarr: the ids of the columns begin at 0, but at 1"
    ):
        fcl.train(fcl.open_data("t.zarr"), "columns", C=1.0, initial=fcl.load_model("m.fcl"))


def test_an_initial_model_of_other_ids(run: Run) -> None:
    """Each weight starts at the column with its id."""
    for name, first, base in (("all", 0, 0), ("some", 1, 1)):
        convert(svm(f"{name}.svm", X[:, first:], base), f"{name}.zarr")
    model = fcl.train(fcl.open_data("all.zarr"), "columns", C=1.0, max_passes=3).model
    for driver in ("inline", "processes"):
        data = fcl.open_data("some.zarr")
        cold = fcl.train(data, "columns", C=1.0, tol=1e-6)
        warm = fcl.train(data, "columns", C=1.0, tol=1e-6, initial=cold.model, driver=driver)
        moved = fcl.train(data, "columns", C=1.0, tol=1e-6, initial=model, driver=driver)
        assert warm.passes == 2 and moved.converged
    point = fitting(model, moved.model.family, data)
    ids = model.ids[model.ids > 0]
    np.testing.assert_array_equal(point.ids, ids - 1)
    np.testing.assert_array_equal(point.weights, model.weights[model.ids > 0])


def test_models_that_do_not_know_the_first_id(run: Run) -> None:
    """As of earlier versions, or of rows in memory: the user is asked, unless an id is 0."""
    model = fcl.train(fcl.open_data(X, y=Y), "columns", C=1.0).model
    model.save("m.fcl")
    svm("t.svm", T, 0)
    result = run("predict", "m.fcl", "t.svm", "--out", "o.tsv")
    assert result.exit_code == 2 and not Path("o.tsv").exists()
    assert "t.svm: no id is 0, and the model does not know whether the ids" in result.stderr
    for options in (("--zero-based", "yes"), ("--like", "train.zarr")):
        convert(svm("train.svm", X, 0), "train.zarr", overwrite=True)
        close(scores(run, "m.fcl", "t.svm", *options), expected(model, T))
    svm("x.svm", X, 0)
    close(scores(run, "m.fcl", "x.svm"), expected(model, X))


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_streams(first: int, run: Run) -> None:
    """Their models know the first id, too, and continue with it."""
    lines = Path(svm("train.svm", X, first)).read_text()
    given = ["-", "--columns", str(P), "--features", "columns", "--alpha", "1e-3"]
    flag = [] if first else ["--zero-based"]
    result = ok(CliRunner().invoke(online, [*given, *flag, "--out", "o.fcl"], input=lines))
    model = fcl.load_model("o.fcl")
    assert model.column_record.first_id == first
    svm("t.svm", T, first)
    close(scores(run, "o.fcl", "t.svm"), expected(model, T))
    # ids are as in the file that is resumed, and in the model to begin with
    more = Path(svm("more.svm", T, first)).read_text()
    for option in ("--resume", "--initial"):
        again = ["-", "--columns", str(P), option, "o.fcl", "--out", f"{option[2:]}.fcl"]
        again += given[3:] if option == "--initial" else []
        result = ok(CliRunner().invoke(online, again, input=more))
        assert ("ids: from 0, as in o.fcl" in result.output) == (first == 0)
        found = fcl.load_model(f"{option[2:]}.fcl")
        assert found.column_record.first_id == first
    ok(CliRunner().invoke(online, [*given, *flag, "--out", "w.fcl"], input=lines + more))
    if first:
        result = CliRunner().invoke(
            online, ["-", "--columns", str(P), "--resume", "o.fcl", "--zero-based", "--out", "p.fcl"],
            input=more
        )  # fmt: skip
        assert result.exit_code == 2 and "the ids of o.fcl begin at 1" in result.output
    # validation rows of a stream
    convert("t.svm", "t.zarr")
    result = ok(
        CliRunner().invoke(
            online, [*given, *flag, "--valid", "t.zarr", "--out", "v.fcl"], input=lines
        )
    )


@pytest.mark.slow
def test_a_job_is_resumed_with_the_same_ids(base: int) -> None:
    import zarr

    data = fcl.open_data("train.zarr")
    fcl.train(data, "columns", C=1.0, checkpoint="c")
    learnt = train_online(data, "columns", alpha=1e-3, certify=False)
    assert learnt.state is not None
    learnt.model.save("o.fcl", more=learnt.state.members())
    group = zarr.open_group("train.zarr", mode="a")
    group.attrs["fcl"] = {**group.attrs["fcl"], "first_id": 1 - base}
    other = fcl.open_data("train.zarr")
    assert other.fingerprint() == data.fingerprint()  # X is the same
    with pytest.raises(
        fcl.InputError, match=f"ids of its columns began at {base}, begin at {1 - base}"
    ):
        fcl.train(other, "columns", C=1.0, resume="c")
    with pytest.raises(fcl.InputError, match=f"begin at {1 - base}, but at {base} in the model"):
        train_online(other, "columns", resume="o.fcl", passes=2)


# -- tables ----------------------------------------------------------------------------------------

WARDS = RNG.choice(["2", "3", "10"], N)
CITIES = RNG.choice(["Rome", "Oslo", "Bonn"], N)
LABELS = np.where((WARDS == "2") ^ (CITIES == "Oslo") ^ (RNG.random(N) < 0.1), 1, 0)


def csv(name: str, *columns: Any, head: str = "ward,city,y") -> str:
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    Path(name).write_text("\n".join([head, *lines, ""]))
    return name


def one_hot_margins(model: fcl.Model, **columns: Any) -> np.ndarray:
    weights = {row.feature: row.weight for row in model.describe()}
    n = len(next(iter(columns.values())))
    found = np.full(n, float(model.intercept))
    for name, values in columns.items():
        found += [weights.get(f"{name}={value}", 0.0) for value in values]
    return found


@pytest.fixture
def wards() -> fcl.Model:
    convert(csv("t.csv", WARDS, CITIES, LABELS), "train.zarr", y="y", categorical="ward")
    model = fcl.train(fcl.open_data("train.zarr"), "columns", C=0.7).model
    model.save("m.fcl")
    return model


def test_categories(wards: fcl.Model, run: Run) -> None:
    """Whole numbers may be spelled in another way; unknown categories are counted and named."""
    spelled = [{"2": "2.0", "3": "3", "10": "010"}[ward] for ward in WARDS]
    cities = np.array(CITIES, object)
    cities[:4] = ["rome", "rome", "Paris", "Oslo "]
    csv("u.csv", spelled, cities, head="ward,city")
    known = [{"Oslo ": "Oslo", "rome": "", "Paris": ""}.get(city, city) for city in cities]
    want = one_hot_margins(wards, ward=WARDS, city=known)
    close(scores(run, "m.fcl", "u.csv"), want)
    result = run("predict", "m.fcl", "u.csv", "--out", "o.tsv")
    note = "categories: 3 values not in the training data; columns of 0 stand for them: city='rome' (2), city='Paris' (1)"  # noqa: E501
    assert note in result.stderr
    result = run("convert", "u.csv", "l.zarr", "--like", "train.zarr")
    assert "categories: 3 values not in --like" in result.output
    assert "city='rome' (2)" in result.output
    close(scores(run, "m.fcl", "l.zarr"), want)
    # converted alone, the columns have names of their own
    convert("u.csv", "u.zarr", categorical="ward")
    assert "ward=2.0" in (fcl.open_data("u.zarr", y=None).column_names or ())
    close(scores(run, "m.fcl", "u.zarr"), want)
    result = run("predict", "m.fcl", "u.zarr", "--out", "u.npy")
    assert "not in the training data: city='Paris', city='rome'" in result.stderr


def test_other_categories_of_equal_number_are_not_taken_for_known_ones(run: Run) -> None:
    """The width of the converted rows agrees, but no column of theirs is one of the model's."""
    cities = ["Red" if label > 0 else "green" for label in LABELS]
    csv("t.csv", cities, RNG.normal(size=N), LABELS, head="c,x,y")
    csv("u.csv", [city.upper() for city in cities], np.zeros(N), LABELS, head="c,x,y")
    for name in ("t", "u"):
        convert(f"{name}.csv", f"{name}.zarr", y="y")
    model = fcl.train(fcl.open_data("t.zarr"), "columns", C=1.0).model
    model.save("m.fcl")
    names = [row.feature for row in model.describe()]
    assert "c=Red" in names or "c=green" in names
    np.testing.assert_allclose(model.margins(fcl.open_data("u.zarr")), model.intercept, atol=1e-12)
    close(scores(run, "m.fcl", "u.zarr"), model.intercept)


def test_a_category_without_a_weight_is_known(run: Run) -> None:
    """Categories that the model does not read are no unknown ones."""
    noise = RNG.choice(list("abcd"), N)
    csv("t.csv", noise, CITIES, LABELS, head="noise,city,y")
    convert("t.csv", "train.zarr", y="y")
    model = fcl.train(fcl.open_data("train.zarr"), "columns", C=0.3).model
    read = [f"{row.feature}" for row in model.describe()]
    assert 0 < len(read) < 7
    model.save("m.fcl")
    result = run("predict", "m.fcl", "t.csv", "--out", "o.tsv")
    assert result.exit_code == 0 and "categories" not in result.stderr, result.output
    csv("few.csv", noise[:1], CITIES[:1], LABELS[:1], head="noise,city,y")
    convert("few.csv", "few.zarr", y="y")  # lacks the columns of other categories
    want = one_hot_margins(model, noise=noise[:1], city=CITIES[:1])
    close(scores(run, "m.fcl", "few.zarr"), want)


def test_spellings_of_a_number_are_one_category() -> None:
    values = ["2", "2.0", "7", "+7", "07", "7.5", "x"]
    csv("t.csv", values, range(7), head="a,b")
    convert("t.csv", "t.zarr", categorical="a", x="a")
    data = fcl.open_data("t.zarr", y=None)
    names = ["a=07", "a=2", "a=7", "a=7.5", "a=x"]
    assert data.column_names == names and data.column_record.categories == {
        "a": [name[2:] for name in names]
    }
    rows = data.rows.read(0, 7)
    rows = rows if isinstance(rows, np.ndarray) else rows.to_dense()
    assert rows.argmax(axis=1).tolist() == [1, 1, 2, 2, 0, 3, 4]


def test_means_of_the_training_rows(run: Run) -> None:
    """The model knows them; rows that were filled with other means are said to be so."""
    ages = np.where(np.arange(N) % 7, np.arange(N), -1)
    shown = ["" if age < 0 else str(age) for age in ages]
    csv("t.csv", shown, ages > 40, head="age,y")
    convert("t.csv", "train.zarr", y="y", missing="mean")
    model = fcl.train(fcl.open_data("train.zarr"), "columns", C=1.0).model
    model.save("m.fcl")
    mean = ages[ages >= 0].mean()
    csv("u.csv", ["", "10", "20"], "abc", head="age,id")
    want = model.intercept + model.weights[0] * np.array([mean, 10, 20])
    np.testing.assert_allclose(scores(run, "m.fcl", "u.csv", "--missing", "mean"), want, rtol=1e-6)
    assert fcl.load_model("m.fcl").column_record.means == {"age": pytest.approx(mean)}
    convert("u.csv", "u.zarr", x="age", missing="mean")
    result = run("predict", "m.fcl", "u.zarr", "--out", "o.npy")
    assert (
        "missing values (1) were replaced by the means of these rows ('age': 15), not of"
        in result.stderr
    )
    convert("u.csv", "v.zarr", missing="mean", like="train.zarr")
    result = run("predict", "m.fcl", "v.zarr", "--out", "p.npy")
    assert "missing values" not in result.stderr
    np.testing.assert_allclose(np.load("p.npy"), want, rtol=1e-6)


def test_a_spelling_of_two_categories_is_unknown() -> None:
    """2.0 could be either of 2 and 02, which training data may tell apart."""
    csv("t.csv", ["2", "02", "5"], "xyz", head="a,b")
    convert("t.csv", "t.zarr", x="a", categorical="a")
    csv("u.csv", ["2.0", "5.0", "2"], "xyz", head="a,b")
    found = convert("u.csv", "u.zarr", like="t.zarr")
    (note,) = (note for note in found.notes if note.startswith("categories"))
    assert note.startswith("categories: 1 value not in --like") and note.endswith("a='2.0' (1)")
    rows = fcl.open_data("u.zarr", y=None).rows.read(0, 3)
    dense = rows if isinstance(rows, np.ndarray) else rows.to_dense()
    assert dense.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
