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


def test_a_sign_before_a_start(tmp_path: Path) -> None:
    path = saved(tmp_path, "t.bed", b"1\t+5\t9\n")
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
