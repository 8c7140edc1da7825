"""Valid inputs: data sets in every format, models and checkpoints, and the other files of commands.

READERS has the command lines that read each file. A line is split at blanks. A word that names an entry
of the stock stands for a copy of it, ``OUT`` with a suffix for a new output, and ``< NAME`` at the end
for standard input.
"""

from __future__ import annotations

import bz2
import gzip
import json
import os
import random
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz.case import Case

Arrays = dict[str, np.ndarray]

#: Families for rows of each kind that train within milliseconds.
FAMILIES = {
    "numbers": ("columns", "products:degree=2", "fourier:n=20", "columns + fourier:n=10 * 2"),
    "letters": (
        "kmers:d=2",
        "bag:d=2",
        "bag:d=2,strands=both",
        "bag:d=2,value=presence,wildcards=true",
        "kmers:d=2 + bag:d=1 * 0.5",
    ),
}
#: Columns of the rows of each kind, so that models and data of all cases fit together.
WIDTHS = {"numbers": 6, "letters": 8}
LOSSES = ("logistic", "squared", "squared_hinge")
FORMATS = (
    "npy folder", "npy file", "zarr2", "zarr3", "zarr3 sharded", "zarr2 zip", "zarr3 zip",
    "zarr group", "hdf5", "hdf5 group",
)  # fmt: skip
SPARSE_FORMATS = ("h5ad", "zarr csr")


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
        "train {} --features columns --C 1 --loss softmax --penalty group --driver inline --out OUT.fcl",
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
for _rows, _specs in FAMILIES.items():
    for _k in range(len(_specs)):
        READERS[f"{_rows}{_k}.fcl"] = (
            *_MODEL,
            f"predict {{}} {_rows} --out OUT.npy",
            f"report {{}} --data {_rows} --out OUT.html",
        )
        READERS[f"{_rows}{_k}.ck"] = (
            f"train {_rows} --resume {{}} --driver inline --max-passes 200 --tol 1e-6 --out OUT.fcl",
        )
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


def arrays(numbers: np.random.Generator, kind: str, n: int = 60) -> Arrays:
    """Make rows of a kind, a target that one column explains, and sample weights."""
    shape = n, WIDTHS[kind]
    if kind == "letters":
        X = numbers.integers(0, 4, shape).astype(np.uint8)
        signal = (X[:, 1] == 2) - 0.5
    else:
        X = numbers.normal(size=shape).astype(np.float32)
        signal = X[:, 0]
    y = np.where(signal + 0.7 * numbers.normal(size=n) > 0, 1, -1)
    y[:2] = -1, 1
    return {"X": X, "y": y.astype(np.int8), "s": numbers.uniform(0.5, 2.0, n)}


def store(folder: Path, name: str, form: str, data: Arrays) -> str:
    """Write arrays in one of the formats; return the name to give as DATA."""
    path = folder / name
    if form == "npy folder":
        path.mkdir()
        for key, values in data.items():
            np.save(path / f"{key}.npy", values)
        return name
    if form == "npy file":
        path.mkdir()
        return f"{store(folder, f'{name}/d', 'npy folder', data)}/X.npy"
    if form.startswith("hdf5") or form == "h5ad":
        return _store_hdf5(folder, f"{name}.h5", form, data)
    return _store_zarr(folder, f"{name}.zarr", form, data)


def _csr(X: np.ndarray) -> tuple[Arrays, dict[str, Any]]:
    dense = np.where(np.abs(X) < 0.4, 0.0, X)
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    parts = {
        "indptr": indptr.astype(np.int32),
        "indices": columns.astype(np.int32),
        "data": dense[rows, columns].astype(np.float32),
    }
    shape = [int(size) for size in X.shape]
    return parts, {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape}


