"""The command ``fcl convert``, and what ``fcl train`` says about files to convert."""

from __future__ import annotations

import errno
import gzip
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.errors import InputError
from tests.cli.conftest import ok

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_table_of_sequences(run: Run) -> None:
    Path("t.tsv").write_text(
        "score\tsequence\tw\tg\n1\tACGTT\t1\tu\n2.5\t\t1\tu\n-1\tggNAACC\t3\tv\n"
    )
    options = ["--y", "score", "--weights", "w", "--groups", "g", "--length", "5"]
    result = ok(run("convert", "t.tsv", "o.zarr", "--x", "sequence", *options))
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["read"] == "3 records (sequences)" and lines["dropped"] == "1 without letters"
    assert lines["written"].startswith("2 rows of 5 letters in ")
    assert lines["classes"] == "-1: 1, 1: 1"
    assert lines["next"].startswith("fcl train o.zarr --features kmers:d=5 --C 0.1 --out model.fcl")
    data = fcl.open_data("o.zarr", weights="weights")
    assert data.rows.read(0, 2).tolist() == [[0, 1, 2, 3, 3], [2, 4, 0, 0, 1]]
    assert data.weights is not None and data.weights.tolist() == [1, 3]
    again = run("convert", "t.tsv", "o.zarr", "--x", "2", "--y", "1", "--quiet")
    assert again.exit_code == 2 and "exists already" in again.stderr
    Path("c.tsv").write_text("ACGT\tEI\nACGT\tIE\nACGT\tN\n")
    lines = run("convert", "c.tsv", "c.zarr", "--x", "1", "--y", "2").stdout.splitlines()
    assert lines[-1].startswith("next         fcl train c.zarr --features kmers:d=4 --C 0.1")
    plain = Path("t.tsv").read_text().partition("\n")[2].replace("\t\t", "\tAC\t")
    Path("t.tsv").write_text(plain)
    again = run(
        "convert", "t.tsv", "o.zarr", "--x", "2", "--length", 3, "--pad", "--quiet", "--overwrite"
    )
    assert (again.exit_code, again.output) == (0, "")
    assert fcl.open_data("o.zarr", y=None).rows.read(1, 2).tolist() == [[4, 0, 1]]


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ("t.tsv --x s --y y", "kmers:d=4"),
        ("t.tsv --x s --y y --length 9 --pad", "bag:d=6"),
        ("t.tsv --x s --y y --length 3 --pad", "bag:d=3"),
        ("s.bed --genome g.fa --label 5 --window -3:+4", "kmers:d=7,origin=3"),
        ("s.bed --genome g.fa --label 5 --window 0:+4", "kmers:d=4"),
        ("s.bed --genome g.fa --label 5 --window -5:-2", "kmers:d=3"),
    ],
)
def test_the_next_command_fits_the_rows(options: str, features: str, run: Run) -> None:
    Path("t.tsv").write_text("s\ty\nACGT\t1\nACGA\t0\n")
    Path("g.fa").write_text(">c\nACGTACGTACGTACGT\n")
    Path("s.bed").write_text("c\t6\t7\tx\t1\nc\t7\t8\ty\t-1\n")
    source, *more = options.split()
    assert run("convert", source, "o.zarr", *more).stdout.splitlines()[-1] == (
        f"next         fcl train o.zarr --features {features} --C 0.1 --out model.fcl"
    )


