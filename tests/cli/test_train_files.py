"""``fcl train`` on tables and other files: conversions that are kept beside the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

import fcl
from fcl.convert import cache
from fcl.convert.run import convert
from fcl.files.folder import CheckpointFolder
from tests.cli.conftest import ok
from tests.cli.refusals import check_refusal

Run = Callable[..., Result]
RNG = np.random.default_rng(5)
N = 200
AGES, PLANS = RNG.integers(18, 80, N), RNG.choice(["basic", "full"], N)
PEOPLE = RNG.integers(0, 20, N)
CHURN = np.where((AGES > 40) ^ (PLANS == "full") ^ (RNG.random(N) < 0.1), "yes", "no")
JOB = ("--C", "0.5", "--out", "m.fcl")
TABLE = ("churn.csv", "--y", "churn", *JOB)
LETTERS = np.array(list("ACGT"))


def write_table(name: str = "churn.csv", rows: slice = slice(None)) -> None:
    lines = map("{},{},{},{}\n".format, AGES[rows], PLANS[rows], PEOPLE[rows], CHURN[rows])
    Path(name).write_text("age,plan,person,churn\n" + "".join(lines))


def write_sequences(name: str, letters: str) -> None:
    rows = RNG.choice(LETTERS, (40, 12))
    rows[:, 4:7] = list(letters)
    Path(name).write_text("".join(f">{i}\n{''.join(row)}\n" for i, row in enumerate(rows)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with a table of 200 rows."""
    monkeypatch.chdir(tmp_path)
    write_table()


def converted_before(result: Result) -> bool:
    """Whether a command used a conversion of an earlier job."""
    before = "converted before" in ok(result).stderr
    assert before != ("rows converted to" in result.stderr)
    return before


def test_the_same_model_as_from_the_converted_table(run: Run) -> None:
    said = ok(run("train", *TABLE)).stderr.splitlines()
    assert said[0] == "fcl train: reading churn.csv"
    assert said[1].startswith("fcl train: churn.csv: 200 rows converted to m.fcl.data.zarr, which")
    convert(["churn.csv"], "churn.zarr", y="churn")
    ok(run("train", "churn.zarr", "--features", "columns", "--C", "0.5", "--out", "z.fcl"))
    model, other = fcl.load_model("m.fcl"), fcl.load_model("z.fcl")
    assert model.weights.tobytes() == other.weights.tobytes() and model.labels == ("no", "yes")
    names = {row.feature.partition("=")[0] for row in model.describe()}
    assert names <= {"age", "plan", "person"} and names
    write_table("new.csv", slice(50))
    scores = ok(run("predict", "m.fcl", "new.csv", "--y", "churn", "--out", "s.tsv"))
    assert "over 50 rows" in scores.stderr


def test_a_conversion_is_used_until_something_changes(run: Run) -> None:
    again = (*TABLE, "--overwrite")
    assert not converted_before(run("train", *TABLE))
    assert converted_before(run("train", *again))
    assert converted_before(run("train", *again, "--tol", "1e-3", "--memory", "2GiB"))
    result = run("train", *again, "--missing", "drop")
    assert not converted_before(result)
    assert "converted again, since missing was not given, is 'drop'" in result.stderr
    assert "since missing was 'drop', is not given" in run("train", *again).stderr
    os.utime("churn.csv", (1e9, 1e9))
    result = run("train", *again)
    assert not converted_before(result) and "churn.csv was " in result.stderr
    assert converted_before(run("train", *again))
    Path("d").mkdir()
    os.rename("churn.csv", "d/churn.csv")
    assert "since files was" in run("train", "d/churn.csv", *again[1:]).stderr


def test_a_job_that_is_resumed(run: Run) -> None:
    ok(run("train", *TABLE, "--max-passes", "1", "--missing", "mean"))
    assert CheckpointFolder("m.fcl.checkpoint").numbers()
    result = run("train", "--resume", "m.fcl.checkpoint", "--max-passes", "50")
    assert converted_before(result)
    given = ("--y", "churn", "--missing", "mean", "--overwrite")
    ok(run("train", "churn.csv", "--resume", "m.fcl.checkpoint", "--tol", "1e-6", *given))
    wrong = run("train", "--resume", "m.fcl.checkpoint", "--missing", "drop", "--overwrite")
    check_refusal(wrong, "--missing was 'mean', is 'drop'", "train")
    Path("churn.csv").write_text(Path("churn.csv").read_text().replace("basic", "other"))
    other = run("train", "--resume", "m.fcl.checkpoint", "--tol", "1e-7", "--overwrite")
    assert other.exit_code == 2 and "is of another job" in other.stderr


