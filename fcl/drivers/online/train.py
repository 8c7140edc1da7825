"""``fcl.train_online``: an online learner over a data set, with its model and what is proved of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl import kernels
from fcl.clock import parts_of
from fcl.data import DataSet
from fcl.drivers.certify import certify as certify_model
from fcl.drivers.initial import online_start
from fcl.drivers.kinds import JOB_SECONDS
from fcl.drivers.online.blocks import row_number
from fcl.drivers.online.job import OnlineJob, make_online_job
from fcl.drivers.online.progress import Progressive
from fcl.drivers.online.rates import choose_rate
from fcl.drivers.online.run import OnlineReporter, OnlineRun, RunPosition, write_model
from fcl.drivers.optimality import Optimality
from fcl.errors import InputError, ModelFileError
from fcl.facts import C_fact, Fact, memory_fact, time_fact
from fcl.features import Spec
from fcl.features.base import Family
from fcl.files.online import OnlineState, read_state
from fcl.files.result_file import Output
from fcl.files.same_job import JobFacts, require_same
from fcl.memory.meter import peak_memory
from fcl.model.certificate import Certificate, Scope
from fcl.model.columns import difference, feature_names, record_of
from fcl.model.facts import hashing_facts, intercept_fact, proof_facts
from fcl.model.model import Model, load_model
from fcl.online import Learner
from fcl.options import OnlineOptions, OnlineRunOptions
from fcl.options.choices import PENALTY, Arguments, ElasticNet
from fcl.options.online import LEARNING, METHOD, ONLINE_OPTIONS, RUNNING
from fcl.parallel import one_blas_thread
from fcl.plain import plain
from fcl.run.bar import Progress
from fcl.run.events import Compiling, OnlineProgress
from fcl.run.reasons import StopReason
from fcl.run.result import RunResult
from fcl.units import counted


@dataclass(frozen=True, kw_only=True)
class OnlineResult(RunResult):
    """A model, and how learning ended.

    Attributes
    ----------
    model : Model
    reason : StopReason
    message : str
        The reason in words.
    seconds : dict of str to float
        Time of each step by its name: rate, learning, certificate, other.
    peak_memory : int
        Bytes.
    checkpoint_failed : bool
        Whether the last attempt to save the state failed; the model is not affected.
    learner : Learner
        The learner, which can learn more rows.
    progress : list of OnlineProgress
    state : OnlineState
        What the model file needs for ``--resume``.
    bad_row : int or None
        Row of the data set at which learning diverged.
    uncertified : str or None
        Why the model has no certificate; None if it has one.
    optimality : Optimality or None
        What the pass at the end found, with the gap of the ball; None without certificate.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> result = fcl.train_online(data, "columns", alpha=0.01, rate=0.5)
    >>> result.bad_row is None and result.uncertified is None
    True
    >>> result.save("model.fcl")
    >>> more = fcl.train_online(data, resume="model.fcl", passes=2)
    >>> [step.rows for step in more.progress]
    [400]
    """

    model: Model
    learner: Learner
    progress: list[OnlineProgress]
    state: OnlineState
    bad_row: int | None = None
    uncertified: str | None = None
    optimality: Optimality | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        """The progress, as dictionaries."""
        return [event.to_dict() for event in self.progress]

    def facts(self, budget: float | None = None) -> list[Fact]:
        """How learning ended, what is proved about the model, and what it took.

        budget : the limit of memory in bytes, which the model does not store.
        """
        model = self.model
        proof = proof_facts(model)
        if self.uncertified is not None:
            proof[0] = Fact("certificate", f"not certified: {self.uncertified}")
        if self.optimality is not None and model.options["radius"] is not None:
            proof.append(self.optimality.ball_fact())
        rate = model.options["rate"]
        return [
            self.stopped_fact(),
            *proof,
            intercept_fact(model),
            C_fact(model.C, model.alpha),
            Fact("rate", f"{rate:.6g}", rate),
            *self.learner.facts(),
            *hashing_facts(model.family),
            time_fact(self.seconds),
            memory_fact(self.peak_memory, budget),
        ]

    def save(
        self, path: str | os.PathLike[str], overwrite: bool = False, bare: bool = False
    ) -> None:
        """Write the model file, with the learner's state unless ``bare``."""
        self.model.save(path, overwrite, None if bare else self.state.members())


