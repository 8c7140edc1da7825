"""Encodings, line ends, long lines and damaged files: one message with file and line, or equal rows."""

from __future__ import annotations

import bz2
import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from converted import converted, refusal, saved

GENOME = b">1\n" + b"ACGT" * 20 + b"\n"
#: name -> content, and options
FILES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "t.csv": (b"a,b,y\n1,2,0\n3,4,1\n", {"y": "y"}),
    "q.tsv": (b"s\ty\nACGT\t1\nACGA\t0\n", {"x": "s", "y": "y"}),
    "t.svm": (b"1 1:2 3:4\n-1 1:1\n", {}),
    "t.fa": (b">a\nACGT\n>b\nAC\nGG\n", {}),
    "t.bed": (b"1\t5\t9\n1\t6\t10\n", {"genome": "g.fa"}),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, "g.fa", GENOME)


@pytest.mark.parametrize("name", FILES)
def test_line_ends_and_marks_do_not_matter(name: str, tmp_path: Path) -> None:
    if name == "t.csv":
        pytest.importorskip("pyarrow")
    content, options = FILES[name]
    plain = converted(saved(tmp_path, name, content), **options).x.tolist()
    windows = content.replace(b"\n", b"\r\n")
    for other in (windows, windows[:-2], content[:-1], b"\xef\xbb\xbf" + content):
        found = converted(saved(tmp_path, name, other), overwrite=True, **options)
        assert found.x.tolist() == plain
    for module, suffix in ((gzip, ".gz"), (bz2, ".bz2")):
        parts: Any = module
        two = parts.compress(content[:9]) + parts.compress(content[9:])
        path = saved(tmp_path, name + suffix, two)
        assert converted(path, overwrite=True, **options).x.tolist() == plain
        path.write_bytes(two[:-6])
        assert "ends in the middle of its compressed data" in refusal(
            path, overwrite=True, **options
        )


def test_tables_of_labels(tmp_path: Path) -> None:
    fasta = saved(tmp_path, "n.fa", b">a\nACGT\n>b\nACGA\n")
    for content, message in (
        (b"a\t1\nb\0\t0\n", "l.tsv: line 2: expected text in UTF-8, got a NUL byte"),
        ("a\t1\nb\t0\n".encode("utf-16-le"), "l.tsv: every other byte is NUL, as in UTF-16"),
    ):
        saved(tmp_path, "l.tsv", content)
        assert message in refusal(fasta, label="l.tsv:2")


def test_a_nul_byte_in_a_cell(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = saved(tmp_path, "t.csv", b"c,y\nred,0\nred,1\nr\0d,0\nblue,1\n")
    expected = "t.csv: row 4 (the header is row 1): the column 'c' holds a NUL byte"
    assert expected in refusal(table, y="y")


@pytest.mark.parametrize(
    ("magic", "command"), [(b"\xfd7zXZ\0", "xz -d"), (b"\x28\xb5\x2f\xfd", "zstd -d")]
)
def test_compressions_that_are_not_read(magic: bytes, command: str, tmp_path: Path) -> None:
    path = saved(tmp_path, "t.fa.packed", magic + b"\1\2\3\4")
    assert f"decompress it first with {command}" in refusal(path)


def test_lines_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcl.convert.bed._MOST_LINE", 1000)
    monkeypatch.setattr("fcl.convert.records._MOST_HEADER", 1000)
    bed = saved(tmp_path, "t.bed", b"1\t5\t9\n1\t6\t" + b"1" * (3 << 20))
    assert "t.bed: line 2: expected lines of at most 1,000 bytes" in refusal(bed, genome="g.fa")
    fasta = saved(tmp_path, "t.fa", b">a\nACGT\n>" + b"b" * (3 << 20))
    monkeypatch.setattr("fcl.convert.sequences._MOST_LINE", 1000)
    table = saved(tmp_path, "q.tsv", b"s\ty\nACGT\t1\n" + b"A" * (3 << 20))
    assert "q.tsv: line 3: expected lines of at most 1,000 bytes" in refusal(table, x="s", y="y")
    assert "t.fa: line 3: expected a header of at most 1,000 bytes" in refusal(fasta)


def test_integers_of_intervals(tmp_path: Path) -> None:
    for start in ("9" * 30, "1_0", "1e3", "0x5", "", "\u0663"):
        path = saved(tmp_path, "t.bed", f"1\t{start}\t20\n".encode())
        assert f"t.bed: line 1: expected an integer start, got {start!r}" in refusal(
            path, genome="g.fa"
        )
    saved(tmp_path, "t.bed", b"1\t-5\t20\n")
    assert "line 1: expected start >= 0, got start -5" in refusal(path, genome="g.fa")
    saved(tmp_path, "t.bed", b"1\t+5\t9\n")
    assert converted(path, genome="g.fa").x.tolist() == [[1, 2, 3, 0]]


def test_a_long_cell(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = saved(
        tmp_path, "t.csv", b"a,b,y\n" + b"1,2,0\n" * 20_000 + b"3," + b"4" * (5 << 20) + b",1\n"
    )
    message = refusal(path, y="y", memory="512MiB")
    found = re.search(
        r"t\.csv: row (\d+) \(.*this row or a row soon after it has more than", message
    )
    assert found and 10_000 < int(found[1]) <= 20_002, message
    sequences = saved(tmp_path, "q.tsv", b"s\ty\nACGT\t1\n" + b"A" * (5 << 20) + b"\t1\n")
    assert "q.tsv: line 3: the sequence has 5,242,880 letters" in refusal(sequences, x="s", y="y")
