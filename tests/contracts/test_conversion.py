"""Files of every format become the rows that a reader of a few lines finds in them."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from converted import Converted, converted, refusal, saved

import fcl
from fcl.convert import run
from fcl.convert.arrays import StoreLayout
from fcl.convert.contract import Budget
from fcl.convert.tables import csvtable, delimited
from tests.convert.conftest import write_parquet

RNG = np.random.default_rng(5)
GENOME = {"1": "".join(RNG.choice(list("ACGTNacgt"), 300)), "2": "ACGT" * 30}


@dataclass(frozen=True)
class Case:
    """A file, options of its conversion, and what a reader of a few lines finds in it.

    others : values of arrays beside X, by their paths.
    """

    name: str
    content: bytes
    x: Any
    others: dict[str, list[Any]] = field(default_factory=dict)
    names: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)


# -- readers of a few lines ------------------------------------------------------------------------


def codes(text: str) -> list[int]:
    return ["ACGTU".index(letter) % 4 + 3 * (letter == "U") if letter in "ACGTU" else 4
            for letter in text.upper()]  # fmt: skip


def fasta(text: str) -> Case:
    records = [record.split("\n") for record in text.split(">")[1:]]
    others = {
        "obs/name": [head.split()[0] for head, *_ in records],
        "y": [float(head.split("label=")[1]) for head, *_ in records],
        "obs/source_row": list(range(len(records))),
    }
    x = [codes("".join(lines)) for _, *lines in records]
    return Case("a.fa", text.encode(), x, others, None, {"label": r"header:label=(\S+)"})


def sequences(text: str) -> Case:
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    others = {"obs/name": [row[0] for row in rows], "y": [float(row[2]) for row in rows]}
    x = [codes(row[1]) for row in rows]
    return Case("a.tsv", text.encode(), x, others, None, {"x": "dna", "y": "y", "name": "id"})


def intervals(text: str) -> Case:
    rows = [line.split("\t") for line in text.splitlines()]
    x = []
    for contig, start, end, _, _, strand in rows:
        cut = GENOME[contig][int(start) : int(end)].upper()
        cut = cut[::-1].translate(str.maketrans("ACGT", "TGCA")) if strand == "-" else cut
        x.append(codes(cut))
    others = {"obs/name": [row[3] for row in rows], "y": [int(row[4]) for row in rows]}
    return Case("a.bed", text.encode(), x, others, None, {"label": "score", "genome": "g.fa"})


def svmlight(text: str) -> Case:
    rows = [line.partition("#")[0].split() for line in text.splitlines()]
    rows = [row for row in rows if row]
    x = np.zeros((len(rows), 9))
    for i, (_, _, *entries) in enumerate(rows):
        for entry in entries:
            column, value = entry.split(":")
            x[i, int(column) - 1] = float(value)
    others = {
        "y": [float(row[0]) for row in rows],
        "obs/group": [int(row[1].removeprefix("qid:")) for row in rows],
    }
    return Case("a.svm", text.encode(), x, others)


def table(text: str, delimiter: str, name: str = "a.csv") -> Case:
    """Numbers, a text as one-hot columns, a flag, and columns with other roles."""
    rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    colours = sorted({row["colour"] for row in rows})
    x = [
        [float(row["v/1"]), *(row["colour"] == c for c in colours), row["flag"] == "True",
         float(row["count"])] for row in rows
    ]  # fmt: skip
    names = ["v/1", *(f"colour={c}" for c in colours), "flag", "count"]
    others = {
        "y": [row["label"] for row in rows],
        "weights": [float(row["w"]) for row in rows],
        "obs/group": [row["patient"] for row in rows],
        "obs/name": [row["id"] for row in rows],
    }
    roles = {"y": "label", "weights": "w", "groups": "patient", "name": "id"}
    return Case(name, text.encode(), x, others, names, roles)


def plink(folder: Path, n: int, variants: int) -> Case:
    """Two bits for each genotype, in the order of variants; four samples in a byte."""
    width = -(-n // 4)
    content = b"\x6c\x1b\x01" + RNG.integers(0, 256, variants * width, np.uint8).tobytes()
    copies = {0: 2.0, 1: np.nan, 2: 1.0, 3: 0.0}
    x = np.array([
        [copies[content[3 + j * width + i // 4] >> 2 * (i % 4) & 3] for j in range(variants)]
        for i in range(n)
    ])  # fmt: skip
    saved(folder, "a.fam", "".join(f"f s{i} 0 0 1 {i + 0.5}\n" for i in range(n)).encode())
    saved(folder, "a.bim", "".join(f"1 v{j} 0 {j} A C\n" for j in range(variants)).encode())
    others = {"obs/name": [f"s{i}" for i in range(n)], "y": [i + 0.5 for i in range(n)]}
    names = [f"v{j}" for j in range(variants)]
    return Case("a.bed", content, np.where(np.isnan(x), np.nanmean(x, 0), x), others, names)


# -- files -----------------------------------------------------------------------------------------


def letters(n: int) -> str:
    return "".join(RNG.choice(list("ACGTacgtuNRyn"), n))


def cells(delimiter: str) -> str:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["v/1", "colour", "flag", "count", "label", "w", "patient", "id"])
    colours = ["red", "blue, dark", "é", 'a "b"']
    for i in range(60):
        own = [round(float(RNG.normal()), 3), colours[i * 7 % 4], bool(i % 3), i % 5]
        writer.writerow([*own, "yes" if i % 4 else "no", i % 5 + 0.5, f"p{i // 7}", f"row {i}"])
    return file.getvalue()


def entries(i: int) -> str:
    row = np.where(RNG.random(9) < 0.4, RNG.integers(-9, 9, 9) / 4, 0)
    row[8] = 1.5  # so that each block has the last id
    found = " ".join(f"{j + 1}:{v}" for j, v in enumerate(row) if v or (i + j) % 11 == 0)
    comment = "# a comment 0:4" * (i % 3 == 0)
    return f"{i % 3 / 2} qid:{i // 4} {found} {comment}" + "\n" * (1 + (i % 7 == 0))


def case_of(format: str, folder: Path) -> Case:
    """A file of each format."""
    genome = "".join(
        f">{name} of a worm\n{text[:33]}\n{text[33:]}\n" for name, text in GENOME.items()
    )
    saved(folder, "g.fa", genome.encode())
    if format == "fasta":
        return fasta(
            "".join(f">r{i} label={i % 3}\n{letters(7)}\n{letters(5)}\n" for i in range(40))
        )
    if format == "sequences":
        rows = "".join(f"s{i}\t{letters(9)}\t{i % 4 - 1.5}\n" for i in range(60))
        return sequences("id\tdna\ty\n" + rows)
    if format == "intervals":
        sites = [(i % 2 + 1, int(RNG.integers(0, 100))) for i in range(60)]
        lines = (
            f"{c}\t{a}\t{a + 8}\ts{i}\t{i % 3}\t{'+-.'[i % 3]}\n" for i, (c, a) in enumerate(sites)
        )
        return intervals("".join(lines))
    if format == "svmlight":
        return svmlight("# made for a test\n" + "".join(map(entries, range(60))))
    if format == "plink":
        pytest.importorskip("bed_reader")
        return plink(folder, 13, 31)
    pytest.importorskip("pyarrow")
    if format == "parquet":
        import pyarrow.csv

        text = cells(",")
        whole = pyarrow.csv.read_csv(io.BytesIO(text.encode()))
        whole = whole.set_column(1, "colour", whole["colour"].dictionary_encode())
        packed = write_parquet(io.BytesIO(), whole, row_group_size=20).getvalue()
        found = table(text, ",", "a.parquet")
        return Case(found.name, packed, found.x, found.others, found.names, found.options)
    return table(cells({"csv": ",", "semicolons": ";", "tabs": "\t"}[format]),
                 {"csv": ",", "semicolons": ";", "tabs": "\t"}[format])  # fmt: skip


TEXTS = ["fasta", "sequences", "intervals", "svmlight", "csv", "semicolons", "tabs"]
FORMATS = [*TEXTS, "parquet", "plink"]


@pytest.fixture
def case(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The file of a format, in the working folder."""
    monkeypatch.chdir(tmp_path)
    found = case_of(request.param, tmp_path)
    saved(tmp_path, found.name, found.content)
    return found


