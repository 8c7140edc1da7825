"""Prediction of rows and of genomes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tools.bench import common
from tools.bench.commands import run_command
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures


def predict(
    rows: Rows, clock: Clock, way: str = "memory", C: float = 0.1, fit_every: int = 6
) -> Figures:
    """Score windows with a model of every k-th of them: decoded, from Zarr, or by the command.

    way : "memory", "zarr", or "command", with its start and its file of scores
    fit_every : k
    """
    import zarr

    import fcl

    few = fcl.open_data(rows.x[::fit_every].copy(), y=rows.y[::fit_every].copy())
    model: Any = fcl.train(few, rows.features, C=C, tol=1e-3).model
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        place = Path(folder)
        if way != "memory":
            group: Any = zarr.create_group(place / "rows.zarr")
            array = group.create_array(
                "seq", shape=rows.x.shape, dtype="u1", chunks=(65536, rows.x.shape[1])
            )
            array[:] = rows.x
            model.save(place / "model.fcl")
        model.margins(rows.x[:1000])
        with clock:
            if way == "memory":
                model.margins(rows.x)
            elif way == "zarr":
                model.margins(fcl.open_data(place / "rows.zarr", x="seq", y=None))
            else:
                names = [str(place / "model.fcl"), str(place / "rows.zarr"), "--x", "seq"]
                out = ["--out", str(place / "scores.npy"), "--overwrite"]
                run_command(["predict", *names, *out])
    return {"active": len(model.ids), "M rows/s": len(rows.y) / clock.seconds / 1e6}


def score_genome(folder: Path, clock: Clock, vcf: bool = False, checkout: str = "") -> Figures:
    """``fcl predict --sites AG --both-strands`` on a genome, or on its variants.

    checkout : folder of another version of fcl
    """
    options = ["--vcf", "v.vcf"] if vcf else []
    options += ["--sites", "AG", "--both-strands", "--out", "o.bed", "--overwrite", "--quiet"]
    with clock:
        peak, _ = run_command(
            ["predict", "m.fcl", "--genome", "g.fa", *options], cwd=folder, code=checkout
        )
    with (folder / "o.bed").open("rb") as file:
        n_rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return {"rows": n_rows, "rows/s": n_rows / clock.processor, "peak": peak / common.MIB}