def test_the_next_command(run: Run) -> None:
    def next_command(text: str, *options: str) -> str:
        Path("t.csv").write_text(text)
        result = ok(run("convert", "t.csv", "o.zarr", "--overwrite", *options))
        return str(result.stdout.splitlines()[-1])

    many = "a,y\n" + "".join(f"{i},{i}\n" for i in range(30))
    for text, words in (
        ("a,y\n1,0\n2,1\n", ""),
        ("a,y\n1,0.5\n2,1.5\n", ""),
        ("a,y\n1,u\n2,v\n", ""),
        ("a,y\n1,0.5\n2,1.5\n3,2\n", " --loss squared"),
        (many, " --loss squared"),
        # fcl train fits softmax to more than two classes by itself
        ("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(30)), ""),
    ):
        expected = (
            f"next         fcl train o.zarr --features columns{words} --C 0.1 --out model.fcl"
        )
        assert next_command(text, "--y", "y") == expected, text
    next_command(many, "--y", "y")
    Path("o.zarr").rename("train.zarr")
    predict = "next         fcl predict model.fcl o.zarr --out scores.tsv"
    assert next_command(many, "--y", "y", "--like", "train.zarr") == predict
    assert next_command("a\n1\n") == predict
    # test data without labels, as tools for svmlight write it
    Path("t.csv").write_text("0 1:1\n0 2:1\n")
    found = run("convert", "t.csv", "o.zarr", "--format", "svmlight", "--overwrite")
    assert found.stdout.splitlines()[-1] == predict
    result = run("convert", "t.csv", "train.zarr", "--like", "train.zarr", "--overwrite")
    assert result.exit_code == 2 and "OUT train.zarr: would replace like" in result.stderr


def test_long_and_quoted_cells(run: Run) -> None:
    long = "ACGT" * 50_000
    for name, text in (
        ("t.tsv", f"\ufeffs\tg\r\n{long}\t1\r\n{long}\tX\r\n"),
        ("t.csv", f's,g\n"{long}",1\n{long},"X"\n'),
    ):
        Path(name).write_bytes(text.encode())
        result = run("convert", name, f"{name}.zarr", "--x", "s", "--groups", "g")
        if name == "t.csv":  # the module csv refuses such cells
            assert result.exit_code == 2 and "line 2: expected a sequence" in result.stderr
            continue
        assert result.exit_code == 0, result.output
        data = fcl.open_data(f"{name}.zarr", y=None, groups="obs/group")
        assert data.rows.shape == (2, 200_000)
        assert data.groups is not None and data.groups.tolist() == ["1", "X"]


@pytest.mark.parametrize("name", ["t.csv", "t.svm"])
def test_a_pipe_is_read_once(name: str, tmp_path: Path, run: Run) -> None:
    """Readers that need two readings copy it first."""
    text = {"t.csv": "a,y\n1,0\n2,1\n", "t.svm": "0 1:1\n1 1:2\n"}[name]
    pipe = tmp_path / name
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    options = ["--y", "y", "--layout", "dense"] if name == "t.csv" else []
    ok(run("convert", pipe, tmp_path / "o.zarr", *options))
    rows = fcl.open_data(tmp_path / "o.zarr").rows.read(0, 2)
    found = rows if isinstance(rows, np.ndarray) else rows.to_dense()
    assert found.tolist() == [[1], [2]]


def test_inputs_that_cannot_be_opened(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.fa").write_text(">a\nAC\n")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr("fcl.convert.files.open", refuse, raising=False)
    result = run("convert", "a.fa", "o.zarr")
    assert result.exit_code == 2 and "a.fa cannot be read" in result.stderr, result.output
    assert os.listdir() == ["a.fa"]


def test_a_full_disk(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.fa").write_text(">a\nAC\n")
    monkeypatch.setattr("fcl.convert.writer.RowWriter.finish", fail)
    result = run("convert", tmp_path / "a.fa", tmp_path / "o.zarr")
    assert result.exit_code == 1 and f"{tmp_path}/o.zarr: No space left" in result.stderr
    assert os.listdir(tmp_path) == ["a.fa"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le"])
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("t.csv", "a,y\n1,0\n", ["--y", "y"]),
        ("t.fa", ">a\nACGT\n", []),
        ("t.svm", "1 1:1\n", []),
        ("t.tsv", "s\ty\nACGT\t1\n", ["--format", "sequences", "--x", "s"]),
        ("t.bed", "c\t0\t2\n", ["--genome", "g.fa"]),
    ],
)
def test_other_encodings(name: str, text: str, options: list[str], encoding: str, run: Run) -> None:
    Path("g.fa").write_text(">c\nACGT\n")
    Path(name).write_bytes(text.encode(encoding))
    result = run("convert", name, "o.zarr", *options)
    assert result.exit_code == 2 and f"{name}" in result.stderr, result.output
    assert "UTF-16" in result.stderr and "iconv" in result.stderr
    assert sorted(os.listdir()) == ["g.fa", name]


def test_python_says_how_to_convert(tmp_path: Path) -> None:
    for name, content, line in (
        ("a b.fa", ">a", "fcl convert 'a b.fa' NEGATIVES.fa 'a b.zarr'"),
        ("seqs", ">a\nAC\n", "fcl convert seqs NEGATIVES.fa seqs.zarr"),
        ("s.bed.gz", "", "s.zarr --genome GENOME.fa --window -70:+71 --label COLUMN"),
        ("geno.bed", "\x6c\x1b\x01", "PLINK files"),
        ("x.svm", "", "fcl convert x.svm x.zarr"),
        ("a9a", "-1 3:1 11:1\n", "an svmlight file"),
        ("x.parquet", "PAR1", "fcl convert x.parquet x.zarr --y COLUMN"),
        ("x.csv", "", "fcl convert x.csv x.zarr --y COLUMN"),
        ("n.csv", "1.5;2;a\n2;3;b\n", "n.zarr --no-header --y COLUMN"),
        ("q.tsv", "score\tthe dna\n1\tacgtn\n", "q.zarr --x 'the dna' --y score"),
        ("h.tsv", "r1\tACGT\t3\nr2\tACGG\t3\n", "h.zarr --x 2 --y COLUMN"),
        ("w.tsv", "tata\tdata\nyes\tACT\n", "w.zarr --y COLUMN"),
        ("u.csv", "y,name,seq\nEI,A-1,  ACGTT\nN,B-2,   " + "ACCD" * 2000, "--x seq --y COLUMN"),
        ("magic", "28.7,16.0,g\n31.6,11.7,h\n", "--format table --no-header --y COLUMN"),
        ("seq", "ACGT\t1\nACGA\t-1\n", "fcl convert seq seq.zarr --format sequences --x 1 --y 2"),
    ):
        Path(name).write_text(content)
        with pytest.raises(InputError, match="convert it first: fcl convert ") as refused:
            fcl.open_data(name)
        assert line in str(refused.value)
    magic = gzip.compress(b"28.7,16.0,g\n31.6,11.7,h\n")
    Path("magic04.data.gz").write_bytes(magic)
    line = "fcl convert magic04.data.gz magic04.zarr --format table --no-header --y COLUMN"
    with pytest.raises(InputError, match=line):
        fcl.open_data("magic04.data.gz")


def test_names_of_columns(tmp_path: Path, run: Run) -> None:
    """Names in ``var`` are those of features in the model, in fcl inspect and of estimators."""
    import zarr

    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 3))
    group = zarr.create_group(tmp_path / "d.zarr")
    group.create_array("X", data=x)
    group.create_array("y", data=(x[:, 1] > 0).astype(np.int8))
    var = group.create_group("var", attributes={"_index": "names"})
    names = ["age", "weight of <b>x</b>", "é"]
    var.create_array("names", data=np.array(names, np.dtypes.StringDType()))
    data = fcl.open_data(tmp_path / "d.zarr")
    assert data.column_names == names
    result: Any = fcl.train(data, "products:degree=2", C=0.5)
    described = {row.feature for row in result.model.describe()}
    assert described and all(any(name in text for name in names) for text in described)
    result.model.save(tmp_path / "m.fcl")
    assert fcl.load_model(tmp_path / "m.fcl").describe() == result.model.describe()
    assert "weight of <b>x</b>" in run("inspect", tmp_path / "m.fcl").stdout
    estimator = fcl.FCLClassifier(C=0.5).fit(data)
    var.update_attributes({"_index": "absent"})
    assert fcl.open_data(tmp_path / "d.zarr").column_names is None
    assert set(estimator.feature_names_out_) <= set(names) and len(estimator.feature_names_out_)
    empty: Any = []
    with pytest.raises(InputError, match="feature_names: expected 0, one for each id, got 1"):
        replace(result.model, ids=empty, weights=empty, support=empty, feature_names=["a"])