def train_online(
    data: DataSet,
    features: Spec | Family | str | None = None,
    *,
    alpha: float | None = None,
    C: float | None = None,
    method: str = "ftrl",
    penalty: str | ElasticNet = "l1",
    loss: str = "logistic",
    rate: float | str = "auto",
    passes: int | None = None,
    intercept: bool = True,
    weights: str = "float64",
    class_weight: str | Mapping[Any, float] | None = None,
    hash_bits: int | None = None,
    shuffle: bool = True,
    valid: DataSet | float | None = None,
    seed: int = 0,
    block_rows: int = 65_536,
    memory: int | str = "4GiB",
    certify: bool = True,
    resume: str | os.PathLike[str] | None = None,
    initial: Model | None = None,
    save: str | os.PathLike[str] | Output | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **old: Any,
) -> OnlineResult:
    """Learn a sparse linear model online: one row after another, in one pass or a few.

    The problem is that of :func:`fcl.train`, (1/S) sum_i s_i loss(y_i, m_i) + alpha penalty(w) with S the
    sum of the sample weights, but an online learner only comes near its optimum. A last pass prices the
    whole family at the end, and says how near.

    Parameters
    ----------
    data : DataSet
        From :func:`fcl.open_data`, with a target of one column.
    features : Kmers, Bag, Generator, Concat or str
        As for :func:`fcl.train`; the family must be able to list the features of a row.
    alpha, C : float
        Exactly one: the weight of the penalty, or C = 1 / (alpha * S).
    method : str
        ``"ftrl"`` follows the regularised leader (McMahan 2011); ``"truncated-gradient"`` is the method
        of Langford, Li and Zhang (2008); ``"ball:radius=10"`` keeps the L1 norm of the weights within
        ``radius`` by projections (Duchi, Shalev-Shwartz, Singer and Chandra 2008); alpha or C then sets
        only the problem whose optimum the model is compared with; ``"ogd"`` is gradient descent with a
        rate for each feature, also over tables of 24 bits a feature (Golovin, Sculley, McMahan and Young
        2013). Options follow the name, as in ``"truncated-gradient:period=50,truncation=round"``:
        :class:`fcl.online.OnlineOptions` describes them, and ``fcl list methods`` says which method has
        which.
    penalty : str or ElasticNet
        ``"l1"``, or ``"elastic"`` as for :func:`fcl.train`, not of ball.
    loss : {"logistic", "squared", "squared_hinge", "hinge"}
    rate : float or "auto"
        Rate of the first row; auto: the best of a few in short trials.
    passes : int, optional
        Passes over the rows: by default 1, or those of the run that is resumed.
    intercept, weights
        See :class:`fcl.online.OnlineOptions`.
    class_weight : None, "balanced" or mapping
        As for :func:`fcl.train`.
    hash_bits : int, optional
        Hash the features into 2^hash_bits weights (4 to 31 bits): features of equal hashes share a
        weight, and their values add up. Model and certificate are those of the hashed features, which
        have no names; the exact problem has another optimum. None: each feature has its own weight.
    shuffle : bool
        Read blocks in random order, and the rows of a block permuted; False: in the order of the data.
    valid : DataSet or float
        Rows to score the model on: a data set, or the share of rows to set aside.
    seed : int
        Seeds the order, the rows that are set aside, and the rounding of weights such as q2.13.
    block_rows : int
        Most rows of a block, from 64 to 65,536.
    memory : int or str
        Budget in bytes or as "4GiB"; the table of weights must fit in it.
    certify : bool
        Whether to end with :func:`fcl.certify`, which fits the intercept and reads the rows once more. If
        it cannot, the model stays uncertified, and the result says why.
    resume : path
        Model file of an earlier run with the same data, which this run continues; of the options only
        ``passes``, ``memory``, ``certify`` and those of reporting are used. The model is the same, bit
        for bit, as if the run had never ended.
    initial : Model
        A model of the same features, whose weights and intercept are the first ones; not of the method
        ball. FTRL takes a weight as if its feature had seen one slope of size 1.
    save : path
        File to which the model is written every five minutes, and which ``resume`` can read. It replaces
        what was there when learning began, but not what another process writes there meanwhile.
    progress : callable
        Called with each event of :mod:`fcl.run.events`: Started, OnlineProgress, Stopped. It may end
        learning as the callback of :func:`fcl.train` does.
    should_stop : callable
        Polled between chunks; True ends learning.
    **old
        Arguments of earlier versions, for one version more: a DeprecationWarning gives the new spelling.

    Returns
    -------
    OnlineResult
        The model, with a certificate unless ``certify`` is False or the pass fails.

    Raises
    ------
    InputError
        Data or options are unusable, or the family cannot list the features of a row. ``BudgetError``, a
        subclass, names the smallest budget that works.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> result = fcl.train_online(data, "columns", alpha=0.01, rate=0.5, passes=3)
    >>> str(result.reason), result.optimality.gap < 0.2
    ('done', True)
    >>> [row.feature for row in result.model.describe(2)]
    ['x3', 'x0']
    """
    return run_online(**_ARGUMENTS.by_name(locals()))


