"""The inline driver: all steps in one process, one after the other.

It is deterministic: the same input, options and seed give bit-identical results, also across
checkpoints. It is the reference for every other driver, and the default for Python callers.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from fcl.cache import ColumnCache
from fcl.data.prepared import PreparedRows
from fcl.drivers.memory import peak_memory
from fcl.drivers.result import StopReason, TrainResult
from fcl.drivers.session import Session
from fcl.features.standardized import attach_scales
from fcl.solve.outer import Certified
from fcl.solve.sampling import Sampler
from fcl.solve.solver import Solver
from fcl.solve.state import Point

__all__ = ["InlineRun"]


class Interrupted(KeyboardInterrupt):
    """``should_stop`` returned True; before the first certificate there is no result."""


class OutOfTime(Exception):
    """The time limit was reached after at least one pass was certified."""


class InlineRun:
    """Trains in this process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.job = session.job
        self.valid_margins = np.empty(self.job.valid.n if self.job.valid else 0)
        self.certified: Certified | None = None
        self.beta, self.evicted = 0.0, 0
        self.untried: Point | None = None  # tried after the next pass
        if session.state is not None:
            self.beta, self.evicted = session.state.beta, session.state.evicted

    def _poll(self) -> None:
        if self.session.should_stop():
            raise Interrupted
        self.session.saver.poll()

    def _poll_time(self) -> None:
        """Like :meth:`_poll`, but also check the time limit; for use once the anchor is certified."""
        self._poll()
        if self.session.out_of_time:
            raise OutOfTime

    def _reading(self, share: float) -> None:
        self._poll()
        self.session.working("reading", share)

    def _making_columns(self, share: float) -> None:
        self._poll_time()
        self.session.working("columns", share)

    def run(self) -> TrainResult:
        """Read the rows, train to the end, and clean up in any case."""
        job, session = self.job, self.session
        session.started()
        start = time.perf_counter()
        prepared = job.prepare(job.train, self._reading)
        valid = job.prepare(job.valid, self._reading) if job.valid else None
        session.prepared(time.perf_counter() - start, prepared.checksums)
        try:
            return self._solve(prepared, valid)
        finally:
            prepared.close()
            if valid is not None:
                valid.close()

    def _solve(self, prepared: PreparedRows, valid: PreparedRows | None) -> TrainResult:
        job, session, options = self.job, self.session, self.job.options
        with session.timed("start"):
            plan = job.plan_with([prepared] if valid is None else [prepared, valid])
            n_view = plan.view_rows or job.train.n
            cache = ColumnCache(
                plan.cache_bytes,
                plan.max_columns,
                n_view,
                options.block_rows,
                job.family.binary,
                job.family.step,
            )
            sampler = None
            if plan.view_rows:
                size = job.sample_size(n_view, cache.capacity, locked=True)
                sampler = Sampler(size, n_view, options.seed)
            solver = Solver(
                job.objective(),
                job.family,
                prepared,
                cache,
                tol=options.tol,
                entries=plan.entries,
                staging=plan.staging,
                hessian_columns=plan.hessian_columns,
                seed=options.seed,
                sampler=sampler,
            )
        if options.standardize:
            with session.timed("standard deviations"):
                attach_scales(job.family, np.empty((2, job.family.n_features)))
                solver.passes.measure(solver.passes.parts)
        with session.timed("start"):
            if session.state is not None:
                solver.restore(session.state)
                self.certified = session.state.last
        solver.between = self._making_columns
        solver.passes.on_progress = lambda share: session.working("pricing", share)
        solver.local.trainer.inner.cease = lambda: session.out_of_time or session.should_stop()
        self.untried = session.first_point()
        try:
            while (reason := self._pass(solver, valid)) is None:
                self._poll()
                if self.untried is not None:
                    self.beta, self.untried = solver.propose(self.untried), None
                    if self.beta > 0.0:
                        continue
                with session.timed("columns"):
                    self.evicted = solver.admit()
                self._poll_time()
                with session.timed("descent"):
                    solver.train()
                self._poll()
                with session.timed("margins and search"):
                    self.beta = solver.propose(solver.proposal())
        except KeyboardInterrupt:
            if not session.history:
                raise
            reason = StopReason.INTERRUPTED
        except OutOfTime:
            reason = StopReason.MAX_TIME
        finally:  # also after an error, perhaps in the user's feature class
            session.saver.save()
        return session.result(solver.outer, solver.passes, reason, peak_memory)

    def _pass(self, solver: Solver, valid: PreparedRows | None) -> StopReason | None:
        """Price and certify the anchor; return the reason to stop, or None to continue."""
        session = self.session
        session.saver.offer(
            replace(
                solver.snapshot(),
                idle=session.idle,
                beta=self.beta,
                evicted=self.evicted,
                last=self.certified,
                untried=self.untried,
            )
        )
        self._poll()
        with session.timed("pricing"):
            certified = solver.price(len(session.history))
        session.counted(self.certified, certified)
        self.certified = certified
        validation = None
        if valid is not None:
            with session.timed("validation"):
                margins = self.valid_margins
                point = solver.outer.point
                self.job.family.write_margins(valid, point.ids, point.weights, margins)
                rows = self.job.valid
                assert rows is not None
                margins += point.intercept if rows.offset is None else point.intercept + rows.offset
                validation = session.scores(self.job.loss.score(rows.y, rows.s, margins))
        cache = solver.cache
        n_passes = (
            len(session.history) + 1 - (len(session.resumed.history) if session.resumed else 0)
        )
        session.passed(
            certified,
            active=len(solver.outer.point.ids),
            cached=cache.n,
            cache_bytes=cache.used,
            cache_capacity=cache.capacity,
            evicted=self.evicted,
            beta=self.beta,
            rows_per_second=n_passes * self.job.train.n / max(session.seconds["pricing"], 1e-9),
            memory_bytes=peak_memory(),
            validation=validation,
        )
        return session.reason(certified, solver.rounding)
