#!/usr/bin/env python3
"""Measure rows per second and peak memory of ``fcl convert``.

    python tools/bench/convert.py [CASE ...] [--memory 512MiB] [--scale 1]

The inputs are made in a temporary folder, and removed. ``fcl convert`` runs as a child; its peak is the
largest resident set that the system reports. The cases are

    windows     1 million sites of C. elegans (BED, 36 MB) and the genome (84 MB): windows of 141 bases
    bed3        the same sites without names, labels and strands (BED of 3 columns)
    svmlight    a9a 100 times: 3.3 million rows, 45 million entries (236 MB)
    csv         1 GB: 20 columns of numbers, one of text, a label
    csv-wide    100,000 columns of digits, 1,000 rows (200 MB)
    parquet     2 million rows of the table of the case csv
    group       Parquet: 1 million rows of 60 columns of numbers in one group of rows
    texts       400,000 rows with a name of 2,000 letters each (Parquet)
    plink       2,000 samples, 100,000 variants (50 MB)
    samples     PLINK: 50,000 samples, 40,000 variants (500 MB)

The exit code is 1 if a peak is above the budget.
"""

from __future__ import annotations

import argparse
import gzip
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.units import parse_size
from tools.bench import common

RNG = np.random.default_rng(0)
#: Numbers of a row of the case csv.
N_NUMBERS = 20
#: How the windows of sites are cut.
_CUT = ("--genome", "{folder}/genome.fa", "--window", "-70:+71")


@dataclass(frozen=True)
class Case:
    """An input: a function that makes it in a folder, and returns its path and rows; options.

    The options may name ``{folder}``.
    """

    make: Callable[[Path, float], tuple[Path, int]]
    options: tuple[str, ...] = ()


def windows(folder: Path, scale: float, n_columns: int = 6) -> tuple[Path, int]:
    """Sites of both strands with names and labels, in the order of the genome."""
    cutter = SimpleNamespace(**runpy.run_path(str(common.SHARED / "make_celegans.py")))
    archive = np.load(common.SHARED / "celegans_acceptors.npz")
    bases = {name: cutter.chromosome(archive, name) for name in cutter.NAMES}
    with (folder / "genome.fa").open("w") as file:
        for name, codes in bases.items():
            text = np.frombuffer(b"ACGT", np.uint8)[codes].tobytes().decode()
            lines = (text[i : i + 60] for i in range(0, len(text), 60))
            file.write(f">{name}\n" + "\n".join(lines) + "\n")
    keys = {name: cutter.candidates(codes) for name, codes in bases.items()}
    step = max(1.0, sum(map(len, keys.values())) / (1e6 * scale))
    path, n_rows = folder / "sites.bed", 0
    with path.open("w") as file:
        for name, found in keys.items():
            chosen = found[np.arange(0, len(found), step).astype(np.int64)]
            label = np.where(np.isin(chosen, archive[f"{name}_acceptors"]), 1, -1)
            for key, y in zip(chosen.tolist(), label.tolist(), strict=True):
                at = key >> 1
                cells = (name, at, at + 1, f"site{key}", y, "-+"[key & 1])
                file.write("\t".join(map(str, cells[:n_columns])) + "\n")
            n_rows += len(chosen)
    return path, n_rows


def svmlight(folder: Path, scale: float) -> tuple[Path, int]:
    """Repeat a9a."""
    text = gzip.decompress((common.SHARED / "a9a.gz").read_bytes()).rstrip() + b"\n"
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


def wide(folder: Path, scale: float) -> tuple[Path, int]:
    """Many columns of digits."""
    n_columns, n_rows = 100_000, max(1, round(1000 * scale))
    path = folder / "wide.csv"
    with path.open("wb") as file:
        file.write((",".join(f"gene{i}" for i in range(n_columns)) + "\n").encode())
        for _ in range(n_rows):
            row = np.full(2 * n_columns, ord(","), np.uint8)
            row[::2] = RNG.integers(ord("0"), ord("9") + 1, n_columns)
            row[-1] = ord("\n")
            file.write(row.tobytes())
    return path, n_rows


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


def group(folder: Path, scale: float) -> tuple[Path, int]:
    """Columns of numbers in one group of rows."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    path, n_rows = folder / "group.parquet", max(1, round(1_000_000 * scale))
    columns = {f"n{i}": RNG.normal(size=n_rows) for i in range(60)}
    pq.write_table(pa.table(columns), path, row_group_size=n_rows)
    return path, n_rows


def texts(folder: Path, scale: float) -> tuple[Path, int]:
    """Long names of rows."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    path, step, n_rows = folder / "texts.parquet", 20_000, max(1, round(400_000 * scale))
    schema = pa.schema([("n", pa.float64()), ("id", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, step):
            m = min(step, n_rows - start)
            names = [f"{start + i:07}" + "x" * 1993 for i in range(m)]
            writer.write_table(pa.table([RNG.normal(size=m), names], schema))
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


CASES = {
    "windows": Case(windows, (*_CUT, "--label", "5")),
    "bed3": Case(partial(windows, n_columns=3), _CUT),
    "svmlight": Case(svmlight),
    "csv": Case(table, ("--y", "y")),
    "csv-wide": Case(wide),
    "parquet": Case(parquet, ("--y", "y")),
    "group": Case(group),
    "texts": Case(texts, ("--name", "id")),
    "plink": Case(plink),
    "samples": Case(samples),
}


def main() -> int:
    """Run the chosen cases; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs (default 1)")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"unknown cases {', '.join(unknown)}; expected some of {', '.join(CASES)}")
    print(common.machine())
    print(
        f"{'case':10} {'rows':>10} {'MB':>7} {'seconds':>8} {'rows/s':>10} {'MB/s':>7} {'peak MiB':>9}"
    )
    peaks = [measure(name, args.memory, args.scale) for name in args.cases or CASES]
    return int(max(peaks) > parse_size(args.memory))


def measure(name: str, memory: str, scale: float) -> int:
    """Run one case and print its line; return the peak in bytes."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        # in a child, since Linux counts the peak of a process also for the commands that it starts
        with ProcessPoolExecutor(1) as pool:
            path, n_rows = pool.submit(case.make, Path(folder), scale).result()
        command = [sys.executable, "-m", "fcl", "convert", str(path), f"{folder}/out.zarr"]
        options = [option.format(folder=folder) for option in case.options]
        since = time.perf_counter()
        child = subprocess.Popen([*command, "--memory", memory, "--quiet", *options])
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - since
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{name}: fcl convert ended with the exit code {child.returncode}")
        size = path.stat().st_size / 1e6
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(
        f"{name:10} {n_rows:>10,} {size:>7,.0f} {seconds:>8.1f} {n_rows / seconds:>10,.0f} "
        f"{size / seconds:>7.1f} {peak / (1 << 20):>9.0f}",
        flush=True,
    )
    return int(peak)


if __name__ == "__main__":
    sys.exit(main())
