"""Every kind of file that a command reads: a small valid one, and the command lines that read it.

A line is split at blanks. A word that names an entry of the stock stands for a copy of it, ``OUT`` with a
suffix for a new output, and ``< NAME`` at the end for standard input.
"""

from __future__ import annotations

import bz2
import gzip
import os
import random
from pathlib import Path

import numpy as np

from tools.fuzz import stock
from tools.fuzz.case import Case
from tools.fuzz.damage import copy

#: The output of a job whose folder of points is in the stock.
PATH = "path.fcl"
#: Files that are read together with one that a line names.
BESIDE = {"g.bed": ("g.bim", "g.fam")}

_TABLE = (
    "convert {} OUT.zarr --y y --missing mean",
    "convert {} OUT.zarr --y y --missing drop --like t.zarr",
    "predict t.fcl {} --y y --missing mean --out OUT.tsv",
)
_SVM = (
    "convert {} OUT.zarr",
    "convert {} OUT.zarr --like s.zarr",
    "convert {} OUT.zarr --names names.txt",
    "predict s.fcl {} --out OUT.tsv",
    "online - --columns 6 --features columns --alpha 0.01 --out OUT.fcl < {}",
)
_FASTA = (
    "convert {} n.fa OUT.zarr --length 8",
    "convert {} OUT.zarr --label header:c=(.+)",
    "predict b.fcl {} --out OUT.tsv",
)
_PLINK = (
    "convert g.bed OUT.zarr",
    "convert g.bed OUT.zarr --y p.tsv:trait --keep keep.txt",
    "convert g.bed OUT.zarr --like g.zarr",
    "predict g.fcl g.bed --out OUT.tsv",
)
_GENOME = (
    "convert i.bed OUT.zarr --genome {} --label 4",
    "predict b.fcl --sites AG --genome {} --out OUT.bed",
    "predict b.fcl --vcf v.vcf --genome {} --out OUT.tsv",
)
_DATA = (
    "train {} --features columns --C 1 --driver inline --out OUT.fcl",
    "train numbers --features columns --C 1 --driver inline --valid {} --out OUT.fcl",
    "predict numbers0.fcl {} --out OUT.npy",
    "report numbers0.fcl --data {} --out OUT.html",
    "certify numbers0.fcl {}",
    "online {} --features columns --alpha 0.01 --out OUT.fcl",
    "stagewise {} --features fourier:n=32 --block 16 --out OUT.fcl",
    "convert numbers0.fcl OUT.fcl --max-loss 0.1 --data {}",
)
_MODEL = "inspect {}", "inspect {} --tsv OUT.tsv", "report {} --out OUT.html"
_FOREIGN = "certify {} numbers --C 0.1", "certify {} numbers --C best --out OUT.fcl --json OUT.json"
_CONFIG = "{} --config {} --out OUT.fcl"

