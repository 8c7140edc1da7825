"""``fcl predict``, ``report``, ``inspect`` and ``convert`` refuse files and options."""

from __future__ import annotations

import gzip
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl import extras
from fcl.features import KmerFamily
from tests.cli.refusals import Refuses, parametrized
from tests.cli.scored import LENGTH, random_model, write_genome

# -- doors: each gives the words of a command, for a working folder with letters in ``data``, and
# with their model m.fcl


def line(given: str) -> list[Any]:
    return shlex.split(given)


def predict(given: str) -> list[Any]:
    """Arrays; models of a number and of no model at all."""
    np.save("short.npy", np.zeros((5, 9), np.uint8))
    replace(fcl.Model.load("m.fcl"), loss="squared", labels=None).save("squared.fcl")
    Path("junk.fcl").write_text("junk")
    Path("stored.zarr").mkdir()
    for name in ("X", "y"):
        Path(f"stored.zarr/{name}.npy").write_bytes(Path(f"data/{name}.npy").read_bytes())
    return line(f"predict {given}")


def sequences(given: str) -> list[Any]:
    """Files of sequences, and a model of windows of 11 letters."""
    random_model().save("w.fcl")
    rng = np.random.default_rng(4)
    texts = ["".join(rng.choice(list("ACGTN"), LENGTH)) for _ in range(2)]
    Path("s.fa").write_text("".join(f">s{i} words\n{s}\n" for i, s in enumerate(texts)))
    Path("short.fa").write_text(">a\nACG\n")
    Path("mixed.fa").write_text(f">a\n{texts[0]}\n>b\nAC\n")
    Path("bad.fa").write_text(">a\nAC~\n")
    Path("s.bed").write_text("c1\t1\t2\n")
    Path("t.tsv").write_text("".join(f"{y}\t{texts[0]}\n" for y in (1, -1, 7)))
    Path("v.vcf.gz").write_bytes(gzip.compress(b"##fileformat=VCFv4.2\n"))
    return line(f"predict w.fcl --out o.tsv {given}")


def genome() -> None:
    random_model().save("w.fcl")
    replace(random_model(), family=KmerFamily(3, LENGTH, 0)).save("0.fcl")
    write_genome(Path("g.fa"))


def sites(given: str) -> list[Any]:
    genome()
    return line(f"predict {given} --out o")


def variants(given: tuple[str, str]) -> list[Any]:
    """The third line of a VCF file, and options."""
    text, options = given
    genome()
    Path("v.vcf").write_text(f"##x\n#CHROM\n{text}")
    return line(f"predict w.fcl --vcf v.vcf --genome g.fa --out o {options}")


def bcf(given: str) -> list[Any]:
    genome()
    Path("v.bcf").write_bytes(gzip.compress(b"BCF\2\2" + bytes(20)))
    return line(f"predict w.fcl --vcf v.bcf --genome g.fa --out o {given}")


def outputs(given: str) -> list[Any]:
    """Models 3.fcl of three classes and 2.fcl of two."""
    X = np.random.default_rng(5).normal(size=(90, 4))
    for k in (2, 3):
        data = fcl.open_data(X, y=np.arange(90) % k)
        loss = "softmax" if k == 3 else "logistic"
        fcl.train(data, "columns", C=1.0, loss=loss, tol=1e-4).model.save(f"{k}.fcl")
    np.save("X.npy", X)
    return line(f"predict {given} --out e.tsv")


def report(given: str) -> list[Any]:
    Path("full").mkdir()
    Path("full/file").write_text("kept")
    Path("names").write_text("a\nb\n")
    replace(fcl.Model.load("m.fcl"), labels=("x", "y")).save("other.fcl")
    return line(f"report_command {given}")


def meme(given: str) -> list[Any]:
    """A model without features has no motifs."""
    model = fcl.Model.load("m.fcl")
    replace(model, ids=[], weights=[], support=[]).save("e.fcl")  # type: ignore[arg-type]
    return line(f"inspect {given}")


