"""Tables of sequences: headers, names of columns, and targets that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from converted import converted, refusal, saved

PLAIN = "s1\tACGT\t3\ns2\tACGA\t1\ns3\tACGA\t2\n"
ROWS = [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 2, 0]]


@pytest.mark.parametrize(
    ("text", "options", "y"),
    [
        (PLAIN, {"x": "2", "y": "3"}, [3, 1, 2]),  # a label that equals the number of a column
        (PLAIN, {"x": "2", "y": "3", "no_header": True}, [3, 1, 2]),
        ("a\tdna\tx\n" + PLAIN, {"x": "2", "y": "3"}, None),  # dna consists of letters of bases
        ("a\tseq\t2019\n" + PLAIN, {"x": "seq", "y": "2019"}, [3, 1, 2]),
        ("a\tseq\ty\n" + PLAIN, {"x": "2", "y": "3"}, [3, 1, 2]),
        ("a\tseq\t3\n" + PLAIN, {"x": "seq", "y": "3"}, [3, 1, 2]),
        ("a\tdna\ty\n" + PLAIN, {"x": "dna", "y": "y"}, [3, 1, 2]),
    ],
    ids=str,
)
def test_headers(text: str, options: dict[str, Any], y: list[int] | None, tmp_path: Path) -> None:
    path = saved(tmp_path, "t.tsv", text.encode())
    if y is None:
        assert "line 2: the sequence has 4 letters, but the first has 3" in refusal(path, **options)
        return
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
    assert "no column 'ACGT'" in refusal(path, x="ACGT", no_header=True, format="sequences")
    path = saved(tmp_path, "t.tsv", b"AC!T\t1\nACGA\t-1\n")  # not taken for a header
    assert "line 1: expected a sequence" in refusal(path, x="1", y="2")


@pytest.mark.parametrize("value", ["nan", "NA", "inf", "-Infinity", "null", ""])
@pytest.mark.parametrize("others", [["1", "2"], ["a", "b"]])
def test_missing_targets(value: str, others: list[str], tmp_path: Path) -> None:
    """They are refused wherever they stand; they never make texts of numbers."""
    what = "a finite number" if "inf" in value.lower() else "a value"
    for at in range(3):
        values = [*others[:at], value, *others[at:]]
        lines = "".join(f"ACGT\t{each}\n" for each in values).encode()
        path = saved(tmp_path, "t.tsv", b"sequence\tscore\n" + lines)
        message = refusal(path, x="sequence", y="score")
        assert f"line {at + 2}: --y: expected {what}, got" in message
        fasta = "".join(f">r{i} y={each};\nACGT\n" for i, each in enumerate(values))
        path = saved(tmp_path, "t.fa", fasta.encode())
        message = refusal(path, label="header:y=([^;]*)")
        assert f"line {2 * at + 1}: --label: expected {what}, got" in message


def test_targets_of_two_kinds(tmp_path: Path) -> None:
    path = saved(tmp_path, "t.tsv", b"ACGT\tx\nACGT\ty\nACGT\t7\n")
    assert "line 3: --y: expected text, as in the first row ('x')" in refusal(path, x="1", y="2")


def test_a_column_of_sequences_beside_names(tmp_path: Path) -> None:
    rows = "".join(f"n{i},  {'ACGT'[i % 4]}CCA,{i % 2}\n" for i in range(9))
    path = saved(tmp_path, "t.csv", b"name,dna,y\n" + rows.encode())
    message = refusal(path, y="y", max_categories=8)
    assert "'name' has more than 8" in message and "alone: --x 'dna'" in message


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


def test_the_target_is_not_its_own_feature(tmp_path: Path) -> None:
    path = saved(tmp_path, "t.tsv", b"dna\ty\nACGT\t1\n")
    assert "a column can have one role, got --x dna, --y 1" in refusal(path, x="dna", y="1")


def test_an_empty_file_of_no_format(tmp_path: Path) -> None:
    assert "nothing is empty; expected at least one record" in refusal(
        saved(tmp_path, "nothing", b"")
    )


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