#: Each file of the stock that may be damaged, and the lines that read it; ``{}`` is its name.
READERS: dict[str, tuple[str, ...]] = {
    # text that is converted
    "t.csv": _TABLE,
    "t.csv.gz": _TABLE,
    "t.csv.bz2": _TABLE,
    "t.tsv": _TABLE,
    "t.parquet": _TABLE,
    "s.svm": _SVM,
    "s.svm.gz": _SVM[:-1],
    "names.txt": (_SVM[2].format("s.svm"), "report s.fcl --names {} --out OUT.html"),
    "p.fa": _FASTA,
    "p.fa.gz": _FASTA,
    "labels.tsv": ("convert p.fa OUT.zarr --label {}:class",),
    "q.tsv": ("convert {} OUT.zarr --x sequence --y y", "predict b.fcl {} --x 1 --out OUT.tsv"),
    "i.bed": (
        "convert {} OUT.zarr --genome g.fa --label 4 --groups 1",
        "convert {} OUT.zarr --genome g.fa --window -4:+4 --negatives j.bed",
        "predict b.fcl {} --genome g.fa --out OUT.tsv",
    ),
    "g.fa": _GENOME,
    "g.fa.gz": _GENOME,
    "v.vcf": ("predict b.fcl --vcf {} --genome g.fa --out OUT.tsv",),
    "v.vcf.gz": ("predict b.fcl --vcf {} --genome g.fa --out OUT.tsv",),
    "g.bed": _PLINK,
    "g.bim": _PLINK,
    "g.fam": _PLINK,
    "p.tsv": ("convert g.bed OUT.zarr --y {}:trait",),
    "keep.txt": ("convert g.bed OUT.zarr --keep {}",),
    # data that are read as they are
    "numbers": _DATA,
    "d.h5": (*_DATA, "convert {} OUT.zarr"),
    "a.h5": (
        "train {} --features columns --C 1 --driver inline --out OUT.fcl",
        "convert {} OUT.zarr",
    ),
    "t.zarr": (
        "convert t.csv OUT.zarr --y y --missing mean --like {}",
        "predict t.fcl {} --out OUT.npy",
        "train {} --features columns --C 1 --driver inline --covariates obs/group --out OUT.fcl",
        "predict cov.fcl {} --out OUT.tsv",
        "report cov.fcl --data {} --groups obs/group --out OUT.html",
        "certify cov.fcl {}",
        "train {} --features columns --path 3 --cv groups:obs/group --out OUT.fcl",
        "online {} --initial t.fcl --features columns --alpha 0.01 --out OUT.fcl",
        "stagewise {} --features columns --block 2 --out OUT.fcl",
    ),
    "s.zarr": ("convert s.svm OUT.zarr --like {}", "predict s.fcl {} --out OUT.npy"),
    "g.zarr": ("convert g.bed OUT.zarr --like {}", "predict g.fcl {} --out OUT.npy"),
    "classes": (
        "train {} --features columns --C 1 --loss softmax --driver inline --out OUT.fcl",
        "train {} --features columns --C 1 --loss softmax --group --driver inline --out OUT.fcl",
        "predict soft.fcl {} --out OUT.tsv",
        "report soft.fcl --data {} --out OUT.html",
    ),
    # models
    "t.fcl": (
        *_MODEL,
        "predict {} t.csv --missing mean --out OUT.tsv",
        "certify {} t.zarr",
        "certify w.tsv t.zarr --bound-from {}",
        "convert {} OUT.fcl --bits 5",
        "train t.zarr --features columns --C 2 --initial {} --driver inline --out OUT.fcl",
        "online t.zarr --features columns --initial {} --alpha 0.01 --out OUT.fcl",
    ),
    "b.fcl": (*_MODEL, "inspect {} --meme OUT.meme", "predict {} p.fa --out OUT.tsv"),
    "g.fcl": (*_MODEL, "predict {} g.bed --out OUT.tsv"),
    "cov.fcl": (*_MODEL, "predict {} t.zarr --out OUT.tsv", "certify {} t.zarr"),
    "soft.fcl": (
        *_MODEL,
        "predict {} classes --out OUT.tsv",
        "predict {} classes --explain 2 --explain-output 1 --out OUT.tsv",
    ),
    "compact.fcl": (*_MODEL, "predict {} t.csv --missing mean --out OUT.tsv"),
    "online.fcl": (
        *_MODEL,
        "online t.zarr --resume {} --passes 3 --out OUT.fcl",
        "predict {} t.csv --missing mean --out OUT.tsv",
    ),
    "stream.fcl": ("online - --columns 6 --resume {} --out OUT.fcl < s.svm", "inspect {}"),
    "stage.fcl": (*_MODEL, "predict {} t.zarr --out OUT.tsv", "convert {} OUT.fcl --bits 5"),
    "stage.ck": ("stagewise t.zarr --resume {} --visits 4 --out OUT.fcl",),
    "numbers0.ck": ("train numbers --resume {} --max-passes 100 --out OUT.fcl",),
    "path.fcl.path": ("train numbers --features columns --path 3 --cv 2 --out path.fcl",),
    # models of other programs
    "vw.txt": _FOREIGN,
    "vw_names.txt": _FOREIGN,
    "w.tsv": ("certify {} t.zarr --C 0.1", "certify {} t.zarr --C best --out OUT.fcl"),
    "coef.npy": _FOREIGN,
    "coef.npz": _FOREIGN,
    # options
    "train.toml": (_CONFIG.format("train numbers --driver inline --C 1", "train.toml"),),
    "online.toml": (_CONFIG.format("online numbers --alpha 0.01", "online.toml"),),
    "stage.toml": (_CONFIG.format("stagewise numbers --features columns", "stage.toml"),),
}
#: Files in which each number must be spelled as in C: other spellings must be refused.
STRICT = {"s.svm", "s.svm.gz", "w.tsv", "p.tsv"}

