"""The sites of a genome, and variants, against plain loops over its letters."""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from tests.cli.conftest import ok
from tests.cli.scored import LENGTH, ORIGIN, random_model, reverse, write_genome

Run = Callable[..., Result]
MODEL = random_model()
PATTERNS = {"AG": "AG", "AR": "A[AG]", "N": "[ACGTN]"}


@pytest.fixture
def contigs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    MODEL.save("m.fcl")
    return write_genome(Path("g.fa"))


def find(pattern: str, text: str) -> list[int]:
    return [found.start() for found in re.finditer(f"(?={PATTERNS[pattern]})", text)]


def sites(text: str, pattern: str) -> Iterator[tuple[int, str, str]]:
    """Start, strand and window of the sites of both strands whose windows lie inside."""
    for strand, letters in (("+", text), ("-", reverse(text))):
        for at in find(pattern, letters):
            first = at - ORIGIN
            if first >= 0 and first + LENGTH <= len(text):
                start = at if strand == "+" else len(text) - at - len(pattern)
                yield start, strand, letters[first : first + LENGTH]


@pytest.mark.parametrize(("pattern", "step"), [("AG", 1000), ("AR", 37), ("N", 100)])
def test_sites(
    pattern: str, step: int, contigs: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcl.scoring.sites._STEP", step)
    common = ["m.fcl", "--genome", "g.fa", "--sites", pattern]
    result = ok(run("predict", *common, "--both-strands", "--out", "o.bed.gz"))
    found = gzip.decompress(Path("o.bed.gz").read_bytes()).decode().splitlines()
    expected = []
    for name, text in contigs.items():
        here = sorted(sites(text, pattern), key=lambda site: site[:2])
        margins = MODEL.margins([window for _, _, window in here]).tolist()
        expected += [
            f"{name}\t{start}\t{start + len(pattern)}\t{pattern}\t{margin:.6f}\t{strand}"
            for (start, strand, _), margin in zip(here, margins, strict=True)
        ]
    assert found == expected and len(expected) > 20
    assert "beyond the end of a contig" in result.stderr
    result = run("predict", *common, "--out", "-", "--probability", "--quiet")
    forward = [line.split("\t") for line in expected if line.endswith("+")]
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[:4] for row in rows] == [row[:4] for row in forward]
    logits = np.array([float(row[4]) for row in forward])
    np.testing.assert_allclose(
        [float(row[4]) for row in rows], 1 / (1 + np.exp(-logits)), atol=1e-6
    )


def test_sites_at_the_edges(contigs: dict[str, str], run: Run) -> None:
    common = ["predict", "m.fcl", "--genome", "g.fa", "--sites"]
    counts = {}
    for pattern, edges in (("N", "drop"), ("N", "pad"), ("NNN", "pad")):
        run(*common, pattern, "--edges", edges, "--out", pattern + edges)
        counts[pattern, edges] = len(Path(pattern + edges).read_text().splitlines())
    # sites lie inside the contigs, of 260 and 90 letters
    assert list(counts.values()) == [350 - 2 * (LENGTH - 1), 350, 350 - 2 * 2]
    options = ["--genome", "g.fa", "--sites", "N", "--max-unknown", "0", "--out", "known"]
    result = run("predict", "m.fcl", *options)
    windows = [
        text[i : i + LENGTH] for text in contigs.values() for i in range(len(text) - LENGTH + 1)
    ]
    known = [window for window in windows if "N" not in window]
    assert len(Path("known").read_text().splitlines()) == len(known) < counts["N", "drop"]
    assert "unknown letters" in result.stderr


# -- variants


def alleles(ref: str, start: int, old: str, new: str) -> tuple[str, int, int, int]:
    """The alternative contig, and what changes: first letter, letters removed, letters inserted."""
    alt = ref[:start] + new + ref[start + len(old) :]
    while old and new and old[0] == new[0]:
        old, new, start = old[1:], new[1:], start + 1
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return alt, start, len(old), len(new)