@pytest.mark.slow
def test_validation_on_another_table(run: Run) -> None:
    """Its columns are those of the training rows, in any order."""
    write_table("valid.csv", slice(60))
    rows = [line.split(",") for line in Path("valid.csv").read_text().split()]
    Path("valid.csv").write_text("".join(f"{c},{p},{b},{a},7\n" for a, b, p, c in rows))
    ok(run("train", *TABLE, "--valid", "valid.csv", "--report", "r.html"))
    assert zarr.open_array("m.fcl.valid.zarr/X", mode="r").shape[0] == 60
    names = [fcl.open_data(f"m.fcl.{part}.zarr").column_names for part in ("data", "valid")]
    assert names[0] == names[1] and "60 rows of valid.csv" in Path("r.html").read_text()


def report(run: Run, *given: str) -> Result:
    return ok(run("report_command", "m.fcl", "--out", "r.html", "--overwrite", *given))


@pytest.mark.slow
def test_a_report_on_the_training_table_and_on_another(run: Run) -> None:
    """The rows of the training are used again; others get its columns, whatever their order."""
    ok(run("train", *TABLE, "--missing", "mean"))
    churn = ("--y", "churn", "--missing", "mean")
    result = report(run, "--data", "churn.csv", *churn[2:])
    assert converted_before(result) and "the target is the column churn" in result.stderr
    assert converted_before(report(run, "--data", "churn.csv"))
    assert "200 rows of churn.csv" in Path("r.html").read_text()
    lines = map("{},{},{},{}\n".format, np.where(CHURN == "no", "", CHURN), PLANS, PEOPLE, AGES)
    Path("new.csv").write_text("churn,plan,person,age\n" + "".join(lines))
    new = ("--data", "new.csv", *churn, "--missing-target", "drop", "--groups", "plan")
    files = sorted(os.listdir())
    first = report(run, *new)
    n = int((CHURN == "yes").sum())
    assert f"new.csv: {n} rows converted with the columns of the model" in first.stderr
    assert f"dropped: {200 - n} without a target" in first.stderr
    page = Path("r.html").read_text()
    assert f"{n} rows of new.csv" in page and sorted(os.listdir()) == files
    report(run, *new)
    assert Path("r.html").read_text() == page


@pytest.mark.slow
def test_reports_on_other_formats(run: Run) -> None:
    lines = [f"{1 if a > 40 else -1} 1:{a} 3:{p}\n" for a, p in zip(AGES, PEOPLE, strict=True)]
    Path("rows.svm").write_text("".join(lines))
    Path("new.svm").write_text("".join(line.partition(" 3:")[0] + "\n" for line in lines))
    ok(run("train", "rows.svm", *JOB))
    assert converted_before(report(run, "--data", "rows.svm"))
    assert "with the columns of the model" in report(run, "--data", "new.svm").stderr
    refused = run("report_command", "m.fcl", "--data", "m.fcl.data.zarr", "--na", "?", "--out", "s")
    check_refusal(refused, "--na is an option for tables and other files", "report")


@pytest.mark.slow
def test_groups_of_a_path_are_no_features(run: Run) -> None:
    path = ("train", "churn.csv", "--y", "churn", "--path", "4", "--cv", "groups:person", "--out")
    ok(run(*path, "m.fcl"))
    assert "person" not in fcl.open_data("m.fcl.data.zarr").column_names
    result = ok(run(*path, "n.fcl", "--groups", "person"))
    assert fcl.load_model("m.fcl").C == fcl.load_model("n.fcl").C, result.output


def test_stagewise(run: Run) -> None:
    given = ("--features", "fourier:n=16", "--block", "8", "--layout", "dense", "--out", "m.fcl")
    assert not converted_before(run("stagewise", "churn.csv", "--y", "churn", *given))
    resumed = ("--resume", "m.fcl.checkpoint", "--visits", "4", "--overwrite")
    assert converted_before(run("stagewise", *resumed))


def test_weights_of_a_column(run: Run) -> None:
    ok(run("train", *TABLE, "--weights", "age", "--x", "plan,person"))
    model = fcl.load_model("m.fcl")
    assert model.sum_weights == pytest.approx(AGES.sum())
    assert {row.feature.partition("=")[0] for row in model.describe()} <= {"plan", "person"}


