"""Tables of sequences: headers, names of columns, and targets that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from converted import converted, saved

PLAIN = "s1\tACGT\t3\ns2\tACGA\t1\ns3\tACGA\t2\n"
ROWS = [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 2, 0]]


@pytest.mark.parametrize(
    ("text", "options", "y"),
    [
        (PLAIN, {"x": "2", "y": "3"}, [3, 1, 2]),  # a label that equals the number of a column
        (PLAIN, {"x": "2", "y": "3", "no_header": True}, [3, 1, 2]),
        ("a\tseq\t2019\n" + PLAIN, {"x": "seq", "y": "2019"}, [3, 1, 2]),
        ("a\tseq\ty\n" + PLAIN, {"x": "2", "y": "3"}, [3, 1, 2]),
        ("a\tseq\t3\n" + PLAIN, {"x": "seq", "y": "3"}, [3, 1, 2]),
        ("a\tdna\ty\n" + PLAIN, {"x": "dna", "y": "y"}, [3, 1, 2]),
    ],
    ids=str,
)
def test_headers(text: str, options: dict[str, Any], y: list[int], tmp_path: Path) -> None:
    path = saved(tmp_path, "t.tsv", text.encode())
    found = converted(path, name="1", **options)
    assert found.summary.format == "sequences"
    assert (found.x.tolist(), found.group["y"][:].tolist()) == (ROWS, y)
    assert found.group["obs/name"][:].tolist() == ["s1", "s2", "s3"]
    header = "the first line, '" if text != PLAIN else "none, the first line is a record"
    assert f"header: {header}" in found.notes


def test_labels_of_a_table_without_header(tmp_path: Path) -> None:
    """Labels 1 and -1 in the order of gkmtrain; the first one equals the number of a column."""
    path = saved(tmp_path, "t.tsv", b"ACGT\t1\nACGA\t-1\n")
    for options in ({}, {"no_header": True}, {"no_header": True, "format": "sequences"}):
        found = converted(path, x="1", y="2", **options)
        assert (found.x.tolist(), found.y.tolist()) == (ROWS[:2], [1, -1])


def test_rows_without_a_label_are_dropped(tmp_path: Path) -> None:
    path = saved(tmp_path, "t.tsv", b"seq\ty\nACGT\t1\nACGA\tNA\nACGC\t-1\n")
    found = converted(path, x="seq", y="y", missing_target="drop")
    assert found.y.tolist() == [1, -1] and found.summary.dropped == {"without a target": 1}


def test_which_label_is_positive(tmp_path: Path) -> None:
    """Of two texts, in every format; numbers and more labels need no note."""
    note = "labels: b is the positive class, a the other"
    fasta = saved(tmp_path, "t.fa", b">r1 y=b\nACGT\n>r2 y=a\nACGA\n")
    table = saved(tmp_path, "t.tsv", b"ACGT\tb\nACGT\ta\n")
    for path, options in ((fasta, {"label": r"header:y=(\S+)"}), (table, {"x": "1", "y": "2"})):
        assert converted(path, **options).notes.endswith(note)
    for content in (b"ACGT\t1\nACGT\t2\n", b"ACGT\ta\nACGT\tb\nACGT\tc\n", b"ACGT\ta\nACGT\ta\n"):
        path = saved(tmp_path, "u.tsv", content)
        assert "labels" not in converted(path, x="1", y="2").notes


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("t.tsv", "seq\ty\nACGT\t1_2\nTTGA\t1_3\n", {"x": "seq", "y": "y"}),
        ("t.fa", ">s0 c=1_2\nACGT\n>s1 c=1_3\nTTGA\n", {"label": r"header:c=(\S+)"}),
        ("t.csv", "a,y\n1,1_2\n2,1_3\n", {"y": "y"}),
        ("t.bed", "c\t0\t4\t1_2\nc\t1\t5\t1_3\n", {"genome": "g.fa", "label": "4"}),
    ],
)
def test_names_of_classes_may_look_like_numbers_of_python(
    name: str, text: str, options: dict[str, Any], tmp_path: Path
) -> None:
    genome = saved(tmp_path, "g.fa", b">c\nACGTACGT\n")
    options = options | ({"genome": str(genome)} if "genome" in options else {})
    found = converted(saved(tmp_path, name, text.encode()), **options)
    assert sorted(found.group["y/categories"][:].tolist()) == ["1_2", "1_3"]