def pairs(
    ref: str, alt: str, change: tuple[int, int, int], pattern: str | None
) -> Iterator[tuple[int, int]]:
    """Starts of all pairs of windows of one strand, by walking along both alleles."""
    at, removed, inserted = change
    if pattern is None:
        yield at - LENGTH // 2, at - LENGTH // 2
        return
    in_ref, in_alt = set(find(pattern, ref)), set(find(pattern, alt))
    aligned = [(i, i, True, True) for i in range(at)]
    for i in range(max(removed, inserted)):
        aligned.append((at + min(i, removed), at + min(i, inserted), i < removed, i < inserted))
    behind = range(len(ref) - at - removed)
    aligned += [(at + removed + i, at + inserted + i, True, True) for i in behind]
    for x, y, is_x, is_y in aligned:
        first, other = x - ORIGIN, y - ORIGIN
        overlaps = first < at + removed and first + LENGTH > at
        overlaps |= other < at + inserted and other + LENGTH > at
        if overlaps and ((is_x and x in in_ref) or (is_y and y in in_alt)):
            yield first, other


def padded(text: str, first: int) -> str:
    """A window of a contig, with N outside."""
    return "".join(text[i] if 0 <= i < len(text) else "N" for i in range(first, first + LENGTH))


def compared(
    ref: str, start: int, old: str, new: str, pattern: str | None, pad: bool
) -> dict[tuple[int, str], tuple[str, str]]:
    """Start and strand on the reference -> windows with each allele."""
    alt, at, removed, inserted = alleles(ref, start, old, new)
    found: dict[tuple[int, int, str], tuple[str, str]] = {}
    for strand in "+-":
        texts, place = (ref, alt), at
        if strand == "-":
            texts, place = (reverse(ref), reverse(alt)), len(ref) - at - removed
        for first, other in pairs(*texts, (place, removed, inserted), pattern):
            leaves = min(first, other) < 0 or max(first - len(ref), other - len(alt)) + LENGTH > 0
            if leaves and not pad:
                continue
            windows = padded(texts[0], first), padded(texts[1], other)
            where = first if strand == "+" else len(ref) - first - LENGTH
            found[len(found), where, strand] = windows
    return found


def random_variants(contigs: dict[str, str]) -> Iterator[tuple[str, int, str, list[str]]]:
    rng = np.random.default_rng(5)
    for name, text in contigs.items():
        for _ in range(40):
            start, size = int(rng.integers(0, len(text) - 4)), int(rng.integers(1, 5))
            old = text[start : start + size]
            news = ["".join(rng.choice(list("ACGT"), rng.integers(1, 5))) for _ in range(2)]
            news.append(old[0] + "".join(rng.choice(list("ACGT"), 3)))
            news.append("ACGT"[rng.integers(4)] + old[1:])
            yield name, start, old, [new for new in news if new != old]


@pytest.mark.parametrize(("pattern", "pad"), [("AG", False), (None, False), ("N", True)])
def test_variants(
    pattern: str | None, pad: bool, contigs: dict[str, str], run: Run, monkeypatch: Any
) -> None:
    monkeypatch.setattr("fcl.convert.files.HEAD_BYTES", 50)
    monkeypatch.setattr("fcl.scoring.vcf._SLICE_BYTES", 50)
    variants = list(random_variants(contigs))
    lines = [
        f"{c}\t{s + 1}\trs{i}\t{o}\t{','.join(n)}" + f"\t.\t.\t.{chr(9) * i}" * (i % 3) + "\r\n"
        for i, (c, s, o, n) in enumerate(variants)
    ]
    Path("v.vcf.gz").write_bytes(gzip.compress(("##x\n#CHROM\n" + "".join(lines)).encode()))
    where = [] if pattern is None else ["--sites", pattern]
    result = ok(run(
        "predict", "m.fcl", "--vcf", "v.vcf.gz", "--genome", "g.fa", "--both-strands", *where,
        "--keep-dropped", "--out", "d.tsv", *["--edges", "pad"] * pad,
    ))  # fmt: skip
    assert ("give their letters: --sites AG" in result.stderr) == (pattern is None)
    rows = [line.split("\t") for line in Path("d.tsv").read_text().splitlines()[1:]]
    each = [(c, s, i, o, n) for i, (c, s, o, news) in enumerate(variants) for n in news]
    n_empty = 0
    for (name, start, i, old, new), row in zip(each, rows, strict=True):
        assert row[:5] == [name, str(start + 1), f"rs{i}", old, new]
        found = compared(contigs[name], start, old, new, pattern, pad)
        if not found:
            assert row[5:] == [""] * 7
            n_empty += 1
            continue
        both = MODEL.margins(list(itertools.chain(*found.values()))).reshape(-1, 2)
        differences = both[:, 1] - both[:, 0]
        largest = np.abs(differences).max()
        assert abs(float(row[5])) == pytest.approx(largest, abs=1e-12)
        assert float(row[5]) == float(row[10]) - float(row[9]) and int(row[11]) == len(found)
        same = [
            key[1:]
            for key, d in zip(found, differences, strict=True)
            if abs(abs(d) - largest) < 1e-12
        ]
        assert (int(row[6]), row[8]) in same and int(row[7]) - int(row[6]) == LENGTH
    assert (n_empty == 0) == pad and n_empty < len(each) / 2
    assert pad or f"{n_empty} of {len(each)}, without a window" in result.stderr


