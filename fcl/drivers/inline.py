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
from fcl.drivers.job import Job
from fcl.drivers.plan import Plan
from fcl.drivers.result import TrainResult
from fcl.drivers.rows import Rows
from fcl.drivers.session import Session
from fcl.errors import BudgetError, InputError
from fcl.features.standardized import attach_scales
from fcl.memory.meter import peak_memory
from fcl.parallel import Team
from fcl.run.held_out import HeldOutScores
from fcl.run.reasons import StopReason
from fcl.solve.margins import write_margins
from fcl.solve.outer import Certified
from fcl.solve.passes import Passes, local_passes
from fcl.solve.sampling import Sampler
from fcl.solve.solver import Solver
from fcl.solve.state import Point


class OutOfTime(Exception):
    """The time limit was reached after at least one pass was certified."""


class InlineRun:
    """Trains in this process, at one C or at several in turn.

    As a context manager it reads the rows, and frees them at the end. :meth:`solve` trains at the C of
    the session; :meth:`change_session` continues at another one, keeping rows, columns and weights.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.job = session.job
        #: margins of the validation rows at the last anchor, float64 (n,) or (K, n)
        n_valid, k = self.job.valid.n if self.job.valid else 0, self.job.n_outputs
        self.valid_margins = np.empty(n_valid if k == 1 else (k, n_valid))
        self.scores_passes = self.job.valid is not None  #: whether to score the model of each pass
        self.certified: Certified | None = None
        self.beta, self.evicted = 0.0, 0
        self._choices: dict[str, str] = {}  # fields of PassDone
        self.untried: Point | None = None  # tried after the next pass
        if session.state is not None:
            self.beta, self.evicted = session.state.beta, session.state.evicted
        self._rows: list[PreparedRows] = []  # prepared: training rows, and validation rows if any
        self.team = Team(self.job.options.threads)

    def _poll_time(self) -> None:
        """Poll, and check the time limit; for use once the anchor is certified."""
        self.session.poll()
        if self.session.out_of_time:
            raise OutOfTime

    def _making_columns(self, share: float) -> None:
        self._poll_time()
        self.session.working("columns", share)

    def run(self) -> TrainResult:
        """Read the rows, train to the end, and clean up in any case."""
        with self:
            return self.solve()

    def __enter__(self) -> InlineRun:
        session = self.session
        session.started()
        start = time.perf_counter()
        try:
            self._read()
            session.prepared(time.perf_counter() - start, lambda: self.checksums)
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.team.close()
        for rows in self._rows:
            rows.close()
        # the solver calls methods of this object: in a cycle of references, its buffers would stay in
        # memory until the next garbage collection
        vars(self).pop("solver", None)

    @property
    def checksums(self) -> np.ndarray:
        """Checksums of the blocks of training rows, uint64 (n_blocks,)."""
        return self._rows[0].checksums

    def _read(self) -> None:
        """Read the rows."""
        job = self.job
        self._rows.append(job.prepare(job.train, self.session.reading))
        if job.valid is not None:
            self._rows.append(job.prepare(job.valid, self.session.reading))

    def _plan_passes(self) -> tuple[Plan, Passes]:
        """The memory plan, now that the rows are known, and the steps of a pass."""
        job = self.job
        plan, rows = job.plan_with(self._rows), self._rows[0]
        passes = local_passes(job.objective(self.team), job.family, rows, plan.most_threads)
        return plan, passes

    def _begin(self) -> None:
        """Make the solver, and restore the state of the checkpoint, if any."""
        job, session = self.job, self.session
        with session.timed("start"):
            self.solver = solver = _solver(job, *self._plan_passes())
        if job.options.standardize:
            with session.timed("standard deviations"):
                attach_scales(job.family, np.empty((2, job.family.n_features)))
                solver.passes.measure(solver.passes.parts)
        with session.timed("start"):
            if session.state is not None:
                solver.restore(session.state)
                self.certified = session.state.last
        solver.admission.between = self._making_columns
        solver.passes.on_progress = lambda share: self.session.working("pricing", share)
        solver.local.trainer.inner.cease = self._ceases

    def _ceases(self) -> bool:
        return self.session.out_of_time or self.session.should_stop()

    def change_session(self, session: Session) -> None:
        """Continue with a session of the same job at another C, from the anchor."""
        self.session, self.job = session, session.job
        self.certified, self.beta, self.evicted, self._choices = None, 0.0, 0, {}
        self.solver.change_C(session.job.options.C)

    def solve(self, first: Point | None = None) -> TrainResult:
        """Train at the C of the session; the result has the model at the last anchor.

        first : a point to try after the first pass, in the solver's units.
        """
        solver, session = self.solver, self.session
        session.clock.start()
        self.untried = session.first_point() if first is None else first
        try:
            while (reason := self._pass()) is None:
                self.session.poll()
                if self.untried is not None:
                    self.beta, self.untried = solver.propose(self.untried), None
                    if self.beta > 0.0:
                        continue
                with session.timed("columns"):
                    self.evicted = solver.admit()
                self._poll_time()
                with session.timed("descent"):
                    solver.train()
                models = solver.local.trainer.models
                self._choices = {"sample": solver.redrawn, "models": models}
                self.session.poll()
                with session.timed("margins and search"):
                    self.beta = solver.propose(solver.proposal())
        except KeyboardInterrupt:
            if not session.history:
                raise
            reason = StopReason.INTERRUPTED
        except OutOfTime:
            reason = StopReason.MAX_TIME
        except (BudgetError, MemoryError) as error:
            if not session.history:
                session.saver.refuse_input()
                raise
            reason = session.short_of_memory(error)
        except InputError:
            session.saver.refuse_input()
            raise
        finally:  # also after an error, perhaps in the user's feature class
            session.ending = True
            session.saver.save()
        return session.result(solver.outer, solver.passes, reason, peak_memory)

    def _pass(self) -> StopReason | None:
        """Price and certify the anchor; return the reason to stop, or None to continue."""
        session, solver = self.session, self.solver
        session.saver.offer(
            replace(
                solver.snapshot(),
                idle=session.idle,
                beta=self.beta,
                evicted=self.evicted,
                last=self.certified,
                untried=self.untried,
                best_pass=session.patience.best,
            )
        )
        self.session.poll()
        with session.timed("pricing"):
            certified = solver.price(len(session.history))
        session.counted(self.certified, certified)
        self.certified = certified
        validation = None
        if self.scores_passes:
            validation = session.scores(len(session.history), solver.outer.point, self.scores())
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
            **self._choices,
            rows_per_second=n_passes * self.job.train.n / max(session.seconds["pricing"], 1e-9),
            memory_bytes=peak_memory(),
            validation=validation,
        )
        return session.reason(certified, solver.rounding)

    def scores(self) -> HeldOutScores:
        """Score the anchor on the validation rows; leaves its margins in ``valid_margins``."""
        rows = self.job.valid
        assert rows is not None
        with self.session.timed("validation"):
            self._write_valid_margins(rows, self.solver.outer.point)
            return HeldOutScores.of(self.job.options, rows.y, rows.s, self.valid_margins)

    def _write_valid_margins(self, rows: Rows, point: Point) -> None:
        out, family = self.valid_margins, self.job.family
        write_margins(family, self._rows[1], point, out, rows.offset, rows.covariates)


def _solver(job: Job, plan: Plan, passes: Passes) -> Solver:
    """The solver of a job, at the null model."""
    options = job.options
    n_view = plan.view_rows or job.train.n
    cache = ColumnCache(
        plan.cache_bytes,
        plan.max_columns,
        n_view,
        options.block_rows,
        job.family.binary,
        job.family.step,
        plan.slot_bytes,
    )
    sampler = None
    if plan.view_rows:
        size = job.sample_size(n_view, cache.capacity, locked=True)
        sampler = Sampler(size, n_view, options.seed, job.n_outputs)
    return Solver(
        passes,
        cache,
        tol=options.tol,
        entries=plan.entries,
        staging=plan.staging,
        hessian_columns=plan.hessian_columns,
        seed=options.seed,
        sampler=sampler,
    )