def _store_hdf5(folder: Path, name: str, form: str, data: Arrays) -> str:
    import h5py

    with h5py.File(folder / name, "w") as file:
        group = file.create_group("/a/b") if form == "hdf5 group" else file
        for key, values in data.items():
            if form == "h5ad" and key == "X":
                parts, attributes = _csr(values)
                matrix = group.create_group("X")
                matrix.attrs.update(attributes)
                for part, content in parts.items():
                    matrix.create_dataset(part, data=content)
            else:
                group.create_dataset(key, data=values, chunks=True, compression="gzip")
    return f"{name}::/a/b" if form == "hdf5 group" else name


def _store_zarr(folder: Path, name: str, form: str, data: Arrays) -> str:
    import zarr

    version: Any = 2 if "2" in form else 3
    zipped = form.endswith("zip")
    place: Any = os.fspath(folder / name)
    if zipped:
        name += ".zip"
        place = zarr.storage.ZipStore(folder / name, mode="w")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _fill_zarr(zarr.open_group(place, mode="w", zarr_format=version), form, data)
    finally:
        if zipped:
            place.close()
    return f"{name}::/a" if form == "zarr group" else name


def _fill_zarr(root: Any, form: str, data: Arrays) -> None:
    group = root.create_group("a") if form == "zarr group" else root
    for key, values in data.items():
        if form == "zarr csr" and key == "X":
            parts, attributes = _csr(values)
            matrix = group.create_group("X", attributes=attributes)
            for part, content in parts.items():
                matrix.create_array(part, data=content, chunks=(32,))
            continue
        extra: dict[str, Any] = {"chunks": (16, *values.shape[1:])}
        if form == "zarr3 sharded":
            extra["shards"] = (32, *values.shape[1:])
        group.create_array(key, data=values, **extra)


def write_plink(
    folder: Path,
    name: str,
    counts: np.ndarray,
    names: list[str],
    places: list[int],
    alleles: list[tuple[str, ...]],
    y: np.ndarray,
) -> None:
    """Write .bed, .bim and .fam: two bits for a genotype, of which 3, 2 and 0 are 0, 1 and 2 copies."""
    codes = np.select([np.isnan(counts), counts == 0, counts == 1], [1, 3, 2], 0).T
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 4)))
    packed = (padded.reshape(len(codes), -1, 4) << np.arange(0, 8, 2)).sum(axis=2)
    (folder / f"{name}.bed").write_bytes(b"\x6c\x1b\x01" + packed.astype(np.uint8).tobytes())
    variants = zip(names, places, alleles, strict=True)
    bim = [f"1\t{one}\t0\t{100 + at}\t{a}\t{b}\n" for one, at, (a, b) in variants]
    (folder / f"{name}.bim").write_text("".join(bim))
    (folder / f"{name}.fam").write_text("".join(f"f s{i} 0 0 1 {v:.4f}\n" for i, v in enumerate(y)))


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
        "p.tsv": ["IID\ttrait", *(f"{name}\t{rng.gauss(0, 1):.3f}" for name in samples)],
        "keep.txt": samples[:15],
        "w.tsv": [f"{name}\t{value}" for name, value in weights.items()],
        "vw.txt": [*_vw_header(), "0:0.5", "3:-0.25", "11650396:0.1"],
        "vw_names.txt": [*_vw_header(), "x0:13472251:0.5", "x3:16299872:-0.25", "Constant:11650396:0.1"],
        "train.toml": ['features = "columns"', "tol = 1e-3", 'loss = "logistic"', "seed = 3"],
        "seed.toml": ["seed = 3"],
        "online.toml": ['features = "columns"', "passes = 2", 'class-weight = "balanced"'],
        "stage.toml": ["block = 4", "visits = 2", "alpha = 0.5"],
    }  # fmt: skip
    return {name: "\n".join([*lines, ""]) for name, lines in texts.items()}


def _vw_header() -> list[str]:
    return [
        "Version 9.10.0", "Id ", "Min label:-1", "Max label:1", "bits:24", "lda:0", "0 ngram:",
        "0 skip:", "options:", "Checksum: 1", ":0",
    ]  # fmt: skip