#: How the stock is made from the texts.
_MAKE = (
    "convert t.csv t.zarr --y y --groups g --missing mean",
    "train t.zarr --features columns --C 1 --driver inline --out t.fcl",
    "convert s.svm s.zarr",
    "train s.zarr --features columns --C 1 --driver inline --out s.fcl",
    "convert i.bed i.zarr --genome g.fa --label 4",
    "train i.zarr --features kmers:d=2,origin=4 --C 1 --driver inline --out b.fcl",
    "convert g.bed g.zarr",
    "train g.zarr --features columns --C 1 --loss squared --driver inline --out g.fcl",
    "train t.zarr --features columns --C 1 --covariates obs/group --driver inline --out cov.fcl",
    "train classes --features columns --C 1 --loss softmax --driver inline --out soft.fcl",
    "convert t.fcl compact.fcl --bits 6",
    "online t.zarr --features columns --alpha 0.01 --passes 2 --out online.fcl",
    "online - --columns 6 --features columns --alpha 0.01 --out stream.fcl < s.svm",
    "stagewise t.zarr --features fourier:n=32 --block 16 --checkpoint stage.ck "
    "--checkpoint-every 0.00001s --out stage.fcl",
    "train numbers --features columns --path 3 --cv 2 --out path.fcl",
)


def _texts() -> dict[str, str]:
    """The files of text, from which the commands make the others."""
    rng = random.Random(0)

    def letters(n: int) -> str:
        return "".join(rng.choices("ACGT", k=n))

    table, svm = ["n,m,city,g,y"], []
    for i in range(60):
        x = rng.gauss(0.0, 1.0)
        y = int(x + 0.5 * rng.gauss(0.0, 1.0) > 0.0)
        missing = "" if i % 13 == 5 else f"{x:.4f}"
        table.append(f"{missing},{i % 7},{rng.choice(('Rome', 'Oslo', 'Bonn'))},{'uvw'[i % 3]},{y}")
        values = [
            f"{j + 1}:{rng.gauss(y, 1.0):.3f}" for j in range(6) if i == 0 or rng.random() < 0.7
        ]
        svm.append(" ".join(["1" if y else "-1", *values]))
    contig = letters(400)
    samples = [f"s{i}" for i in range(20)]
    variants = [(f"rs{j}", 100 + j, *rng.sample("ACGT", 2)) for j in range(8)]
    names = [f"x{j}" for j in range(6)]
    weights = {"n": 0.5, "city=Oslo": -0.25, "(intercept)": 0.1}
    texts = {
        "t.csv": table,
        "t.tsv": [line.replace(",", "\t") for line in table],
        "s.svm": svm,
        "names.txt": names,
        "p.fa": [f">p{i} c={i % 2}\n{letters(8)}" for i in range(30)],
        "n.fa": [f">n{i} c={i % 2}\n{letters(8)}" for i in range(30)],
        "labels.tsv": ["name\tclass", *(f"p{i}\t{'ab'[i % 2]}" for i in range(30))],
        "q.tsv": ["sequence\ty", *(f"{letters(8)}\t{i % 2}" for i in range(30))],
        "g.fa": [">chr1 x", contig[:200], contig[200:], ">chr2", contig[100:300]],
        "i.bed": [f"chr1\t{5 * i}\t{5 * i + 8}\t{i % 2}\t{i}\t{'+-'[i % 2]}" for i in range(40)],
        "j.bed": [f"chr2\t{9 * i}\t{9 * i + 8}" for i in range(20)],
        "v.vcf": [
            "##fileformat=VCFv4.2",
            "#CHROM\tPOS\tID\tREF\tALT",
            *(f"chr1\t{k + 1}\tv{k}\t{contig[k]}\t{contig[k + 1 :].lstrip(contig[k])[0]}"
              for k in range(20, 120, 9)),
        ],
        "g.bim": [f"1\t{name}\t0\t{at}\t{a}\t{b}" for name, at, a, b in variants],
        "g.fam": [f"f {name} 0 0 1 {rng.gauss(0, 1):.3f}" for name in samples],
        "p.tsv": ["IID\ttrait", *(f"{name}\t{rng.gauss(0, 1):.3f}" for name in samples)],
        "keep.txt": samples[:15],
        "w.tsv": [f"{name}\t{value}" for name, value in weights.items()],
        "vw.txt": [*_vw_header(), "0:0.5", "3:-0.25", "11650396:0.1"],
        "vw_names.txt": [*_vw_header(), "x0:13472251:0.5", "x3:16299872:-0.25", "Constant:11650396:0.1"],
        "train.toml": ['features = "columns"', "tol = 1e-3", 'loss = "logistic"', "seed = 3"],
        "online.toml": ['features = "columns"', "passes = 2", 'class-weight = "balanced"'],
        "stage.toml": ["block = 4", "visits = 2", "alpha = 0.5"],
    }  # fmt: skip
    return {name: "\n".join([*lines, ""]) for name, lines in texts.items()}