formats = pytest.mark.parametrize("case", FORMATS, indirect=True)
texts = pytest.mark.parametrize("case", TEXTS, indirect=True)


def column(group: Any, path: str) -> list[Any]:
    found = group[path]
    if hasattr(found, "shape"):
        return found[:].tolist()
    return found["categories"][:][found["codes"][:]].tolist()


def check(found: Converted, case: Case) -> None:
    np.testing.assert_allclose(found.x, np.array(case.x, float), rtol=1e-6)
    assert found.names == case.names
    summary, n = found.summary, len(case.x)
    assert (summary.rows_in, summary.rows, summary.dropped) == (n, n, {})
    for path, values in case.others.items():
        assert column(found.group, path) == values, path


SMALL = StoreLayout(16, 999, 5000, 600)


def small(monkeypatch: Any, block: int, layout: StoreLayout = SMALL) -> None:
    """Blocks of so many bytes, and by default chunks and shards of a few rows."""
    divide = run.divide_memory

    def divide_small(*given: Any) -> Any:
        return Budget(1 << 20, block, divide(*given)[0].scratch), layout

    monkeypatch.setattr(run, "divide_memory", divide_small)
    monkeypatch.setattr(csvtable, "_SMALLEST_BLOCK", 256)


@pytest.mark.thin(3)
@formats
@pytest.mark.parametrize("block", [None, 700, 1])
def test_what_a_file_holds(case: Case, block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of so many bytes."""
    if block:
        small(monkeypatch, block)
    found = converted(case.name, **case.options)
    check(found, case)
    sha256 = hashlib.sha256(case.content).hexdigest()
    read = {"name": case.name, "bytes": len(case.content), "sha256": sha256}
    assert read in found.group.attrs["fcl"]["inputs"]


@pytest.mark.parametrize("case", ["csv", "semicolons", "tabs"], indirect=True)
def test_wide_tables(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another parser reads tables with many columns."""
    monkeypatch.setattr(delimited, "MOST_COLUMNS", 0)
    small(monkeypatch, 700)
    check(converted(case.name, **case.options), case)


@pytest.mark.slow
@texts
def test_other_bytes_of_the_same_text(case: Case, tmp_path: Path) -> None:
    """Ends of lines, a mark of byte order, and compression in several members."""
    content = case.content
    windows = content.replace(b"\n", b"\r\n")
    for other in (windows, windows[:-2], content[:-1], b"\xef\xbb\xbf" + content):
        check(converted(saved(tmp_path, case.name, other), **case.options), case)
    for module, suffix in ((gzip, ".gz"), (bz2, ".bz2")):
        parts: Any = module
        packed = parts.compress(content[:9]) + parts.compress(content[9:])
        path = saved(tmp_path, case.name + suffix, packed)
        check(converted(path, **case.options), case)
        path.write_bytes(packed[:-6])
        assert "ends in the middle of its compressed data" in refusal(path, **case.options)


@texts
def test_pipes(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named one, as a process substitution of the shell is, and standard input."""
    (tmp_path / case.name).unlink()
    os.mkfifo(case.name)
    writer = threading.Thread(target=Path(case.name).write_bytes, args=(case.content,))
    writer.start()
    format = converted(case.name, **case.options).summary.format
    writer.join()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(case.content)))
    found = converted("-", format=format, **case.options)
    check(found, case)
    assert found.group.attrs["fcl"]["inputs"][0]["name"] == "-"


@pytest.mark.parametrize("case", ["fasta", "svmlight", "csv", "parquet"], indirect=True)
def test_two_files(case: Case, tmp_path: Path) -> None:
    (tmp_path / f"b-{case.name}").write_bytes(case.content)
    found = converted(case.name, f"b-{case.name}", **case.options)
    twice = {path: values * 2 for path, values in case.others.items() if path != "obs/source_row"}
    check(found, Case(case.name, b"", [*case.x] * 2, twice, case.names))
    assert column(found.group, "obs/source_row") == list(range(2 * len(case.x)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["fasta", "sequences", "intervals", "csv"], indirect=True)
def test_memory_does_not_grow_with_the_file(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, 1 << 14, StoreLayout(1000, 1 << 15, 1 << 16, 1 << 15))
    head, rest = b"", case.content
    if case.name in ("a.csv", "a.tsv"):
        first, _, rest = case.content.partition(b"\n")
        head = first + b"\n"
    peaks = []
    for size in (60_000, 300_000, 1_200_000):  # the first time, libraries keep what they load
        path = saved(tmp_path, case.name, head + rest * (size // len(rest)))
        tracemalloc.start()
        try:
            run.convert([path], "long.zarr", overwrite=True, **case.options)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] < peaks[1] + 300_000


@pytest.mark.forked_commands
def test_a_kill_leaves_no_half_file(tmp_path: Path) -> None:
    """An earlier output stays as it was, and the next conversion removes what a kill left."""
    case = case_of("fasta", tmp_path)
    saved(tmp_path, "a.fa", case.content)
    out = tmp_path / "out.zarr"
    before = converted(tmp_path / "a.fa", **case.options)
    line = [sys.executable, "-m", "fcl", "convert", "-", out, "--format=fasta", "--overwrite"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b">a\nACGT\n" * 100_000)
        child.stdin.flush()
        while len(list(tmp_path.iterdir())) < 4:
            assert child.poll() is None, child.stderr
            time.sleep(0.01)
        child.kill()
    assert child.returncode == -signal.SIGKILL
    left = {path.name for path in tmp_path.iterdir()} - {"a.fa", "g.fa", "out.zarr"}
    assert all(name.startswith(".") for name in left)
    assert fcl.open_data(out).rows.read(0, len(case.x)).tolist() == before.x.tolist()
    check(converted(tmp_path / "a.fa", **case.options), case)
    assert {path.name for path in tmp_path.iterdir()} == {"a.fa", "g.fa", "out.zarr"}
