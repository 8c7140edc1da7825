"""Small real jobs for the campaign, and what their right answer is."""

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
    """Of the small job."""

    every: int = 97  #: one of so many rows that are no site; of the sites, one of ``every_site``
    every_site: int = 2
    d: int = 4
    tol: float = 1e-5
    C: float = 1.0
    block_rows: int = 512
    chunk_rows: int = 1024
    spare: int = 3  #: MiB beyond the least, where memory is small


#: For tests: nearly all of the time goes to starting processes.
SMALL = Size(every=800, every_site=8, d=3, tol=1e-4, block_rows=256, chunk_rows=256, spare=0)


class Job:
    """Data for a campaign, and what the right answer is."""

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
            target = zarr.create_group(os.fspath(self.data), overwrite=True)
            for name, values in (("X", x), ("y", y[rows])):
                chunks = (self.size.chunk_rows, *values.shape[1:])
                target.create_array(name, data=values, chunks=chunks)
        self.features = f"kmers:d={self.size.d},origin=15"

    def _train(self, **options: Any) -> Any:
        return fcl.train(
            fcl.open_data(self.data),
            self.features,
            C=self.size.C,
            block_rows=self.size.block_rows,
            memory="1GiB",
            **options,
        )

    @cache  # noqa: B019  (there is one job)
    def reference(self, valid: bool) -> tuple[float, float]:
        """Objective and bound of the optimum, by the inline driver."""
        some = {"valid_fraction": 0.2} if valid else {}
        certificate = self._train(tol=min(1e-8, 1e-3 * self.size.tol), **some).certificate
        return certificate.objective, certificate.bound

    @cache  # noqa: B019
    def least_memory(self, writers: int) -> int:
        """The smallest budget in MiB that is enough for so many writers."""
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
                fcl.open_data(self.data),
                self.features,
                C=self.size.C,
                block_rows=self.size.block_rows,
                memory=f"{mib}MiB",
                driver="processes",
                writers=writers,
            )
        except BudgetError:
            return False
        return plan.writers == writers

    def wrong(self, path: Path, valid: bool) -> list[str]:
        """What is not right about a model."""
        try:
            model = fcl.load_model(path)
        except InputError as error:
            return [f"no model: {error}"]
        claimed = model.certificate
        objective, bound = self.reference(valid)
        out = []
        if not claimed.gap <= self.size.tol:
            out.append(f"gap {claimed.gap:.2e}")
        slack = 1e-11 * objective
        if claimed.objective < bound - slack:
            out.append(f"objective {claimed.objective!r} is below the bound {bound!r}")
        if claimed.bound > objective + slack:
            out.append(f"bound {claimed.bound!r} is above the optimum {objective!r}")
        if not valid:  # of these rows all are trained on
            data = fcl.open_data(self.data)
            y = np.where(np.asarray(data.target) > 0, 1.0, -1.0)
            losses = np.logaddexp(0.0, -y * model.margins(data))
            real = float(np.abs(model.weights).sum() + self.size.C * losses.sum())
            if abs(real - claimed.objective) > 1e-9 * real:
                out.append(f"objective {claimed.objective!r} is claimed, and it is {real!r}")
        return out


@dataclass(frozen=True)
class Options:
    """Of one run."""

    writers: int
    small: bool = False  #: memory so small that columns are evicted and rows go to a scratch file
    sampled: bool = False
    valid: bool = False
    shared_files: bool = False

    @classmethod
    def choose(cls, case: Case, rng: random.Random) -> Options:
        """At random, with what the case needs."""
        writers = rng.choice((1, 2, 2, 3))
        small, sampled, valid, files = (rng.random() < share for share in (0.35, 0.25, 0.15, 0.1))
        small |= case.needs == "small"
        sampled |= case.needs == "sampled"
        if small and sampled:
            # a sample that the memory keeps from growing needs 200 passes to this gap: 30 s and more,
            # which a run is not given
            small, sampled = case.needs != "sampled", case.needs == "sampled"
        return cls(
            writers,
            small,
            sampled,
            valid or case.needs == "valid",
            files,
        )
