"""FASTA files against a parser of the tests' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.convert import fasta
from fcl.errors import InputError
from tests.convert.conftest import rows_of

CODES = {"A": 0, "C": 1, "G": 2, "T": 3, "U": 3}
RNG = np.random.default_rng(5)


def letters(n: int) -> str:
    return "".join(RNG.choice(list("ACGTacgtuNRyn"), n))


def codes(text: str) -> list[int]:
    return [CODES.get(letter.upper(), 4) for letter in text]


def write(path: Path, records: list[tuple[str, str]], width: int = 7, end: str = "\n") -> Path:
    lines: list[str] = []
    for header, sequence in records:
        lines += [f">{header}", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    path.write_bytes((end.join(lines) + end).encode())
    return path


def text_of(group: Any, name: str) -> list[str]:
    return [str(value) for value in group[f"obs/{name}"][:]]


def test_blank_lines_and_empty_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first slice, by which the format is found, is short."""
    monkeypatch.setattr("fcl.convert.files.HEAD_BYTES", 4)
    records = [(f"r{i}", letters(21)) for i in range(20)]
    text = write(tmp_path / "a.fa", records).read_text()
    for size in (1, 9, 1 << 20):
        monkeypatch.setattr(fasta, "_SLICE_BYTES", size)
        (tmp_path / "x.fa").write_text("\n\n" + text.replace("\n", "\n \n") + ">\n>empty\n\n>")
        rows, group, summary = rows_of(tmp_path / "x.fa")
        assert rows == [codes(sequence) for _, sequence in records]
        assert text_of(group, "name") == [f"r{i}" for i in range(20)]
        assert (summary.rows_in, summary.dropped) == (23, {"without letters": 3})


def test_rows_as_long_as_the_longest_sequence(tmp_path: Path) -> None:
    write(tmp_path / "p", [("a", "ACG"), ("b", "A")])
    write(tmp_path / "n", [("c", "ACGTACG" * 3), ("d", "AC")])
    rows, _, summary = rows_of(tmp_path / "p", tmp_path / "n", pad=True, anchor="start")
    assert rows[0] == [0, 1, 2] + [4] * 18 and rows[2] == [0, 1, 2, 3, 0, 1, 2] * 3
    assert summary.notes[0].startswith("length: 21 letters, as the longest sequence has")
    (tmp_path / "t.tsv").write_text("s\ty\nACG\t1\nACGTA\t2\n")
    rows, _, _ = rows_of(tmp_path / "t.tsv", x="s", y="y", pad=True, anchor="start")
    assert rows == [[0, 1, 2, 4, 4], [0, 1, 2, 3, 0]]


def test_two_files_are_two_classes(tmp_path: Path) -> None:
    for name in "pn":
        write(tmp_path / name, [(f"{name}{i}", letters(9)) for i in range(4)])
    _, group, summary = rows_of(tmp_path / "p", tmp_path / "n")
    assert group["y"][:].tolist() == [1] * 4 + [-1] * 4
    assert summary.classes == {1: 4, -1: 4}