_ARGUMENTS = Arguments(train_online, ONLINE_OPTIONS, METHOD, PENALTY)


def run_online(**given: Any) -> OnlineResult:
    """Learn online; takes the arguments of :func:`train_online` as keywords."""
    given = _ARGUMENTS.complete(given)
    job, state = _job(given)
    data, save, certify = given["data"], given["save"], given["certify"]
    reporter = OnlineReporter(given["progress"], given["should_stop"])
    since = time.monotonic()
    seconds: dict[str, float] = {}
    reporter.started(job)
    compilation = kernels.compilation.Compilation(lambda: reporter.report(Compiling(JOB_SECONDS)))
    with compilation, one_blas_thread():
        job, learner, place = begin(job, state, seconds)
        _check_passes(job, place)
        begun, fingerprint, output = time.monotonic(), data.fingerprint(), output_of(save)

        def written() -> None:
            if output is not None:
                now = _state(job, learner, run.place, fingerprint)
                write_model(output, model_of(job, learner, fingerprint), now)

        run = OnlineRun(job, learner, place, reporter.report, reporter.should_stop, written)
        reason = reporter.cause(_run(run))
        seconds["learning"] = time.monotonic() - begun
        data.check_unchanged()
        kept = _state(job, learner, run.place, fingerprint)
        model = model_of(job, learner, fingerprint)
        bad = None if reason is not StopReason.DIVERGED else row_number(job.train.keep, run.bad_row)
        why = "the certificate was declined" if not certify else "learning ended before its passes"
        uncertified: str | None = why
        found: Optimality | None = None
        if reporter.error is not None:
            written()
        elif certify and reason is StopReason.DONE:
            begun = time.monotonic()
            held = [*learner.arrays(), model.ids, model.weights, kept.ids, kept.table]
            budget = job.running.memory - sum(array.nbytes for array in held)
            try:
                found = certify_model(model, data, memory=max(budget, 1), top=0, keep_model=True)
            except (InputError, OSError) as error:
                uncertified = str(error)
            else:
                assert found.model is not None
                model, uncertified = replace(found.model, options=model.options), None
            seconds["certificate"] = time.monotonic() - begun
    result = OnlineResult(
        model=model,
        reason=reason,
        message=end_of_run(reason, learner, job, bad),
        seconds=parts_of(time.monotonic() - since, seconds),
        peak_memory=peak_memory(),
        learner=learner,
        progress=reporter.progress,
        state=kept,
        bad_row=bad,
        uncertified=uncertified,
        optimality=found,
    )
    reporter.report(result.stopped(model.certificate if uncertified is None else None))
    return reporter.finish(result)


