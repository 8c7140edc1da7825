"""What is wrong with sequences, intervals, svmlight files and options: one message each."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted import saved

from fcl.convert.run import convert
from fcl.errors import BudgetError, InputError
from tests.convert.conftest import Refuse
from tests.convert.test_intervals import FASTA

#: Files that options name.
OTHERS = {
    "g.fa": FASTA,
    "h.fa": ">chr3\nACGT\n",
    "contigs.fa": ">a x\nA\nC\n>a y\nC\n",
    "x.2bit": "\x43\x27\x41\x1a",
    "empty.fa": ">a\n",
    "ab.tsv": "a\t1\nb\t2\n",
    "aba.tsv": "a\t1\nb\t2\na\t3\n",
    "ragged.tsv": "a\t1\nb\n",
    "d.zarr/zarr.json": '{"zarr_format": 3, "node_type": "group", "attributes": {}}',
}
Case = tuple[Any, dict[str, Any], str]
AB = ">a\nAC\n>b\nGT\n"

FASTA_CASES: dict[str, Case] = {
    "no record": ("", {}, "expected FASTA records, which begin with >, found none"),
    "only blanks": ("\n\n", {}, "expected FASTA records"),
    "text first": ("\n\nACGT\n>a\nA\n", {}, "line 3: expected a record, which begins with >, got 'ACGT'"),
    "protein": (">a\nACGT\n>b\nAC\n\nAE\n", {}, "line 6: 'E' is not a nucleotide"),
    "lengths": (">a\nACGT\n>b\nACG\n", {},
        "line 3: the sequence has 3 letters, but the first has 4; give --pad"),
    "empty records": (">a\n>b\n", {}, "none of 2 records is left: 2 without letters"),
    "all short": (">a\nA\n", {"length": 3}, "none of 1 records is left: 1 shorter than 3"),
    "pad": (">a\n>b\n", {"pad": True}, "none of 2 records is left: 2 without letters"),
    "summit": (">a\nA\n", {"anchor": "summit"}, "--anchor summit is for narrowPeak"),
    "header": (">a\nA\n>b x\nC\n", {"label": "header:x"}, "line 1: expected a header that matches 'x'"),
    "regex": (">a\nA\n", {"label": "header:("}, r"--label: '\(' is not a regular expression"),
    "text among numbers": (">1\nA\n>z\nC\n", {"label": "header:."},
        "line 3: --label: expected a finite number, as in the first row, got 'z'"),
    "no table": (">a\nA\n", {"label": "nothing.tsv:2"}, "nothing.tsv does not exist"),
    "no column": (">a\nA\n", {"label": "ab.tsv:9"}, "has no column '9'; expected a number from 1 to 2"),
    "neither": (">a\nA\n", {"label": "x"}, "--label: expected header:REGEX or TABLE.tsv:COLUMN"),
    "name twice": (">a\nA\n>b\nC\n>a x\nC\n", {"label": "ab.tsv:2"},
        "name 'a': x.fa: line 1 and x.fa: line 5"),
    "label twice": (">a\nA\n", {"label": "aba.tsv:2"}, "'a' is in the lines 1 and 3"),
    "ragged labels": (">a\nA\n", {"label": "ragged.tsv:2"},
        "line 2: expected a value in column 2, got none"),
    "long": (">a\nA\n", {"length": 10**18}, "000,000 letters need more memory than the budget"),
    "genome": (">a\nA\n", {"genome": "ab.tsv"}, "--genome is not an option for the format fasta"),
    "UTF-16": (AB.encode("utf-16"), {}, "x.fa.* is UTF-16 text; expected UTF-8"),
    "carriage returns": (b">a\rACGT\r", {}, "x.fa.*carriage returns alone separate the lines"),
}  # fmt: skip
BED_CASES: dict[str, Case] = {
    "below 0": ("1\t-1\t4\n", {}, "s.bed: line 1: expected start >= 0, got start -1, end 4"),
    "no base": ("#c\n1\t1\t4\n1\t4\t4\n", {}, "s.bed: line 3: expected end > start, got start 4, end 4"),
    "text": ("1\t1\t4\n1\tx\t4\n", {}, "s.bed: line 2: expected an integer start, got 'x'"),
    "fraction": ("1\t1\t4\n1\t1\t4.5\n", {}, "s.bed: line 2: expected an integer end, got '4.5'"),
    **{f"start {start}": (f"1\t{start}\t20\n", {},
        f"s.bed: line 1: expected an integer start, got '{start}'")
        for start in ("9" * 30, "1_0", "1e3", "0x5", "", "\u0663")},
    "ragged": ("1\t1\t4\n1\t1\n1\t2\t3\t4\n", {}, "s.bed: line 2: expected 3 columns, as in the first"),
    "columns": ("1\t1\n", {}, "line 1: expected at least 3 columns .*by tabs, got 2$"),
    "lengths": ("1\t1\t4\n1\t1\t5\n", {}, "line 2: the interval has 4 bases, but the first has 3"),
    "chr": ("1\t1\t2\nchr2\t1\t2\n", {},
        "s.bed: line 2: g.fa has no contig 'chr2'; BED says chr2, genome says 2: --rename chr="),
    "no chr": ("3\t1\t2\n", {"genome": "h.fa"}, "BED says 3, genome says chr3: --rename =chr"),
    "contig": ("1\t1\t2\nX\t1\t2\n", {},
        "line 2: g.fa has no contig 'X'; it has '1', '2'.*--skip-contigs skips and counts"),
    "contig alone": ("X\t1\t2\n", {}, "line 1: g.fa has no contig 'X'; it has '1', '2'"),
    "skipped": ("X\t1\t5\n", {"skip_contigs": True, "length": 4},
        "s.bed: line 1: g.fa has no contig 'X'"),
    "skipped, chr": ("1\t1\t5\nchr2\t1\t5\n", {"skip_contigs": True, "length": 4},
        "s.bed: line 2: g.fa has no contig 'chr2'; BED says chr2"),
    "edges": ("1\t1\t2\n2\t39\t41\n", {"edges": "error", "length": 2},
        "line 2: the window of 2 bases from 39"),
    "strand": ("1\t1\t2\ta\t0\tplus\n", {}, r"expected a strand \(\+, - or .\) in column 6, got 'plus'"),
    "no value": ("1\t1\t2\ta\tnan\n1\t1\t2\ta\t1\n", {"label": "score"},
        "s.bed: line 1: --label: expected a value, got 'nan'"),
    "dot": ("1\t1\t2\ta\t.\n1\t1\t2\ta\t1\n", {"label": "score"},
        r"s.bed: line 2: --label: expected text, as in the first row \('.'\), got the number '1'"),
    "no genome": ("1\t1\t2\n", {"genome": None}, "intervals need --genome"),
    "both": ("1\t1\t2\n", {"length": 3, "window": "0:1"}, "give --window or --length"),
    "commas": ("chrom,start,end\n1,1,2\n", {}, "write tabs in place of ','"),
    "window": ("1\t1\t2\n", {"window": "5:-5"}, "--window: expected FIRST:END"),
    "summit": ("1\t1\t2\n", {"anchor": "summit"}, "--anchor summit needs column 10"),
    "rename": ("1\t1\t2\n", {"rename": "chr"}, "--rename: expected OLD=NEW"),
    "label": ("1\t1\t2\n", {"label": "7"}, "has no column '7'; expected a number from 1 to 3"),
    "negatives": ("1\t1\t2\n", {"label": "2", "negatives": "h.fa"}, "without --label, got 2"),
    "summit outside": ("1\t2\t9\tp\t0\t.\t1\t2\t3\t7\n", {"anchor": "summit"},
        "s.bed: line 1: expected a summit inside the interval, counted from its start, got 7 in 7 bases"),
    "carriage returns": ("1\t2\t9\r1\t3\t9\r", {}, "s.bed: carriage returns alone separate the lines"),
    "binary": ("1\t2\t9\n1\t2\t\09\n", {}, "s.bed: line 2: expected text in UTF-8, got a NUL byte"),
    "huge": ("1\t2\t9\n1\t2\t99999999999999999999\n", {}, "line 2: expected an integer end, got '999"),
    "two cells": ("1\t1\t4\n1\t2 3\t4\n1\t\t4\n", {}, "line 2: expected an integer start, got '2 3'"),
    "width": ("1\t2\t9\n", {"length": 99_999_999_999, "edges": "pad"},
        "^rows of 99,999,999,999 letters need more memory than the budget"),
    "same file": ("1\t1\t2\n", {"negatives": "./s.bed"}, "s.bed and ./s.bed are the same file; expected"),
    "nothing": ("# none\n", {}, "expected at least one record, found none"),
    "contig twice": ("1\t1\t2\n", {"genome": "contigs.fa"}, "the contig 'a' is in the lines 1 and 4"),
    "2bit": ("1\t1\t2\n", {"genome": "x.2bit"}, "convert it with twoBitToFa"),
    "empty genome": ("1\t1\t2\n", {"genome": "empty.fa"}, "expected contigs with letters"),
}  # fmt: skip
#: What stands in line 23.
SVMLIGHT_LINES: dict[str, tuple[dict[str, Any], str]] = {
    "1 3:1 2:1": ({}, "the id 2 comes after 3; expected ids in ascending order"),
    "1 3:1 3:1": ({}, "the id 3 stands twice"),
    **{f"{label} 3:1": ({}, f"expected a finite number as label, got '{label}'")
        for label in ("yes", "1,2", "1_0", "nan")},
    **{f"1 {entry}": ({}, f"expected ID:VALUE with a finite number, got '{entry}'")
        for entry in ("3:1_0.5", "1_0:1", "3:nan", "3:1e999", "3:", "3", "3:1:1", "-3:1", "a:1")},
    "1 qid:1_0 3:1": ({}, "expected qid:INTEGER, got 'qid:1_0'"),
    "1 qid:x 3:1": ({}, "expected qid:INTEGER, got 'qid:x'"),
    "1 qid:2 3:1": ({}, "expected no qid, as in the lines before"),
    "1 99999999999:1": ({}, r"the id 99999999999 is beyond 2\^31 ids"),
    "1 99999999999999999999999:1": ({}, r"the id 9+ is beyond 2\^31 ids"),
    "9007199254740993 3:1": ({}, r"the integer '9007199254740993' is beyond 2\^53"),
    "1 3:9007199254740993": ({"dtype": "float64"}, "the integer '9007199254740993' is beyond"),
    "1 3:1": ({"columns": 2}, "the id 3 is beyond --columns 2"),
    "1 00:1": ({}, "the id is 0, but ids begin at 1; give --zero-based yes"),
    "1 0:1": ({"zero_based": "no"}, "the id is 0, but ids begin at 1; give --zero-based yes"),
    "1 3:16777217": ({"dtype": "float32"},
        "float32 cannot hold the value '16777217'; give --dtype float64"),
}  # fmt: skip
SVMLIGHT_CASES: dict[str, Case] = {
    line: (
        "# head\n\n" + "1 1:1\n" * 20 + line + "\n1 1:1\n",
        options,
        f"a.svm: line 23: {message}",
    )
    for line, (options, message) in SVMLIGHT_LINES.items()
} | {
    f"without entries, {text!r}": (text, {"format": "svmlight"}, "expected entries ID:VALUE")
    for text in ("", "# only a comment\n", "1\n2\n")
}
MISSING = {"nan": "a value", "NA": "a value", "null": "a value", "": "a value",
    "inf": "a finite number", "-Infinity": "a finite number"}  # fmt: skip
XY = {"x": "sequence", "y": "score"}
SEQUENCE_CASES: dict[str, Case] = {
    # a name of a column that consists of letters of bases
    "header like a sequence": ("a\tdna\tx\ns1\tACGT\t3\n", {"x": "2", "y": "3"},
        "line 2: the sequence has 4 letters, but the first has 3"),
    "no header": ("ACGT\t1\nACGA\t-1\n", {"x": "ACGT", "no_header": True, "format": "sequences"},
        "no column 'ACGT'"),
    "not a header": ("AC!T\t1\nACGA\t-1\n", {"x": "1", "y": "2"}, "line 1: expected a sequence"),
    "number among texts": ("ACGT\tx\nACGT\ty\nACGT\t7\n", {"x": "1", "y": "2"},
        r"line 3: --y: expected text, as in the first row \('x'\)"),
    "own feature": ("dna\ty\nACGT\t1\n", {"x": "dna", "y": "1"},
        "a column can have one role, got --x dna, --y 1"),
    "long sequence": ("s\ty\nACGT\t1\n" + "A" * (5 << 20) + "\t1\n", {"x": "s", "y": "y"},
        "q.tsv: line 3: the sequence has 5,242,880 letters"),
    **{f"target {value!r} after {at} of {others}": (
        "sequence\tscore\n" + "".join(f"ACGT\t{y}\n" for y in [*others[:at], value, *others[at:]]), XY,
        f"line {at + 2}: --y: expected {what}, got")
        for value, what in MISSING.items() for others in ("12", "ab") for at in range(3)},
}  # fmt: skip
FASTA_CASES |= {
    f"label {value!r} after {at} of {others}": (
        "".join(f">r{y};\nACGT\n" for y in [*others[:at], value, *others[at:]]),
        {"label": "header:r([^;]*)"},
        f"line {2 * at + 1}: --label: expected {what}, got",
    )
    for value, what in MISSING.items()
    for others in ("12", "ab")
    for at in range(3)
}
BYTES = gzip.compress(b">a\n" + b"ACGT" * 1000)
SVM = "1 1:1 3:2\n0 2:1\n"
NPY = io.BytesIO()
np.save(NPY, np.eye(3))
#: inputs -> files, options, message
FILES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "gzip, cut": ("cut.gz", {"cut.gz": BYTES[:-20]}, {},
        "cut.gz.*ends in the middle of its compressed data"),
    "gzip, checksum": ("crc.gz", {"crc.gz": BYTES[:-8] + bytes(8)}, {}, "crc.gz.*cannot be decompressed"),
    "bzip2": ("bad.bz2", {"bad.bz2": b"BZh91AY&SYxxxxxxxxxx"}, {}, "bad.bz2.*cannot be decompressed"),
    "xz": ("t.packed", {"t.packed": b"\xfd7zXZ\0\1\2\3\4"}, {}, "decompress it first with xz -d"),
    "zstd": ("t.packed", {"t.packed": b"\x28\xb5\x2f\xfd\1\2\3\4"}, {},
        "decompress it first with zstd -d"),
    "svmlight, cut": ("a.svm.gz", {"a.svm.gz": gzip.compress(SVM.encode() * 99)[:-20]},
        {"format": "svmlight"}, "a.svm.gz.*incomplete"),
    "unknown format": ("notes.doc", {"notes.doc": "hello"}, {}, "notes.doc.*its format is not known"),
    "empty file": ("nothing", {"nothing": ""}, {}, "nothing is empty; expected at least one record"),
    "npy": ("X.npy", {"X.npy": NPY.getvalue()}, {}, "^X.npy: fcl train reads this format without"),
    "zarr": ("d.zarr", {}, {}, "fcl train reads this format without"),
    "labels, NUL": ("n.fa", {"n.fa": AB, "l.tsv": "a\t1\nb\0\t0\n"}, {"label": "l.tsv:2"},
        "l.tsv: line 2: expected text in UTF-8, got a NUL byte"),
    "labels, UTF-16": ("n.fa", {"n.fa": AB, "l.tsv": "a\t1\nb\t0\n".encode("utf-16-le")},
        {"label": "l.tsv:2"}, "l.tsv: every other byte is NUL, as in UTF-16"),
    **{f"labels, {text!r}": ("n.fa", {"n.fa": AB, "l.tsv": text}, {"label": "l.tsv:2"},
        f"l.tsv: line {line}: expected a value in column 2")
        for line, text in ((1, "a\tNA\nb\t2\n"), (2, "a\t2\nb\tinf\n"), (2, "a\tx\nb\tnull\n"))},
    "names, empty line": ("a.svm", {"a.svm": SVM, "n.txt": "a\n\nb\n"}, {"names": "n.txt"},
        "n.txt: line 2: expected the name of a column"),
    "names, twice": ("a.svm", {"a.svm": SVM, "n.txt": "a\nb\na\n"}, {"names": "n.txt"},
        "n.txt: the name 'a' is in the lines 1 and 3; expected each name once"),
    "names, none": ("a.svm", {"a.svm": SVM, "n.txt": ""}, {"names": "n.txt"}, "n.txt: .*found no line"),
    "names, few": ("a.svm", {"a.svm": SVM, "n.txt": "a\nb\n"}, {"names": "n.txt"},
        "the id 3 is beyond the 2 names of "),
    "same file": ("x.fa ./x.fa", {"x.fa": AB}, {}, "x.fa and ./x.fa are the same file"),
}  # fmt: skip
FORMATS: dict[str, tuple[dict[str, Case], dict[str, Any]]] = {
    "x.fa": (FASTA_CASES, {}),
    "s.bed": (BED_CASES, {"genome": "g.fa"}),
    "a.svm": (SVMLIGHT_CASES, {}),
    "q.tsv": (SEQUENCE_CASES, {}),
}
FILES |= {
    f"{name}, {case}": (name, {name: content}, always | options, message)
    for name, (cases, always) in FORMATS.items()
    for case, (content, options, message) in cases.items()
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "d.zarr").mkdir()
    for name, content in OTHERS.items():
        saved(tmp_path, name, content.encode())
    return tmp_path


@pytest.mark.thin(3)
@pytest.mark.parametrize("case", FILES)
def test_files(case: str, refuse: Refuse, folder: Path) -> None:
    inputs, files, options, message = FILES[case]
    for name, content in files.items():
        saved(folder, name, content.encode() if isinstance(content, str) else content)
    refuse(inputs, options, message)


def test_budget_too_small(tmp_path: Path) -> None:
    with pytest.raises(
        BudgetError, match="memory: a budget of 1 MiB is too small; this command needs at least"
    ) as caught:
        convert(["-"], tmp_path / "o.zarr", memory="1MiB")
    assert caught.value.smallest > 64 << 20


def test_a_link_to_the_same_file(refuse: Refuse, folder: Path) -> None:
    """Rows would have both labels; a link to the file has another name."""
    saved(folder, "x.fa", AB.encode())
    (folder / "y.fa").symlink_to(folder / "x.fa")
    refuse("x.fa y.fa", {}, "x.fa and y.fa are the same file")


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch, refuse: Refuse) -> None:
    monkeypatch.setattr("sys.stdin", None)
    refuse("-", {}, r"standard input .* is closed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": 1}, "colour is not an option of convert"),
        ({"anchor": "middle"}, "anchor must be"),
    ],
)
def test_options_of_python(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(InputError, match=message):
        convert([saved(folder, "x.fa", AB.encode())], folder / "o.zarr", **options)
    assert not (folder / "o.zarr").exists()


@pytest.mark.parametrize(
    ("limit", "name", "content", "options", "message"),
    [
        ("bed", "t.bed", b"1\t5\t9\n1\t6\t" + b"1" * (3 << 20), {"genome": "g.fa"},
         "line 2: expected lines"),
        ("sequences", "q.tsv", b"s\ty\nACGT\t1\n" + b"A" * (3 << 20), {"x": "s", "y": "y"},
         "line 3: expected lines"),
        ("records", "t.fa", b">a\nACGT\n>" + b"b" * (3 << 20), {}, "line 3: expected a header"),
    ],
)  # fmt: skip
def test_lines_without_an_end(
    limit: str, name: str, content: bytes, options: dict[str, Any], message: str, refuse: Refuse,
    folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    constant = "_MOST_HEADER" if limit == "records" else "_MOST_LINE"
    monkeypatch.setattr(f"fcl.convert.{limit}.{constant}", 1000)
    saved(folder, name, content)
    refuse(name, options, f"{name}: {message} of at most 1,000 bytes")


@pytest.mark.parametrize(("name", "extra"), [("a.csv", "tables"), ("a.bed", "plink")])
def test_without_the_extra(
    name: str, extra: str, refuse: Refuse, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pyarrow", "bed_reader"):
        monkeypatch.setitem(sys.modules, package, None)
    saved(folder, name, b"\x6c\x1b\x01" if extra == "plink" else b"a\n1\n")
    refuse(name, {}, rf"pip install 'fcl\[{extra}\]'")
