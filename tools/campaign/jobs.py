"""Small real jobs for the campaign, and their correct results."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from fcl.errors import BudgetError, InputError
from tools.campaign.cases import Case

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "celegans" / "train.zarr"


@dataclass(frozen=True)
class Size:
    """The size of the small job."""

    every: int = 97  #: takes every k-th row that is not a site, and every ``every_site``-th site
    every_site: int = 2
    d: int = 4
    tol: float = 1e-5
    C: float = 1.0
    block_rows: int = 512
    chunk_rows: int = 1024
    spare: int = 3  #: MiB above the smallest budget, if memory is small


#: For tests: starting processes takes nearly all of the time.
SMALL = Size(every=800, every_site=8, d=3, tol=1e-4, block_rows=256, chunk_rows=256, spare=0)


@dataclass(frozen=True)
class Setting:
    """The settings of one run; all of them lead to the optimum of their problem."""

    writers: int = 2  #: for the driver ``processes``
    driver: str = "processes"
    family: str = "kmers"  #: one of `FAMILIES`
    l1_ratio: float = 1.0
    small: bool = False  #: memory so small that columns are evicted and rows go to a scratch file
    sampled: bool = False  #: the trainer works on a sample of the rows
    valid: bool = False
    shared_files: bool = False
    resumed: bool = False  #: the fault occurs in a job that was resumed from a checkpoint

    @classmethod
    def choose(cls, case: Case, rng: random.Random) -> Setting:
        """Choose settings at random that satisfy the needs of the case."""
        driver = rng.choice(("processes", "processes", "inline"))
        family = rng.choice(("kmers", "kmers", *FAMILIES))
        if case.processes or case.needs == "small":
            driver = "processes"
        if case.needs in ("small", "sampled", "resumed"):
            family = "kmers"  # its size is known to suit these cases
        writers = rng.choice((1, 2, 2, 3))
        shares = {
            "small": 0.35,
            "sampled": 0.25,
            "valid": 0.15,
            "shared_files": 0.1,
            "resumed": 0.2,
        }
        chosen = {
            name: rng.random() < share or case.needs == name for name, share in shares.items()
        }
        chosen["small"] &= driver == "processes" and family == "kmers"
        chosen["shared_files"] &= driver == "processes"
        if chosen["small"] and chosen["sampled"]:
            # A sample that cannot grow for lack of memory takes 200 passes to this gap. That is 30 s or
            # more, too long for a run.
            chosen["small"] = case.needs != "sampled"
            chosen["sampled"] = not chosen["small"]
        return cls(writers, driver, family, rng.choice((1.0, 1.0, 1.0, 0.5)), **chosen)


#: Families by name: the array of rows, and the value of --features with ``{d}`` from the size.
FAMILIES = {
    "kmers": ("X", "kmers:d={d},origin=15"),
    "columns": ("letters", "columns"),
    "products": ("few", "products:degree=2"),
    "generator": ("X", "examples.generators.spaced_pairs:SpacedPairs:k=1,gap=1"),
    "several": ("X", "kmers:d=2 + bag:d=3 * 2"),
}


class Job:
    """The data of a campaign, and the correct results."""

    window = slice(55, 86)

    def __init__(self, folder: Path, size: Size) -> None:
        import zarr

        self.size = size
        self.data = folder / "data.zarr"
        if not self.data.exists():
            source: Any = zarr.open_group(os.fspath(EXAMPLE), mode="r")
            y = np.asarray(source["y"][:])
            sites = np.flatnonzero(y == 1)[:: self.size.every_site]
            rows = np.sort(np.concatenate([sites, np.flatnonzero(y != 1)[:: self.size.every]]))
            x = np.asarray(source["X"][:])[rows][:, self.window]
            letters = (x[:, :, None] == np.arange(4)).reshape(len(x), -1).astype(np.float32)
            arrays = {"X": x, "letters": letters, "few": letters[:, 40:72], "y": y[rows]}
            target = zarr.create_group(os.fspath(self.data), overwrite=True)
            for name, values in arrays.items():
                chunks = (self.size.chunk_rows, *values.shape[1:])
                target.create_array(name, data=values, chunks=chunks)

    def rows(self, family: str) -> str:
        """The name of the array of rows that a family reads."""
        return FAMILIES[family][0]

    def features(self, family: str) -> str:
        """The value of --features."""
        return FAMILIES[family][1].format(d=self.size.d)

    def open(self, family: str) -> fcl.DataSet:
        """The data with the rows of a family."""
        return fcl.open_data(self.data, x=self.rows(family))

    @cache  # noqa: B019  (there is one job)
    def reference(self, family: str, l1_ratio: float, valid: bool) -> tuple[float, float]:
        """Objective and bound of the optimum, found with the inline driver."""
        certificate = fcl.train(
            self.open(family),
            self.features(family),
            C=self.size.C,
            l1_ratio=l1_ratio,
            block_rows=self.size.block_rows,
            memory="1GiB",
            tol=min(1e-8, 1e-3 * self.size.tol),
            valid_fraction=0.2 if valid else None,
        ).certificate
        return certificate.objective, certificate.bound

    @cache  # noqa: B019
    def least_memory(self, writers: int) -> int:
        """The smallest budget in MiB with which a job gets this many writers."""
        low, high = 1, 4096
        while low < high:
            middle = (low + high) // 2
            if self._enough(middle, writers):
                high = middle
            else:
                low = middle + 1
        return high

    def _enough(self, mib: int, writers: int) -> bool:
        try:
            plan = fcl.plan_training(
                self.open("kmers"),
                self.features("kmers"),
                C=self.size.C,
                block_rows=self.size.block_rows,
                memory=f"{mib}MiB",
                driver="processes",
                writers=writers,
            )
        except BudgetError:
            return False
        return plan.writers == writers

    def wrong(self, path: Path, setting: Setting) -> list[str]:
        """Describe what is wrong with a model."""
        try:
            model = fcl.Model.load(path, trusted="examples.generators.spaced_pairs")
        except InputError as error:
            return [f"no model: {error}"]
        claimed = model.certificate
        objective, bound = self.reference(setting.family, setting.l1_ratio, setting.valid)
        out = []
        if not claimed.gap <= self.size.tol:
            out.append(f"gap {claimed.gap:.2e}")
        slack = 1e-11 * objective
        if claimed.objective < bound - slack:
            out.append(f"objective {claimed.objective!r} is below the bound {bound!r}")
        if claimed.bound > objective + slack:
            out.append(f"bound {claimed.bound!r} is above the optimum {objective!r}")
        if not setting.valid:  # then all rows are training rows
            data = self.open(setting.family)
            y = np.where(np.asarray(data.target) > 0, 1.0, -1.0)
            losses = np.logaddexp(0.0, -y * model.margins(data))
            w, rho = model.weights, setting.l1_ratio
            penalty = model.family.penalty_factors(model.ids) @ (
                rho * np.abs(w) + 0.5 * (1.0 - rho) * w**2
            )
            real = float(penalty + self.size.C * losses.sum())
            if abs(real - claimed.objective) > 1e-9 * real:
                out.append(f"the model claims objective {claimed.objective!r}, but it is {real!r}")
        return out
