"""The inputs of ``fcl convert``, made once in a folder; notes.json has their path and number of rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tools.bench import data
from tools.bench.common import shared

RNG = np.random.default_rng(0)
#: Numbers of a row of a table.
N_NUMBERS = 20


def windows(folder: Path, scale: float, n_columns: int = 6) -> tuple[Path, int]:
    """Sites of both strands with names and labels, in the order of the genome."""
    cutter, archive, keys, labels = data.genome_sites(1, unclear=True)
    with (folder / "genome.fa").open("w") as file:
        for name in cutter.NAMES:
            codes = cutter.chromosome(archive, name)
            text = np.frombuffer(b"ACGT", np.uint8)[codes].tobytes().decode()
            lines = (text[i : i + 60] for i in range(0, len(text), 60))
            file.write(f">{name}\n" + "\n".join(lines) + "\n")
    step = max(1.0, sum(map(len, keys.values())) / (1e6 * scale))
    path, n_rows = folder / "sites.bed", 0
    with path.open("w") as file:
        for name, found in keys.items():
            some = np.arange(0, len(found), step).astype(np.int64)
            rows = zip(found[some].tolist(), labels[name][some].tolist(), strict=True)
            for key, y in rows:
                at = key >> 1
                cells = (name, at, at + 1, f"site{key}", y, "-+"[key & 1])
                file.write("\t".join(map(str, cells[:n_columns])) + "\n")
            n_rows += len(some)
    return path, n_rows


def svmlight(folder: Path, scale: float) -> tuple[Path, int]:
    """Repeat a9a."""
    text = gzip.decompress(shared("a9a.gz").read_bytes()).rstrip() + b"\n"
    copies = max(1, round(100 * scale))
    path = folder / "a9a.svm"
    with path.open("wb") as file:
        for _ in range(copies):
            file.write(text)
    return path, copies * text.count(b"\n")


def _lines(n_rows: int) -> bytes:
    """Rows of the case csv."""
    numbers = np.char.mod("%.5f", RNG.normal(size=(n_rows, N_NUMBERS)))
    colours = RNG.choice(["red", "green", "blue"], n_rows)
    labels = RNG.choice(["yes", "no"], n_rows)
    rows = zip(numbers.tolist(), colours, labels, strict=True)
    return "".join(f"{','.join(row)},{colour},{label}\n" for row, colour, label in rows).encode()


def table(folder: Path, scale: float) -> tuple[Path, int]:
    """Repeat some rows up to the size."""
    names = [f"n{i}" for i in range(N_NUMBERS)]
    block_rows = 20_000
    block = _lines(block_rows)
    copies = max(1, round(1e9 * scale / len(block)))
    path = folder / "table.csv"
    with path.open("wb") as file:
        file.write((",".join([*names, "colour", "y"]) + "\n").encode())
        for _ in range(copies):
            file.write(block)
    return path, copies * block_rows


def parquet(folder: Path, scale: float) -> tuple[Path, int]:
    """The columns of the case csv."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    path, step, n_rows = folder / "table.parquet", 200_000, max(1, round(2_000_000 * scale))
    schema = pa.schema([(f"n{i}", pa.float64()) for i in range(N_NUMBERS)] + [("y", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, step):
            m = min(step, n_rows - start)
            columns = [*RNG.normal(size=(N_NUMBERS, m)), RNG.choice(["yes", "no"], m)]
            writer.write_table(pa.table(columns, schema))
    return path, n_rows


def plink(folder: Path, scale: float) -> tuple[Path, int]:
    """Random genotypes, a quarter of them missing."""
    return _genotypes(folder, 2000, max(4, round(100_000 * scale)))


def samples(folder: Path, scale: float) -> tuple[Path, int]:
    """Many samples."""
    return _genotypes(folder, 50_000, max(4, round(40_000 * scale)))


def _genotypes(folder: Path, n_samples: int, n_variants: int) -> tuple[Path, int]:
    path = folder / "geno.bed"
    with path.open("wb") as file:
        file.write(b"\x6c\x1b\x01")
        for start in range(0, n_variants, 1000):
            m = min(1000, n_variants - start)
            file.write(RNG.integers(0, 256, m * n_samples // 4, np.uint8).tobytes())
    fam = (f"f{i} s{i} 0 0 1 {1 + i % 2}\n" for i in range(n_samples))
    path.with_suffix(".fam").write_text("".join(fam))
    bim = (f"1 rs{j} 0 {j} A C\n" for j in range(n_variants))
    path.with_suffix(".bim").write_text("".join(bim))
    return path, n_samples


MAKERS: dict[str, Callable[[Path, float], tuple[Path, int]]] = {
    "windows": windows,
    "bed3": partial(windows, n_columns=3),
    "svmlight": svmlight,
    "csv": table,
    "parquet": parquet,
    "plink": plink,
    "samples": samples,
}


def files(name: str = "csv", scale: float = 1.0) -> Path:
    """A folder with the input of a name, as large as the scale."""

    def write(to: Path) -> None:
        path, rows = MAKERS[name](to, scale)
        (to / "notes.json").write_text(json.dumps({"path": path.name, "rows": rows}))

    return data.made(f"convert-{name}-{scale:g}", write)