def make_stock(folder: Path) -> None:
    """Make all files of `READERS`: the data ``numbers`` and ``letters``, and for each family a model and
    two checkpoints, too.

    This also loads all modules and kernels that the cases need. The import of scikit-learn sets
    environment variables, so it must come before the first case.
    """
    import pyarrow.csv
    import pyarrow.parquet

    import fcl.estimators  # noqa: F401

    numbers = np.random.default_rng(0)
    for kind, specs in FAMILIES.items():
        source = store(folder, kind, "npy folder", arrays(numbers, kind))
        for place, spec in enumerate(specs):
            name, loss = f"{kind}{place}", LOSSES[place % 3]
            words = (
                f"train {source} --C 1 --loss {loss} --driver inline --tol 1e-12 --max-passes 1 "
            )
            words += f"--out {name}.fcl --checkpoint {name}.ck --checkpoint-every 0.000001s"
            run([*words.split(), "--features", spec], folder)
    for name, text in _texts().items():
        (folder / name).write_text(text)
        for suffix, module in ((".gz", gzip), (".bz2", bz2)):
            if name + suffix in READERS:
                (folder / (name + suffix)).write_bytes(module.compress(text.encode()))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "t.csv"), folder / "t.parquet")
    numbers = np.random.default_rng(1)
    counts = numbers.choice([2.0, 1.0, 0.0, np.nan], (20, 8), p=[0.3, 0.4, 0.2, 0.1])
    alleles = [tuple(numbers.permutation(list("ACGT"))[:2]) for _ in range(8)]
    names = [f"rs{j}" for j in range(8)]
    write_plink(folder, "g", counts, names, list(range(8)), alleles, numbers.normal(size=20))
    rows = arrays(numbers, "numbers")
    for name, form in (("d", "hdf5"), ("a", "h5ad")):
        store(folder, name, form, rows)
    rows["y"] = numbers.integers(0, 3, len(rows["y"]))
    store(folder, "classes", "npy folder", rows)
    coef = numbers.normal(size=6)
    np.save(folder / "coef.npy", coef)
    np.savez(folder / "coef.npz", coef=coef[None], intercept=np.array([0.5]))
    for line in _MAKE:
        run(line.split(), folder)
    (folder / PATH).unlink()  # the job of the folder can be continued
    for path in [*folder.rglob("*.fcl"), *folder.rglob("*.fcl-ckpt")]:
        if path.is_file():
            _make_constant(path, folder)


def run(words: list[str], folder: Path) -> None:
    """Run a command that must succeed; ``<`` and a name at the end are standard input."""
    from tools.fuzz.run import run_inside

    stdin = words[-1] if "<" in words else ""
    arguments = words[: words.index("<")] if stdin else words
    done = run_inside([*arguments, "--quiet"], folder, stdin)
    if done.code != 0:
        raise RuntimeError(f"cannot make the stock: {' '.join(words)}: {done.errors}")


def _make_constant(path: Path, folder: Path) -> None:
    """Replace times and paths in a header, so that a case damages the same bytes in every run."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members["header.json"].decode().replace(f"{os.path.realpath(folder)}/", "")
    header = json.loads(text.replace(f"{folder}/", ""))
    header["created"] = "2025-01-01T00:00:00+00:00"
    if "elapsed" in header:
        header["elapsed"] = 1.0
    for entry in header.get("history") or ():
        changing = ("seconds", "rows_per_second", "memory_bytes")
        entry.update({key: 1.0 for key in changing if key in entry})
    members["header.json"] = json.dumps(header).encode()
    write_zip(path, list(members.items()))


def write_zip(path: Path, members: list[tuple[str, bytes]], compress: bool = False) -> None:
    """Write a zip with valid checksums, whatever its members contain."""
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may occur twice on purpose
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in members:
                info = zipfile.ZipInfo(name)
                info.compress_type = method
                archive.writestr(info, content)


def copy(case: Case, name: str) -> str:
    """Copy an entry of the stock to the folder of the case, unless it is already there."""
    source, target = case.stock / name, case.folder / name
    if target.exists():
        return name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return name


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