def convert(given: tuple[str, str]) -> list[Any]:
    """A table of sequences s and of numbers y, and options."""
    text, options = given
    Path("t.tsv").write_text(text)
    return line(f"convert t.tsv o.zarr --x s --y y {options}")


def fasta(given: str) -> list[Any]:
    for name in ("x.fa", "y.fa", "a.fa"):
        Path(name).write_text(">a\nA\n")
    return line(given)


PREDICT = [
    ("length", predict, "m.fcl short.npy --out s.npy",
     r"short\.npy: windows of 9 letters, but .* windows of 12"),
    ("no data", predict, "m.fcl none.zarr --out s.npy", r"none\.zarr does not exist"),
    ("no model", predict, "no.fcl data --out s.npy", r"no\.fcl: no such model file"),
    ("no out", predict, "m.fcl data", "Missing option '--out'"),
    ("format of out", predict, "m.fcl data --out s.csv",
     r"s\.csv: scores are written to \.npy, \.tsv, \.zarr"),
    ("probability", predict, "squared.fcl data --out s.npy --probability",
     "probabilities need a model of logistic or softmax loss"),
    ("out on an array", predict, "m.fcl data --out data/X.npy",
     r"--out data/X\.npy: would replace data"),
    ("text", sequences, "s.fa --out o.npy", "scores of these inputs are text"),
    ("short", sequences, "short.fa", "the rows have 3 letters, but the model is made for windows of 11.*"
     r"--length 11 \(and --anchor, or --pad for shorter sequences\)"),
    ("two lengths", sequences, "mixed.fa", r"mixed\.fa: line 3: the sequence has 2 letters"),
    ("letter", sequences, "bad.fa", r"bad\.fa: line 2: '~' is not a nucleotide"),
    ("all short", sequences, "short.fa --length 11", "none of 1 records can be scored: 1 shorter"),
    ("out on input", sequences, "s.fa --out s.fa --overwrite", "would replace input 1"),
    ("genome", sequences, "s.fa --genome s.fa --format fasta",
     "--genome is not an option for the format fasta"),
    ("offset", sequences, "s.fa --offset o", "--offset is not an option for inputs other than"),
    ("length of arrays", sequences, "data --length 3",
     "--length is not an option for DATA in Zarr, HDF5"),
    ("sites", sequences, "s.fa --sites AG", r"--sites takes no other input, got s\.fa"),
    ("no input", sequences, "", r"expected an input: DATA, files such as test\.fa"),
    ("label", sequences, "s.fa --label 'header:(.)'",
     r"s\.fa: --label: expected the labels of the model, -1 "),
    ("no file", sequences, "none.fa", r"none\.fa does not exist"),
    ("label of a row", sequences, "t.tsv --x 2 --y 1", r"and 1, got 7\.0 in row 2 \(from 0\)"),
    ("variants", sequences, "v.vcf.gz", r"give --vcf v\.vcf\.gz --genome FILE to score variants"),
    ("memory", sequences, "s.fa --memory 3MiB", "memory: a budget of 3 MiB is too small"),
    ("no origin", sites, "0.fcl --genome g.fa --sites AG",
     "--sites: the positions of the model's features have no origin"),
    ("no genome", sites, "w.fcl --sites AG", "--sites needs --genome"),
    ("compressed", bcf, "", r"v\.bcf is a BCF file; expected VCF: convert it with"),
    ("no output", outputs, "3.fcl X.npy --explain 2",
     "this one has 3; name one of them: --explain-output LABEL"),
    ("unknown output", outputs, "3.fcl X.npy --explain 2 --explain-output 3",
     r"one of the 3 outputs of the model \(0, 1, 2\), got '3'"),
    ("no explain", outputs, "3.fcl X.npy --explain-output 1", "--explain-output needs --explain K"),
    ("one output", outputs, "2.fcl X.npy --explain 2 --explain-output 1",
     "this one has one; leave it out"),
    ("mean", outputs, "3.fcl X.npy --explain 2 --explain-output 1 --mean", "leave out --mean"),
    ("explained npy", line, "predict m.fcl data --explain 2 --out e.npy",
     r"e\.npy: .* a name that ends in \.tsv"),
]  # fmt: skip

