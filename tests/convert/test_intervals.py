"""Windows of a genome against a plain loop over letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.convert.bed import BedCells
from fcl.convert.contract import Budget
from fcl.convert.files import InputFile
from fcl.convert.genome import Genome, Windows
from fcl.convert.intervals import Options, open_source
from fcl.convert.run import Summary
from tests.convert.conftest import rows_of

RNG = np.random.default_rng(11)
CONTIGS = {name: "".join(RNG.choice(list("ACGTNacgt"), n)) for name, n in (("1", 90), ("2", 40))}
OTHER = dict(zip("ACGTN", "TGCAN", strict=True))
FASTA = "".join(f">{name} of a worm\n{text[:33]}\n{text[33:]}\n" for name, text in CONTIGS.items())
#: contig, start, end, name, score, strand; not in the order of the genome
SITES = [
    (str(RNG.integers(1, 3)), start, start + size, f"s{i}", i % 2, "+-."[i % 3])
    for i, (start, size) in enumerate(
        zip(RNG.integers(0, 36, 40), RNG.integers(1, 5, 40), strict=True)
    )
]
CODES = {letter: code for code, letter in enumerate("ACGTN")}


def window(contig: str, first: int, length: int, reverse: bool) -> list[int] | None:
    """The letters from ``first`` on, N outside the contig; None without any outside."""
    text = CONTIGS[contig].upper()
    cut = [text[i] if 0 <= i < len(text) else "N" for i in range(first, first + length)]
    cut = [OTHER[letter] for letter in reversed(cut)] if reverse else cut
    return [CODES[letter] for letter in cut]


def first_of(site: Any, reverse: bool, options: dict[str, Any]) -> int:
    """Where the window of a site begins, by the description of the options."""
    _, start, end, *_ = site
    if "window" in options:
        before, after = (int(number) for number in options["window"].split(":"))
        bases = range(start, end)
        anchor = {"start": bases[-1 if reverse else 0], "end": bases[0 if reverse else -1],
                  "center": (start + end) // 2}[options.get("anchor", "start")]  # fmt: skip
        return anchor - (after - 1) if reverse else anchor + before
    length, anchor = options["length"], options.get("anchor", "center")
    if anchor == "center":
        return start + (end - start - length) // 2
    return start if (anchor == "start") != reverse else end - length


def made(folder: Path, **options: Any) -> tuple[list[list[int]], Any, Summary]:
    """The windows of s.bed, by default of SITES."""
    (folder / "g.fa").write_text(FASTA)
    path = folder / "s.bed"
    if not path.exists():
        path.write_text("".join("\t".join(map(str, site)) + "\n" for site in SITES))
    return rows_of(path, **{"genome": str(folder / "g.fa")} | options)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "options",
    [
        {"window": "-7:+4"},
        {"window": "-3:2", "anchor": "end", "edges": "drop"},
        {"window": "1:9", "anchor": "center"},
        {"length": 8},
        {"length": 7, "anchor": "start"},
        {"length": 5, "anchor": "start", "no_strand": True},
        {"length": 6, "anchor": "end"},
        {"length": 95, "anchor": "center"},
    ],
    ids=str,
)
def test_windows(options: dict[str, Any], tmp_path: Path) -> None:
    options = {"edges": "pad"} | options
    rows, group, summary = made(tmp_path, label="5", groups="chrom", **options)
    no_strand = "no_strand" in options
    low, high = (int(n) for n in options.get("window", f"0:{options.get('length')}").split(":"))
    expected = []
    for i, site in enumerate(SITES):
        reverse = site[5] == "-" and not no_strand
        first = first_of(site, reverse, options)
        inside = first >= 0 and first + high - low <= len(CONTIGS[site[0]])
        if inside or options["edges"] == "pad":
            expected.append((i, first, window(site[0], first, high - low, reverse)))
    assert rows == [row for _, _, row in expected]
    opened = fcl.open_data(tmp_path / "out.zarr", groups="obs/group")
    assert opened.groups is not None
    assert opened.groups.tolist() == [SITES[i][0] for i, _, _ in expected]
    kept = [i for i, _, _ in expected]
    assert group["obs/source_row"][:].tolist() == kept
    assert group["obs/start"][:].tolist() == [first for _, first, _ in expected]
    assert group["y"][:].tolist() == [SITES[i][4] for i in kept]
    outside = len(SITES) - len(kept)
    assert summary.dropped == ({"beyond the end of a contig": outside} if outside else {})
    for name, column in {"chromosome": 0, "group": 0, "name": 3, "strand": 5}.items():
        if name == "strand" and no_strand:
            continue
        found = fcl.open_data(tmp_path / "out.zarr", y=f"obs/{name}").target
        assert found is not None and found.tolist() == [SITES[i][column] for i in kept]


def test_unknown_letters_of_padded_windows(tmp_path: Path) -> None:
    """Only bases of the genome count, whatever the strand; a window without any is dropped."""
    expected, most = [], 0.15
    for i, site in enumerate(SITES):
        first = first_of(site, site[5] == "-", {"length": 95, "anchor": "start"})
        bases = CONTIGS[site[0]][max(first, 0) : max(first + 95, 0)].upper()
        if bases.count("N") <= most * len(bases):
            expected.append(i)
    options = {"length": 95, "anchor": "start", "edges": "pad", "max_unknown": most}
    _, group, summary = made(tmp_path, **options)
    assert group["obs/source_row"][:].tolist() == expected and 2 < len(expected) < 38
    assert summary.dropped == {"with a share of unknown letters above 0.15": 40 - len(expected)}
    (tmp_path / "s.bed").write_text("1\t0\t1\n2\t39\t40\n1\t200\t201\n2\t0\t1\n")
    options = {"window": "1:5", "edges": "pad"}
    rows, _, _ = made(tmp_path, **options)
    assert len(rows) == 4
    _, group, _ = made(tmp_path, max_unknown=1, **options)
    assert group["obs/source_row"][:].tolist() == [0, 3]


def test_other_forms_of_lines(tmp_path: Path) -> None:
    plain, *_ = made(tmp_path, length=5, edges="pad")
    lines = (tmp_path / "s.bed").read_text()
    forms = {
        "comments": "track name=x\n#c\nbrowser y\n\n" + lines.replace("\n", "\r\n") + "\n# end\n",
        "blanks": lines.replace("\t", "  ").rstrip("\n"),
        "renamed": "".join(f"chr{line}\n" for line in lines.splitlines()),
        "header": "chrom\tstart\tend\tname\tscore\tstrand\n" + lines,
    }
    for name, text in forms.items():
        (tmp_path / "s.bed").write_text(text)
        rename = {"rename": "chr="} if name == "renamed" else {}
        rows, _, summary = made(tmp_path, length=5, edges="pad", **rename)
        assert rows == plain and summary.rows_in == 40, name
    rows, group, _ = made(tmp_path, length=5, edges="pad", label="score", both_strands=True)
    assert rows[::2] == plain and group["y"][:].tolist() == [s[4] for s in SITES for _ in "12"]
    turned = [[{0: 3, 1: 2, 2: 1, 3: 0, 4: 4}[code] for code in reversed(row)] for row in plain]
    assert rows[1::2] == turned


def test_names_like_comments(tmp_path: Path) -> None:
    """Only whole words begin a line to skip; cells of more than 8 bytes; signs and zeros."""
    names = ["track2", "browser_1", "tig9", "chrUn_KI270302v1"]
    (tmp_path / "h.fa").write_text("".join(f">{name}\nAACCGGTT\n" for name in names))
    lines = [f"{name}\t{i}\t{i + 3}\tname{i}\t{i % 2}" for i, name in enumerate(names)]
    lines += [
        "track\tx",
        "browser",
        "tig9\t+000000001\t4\t\t1",
        "tig9\t0000000002\t000000005\tx\t0",
    ]
    (tmp_path / "s.bed").write_text("\n".join(lines))
    rows, group, summary = made(tmp_path, genome=str(tmp_path / "h.fa"), label="score")
    first = [0, 1, 2, 3, 1, 2]
    assert rows == [[CODES[letter] for letter in "AACCGGTT"[i : i + 3]] for i in first]
    assert (group["y"][:].tolist(), summary.rows_in) == ([0, 1, 0, 1, 1, 0], 6)
    found = fcl.open_data(tmp_path / "out.zarr", y="obs/chromosome").target
    assert found is not None and found.tolist() == [*names, "tig9", "tig9"]


def test_columns_of_integers() -> None:
    """Digits are parsed eight at once; every width up to 16, and all other cells are left to int()."""
    texts = [str(n) for k in range(17) for n in (10**k - 1, 10**k // 3)]

    def parsed(texts: list[str]) -> Any:
        text = bytes(8) + "".join(f"{each}\n" for each in texts).encode()
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))[:, None]
        return BedCells(text, ends).integers(0)

    assert parsed(texts).tolist() == [int(text) for text in texts]
    for other in ("-1", "", " 1", "1:", "1/", "\x7f", "é", "1" * 17, "12345678x", "x12345678"):
        assert parsed([*texts, other]) is None


def test_blocks_obey_the_budget(tmp_path: Path) -> None:
    """Long windows of short lines are cut in parts."""
    (tmp_path / "g.fa").write_text(FASTA)
    (tmp_path / "s.bed").write_text("1\t1\t2\n" * 500)
    budget = Budget(10_000, 1000)
    for edges in ("drop", "pad"):
        options = Options(genome=str(tmp_path / "g.fa"), window="0:80", edges=edges)
        source = open_source([InputFile(tmp_path / "s.bed")], options, budget)
        blocks = list(source.blocks(budget))
        assert {len(block) for block in blocks} <= {12, 500 % 12} and sum(map(len, blocks)) == 500
        assert np.concatenate([block.source_row for block in blocks]).tolist() == list(range(500))


def test_summits_and_negatives(tmp_path: Path) -> None:
    peaks = [("1", 20, 40, 3), ("2", 5, 30, -1), ("1", 50, 60, 0)]
    lines = (f"{c}\t{s}\t{e}\tp\t0\t.\t1\t2\t3\t{peak}\n" for c, s, e, peak in peaks)
    (tmp_path / "s.bed").write_text("".join(lines))
    (tmp_path / "n.bed").write_text("2\t10\t20\tn\t0\t.\t1\t2\t3\t4\n")
    options = {"negatives": str(tmp_path / "n.bed"), "anchor": "summit"}
    rows, group, summary = made(tmp_path, length=6, **options)
    assert rows == [window("1", 20, 6, False), window("1", 47, 6, False), window("2", 11, 6, False)]
    assert group["y"][:].tolist() == [1, 1, -1]
    assert group["obs/source_row"][:].tolist() == [0, 2, 3]
    assert summary.dropped == {"without a summit": 1}
    rows, *_ = made(tmp_path, window="-1:2", **options)
    assert rows[0] == window("1", 22, 3, False)
    # negatives as plain BED use the center, as with --anchor center
    lines = "".join(f"2\t{start}\t{end}\n" for start, end in ((10, 20), (11, 20), (12, 13)))
    for shape in ({"length": 5}, {"length": 6}, {"window": "-1:2"}):
        (tmp_path / "n.bed").write_text(lines)
        rows, _, summary = made(tmp_path, **shape, **options)
        note = f"anchor: center in {tmp_path / 'n.bed'}, which has no column of summits"
        assert summary.notes.count(note) == 1
        (tmp_path / "s.bed").rename(tmp_path / "peaks")
        (tmp_path / "s.bed").write_text(lines)
        assert made(tmp_path, anchor="center", **shape)[0] == rows[2:]
        (tmp_path / "peaks").rename(tmp_path / "s.bed")


def test_files_with_other_columns(tmp_path: Path) -> None:
    (tmp_path / "s.bed").write_text("1\t20\t24\tp\t0\t-\n")
    (tmp_path / "n.bed").write_text("2\t10\t14\n")
    rows, group, _ = made(tmp_path, negatives=str(tmp_path / "n.bed"))
    assert rows == [window("1", 20, 4, True), window("2", 10, 4, False)]
    assert group["obs/name"][:].tolist() == ["p", ""]
    assert fcl.open_data(tmp_path / "out.zarr", y="obs/strand").target.tolist() == ["-", "."]
    *_, summary = made(tmp_path)
    assert summary.notes == ["strand: 1 window from the reverse strand, by column 6 (strand)"]
    (tmp_path / "s.bed").write_text("1\t20\t24\n")
    *_, summary = made(tmp_path, groups="chromosome")
    assert summary.notes == []
    assert fcl.open_data(tmp_path / "out.zarr", y="obs/group").target.tolist() == ["1"]


def test_whole_intervals(tmp_path: Path) -> None:
    (tmp_path / "s.bed").write_text("1\t3\t9\n2\t0\t6\n")
    rows, group, _ = made(tmp_path)
    assert rows == [window("1", 3, 6, False), window("2", 0, 6, False)]
    assert "y" not in group  # of one file without labels
    # a genome that is larger than the budget is read again for each block
    genome = Genome(InputFile(tmp_path / "g.fa"), Budget(1000, 7))
    genome._mapped = 2
    assert genome.lengths.tolist() == [90, 40]
    for reverse in (False, True):
        site = Windows(np.array([1]), np.array([-3]), np.array([reverse]))
        assert genome.cut(site, 44).tolist() == [window("2", -3, 44, reverse)]


def test_contigs_that_the_genome_lacks(tmp_path: Path) -> None:
    """They are skipped on request, counted and named."""
    sites = tmp_path / "s.bed"
    sites.write_text("1\t20\t24\ndecoy\t1\t5\n2\t10\t14\nalt\t1\t2000\ndecoy\t9\t13\n")
    options = {"skip_contigs": True, "length": 4}
    rows, group, summary = made(tmp_path, **options)
    assert rows == [window("1", 20, 4, False), window("2", 10, 4, False)]
    assert group["obs/source_row"][:].tolist() == [0, 2]
    assert summary.dropped == {"on a contig that the genome lacks": 3}
    assert "contigs: skipped 2 names that the genome lacks: 'decoy', 'alt'" in summary.notes