@pytest.mark.parametrize("negatives", [["b.fa"], ["--negatives", "b.fa"]])
def test_sequences_of_two_classes(negatives: list[str], run: Run) -> None:
    write_sequences("a.fa", "ACG")
    write_sequences("b.fa", "TTT")
    ok(run("train", "a.fa", *negatives, "--features", "kmers:d=3", *JOB))
    convert(["a.fa", "b.fa"], "ab.zarr")
    ok(run("train", "ab.zarr", "--features", "kmers:d=3", "--C", "0.5", "--out", "z.fcl"))
    models = [fcl.load_model(name) for name in ("m.fcl", "z.fcl")]
    assert models[0].weights.tobytes() == models[1].weights.tobytes()


def test_a_bag_of_sequences_of_any_length(run: Run) -> None:
    write_sequences("a.fa", "ACG")
    write_sequences("b.fa", "TTT")
    whole = Path("b.fa").read_text()
    Path("b.fa").write_text(whole[:-5] + "\n")  # the last one is shorter
    bag = "bag:d=3,strands=both + bag:d=2 * 2"
    ok(run("train", "a.fa", "b.fa", "--features", bag, *JOB))
    assert fcl.load_model("m.fcl").family.row_width == 12

    text = "".join(RNG.choice(LETTERS, 30))
    pieces = [text, text[:9], text[9:], text[:2]]
    Path("new.fa").write_text("".join(f">{i}\n{piece}\n" for i, piece in enumerate(pieces)))
    ok(run("predict", "m.fcl", "new.fa", "--out", "s.tsv"))
    model = fcl.load_model("m.fcl")
    scores = [float(line.split("\t")[1]) for line in Path("s.tsv").read_text().splitlines()[1:]]
    alone = [float(model.margins([piece])[0]) for piece in pieces[:3]]
    assert scores[:3] == pytest.approx(alone, rel=1e-12)
    assert model.explain([text]).margins == pytest.approx(alone[:1])
    assert (model.columns([text]) @ model.weights + model.intercept) == pytest.approx(alone[:1])

    convert(["new.fa"], "new.zarr", pad=True)
    for given in (), ("--explain", "1"):
        ok(run("predict", "m.fcl", "new.zarr", *given, "--out", "z.tsv", "--overwrite"))
        head, *lines = (line.split("\t") for line in Path("z.tsv").read_text().splitlines())
        margins = [float(line[head.index("margin")]) for line in lines]
        assert margins == pytest.approx(scores, rel=1e-12)


@pytest.mark.parametrize("length", [9, 30])
def test_validation_sequences_of_a_bag_have_any_length(length: int, run: Run) -> None:
    """None is cut to the length of the training sequences: what differs is at their ends."""
    texts = {}
    y = np.arange(60) % 2
    for name, width in (("t.tsv", 12), ("v.tsv", length)):
        rows = RNG.choice(LETTERS, (60, width))
        rows[y == 1, -4:-1] = list("ACG")
        rows[:5, -3] = "T"
        texts[name] = ["".join(row) for row in rows]
        lines = map("{}\t{}\n".format, texts[name], y)
        Path(name).write_text("seq\ty\n" + "".join(lines))
    given = ("--x", "seq", "--y", "y", "--features", "bag:d=3", *JOB)
    ok(run("train", "t.tsv", "--valid", "v.tsv", *given))
    model = fcl.load_model("m.fcl")
    score = fcl.average_precision(2 * y - 1, model.margins(texts["v.tsv"]))
    assert model.history.validation()[1][-1] == pytest.approx(score, rel=1e-12)


def test_windows_of_a_genome(run: Run) -> None:
    write_sequences("g.fa", "ACG")
    Path("sites.bed").write_text("".join(f"{i}\t4\t7\tx\t{i % 2}\n" for i in range(40)))
    given = ("--genome", "g.fa", "--length", "3", "--label", "5", "--features", "kmers:d=2")
    assert not converted_before(run("train", "sites.bed", *given, *JOB))
    os.utime("g.fa", (1e9, 1e9))
    assert "g.fa was " in run("train", "sites.bed", *given, *JOB, "--overwrite").stderr


def test_svmlight(run: Run) -> None:
    lines = [f"{1 if a > 40 else -1} 1:{a} 3:{p}\n" for a, p in zip(AGES, PEOPLE, strict=True)]
    Path("rows.svm").write_text("".join(lines))
    ok(run("train", "rows.svm", *JOB, "--columns", "4"))
    assert fcl.load_model("m.fcl").family.n_features == 4