VARIANTS = [
    ("columns", variants, ("c1\t5\tx\tA", ""),
     r"v\.vcf: line 3: expected the columns CHROM, POS, ID, REF and ALT"),
    ("position", variants, ("c1\t0\tx\tA\tC", ""),
     r"v\.vcf: line 3: expected a position \(POS\) from 1 on, got '0'"),
    ("REF", variants, ("c1\t5\tx\tA?\tC", ""),
     r"v\.vcf: line 3: expected nucleotides in REF, got 'A\?'"),
    ("ALT", variants, ("c1\t5\tx\tA\tC,-", ""),
     r"v\.vcf: line 3: expected nucleotides in ALT, got '-'"),
    ("contig", variants, ("9\t5\tx\tA\tC", ""), r"v\.vcf: line 3: g\.fa has no contig '9'"),
    ("name of contig", variants, ("chrc1\t5\tx\tA\tC", ""),
     "VCF says chrc1, genome says c1: --rename chr="),
    ("beyond", variants, ("c1\t999\tx\tA\tC", ""), r"g\.fa has 260 bases in this contig"),
    ("edge", variants, ("c1\t1\tx\tN\tC", "--edges error"),
     r"v\.vcf: line 3: a window around the variant leaves"),
    # the windows of the reference lie inside, those of the alternative do not
    ("edge of ALT", variants, ("c1\t253\tx\tNNNN\tN", "--edges error"),
     r"v\.vcf: line 3: a window around the variant leaves"),
    ("long line", variants, ("c1\t5\tx\t" + 100 * "A", ""),
     r"v\.vcf: line 3: expected at most 60 bytes in the columns CHROM"),
    ("position of symbols", variants, ("c1\t0\tx\tN\t<DEL>,N", ""),
     r"v\.vcf: line 3: expected a position \(POS\) from 1 on, got '0'"),
    ("probability", variants, ("c1\t1\tx\tN\tC", "--probability"),
     "--probability is not an option for --vcf, which"),
    ("no variant", variants, ("", ""), r"v\.vcf: expected at least one variant, found none"),
    ("site", variants, ("", "--sites A!"), "--sites: expected 1 to 1,000 letters"),
    ("origin", variants, ("", "--sites AG --origin 10"),
     "expected a site inside the window, which has 11"),
    ("max-unknown", variants, ("", "--max-unknown 0"), "--max-unknown is not an option for --vcf"),
]  # fmt: skip

REPORTS = [
    ("no out", report, "m.fcl", "Missing option '--out'"),
    ("no model", report, "no.fcl --out r.html", r"no\.fcl: no such model file"),
    ("out on model", report, "m.fcl --out m.fcl --overwrite", r"--out m\.fcl: would replace model"),
    ("weights alone", report, "m.fcl --out r.html --weights s", "--data, which is missing"),
    ("labels", report, "other.fcl --out r.html --data data",
     "data:y: expected the labels of the model, 'x' and 'y', got 0 in row 0"),
    ("names", report, "m.fcl --out r.html --data data --names names",
     "names: expected 12 names, .* got 2"),
    ("no names", report, "m.fcl --out r.html --names no", "no: cannot be read"),
    ("full folder", report, "m.fcl --out r.html --save-plots full", "full: is not empty"),
    ("plots on out", report, "m.fcl --out r.html --save-plots r.html",
     r"--save-plots r\.html: is the file of --out"),
    ("folder of data", report, "m.fcl --out r.html --save-data no/no",
     "--save-data no/no: expected a folder"),
    ("no features", meme, "e.fcl --meme e.meme", "expected a model with patterns of letters"),
    ("top 0", meme, "m.fcl --meme e.meme --top 0", r"expected at least one motif \(--top\), got 0"),
    ("two outputs", meme, "m.fcl --meme e.meme --tsv e.meme", r"--meme e\.meme: would replace tsv"),
]  # fmt: skip

LIBRARIES = [
    ("report", report, "m.fcl --out r.html", r"pip install 'fcl\[report\]'"),
    # before the training, not after it
    ("train", line, "train data --features kmers:d=3 --C 1 --out r.fcl --report r.html",
     r"pip install 'fcl\[report\]'"),
]  # fmt: skip