@pytest.mark.parametrize("anchor", ["center", "start", "end"])
@pytest.mark.parametrize("pad", [False, True])
def test_lengths(anchor: str, pad: bool, tmp_path: Path) -> None:
    records = [(str(i), letters(i)) for i in (12, 3, 9, 8, 1, 40, 7)]
    rows, group, summary = rows_of(
        write(tmp_path / "x.fa", records), length=8, anchor=anchor, pad=pad
    )
    expected = []
    for name, sequence in records:
        spare = len(sequence) - 8
        first = {"center": spare // 2, "start": 0, "end": spare}[anchor]
        places = range(first, first + 8)
        row = [codes(sequence[i])[0] if 0 <= i < len(sequence) else 4 for i in places]
        expected += [(name, row)] if pad or spare >= 0 else []
    assert (text_of(group, "name"), rows) == ([n for n, _ in expected], [r for _, r in expected])
    assert summary.dropped == ({} if pad else {"shorter than 8 letters": 3})


def test_labels_and_groups(tmp_path: Path) -> None:
    records = [(f"r{i} class={'ab'[i % 2]} g={i // 2}", letters(5)) for i in range(6)]
    path = write(tmp_path / "x.fa", records)
    (tmp_path / "t.tsv").write_text(
        "name\tscore\tkind\nr5\t1.5\tb\nr0\t-2\ta\nzz\t0\ta\nr3\t3\tb\n"
    )
    _, _, summary = rows_of(path, label="header:class=(.)", groups=r"header:g=\d")
    assert summary.classes == {"a": 3, "b": 3}
    out = tmp_path / "out.zarr"
    assert fcl.open_data(out).target.tolist() == ["a", "b"] * 3
    assert fcl.open_data(out, y="obs/group").target.tolist() == [f"g={i // 2}" for i in range(6)]
    for column in ("score", "2"):
        rows, group, summary = rows_of(path, label=f"{tmp_path}/t.tsv:{column}")
        assert group["y"][:].tolist() == [-2, 3, 1.5]
        assert rows == [codes(records[i][1]) for i in (0, 3, 5)]
        assert summary.dropped == {f"without a label in {tmp_path}/t.tsv": 3}
        assert [f["name"] for f in group.attrs["fcl"]["inputs"]] == ["x.fa", "t.tsv"]
    rows_of(path, label=f"{tmp_path}/t.tsv:kind")
    assert fcl.open_data(out).target.tolist() == ["a", "b", "b"]


def test_unknown_letters_and_both_strands(tmp_path: Path) -> None:
    path = write(tmp_path / "x.fa", [("a", "ACGTN"), ("b", "ANNTT"), ("c", "AACCN")])
    rows, group, summary = rows_of(path, max_unknown=0.2, both_strands=True)
    assert rows == [codes(s) for s in ("ACGTN", "NACGT", "AACCN", "NGGTT")]
    assert summary.dropped == {"with a share of unknown letters above 0.2": 1}
    assert group["obs/source_row"][:].tolist() == group["obs/group"][:].tolist() == [0, 0, 2, 2]
    assert group["obs/reverse_complement"][:].tolist() == [0, 1, 0, 1]
    rows, _, summary = rows_of(path, max_unknown=0.2, length=9, pad=True)
    assert len(rows) == 2  # letters that padding adds do not count


def test_a_first_line_without_a_label(tmp_path: Path) -> None:
    (tmp_path / "x.fa").write_text(">a\nAC\n>b\nGT\n")
    table, label = tmp_path / "t.tsv", f"{tmp_path}/t.tsv:2"
    table.write_text("name\tlabel\nb\t2\n")
    rows, group, summary = rows_of(tmp_path / "x.fa", label=label)
    assert (rows, group["y"][:].tolist()) == ([[2, 3]], [2])
    assert summary.dropped == {f"without a label in {table}": 1}
    table.write_text("a\t2\nb\t1\n")  # the label 2 is no name of a column
    rows, group, _ = rows_of(tmp_path / "x.fa", label=label)
    assert (rows, group["y"][:].tolist()) == ([[0, 1], [2, 3]], [2, 1])


def test_groups_and_names_are_text(tmp_path: Path) -> None:
    """Groups such as chromosomes begin with a number; a name ends at a blank of ASCII."""
    path = tmp_path / "x.fa"
    path.write_text(">a\u00a0b c=1\nAC\n>c c=X\nAC\n")
    _, group, _ = rows_of(path, groups=r"header:c=(\S)")
    assert text_of(group, "name") == ["a\u00a0b", "c"]
    found = fcl.open_data(tmp_path / "out.zarr", y=None, groups="obs/group").groups
    assert found is not None and found.tolist() == ["1", "X"]


def test_rows_that_are_much_longer_than_records(tmp_path: Path) -> None:
    (tmp_path / "x.fa").write_text(">a\nAC\n" * 500)
    budget = fasta.Budget(10_000, 1000)
    options = fasta.Options(length=300, pad=True)
    source = fasta.open_source([fasta.InputFile(tmp_path / "x.fa")], options, budget)
    assert [len(block) for block in source.blocks(budget)] == [3] * 166 + [1, 1]
    source = fasta.open_source(
        [fasta.InputFile(tmp_path / "x.fa")], fasta.Options(length=5000, pad=True), budget
    )
    with pytest.raises(InputError, match="rows of 5,000 letters need more memory than the budget"):
        list(source.blocks(budget))


def test_a_record_beyond_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcl.convert.files.HEAD_BYTES", 4)
    (tmp_path / "x.fa").write_text(">a b\n" + "A" * 100 + "\n" + "C" * 100)
    source = fasta.open_source(
        [fasta.InputFile(tmp_path / "x.fa")], fasta.Options(), fasta.Budget(150, 20)
    )
    with pytest.raises(InputError, match="the record 'a b' needs more memory than the budget"):
        list(source.blocks(fasta.Budget(150, 20)))


def test_names_that_repeat_or_are_cut_are_noted(tmp_path: Path) -> None:
    records = [("a chr1", "ACGT"), ("b", "ACGA"), ("a chr2", "ACGC"), ("b", "ACGG"), ("c", "ACCC")]
    path = write(tmp_path / "x.fa", records)
    notes = rows_of(path, both_strands=True)[2].notes
    assert "names: the first words, as 2 headers have more than one, such as 'a chr1'" in notes
    assert "names: 2 rows have the name of an earlier row, the first is 'a'" in notes
    single = write(tmp_path / "y.fa", [(str(i), "ACGT") for i in range(4)])
    assert not any("names" in note for note in rows_of(single, both_strands=True)[2].notes)