def test_the_plan_and_a_file_of_options(run: Run) -> None:
    Path("run.toml").write_text('data = "churn.csv"\ny = "churn"\nmissing = "drop"\nC = 0.5\n')
    assert "interpreter" in ok(run("train", "--config", "run.toml", *JOB[2:], "--plan")).stdout
    assert converted_before(run("train", "--config", "run.toml", *JOB[2:]))


def other_zarr() -> None:
    convert(["churn.csv"], "m.fcl.data.zarr", y="churn")


def write_dna() -> None:
    Path("dna.tsv").write_text("ACGT\t1\nACGA\t-1\n")


def write_magic() -> None:
    Path("magic").write_text("28.7,16.0,g\n31.6,11.7,h\n")


@pytest.mark.parametrize(
    ("prepare", "given", "message"),
    [
        (None, "churn.csv --C 1 --out m.fcl", "--y: churn.csv has no column 'y'; it has age"),
        (None, "churn.csv --y chun --C 1 --out m.fcl", "did you mean 'churn'"),
        # found before a conversion, which would refuse the target
        (None, "churn.csv --y chun --features own:W --C 1 --out m.fcl", "own:W cannot be imported"),
        (None, "churn.csv --y chun --initial none.fcl --C 1 --out m.fcl", "none.fcl"),
        (None, "churn.csv --y chun --import none --C 1 --out m.fcl", "'--import': expected a module"),
        (None, "churn.csv --y churn --out m.fcl", "give --C or --alpha"),
        (None, "churn.csv --y age --missing-target drop --C 1 --out m.fcl", "the target of churn.csv"),
        (None, "churn.csv --y churn --C 1", "--out is missing"),
        (None, "churn.csv --y churn --C 1 --plan", "--out is missing: the model, beside which"),
        (None, "churn.csv --y churn --offset age --C 1 --out m.fcl", "--offset: expected DATA"),
        (None, "churn.csv --y churn --covariates age --C 1 --out m.fcl", "--covariates is not an opt"),
        (None, "churn.csv --y churn --window 1:2 --C 1 --out m.fcl", "--window is not an option for"),
        (None, "churn.csv --y churn --C 1 --out churn.csv --overwrite", "would replace data"),
        (other_zarr, "churn.csv --y churn --C 1 --out m.fcl", "expected rows that an earlier job"),
        (other_zarr, "m.fcl.data.zarr --features columns --C 1 --out m.fcl --missing drop",
         "--missing is an option for tables and other files"),
        (lambda: write_sequences("a.fa", "ACG"), "a.fa --features kmers:d=2 --C 1 --out m.fcl",
         "a.fa has no target; give --label, or a file of the other class"),
        (write_dna, "dna.tsv --C 1 --out m.fcl", "a column of sequences; give --x 1 --y 2"),
        (lambda: Path("g.bed").touch(), "g --C 1", 'g does not exist; did you mean "g.bed"'),
        (lambda: Path("g.fam").touch(), "g.fam --C 1", "belongs to a file of PLINK; give g.bed"),
        (lambda: (Path("texts").mkdir(), Path("texts/1.txt").touch()), "texts --C 1",
         "texts is a folder .* the tutorial on texts"),
        (lambda: Path("words").write_bytes(b"\\0"), "words --C 1", "words is a file, in no format"),
        (write_magic, "magic", "give --format table --no-header --y COLUMN"),
        (None, "churn.csv churn.csv --C 1", "fcl convert churn.csv churn.csv churn.zarr"),
        (None, "churn.csv none.fa --C 1", "none.fa does not exist"),
    ],
)  # fmt: skip
def test_refusals(prepare: Any, given: str, message: str, run: Run) -> None:
    if prepare is not None:
        prepare()
    check_refusal(run("train", *given.split()), message, "train")
    assert not Path("m.fcl").exists()


def test_a_conversion_that_fails_leaves_the_earlier_one(run: Run) -> None:
    ok(run("train", *TABLE))
    text = Path("churn.csv").read_text()
    Path("churn.csv").write_text(text + "1,2,3\n")
    assert run("train", *TABLE, "--overwrite").exit_code == 2
    assert zarr.open_group("m.fcl.data.zarr", mode="r").attrs[cache.ATTRIBUTE]["read"]
    assert not [name for name in os.listdir() if name.startswith(".")]