GOOD = "s\ty\nACGT\tx\n"
TABLES = [
    ("short line", convert, ("s\ty\nACGT\t1\nACGT\n", ""),
     r"t\.tsv: line 3: expected 2 columns, as in the first line, got 1"),
    ("tilde", convert, ("s\ty\nACGT\t1\nAC~T\t2\n", ""),
     "line 3: expected a sequence of A, C, G, T, U.* got 'AC~T'"),
    ("space", convert, ("s\ty\nACGT\t1\nAC T\t2\n", ""),
     "line 3: expected a sequence of .* got 'AC T'"),
    ("label", convert, ("s\ty\nACGT\t1\nACGT\tx\n", ""), "line 3: --y: expected a finite number"),
    ("weight x", convert, (GOOD, "--weights y"),
     "line 2: --weights: expected a finite number.* got 'x'"),
    ("weight below 0", convert, ("s\ty\tw\nACGT\t1\t0\nACGT\t1\t-1\n", "--weights w"),
     r"t\.tsv: line 3: --weights: expected numbers >= 0, got -1; correct it"),
    ("weight inf", convert, ("s\ty\tw\nACGT\t1\tinf\n", "--weights w"),
     "line 2: --weights: expected a finite"),
    ("weight empty", convert, ("s\ty\tw\nACGT\t1\t\n", "--weights w"),
     "line 2: --weights: expected a value"),
    ("groups", convert, (GOOD, "--groups z"), r"t\.tsv: has no column 'z'"),
    ("empty label", convert, ("s\ty\nACGT\tx\nAC\t\n", "--length 2"),
     "line 3: --y: expected a value, got an empty"),
    ("carriage return", convert, ("s\ty\nAC\rGT\t1\n", "--format sequences"),
     "line 2: expected a sequence of .* got 'AC.rGT'"),
    ("long line", convert, ("ACGT" * 20_000 + "\t1\n", "--format sequences"),
     "line 1 is longer than 65,536 bytes"),
    ("max-unknown", convert, (GOOD, "--max-unknown 2"),
     "'--max-unknown': expected from 0 to 1, got 2"),
    ("format", convert, (GOOD, "--format vw"), "--format: expected one of fasta, .* got 'vw'"),
    ("memory", convert, (GOOD, "--memory 2MiB"), "memory: a budget of 2 MiB is too small"),
    ("genome", convert, (GOOD, "--genome t.tsv"), "--x is not an option for the format bed"),
    ("out on input", fasta, "convert x.fa x.fa --overwrite", "would replace input 1"),
    ("name of out", fasta, "convert x.fa y.fa --overwrite",
     r"expected a name that ends in \.zarr, got"),
    ("two files of train", fasta, "train nope.fa nope2.fa", r"error: nope\.fa, nope2\.fa do not exist"),
    ("second file of train", fasta, "train a.fa nope.fa", r"error: nope\.fa does not exist"),
    ("group of train", fasta, "train nope.h5::/g --C 0.1 a.fa", "error: nope.h5::/g does not exist"),
    ("long name of train", fasta, f"train {'a' * 300} a.fa", "error: a+ does not exist"),
    ("option of train", fasta, "train nope.fa nope2.fa --nix", "No such option '--nix'"),
]  # fmt: skip


@parametrized(PREDICT, REPORTS, TABLES)
def test_refused(door: Any, given: Any, message: str, refuses: Refuses) -> None:
    refuses(door, given, message)


@parametrized(VARIANTS)
def test_variants_refused(
    door: Any, given: Any, message: str, refuses: Refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcl.convert.files.HEAD_BYTES", 50)
    monkeypatch.setattr("fcl.scoring.vcf._SLICE_BYTES", 50)
    monkeypatch.setattr("fcl.scoring.vcf._MOST_BYTES", 60)
    refuses(door, given, message)


@parametrized(LIBRARIES)
def test_refused_without_libraries(
    door: Any, given: Any, message: str, refuses: Refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", missing)
    refuses(door, given, message)
