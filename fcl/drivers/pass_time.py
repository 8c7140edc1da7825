"""About how long a pass takes, measured on the first rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.data import DataSet
from fcl.drivers.job import Job
from fcl.drivers.rows import Rows
from fcl.drivers.train import planned_job
from fcl.features import Spec
from fcl.features.standardized import attach_scales
from fcl.parallel import Team, one_blas_thread
from fcl.solve.passes import local_passes
from fcl.units import counted, format_seconds

#: Numbers of blocks over which a pass is measured: the difference is the time of a row, the rest does not
#: depend on the rows, such as the search of large tables.
BLOCKS = (1, 3)


@dataclass(frozen=True)
class PassTime:
    """The expected time of a pass.

    seconds : of a pass over all rows.
    reading : seconds to read all rows, once.
    n_measured, n_rows : rows that were measured, and all training rows.
    """

    seconds: float
    reading: float
    n_measured: int
    n_rows: int
    threads: int

    @property
    def text(self) -> str:
        """The times in words."""
        measured = f"measured on the first {self.n_measured:,} of {counted(self.n_rows, 'row')}"
        return (
            f"about {format_seconds(self.seconds)} for a pass with {counted(self.threads, 'thread')}, "
            f"and {format_seconds(self.reading)} to read the rows before ({measured})"
        )


def measure_pass(data: DataSet, features: Spec | str, **arguments: Any) -> PassTime | None:
    """Measure the time of a pass of :func:`fcl.train` on the first rows; arguments as for it.

    It reads a few blocks, and compiles kernels that the cache lacks. The trainer's work between two
    passes, which depends on the model, comes in addition. None for a cluster.

    Raises InputError: data or options are unusable.
    """
    job = planned_job(data, features, **arguments)
    if job.options.driver == "dask":
        return None
    found: list[tuple[int, float, float]] = []
    with one_blas_thread():
        for blocks in BLOCKS:
            n = min(job.train.n, blocks * job.options.block_rows)
            if not found or n > found[-1][0]:
                found.append((n, *_seconds(replace(job, train=_first_rows(job.train, n)))))
    (n, reading, seconds), total = found[-1], job.train.n
    rate = seconds / n
    if len(found) > 1:
        before, _, shorter = found[0]
        rate = min(rate, max(0.0, seconds - shorter) / (n - before))
    return PassTime(
        seconds + rate * (total - n), reading * total / n, n, total, job.options.threads or 1
    )


def _first_rows(rows: Rows, n: int) -> Rows:
    """The first of the selected rows."""
    keep = np.zeros(rows.data.n_rows, bool)
    selected = np.arange(rows.data.n_rows) if rows.keep is None else np.flatnonzero(rows.keep)
    keep[selected[:n]] = True
    return replace(
        rows,
        keep=keep,
        y=rows.y[..., :n],
        s=rows.s[:n],
        offset=None if rows.offset is None else rows.offset[..., :n],
        covariates=None if rows.covariates is None else rows.covariates[:n],
    )


def _seconds(job: Job) -> tuple[float, float]:
    """The seconds of reading the rows of a job, and of a pass once all is compiled."""
    since = time.perf_counter()
    prepared = job.prepare(job.train, lambda share: None)
    reading, team = time.perf_counter() - since, Team(job.options.threads)
    try:
        family = job.family
        passes = local_passes(job.objective(team), family, prepared, job.plan.most_threads)
        if job.options.standardize:
            attach_scales(family, np.empty((2, family.n_features)))
            passes.measure(passes.parts)
        point, value = passes.null_model()

        def one() -> None:
            passes.write_margins(point, passes.blocks)
            passes.write_residuals(point.intercept, passes.blocks, value / job.options.C)
            passes.prove(np.empty(0, np.int64), passes.conditions.limit)

        one()
        return reading, _timed(one)
    finally:
        team.close()
        prepared.close()


def _timed(function: Callable[[], None]) -> float:
    since = time.perf_counter()
    function()
    return time.perf_counter() - since
