#!/usr/bin/env python3
"""Speed of prediction in rows per second on one core, with a k-mer model of the same windows.

    python tools/bench/predict.py [--rows 1048576] [--d 8] [--C 0.1] [--repeat 5]
    python tools/bench/predict.py --sites 30 [--against CHECKOUT] [--repeat 5]

``in memory`` scores decoded windows; ``from Zarr`` also reads and decodes them; ``fcl-predict`` is the
whole command, from its start and imports to the file of scores.

``--sites M`` times ``fcl predict --sites AG --both-strands`` and ``--vcf`` on a random genome of M
million bases with a random model of 500 weights, in turn with the same commands of another checkout. The
peak is the largest resident set that the system reports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common, jobs

if TYPE_CHECKING:
    from fcl.model import Model


def main() -> None:
    """Train, score in three ways in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common.add_data_options(parser, every=40)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--sites", type=float, metavar="M", help="score a genome of M million bases"
    )
    parser.add_argument("--against", type=Path, help="another checkout, to compare with --sites")
    args = parser.parse_args()
    common.pin(args.core)
    if args.sites:
        return score_genome(round(1e6 * args.sites), args.against, args.repeat)
    import zarr

    from fcl import open_data
    from fcl.model import Model

    folder = common.windows_folder(args.data)
    all_rows = len(np.load(folder / "y.npy", mmap_mode="r"))
    codes, _ = common.load(folder, max(1, all_rows // args.rows))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        group = zarr.create_group(place / "rows.zarr")
        array = group.create_array(
            "seq", shape=codes.shape, dtype="u1", chunks=(65536, codes.shape[1])
        )
        array[:] = codes
        options = ["--features", f"kmers:d={args.d}", "--C", str(args.C), "--driver", "inline"]
        jobs.warm()
        jobs.train(common.every_kth(folder, args.every), options, place / "model.fcl")
        model = Model.load(place / "model.fcl")

        def stored() -> None:
            model.margins(open_data(place / "rows.zarr", x="seq", y=None))

        def command() -> None:
            names = [str(place / "model.fcl"), str(place / "rows.zarr"), "--x", "seq"]
            jobs.run_cli("predict", *names, "--out", str(place / "scores.npy"), "--overwrite")

        ways: dict[str, Callable[[], object]] = {
            "in memory": lambda: model.margins(codes),
            "from Zarr": stored,
            "fcl-predict": command,
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            way()
        for _ in range(args.repeat):
            for name, way in ways.items():
                begun = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - begun)
    print(common.machine())
    print(f"{len(codes):,} rows, d = {args.d}, {len(model.ids):,} weights, one core\n")
    rows = [
        [name, common.spread(found), f"{len(codes) / common.median(found) / 1e6:.2f}"]
        for name, found in times.items()
    ]
    print(common.table(["", "s", "million rows / s"], rows))


def score_genome(n_bases: int, against: Path | None, repeat: int) -> None:
    """Time the commands on a genome with each checkout in turn, and print a table."""
    checkouts = [common.ROOT, *([against.resolve()] if against else [])]
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        place = Path(folder)
        n_variants = make_genome(place, n_bases)
        random_model().save(place / "m.fcl")
        ways = {
            "--sites": ["--sites", "AG", "--both-strands"],
            "--vcf": ["--vcf", "v.vcf", "--sites", "AG", "--both-strands"],
        }
        keys = [(way, checkout) for way in ways for checkout in checkouts]
        for way, checkout in keys:  # compiles kernels
            run_predict(checkout, place, ways[way])
        found: dict[tuple[str, Path], list[tuple[int, float, int]]] = {key: [] for key in keys}
        for _ in range(repeat):
            for way, checkout in keys:
                found[way, checkout].append(run_predict(checkout, place, ways[way]))
    print(common.machine())
    print(f"{n_bases:,} bases, {n_variants:,} variants, one core\n")
    rows = []
    for (way, checkout), runs in found.items():
        n_rows, seconds, peaks = runs[0][0], [run[1] for run in runs], [run[2] for run in runs]
        rate = f"{n_rows / common.median(seconds):,.0f}"
        peak = f"{max(peaks) / (1 << 20):.0f}"
        rows.append([way, str(checkout), f"{n_rows:,}", common.spread(seconds), rate, peak])
    print(common.table(["", "checkout", "rows", "processor s", "rows / s", "peak MiB"], rows))


def make_genome(place: Path, n_bases: int) -> int:
    """Write g.fa with one contig, and v.vcf with a SNV every 2,000 bases; returns the number of SNVs."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, n_bases, np.uint8)
    (place / "g.fa").write_bytes(b">chr1\n" + np.frombuffer(b"ACGT", np.uint8)[codes].tobytes())
    at = np.arange(1000, n_bases, 2000)
    lines = (
        f"chr1\t{p + 1}\t.\t{'ACGT'[c]}\t{'CGTA'[c]}\n" for p, c in zip(at, codes[at], strict=True)
    )
    (place / "v.vcf").write_text("##fileformat=VCFv4.2\n" + "".join(lines))
    return len(at)


def random_model() -> Model:
    """A model of 500 random patterns of up to 8 letters in windows of 141."""
    from fcl.features import KmerFamily
    from fcl.model import Certificate, Model

    rng = np.random.default_rng(1)
    family = KmerFamily(8, 141, 70)
    ids = np.sort(rng.choice(family.n_features, 500, replace=False))
    support, certificate = np.ones(500, np.int64), Certificate(1.0, 1.0, 0.0, 1.0, 1, passes=1)
    return Model(
        family, ids, rng.normal(size=500), support, 0.3, "logistic", 1.0, 1.0, (-1, 1), 9, 9.0, "ab" * 32,
        certificate,
    )  # fmt: skip


def run_predict(checkout: Path, place: Path, options: list[str]) -> tuple[int, float, int]:
    """Score the genome with the code of a checkout; returns lines, processor seconds, peak bytes."""
    command = [sys.executable, "-m", "fcl", "predict", "m.fcl", "--genome", "g.fa", *options]
    child = subprocess.Popen(
        [*command, "--out", "o.bed", "--overwrite", "--quiet"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(checkout)},
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{checkout}: fcl predict ended with the exit code {child.returncode}")
    with (place / "o.bed").open("rb") as file:
        n_rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return n_rows, usage.ru_utime + usage.ru_stime, peak


if __name__ == "__main__":
    main()
