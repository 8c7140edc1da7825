"""``fcl predict`` on files: names beside scores, in the order of the input."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from tests.cli.conftest import ok
from tests.cli.scored import LENGTH, random_model, reverse, write_genome

Run = Callable[..., Result]
RNG = np.random.default_rng(4)
SEQUENCES = ["".join(RNG.choice(list("ACGTN"), LENGTH)) for _ in range(9)]
MODEL = random_model()
MARGINS = MODEL.margins(SEQUENCES)
PROBABILITY = 1 / (1 + np.exp(-MARGINS))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    MODEL.save("m.fcl")
    return "m.fcl"


def fasta(sequences: list[str], first: int = 0) -> str:
    return "".join(f">s{first + i} some words\n{s}\n" for i, s in enumerate(sequences))


def table(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_two_fasta_files(model: str, run: Run) -> None:
    Path("p.fa").write_text(fasta(SEQUENCES[:4]))
    Path("n.fa.gz").write_bytes(gzip.compress(fasta(SEQUENCES[4:], 4).encode()))
    result = ok(run("predict", model, "p.fa", "n.fa.gz", "--out", "o.tsv.gz"))
    head, *lines = table(gzip.decompress(Path("o.tsv.gz").read_bytes()).decode())
    assert head == ["name", "margin", "probability"]
    assert [line[0] for line in lines] == [f"s{i}" for i in range(9)]
    np.testing.assert_array_equal([float(line[1]) for line in lines], MARGINS)
    np.testing.assert_allclose([float(line[2]) for line in lines], PROBABILITY, rtol=1e-12)
    y = np.array([1] * 4 + [0] * 5)
    expected = (
        f"AUPRC {average_precision_score(y, MARGINS):.4f} (random {np.mean(y > 0):.4f}), "
        f"AUROC {roc_auc_score(y, MARGINS):.4f}, log loss {log_loss(y, PROBABILITY):.4f} "
        "(4 positive) over 9 rows"
    )
    assert expected in result.stderr
    again = run("predict", model, "p.fa", "n.fa.gz", "--out", "o.tsv.gz")
    assert again.exit_code == 2 and "exists already" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("both", [[], ["--both-strands"]])
def test_names_of_converted_data(model: str, run: Run, both: list[str]) -> None:
    """DATA of fcl convert gives the lines of its files; other data keep one column."""
    Path("p.fa").write_text(fasta(SEQUENCES))
    contigs = write_genome(Path("g.fa"))
    assert min(map(len, contigs.values())) > 60
    Path("s.bed").write_text("c2\t30\t31\tn\\a\t0\t-\nc1\t40\t41\tb\t0\t+\n")
    windows = ["--genome", "g.fa", "--window", "-4:+7", "--groups", "chrom"]
    for files, options in (("p.fa", []), ("s.bed", windows)):
        assert run("convert", files, "d.zarr", *options, *both, "--overwrite").exit_code == 0
        assert run("predict", model, files, *options, *both, "--out", "f.tsv").exit_code == 0
        ok(run("predict", model, "d.zarr", "--out", "d.tsv.gz", "--overwrite"))
        text = gzip.decompress(Path("d.tsv.gz").read_bytes()).decode()
        assert text == Path("f.tsv").read_text() and len(text.splitlines()) > 2
        ok(run("predict", model, "d.zarr", "--explain", 1, "--out", "e.tsv", "--overwrite"))
        lines, explained = table(text), table(Path("e.tsv").read_text())
        n = lines[0].index("margin")
        assert explained[0][: n + 3] == [*lines[0][:n], "probability", "margin", "intercept"]
        assert [line[:n] for line in explained] == [line[:n] for line in lines]
        margins = [[float(line[at]) for line in lines[1:]] for at in (n, n + 1)]
        found = [[float(line[at]) for line in explained[1:]] for at in (n + 1, n)]
        np.testing.assert_allclose(found, margins, rtol=1e-12)
        Path("f.tsv").unlink()
    group = zarr.open_group("d.zarr", mode="a")
    del group["obs/source_row"]
    assert run("predict", model, "d.zarr", "--out", "one.tsv").exit_code == 0
    assert Path("one.tsv").read_text().splitlines()[0] == "margin"


def test_dropped_records_keep_their_lines(model: str, run: Run) -> None:
    text = fasta(["AC", *SEQUENCES[:2], "", SEQUENCES[2], "A", "C"])
    Path("s.fa").write_text(text)
    options = ["--length", str(LENGTH)]
    result = run("predict", model, "s.fa", "--out", "a.tsv", *options)
    assert result.exit_code == 0 and "AUPRC" not in result.stderr
    assert "without a score: 3 of 7, shorter than 11 letters" in result.stderr
    assert [line[0] for line in table(Path("a.tsv").read_text())] == ["name", "s1", "s2", "s4"]
    run("predict", model, "s.fa", "--out", "b.tsv", *options, "--keep-dropped", "--quiet")
    lines = table(Path("b.tsv").read_text())[1:]
    assert [line[0] for line in lines] == ["", "s1", "s2", "", "s4", "", ""]
    assert [line[1] for line in lines if line[0]] == [repr(m) for m in MARGINS[:3].tolist()]
    assert all(line == ["", "", ""] for line in lines if not line[0])


def test_standard_streams(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fcl.cli.predict import command

    text = "y\tseq\tw\n" + "".join(f"{i % 2}\t{s}\t{i}\n" for i, s in enumerate(SEQUENCES))
    random_model((0, 1)).save("b.fcl")
    named = ["--x", "seq", "--y", "y", "--weights", "w", "--format", "sequences"]
    result = ok(CliRunner().invoke(command, ["b.fcl", "-", "--out", "-", *named], input=text))
    head, *lines = table(result.stdout)
    assert head == ["row", "margin", "probability"]
    assert [line[:2] for line in lines] == [
        [str(i), repr(m)] for i, m in enumerate(MARGINS.tolist())
    ]
    y, weights = np.arange(9) % 2, np.arange(9)
    expected = average_precision_score(y, MARGINS, sample_weight=weights)
    assert f"AUPRC {expected:.4f}" in result.stderr and "over 8 rows" not in result.stderr
    assert sorted(path.name for path in Path().iterdir()) == ["b.fcl", "m.fcl"]


def test_numbered_columns_of_a_table_without_header(model: str, run: Run) -> None:
    """The numbers of the columns are also in the first line, as a label and a weight."""
    lines = [f"{s}\t{1 - i % 2 * 2}\t{2 + i}\n" for i, s in enumerate(SEQUENCES)]
    Path("t.tsv").write_text("".join(lines))
    result = ok(
        run("predict", model, "t.tsv", "--x", "1", "--y", "2", "--weights", "3", "--out", "o.tsv")
    )
    margins = [float(line[1]) for line in table(Path("o.tsv").read_text())[1:]]
    np.testing.assert_array_equal(margins, MARGINS)
    y, weights = 1 - np.arange(9) % 2, 2 + np.arange(9)
    expected = average_precision_score(y, MARGINS, sample_weight=weights)
    assert f"AUPRC {expected:.4f}" in result.stderr


def test_intervals(model: str, run: Run) -> None:
    contigs = write_genome(Path("g.fa"))
    sites = [("c2", 30, "+"), ("c1", 2, "+"), ("c1", 200, "-")]
    Path("s.bed").write_text("".join(f"{c}\t{p}\t{p + 1}\tn{p}\t0\t{s}\n" for c, p, s in sites))
    result = ok(run(
        "predict", model, "s.bed", "--genome", "g.fa", "--window", "-4:+7", "--out", "o.tsv",
        "--keep-dropped",
    ))  # fmt: skip
    head, *lines = table(Path("o.tsv").read_text())
    assert head == ["chromosome", "start", "end", "name", "strand", "margin", "probability"]
    assert lines[1] == [""] * 7 and "1 of 3, beyond the end of a contig" in result.stderr
    windows = [contigs["c2"][26:37], reverse(contigs["c1"][194:205])]
    margins = [repr(margin) for margin in MODEL.margins(windows).tolist()]
    assert lines[0][:6] == ["c2", "26", "37", "n30", "+", margins[0]]
    assert lines[2][:6] == ["c1", "194", "205", "n200", "-", margins[1]]


def test_data_with_labels(model: str, run: Run) -> None:
    folder = Path("d")
    folder.mkdir()
    np.save("d/X.npy", np.array(SEQUENCES))
    y = np.where(np.arange(9) % 3, 1, -1)
    np.save("d/y.npy", y)
    np.save("d/s.npy", np.arange(1.0, 10.0))
    expected = average_precision_score(y, MARGINS, sample_weight=np.arange(1.0, 10.0))
    for out, more in (("a.npy", ()), ("-", ("--explain", 2)), ("a.tsv.gz", ())):
        result = run("predict", model, "d", "--out", out, "--weights", "s", *more)
        assert result.exit_code == 0 and f"AUPRC {expected:.4f}" in result.stderr, result.output
    np.testing.assert_array_equal(np.load("a.npy"), MARGINS)
    np.save("d/y.npy", np.arange(9))
    result = run("predict", model, "d", "--out", "b.npy")
    assert result.exit_code == 0 and "not compared with the target" in result.stderr
    result = run("predict", model, "d", "--out", "c.npy", "--y", "y")
    assert result.exit_code == 2 and "expected the labels of the model" in result.stderr
    assert not Path("c.npy").exists()
    random_model(None, "squared").save("r.fcl")
    result = run("predict", "r.fcl", "d", "--out", "d.npy")
    mse = np.mean((MARGINS - np.arange(9)) ** 2)
    line = f"mse {mse:.4f}, R2 {1 - mse / np.var(np.arange(9)):.4f} over 9 rows"
    assert line in result.stderr


def test_explained_files(model: str, run: Run) -> None:
    Path("s.fa").write_text(fasta([SEQUENCES[0], "AC", *SEQUENCES[1:]]))
    options = ["--length", str(LENGTH), "--keep-dropped", "--explain", 3, "--out", "o.tsv"]
    ok(run("predict", model, "s.fa", *options))
    head, first, dropped, *lines = table(Path("o.tsv").read_text())
    assert head == [
        "name", "margin", "probability", "intercept", "feature_1", "contribution_1", "feature_2",
        "contribution_2", "feature_3", "contribution_3", "others",
    ]  # fmt: skip
    assert dropped == [""] * len(head)
    for sequence, line, margin in zip(SEQUENCES, [first, *lines], MARGINS, strict=True):
        # features of these windows, by their text: pattern and position relative to letter 4
        found = {}
        for row in MODEL.describe():
            pattern, _, place = row.feature.partition(" at ")
            letters = sequence[4 + int(place) :][: len(pattern)].ljust(len(pattern))
            if all(p in (".", c) for p, c in zip(pattern, letters, strict=True)):
                found[row.feature] = row.weight
        largest = sorted(found, key=lambda name: -abs(found[name]))[:3]
        assert line[4:9:2] == largest + [""] * (3 - len(largest))
        assert [float(cell) for cell in line[5:10:2] if cell != "0"] == [found[x] for x in largest]
        assert (
            float(line[1])
            == margin
            == pytest.approx(sum(map(float, [line[3], *line[5:10:2], line[10]])))
        )


def test_a_model_without_features_is_explained(model: str, run: Run) -> None:
    none = np.empty(0, np.int64)
    replace(MODEL, ids=none, weights=none * 1.0, support=none).save("0.fcl")
    Path("s.fa").write_text(fasta(SEQUENCES[:1]))
    Path("d").mkdir()
    np.save("d/X.npy", np.array(SEQUENCES[:1]))
    for data in ("s.fa", "d"):
        result = run("predict", "0.fcl", data, "--explain", 2, "--out", "-", "--quiet")
        head, line = table(result.stdout)
        assert float(line[head.index("margin")]) == 0.3
        assert head[-2:] == ["intercept", "others"] and [float(x) for x in line[-2:]] == [0.3, 0]
