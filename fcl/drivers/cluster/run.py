"""A run of the driver ``dask``: the loop of the inline driver, with passes over a cluster."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys

import numpy as np

from fcl.data.column_map import refuse_mapped
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.client import Cluster
from fcl.drivers.cluster.passes import SUMS_AT_ONCE, ClusterPasses, bytes_of_sums, is_by_rows
from fcl.drivers.cluster.rows import Shards, shard_blocks
from fcl.drivers.inline import InlineRun
from fcl.drivers.job import Job
from fcl.drivers.kinds import KIND_SECONDS, kinds_of
from fcl.drivers.plan import Plan
from fcl.drivers.rows import Rows
from fcl.drivers.session import Session
from fcl.errors import InputError
from fcl.memory.ledger import INTERPRETER
from fcl.run.events import Compiling, Workers
from fcl.run.reasons import StopReason
from fcl.solve.passes import Passes
from fcl.solve.state import Point

#: Rows from which a job is worth compiling all kernels of its family's kind, up to a minute.
COMPILED_ROWS = 1_000_000

#: Bytes of a row beside its record: target, weight, two margins, residual, curvature, a step between two
#: points, and residuals as integers while tables are made.
ROW_BYTES = 8 * 8


def check_job(job: Job) -> None:
    """Raise InputError for a job that the driver cannot run."""
    where = "the driver dask; use --driver processes (driver='processes')"
    if job.n_outputs > 1:
        raise InputError(
            f"expected one output with {where}, got {job.n_outputs}; or train one model for each class"
        )
    if job.train.covariates is not None:
        raise InputError(f"covariates: expected none with {where}, or add them to the features")
    if job.options.standardize:
        raise InputError(f"standardize: expected no standardised features with {where}")
    for rows in (job.train, job.valid):
        if rows is not None:
            refuse_mapped(rows.data.rows, rows.data.name)
        if rows is not None and rows.data.source is None:
            raise InputError(
                f"{rows.data.name}: expected rows in files that all workers see, got arrays in memory; "
                "save them as Zarr or with np.save, and open the path"
            )


def memory_of_workers(job: Job, threads: int) -> tuple[float, float]:
    """Bytes that all workers need together, beside their interpreters, and that each needs.

    threads : largest number of threads of a worker.
    """
    size, shape = job.options.block_rows, job.family.record_shape(job.options.block_rows)
    record = math.prod(shape)
    n_blocks = -(-job.train.n // size)
    in_shard = shard_blocks(n_blocks)
    shard = in_shard * (record + ROW_BYTES * size)
    total = n_blocks * (record + ROW_BYTES * size)
    if job.valid is not None:
        total += -(-job.valid.n // size) * (record + 24 * size)
    work = job.family.workspace_bytes(size, False)
    if is_by_rows(job.family, size):
        # each chain has its last two tables, and the sums of a group are added and scanned meanwhile
        sums = 4 * min(threads * bytes_of_sums(job.family, size), SUMS_AT_ONCE)
        return total + sums, INTERPRETER + (1 + threads) * shard + threads * work + sums
    every = n_blocks * (record + 16 * size)
    return total + every, INTERPRETER + shard + work + every


async def compile_kernels(kinds: tuple[str, ...]) -> None:
    """Compile the kernels of some kinds, in a child, since compilers retain memory.

    The worker answers its scheduler meanwhile.
    """
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from fcl.drivers.warmup import warmup; warmup({set(kinds)!r})"
    )
    path = json.dumps([folder for folder in sys.path if isinstance(folder, str)])
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", code, path, stdin=subprocess.DEVNULL
    )
    await child.wait()


class ClusterRun(InlineRun):
    """Trains with passes over a cluster; see :class:`fcl.drivers.inline.InlineRun`."""

    def __init__(self, session: Session, cluster: Cluster) -> None:
        super().__init__(session)
        self.cluster = cluster
        self._shards: list[Shards] = []  # of the training rows, and of the validation rows if any
        self._known: dict[str, int] = {}  # threads of the workers that were checked, by address
        self._sources = [
            tasks.RowSource.of(rows.data)
            for rows in (self.job.train, self.job.valid)
            if rows is not None
        ]
        cluster.between = self._between

    def _between(self) -> None:
        """Called while tasks run, also those that the end of the run needs, which nothing interrupts."""
        self.session.saver.poll()
        if not self.session.ending and self.session.should_stop():
            self.session.ending = True
            raise KeyboardInterrupt

    # -- workers -------------------------------------------------------------------------------

    def _look_at_workers(self) -> None:
        """Check workers that are new, and wait for room if some have gone."""
        job, client = self.job, self.cluster
        threads = client.threads()
        if threads != self._known or not threads:
            total, each = memory_of_workers(job, max(threads.values(), default=1))
            for source in self._sources:
                found = client.wait_for_workers(total, each, tasks.check_source, source)
            self._known = {address: worker.threads for address, worker in found.items()}
            self._compile_kernels()

    def _compile_kernels(self) -> None:
        """Compile on each machine, once, what many workers would otherwise compile at a time.

        A small job calls few of these kernels, and its workers compile them as they are called.
        """
        kinds = kinds_of(self.job.family)
        if self.job.train.n >= COMPILED_ROWS and self.cluster.lack_kernels(kinds):
            self.session.report(Compiling(max(KIND_SECONDS[kind] for kind in kinds)))
            self.cluster.once_a_machine(compile_kernels, kinds, patience=math.inf)

    def _report_workers(self) -> None:
        moved = 0
        if "solver" in vars(self):
            passes = self.solver.passes
            assert isinstance(passes, ClusterPasses)
            passes.threads = self._known
            moved = passes.moved
        shards = sum(map(len, self._shards))
        threads = sum(self._known.values())
        self.session.report(Workers(len(self._known), threads, shards, moved))

    # -- the steps of the inline driver ----------------------------------------------------------

    @property
    def checksums(self) -> np.ndarray:
        return self._checksums

    def _read(self) -> None:
        job = self.job
        check_job(job)
        self._look_at_workers()
        chosen = [rows for rows in (job.train, job.valid) if rows is not None]
        for rows, source in zip(chosen, self._sources, strict=True):
            shards = Shards(self.cluster, rows, source, job.family, job.objective())
            self._shards.append(shards)
        self._report_workers()
        found = [shards.read(self.session.reading) for shards in self._shards]
        job.train.data.check_unchanged()
        self._checksums = found[0][0]
        self._sides = np.concatenate([sides for _, sides in found])

    def _plan_passes(self) -> tuple[Plan, Passes]:
        job = self.job
        plan = job.plan_with_sides(self._sides)
        return plan, ClusterPasses(job.objective(), job.family, self._shards[0])

    def _pass(self) -> StopReason | None:
        self._look_at_workers()
        self._report_workers()
        return super()._pass()

    def _write_valid_margins(self, rows: Rows, point: Point) -> None:
        literal = self.cluster.submit(tasks.identity, point)
        out = self.valid_margins
        out[:] = self._shards[1].map(tasks.features, literal)
        out += point.intercept if rows.offset is None else point.intercept + rows.offset

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._shards.clear()
        self.cluster.between = lambda: None