def plan_online(data: DataSet, features: Spec | str, **arguments: Any) -> Any:
    """The memory plan of :func:`train_online` with the same arguments; reads no rows."""
    given = _ARGUMENTS.complete({**arguments, "data": data, "features": features})
    return _job(given)[0].plan


def _job(given: Mapping[str, Any]) -> tuple[OnlineJob, OnlineState | None]:
    """The job for the arguments of :func:`train_online`, and the state that it resumes."""
    data, features, state = given["data"], given["features"], None
    options = OnlineOptions(1.0, **{name: given[name] for name in LEARNING if name in given})
    own = {name: given[name] for name in RUNNING if given.get(name) is not None}
    running = OnlineRunOptions(**own)
    if given["resume"] is not None:
        model, state = load_model(given["resume"]), read_state(given["resume"])
        _check_data(model, data, given["resume"])
        options, kept = kept_options(state)
        # a finished run continues if it is given more passes
        running = replace(kept, memory=running.memory, passes=own.get("passes", kept.passes))
        features = model.family
    if features is None:
        raise InputError('features: expected a family such as "kmers:d=6", got none')
    job = make_online_job(data, features, options, running, valid=given["valid"])
    if given["initial"] is not None:
        if state is not None:
            raise InputError("initial: a resumed run has weights already; leave initial out")
        job = replace(job, start=online_start(job, given["initial"]))
    if state is not None:
        job = replace(job, features=state.run["options"]["features"])
    return job, state


def kept_options(state: OnlineState) -> tuple[OnlineOptions, OnlineRunOptions]:
    """The options of a run that is resumed, whose family is hashed already."""
    kept = state.run["options"]
    learning = {name: kept[name] for name in LEARNING if name in kept}  # older files have fewer
    if learning["theta"] is None:
        learning["theta"] = float("inf")
    running = {name: kept[name] for name in RUNNING if name in kept}
    running |= {"rate": state.run["rate"], "hash_bits": None}
    if isinstance(kept["class_weight"], list):
        running["class_weight"] = dict(kept["class_weight"])
    return OnlineOptions(1.0, **learning), OnlineRunOptions(**running)


def _check_data(model: Model, data: DataSet, path: Any) -> None:
    """Raise InputError unless these are the data of the saved run."""
    require_same(
        f"{os.fspath(path)}: the run",
        JobFacts(fingerprint=model.fingerprint),
        JobFacts(fingerprint=data.fingerprint()),
        more=[difference(model.column_record, data.column_record)],
    )


def output_of(save: Any) -> Output | None:
    """The file to which a run writes its model, if the user named one."""
    return save if isinstance(save, Output) or save is None else Output(save, overwrite=True)


def begin(
    job: OnlineJob, state: OnlineState | None, seconds: dict[str, float], all_rows: bool = False
) -> tuple[OnlineJob, Learner, RunPosition]:
    """The job with its rate, and a new learner, or the one of a state, with its place in the rows.

    seconds : gets the time of the trials of rates.  all_rows : as for :func:`choose_rate`.
    """
    if job.running.rate == "auto":
        since = time.monotonic()
        job = replace(job, options=replace(job.options, rate=choose_rate(job, all_rows)))
        seconds["rate"] = time.monotonic() - since
    if state is None:
        return job, job.new_learner(), RunPosition()
    return job, *restored(job, state)