def _vw_header() -> list[str]:
    return [
        "Version 9.10.0", "Id ", "Min label:-1", "Max label:1", "bits:24", "lda:0", "0 ngram:",
        "0 skip:", "options:", "Checksum: 1", ":0",
    ]  # fmt: skip


def make_files(folder: Path) -> None:
    """Make all files of `READERS`; the data and models of `stock` are there already."""
    import pyarrow.csv
    import pyarrow.parquet

    for name, text in _texts().items():
        (folder / name).write_text(text)
        for suffix, module in ((".gz", gzip), (".bz2", bz2)):
            if name + suffix in READERS:
                (folder / (name + suffix)).write_bytes(module.compress(text.encode()))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "t.csv"), folder / "t.parquet")
    numbers = np.random.default_rng(1)
    codes = numbers.choice([0, 2, 3, 1], (8, 20, 1), p=[0.3, 0.4, 0.2, 0.1])  # 1: missing
    packed = (codes.reshape(8, 5, 4) << np.arange(0, 8, 2)).sum(axis=2).astype(np.uint8)
    (folder / "g.bed").write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    rows = stock.arrays(numbers, "numbers")
    for name, form in (("d", "hdf5"), ("a", "h5ad")):
        stock.store(folder, name, form, rows)
    rows["y"] = numbers.integers(0, 3, len(rows["y"]))
    stock.store(folder, "classes", "npy folder", rows)
    coef = numbers.normal(size=6)
    np.save(folder / "coef.npy", coef)
    np.savez(folder / "coef.npz", coef=coef[None], intercept=np.array([0.5]))
    for line in _MAKE:
        stock.run(line.split(), folder)
    (folder / PATH).unlink()  # the job of the folder can be continued


def place(case: Case, line: str) -> tuple[list[str], str]:
    """Copy the files of a line; return its arguments, and the name of standard input, or ""."""
    words = []
    for text in line.split():
        word = text
        if text.startswith("OUT."):
            word = case.output(case.fresh(text[3:]))
        name = word.partition(":")[0]
        for each in (name, *BESIDE.get(name, ())):
            if os.path.exists(case.stock / each):
                copy(case, each)
        if word == PATH:
            copy(case, f"{PATH}.path")
            case.output(PATH)
        if word.endswith(".ck"):
            case.output(word)
        words.append(word)
    stdin = words[-1] if "<" in words else ""
    return words[: words.index("<")] if stdin else words, stdin