def test_alleles_that_are_skipped(contigs: dict[str, str], run: Run) -> None:
    at = contigs["c1"].index("CAG", 30)
    other = "A" if contigs["c1"][60] != "A" else "C"
    Path("v.vcf").write_text(
        f"chrc1\t{at + 1}\ta\tC\tT,<DEL>,*,G\n"
        f"chrc1\t61\tb\t{other}\tG\nchrc1\t0\tt\tN\t<DEL>\n"
        f"chrc1\t{at + 1}\tc\tC\tC[2:3[\nchrc1\t{at + 1}\td\tC\t.\n"
    )
    common = ["m.fcl", "--vcf", "v.vcf", "--genome", "g.fa", "--rename", "chr=", "--out", "o"]
    result = run("predict", *common)
    has = contigs["c1"][60]
    assert result.exit_code == 2 and not Path("o").exists()
    assert f"v.vcf: line 2: REF is '{other}' at chrc1:61, but g.fa has {has};" in result.stderr
    result = ok(run("predict", *common, "--skip-mismatches"))
    assert [line.split("\t")[2:5] for line in Path("o").read_text().splitlines()[1:]] == [
        ["a", "C", "T"], ["a", "C", "G"],
    ]  # fmt: skip
    for text in (
        "4 of 8, symbolic alleles and breakends",
        "1 of 8, whose REF differs from the genome",
        "1 of 8, without an alternative allele",
    ):
        assert f"without a score: {text}" in result.stderr


def test_the_place_of_the_site_must_be_known(contigs: dict[str, str], run: Run) -> None:
    from dataclasses import replace

    from fcl.features import KmerFamily

    replace(MODEL, family=KmerFamily(3, LENGTH, 0)).save("0.fcl")
    options = ["--genome", "g.fa", "--sites", "AG"]
    run("predict", "0.fcl", *options, "--out", "a", "--origin", ORIGIN)
    run("predict", "m.fcl", *options, "--out", "b")
    assert Path("a").read_text() == Path("b").read_text() != ""


def test_variants_on_contigs_that_the_genome_lacks(contigs: dict[str, str], run: Run) -> None:
    at = contigs["c1"].index("C", 30)
    line = f"c1\t{at + 1}\ta\tC\tT\n"
    Path("v.vcf").write_text(f"decoy\t5\tx\tA\tC\n{line}alt\t5\tx\tA\tC\n")
    common = ["m.fcl", "--vcf", "v.vcf", "--genome", "g.fa", "--out", "o"]
    result = run("predict", *common)
    assert result.exit_code == 2 and not Path("o").exists()
    assert "v.vcf: line 1: g.fa has no contig 'decoy'" in result.stderr
    assert "; --skip-contigs skips and counts records on such contigs" in result.stderr
    result = ok(run("predict", *common, "--skip-contigs", "--keep-dropped"))
    assert "2 of 3, on a contig that the genome lacks" in result.stderr
    assert "contigs: skipped 2 names that the genome lacks: 'decoy', 'alt'" in result.stderr
    rows = [row.split("\t") for row in Path("o").read_text().splitlines()[1:]]
    assert [(row[0], row[5] != "") for row in rows] == [
        ("decoy", False),
        ("c1", True),
        ("alt", False),
    ]
    for text, message in (
        ("decoy\t5\tx\tA\tC\n", "g.fa has no contig 'decoy'"),
        (f"{line}chrc1\t5\tx\tA\tC\n", "VCF says chrc1, genome says c1: --rename chr="),
    ):
        Path("v.vcf").write_text(text)
        result = run("predict", *common, "--overwrite", "--skip-contigs")
        assert result.exit_code == 2 and message in result.stderr