def _check_passes(job: OnlineJob, place: RunPosition) -> None:
    """Raise InputError if a run that continues has made its passes."""
    if place.passes >= job.running.passes:
        raise InputError(
            f"passes: the run has made {place.passes} of {job.running.passes} passes; raise passes to "
            "continue"
        )


def restored(job: OnlineJob, state: OnlineState) -> tuple[Learner, RunPosition]:
    """The learner of a saved state, and its place in the rows; InputError if they do not agree."""
    learner, run = job.new_learner(), state.run
    place = RunPosition(run["passes"], run["rows"], Progressive(**run["sums"]))
    learner.restore(
        {
            "state": state.sums,
            "passes": run["learner_passes"],
            "ids": state.ids,
            "table": state.table,
        }
    )
    rows = place.rows
    if not run.get("stream"):
        rows += place.passes * job.train.n
    if learner.rows != rows or place.rows > max(job.train.n, rows if run.get("stream") else 0):
        raise ModelFileError(
            f"the state of the learner is damaged: it says {place.passes:,} passes and "
            f"{place.rows:,} rows of {job.train.n:,}, and {learner.rows:,} rows learnt; start over"
        )
    return learner, place


def _run(run: OnlineRun) -> StopReason:
    """Run; an interrupt after the first rows ends learning as a stop does."""
    try:
        return run.run()
    except KeyboardInterrupt:
        if not run.learner.rows:
            raise
        return StopReason.INTERRUPTED


def _state(job: OnlineJob, learner: Learner, place: RunPosition, fingerprint: str) -> OnlineState:
    """What a model file needs to resume the run here."""
    saved = learner.saved()
    run = {
        "method": job.running.method,
        "options": plain(job.described()),
        "rate": job.options.rate,
        "gravity": job.options.alpha,
        "passes": place.passes,
        "rows": place.rows,
        "sums": place.sums.to_dict(),
        "learner_passes": saved["passes"],
    }
    return OnlineState(run, saved["ids"], saved["table"], saved["state"])


def model_of(job: OnlineJob, learner: Learner, fingerprint: str) -> Model:
    """The model of what was learnt so far, of which nothing is proved."""
    ids, weights, intercept = learner.point()
    data = job.train.data
    inf = float("inf")
    return Model(
        family=job.family,
        ids=ids,
        weights=weights,
        support=np.zeros(len(ids), np.int64),
        intercept=intercept,
        loss=job.loss.text,
        C=job.C,
        alpha=job.alpha,
        labels=job.labels,
        n_rows=job.train.n,
        sum_weights=job.sum_weights,
        fingerprint=fingerprint,
        certificate=Certificate(inf, -inf, inf, inf, 0, Scope.UNKNOWN),
        options={**job.described(), "rate": job.options.rate, "rows_learnt": learner.rows},
        feature_names=feature_names(job.family, ids, data.column_names),
        column_record=record_of(job.family, ids, data.column_record),
    )


def full_message(learner: Learner) -> str:
    """That the table of the weights that are not 0 has no room for more of them."""
    n = len(learner.point()[0])
    return (
        f"the memory has no room for more than {n:,} weights that are not 0, after {learner.rows:,} "
        "rows; raise memory, or choose a larger alpha, or hash_bits, with which features share weights"
    )


def end_of_run(reason: StopReason, learner: Learner, job: OnlineJob, bad: int | None) -> str:
    """Why learning ended, in words.  bad : the row that could not be learnt."""
    rows = f"{learner.rows:,} rows"
    if reason.is_interrupt:
        return f"{reason.sentence} after {rows}"
    if reason is StopReason.MEMORY:
        return full_message(learner)
    if reason is StopReason.DIVERGED:
        return (
            f"{job.train.data.name}: the margin of row {bad} is not finite or beyond 1e100, after "
            f"{rows}: the rate {job.options.rate:.3g} is too large for these features; lower rate, or "
            "choose step implicit"
        )
    return f"made {counted(job.running.passes, 'pass', 'passes')}, {rows} in all"
