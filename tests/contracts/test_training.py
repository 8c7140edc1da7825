"""What every job of training keeps: the optimum of the judge, the same bits, resuming at every pass.

The jobs are those of tests/jobs.py, by the inline driver; tests/contracts/test_drivers.py has the others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import bag_matrix
import judge_outputs
import numpy as np
import pytest
from jobs import JOBS, Job, every_job
from judge import Problem, confirm, kmer_matrix
from judge_outputs import ClassProblem, TargetProblem
from product_matrix import product_matrix

import fcl
from fcl import parallel
from fcl.drivers import plan
from fcl.drivers.job import make_job
from fcl.features import bind_features, parse_features
from fcl.features.kmers import pricing
from fcl.files.folder import Checkpoint, CheckpointFolder
from fcl.solve import admission, inner_descent
from tests.drivers.conftest import bits, coefficients, dense
from tests.families import hinge_matrix
from tools.fuzz import certify

# -- the optimum -----------------------------------------------------------------------------------


def matrix(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """The explicit features (n, p) of a job, and the factors by which columns are divided."""
    X, y = job.rows()
    dense_rows = X.toarray().astype(np.float64) if hasattr(X, "toarray") else X
    parts = []
    for text in job.features.split(" + "):
        spec: Any = parse_features(text)
        family: Any = bind_features(spec, fcl.open_data(X, y=y).rows)
        kind = text.partition(":")[0]
        if kind == "kmers":
            parts.append(kmer_matrix(X, spec.d))
        elif kind == "bag":
            parts.append(bag_matrix.matrix(family, X))
        elif kind == "products":
            parts.append(product_matrix(X, spec.degree, repeats=True))
        elif kind == "fourier":
            generator, every = family.generator, np.arange(family.n_features)
            parts.append(generator.columns(every, generator.prepare(X)).astype(np.float64))
        elif kind == "hinges":
            parts.append(hinge_matrix(family, X))
        else:
            parts.append(dense_rows)
    phi = np.hstack(parts)
    sd = phi.std(axis=0) if job.options.get("standardize") else np.ones(phi.shape[1])
    return phi / sd, sd


def problem_of(job: Job, phi: np.ndarray) -> Problem | ClassProblem:
    """The problem of a job for the judge."""
    options, (_, y) = job.arguments(), job.rows()
    loss, rho = options.get("loss", "logistic"), options.get("l1_ratio", 1.0)
    classifies = loss in ("logistic", "squared_hinge")
    y = np.where(y > 0, 1.0, -1.0) if classifies else y.astype(float)
    s, C, intercept = np.ones(len(y)), options["C"], options.get("intercept", True)
    if options.get("class_weight") == "balanced":
        s = len(y) / (2.0 * np.where(y > 0, (y > 0).sum(), (y < 0).sum()))
    offset, z = options.get("offset", 0.0), options.get("covariates")
    if loss == "softmax" or y.ndim == 2:
        K = 3 if loss == "softmax" else y.shape[1]
        given = (phi, y, s, K, C, np.ones(phi.shape[1]), rho, options.get("group", False))
        if loss == "softmax":
            return ClassProblem(*given, z=z)
        return TargetProblem(*given, z=z, kind=loss)
    loss = "huber:delta=1" if loss == "huber" else loss
    limits = certify.limits_of(trained(job.name).result.model, phi.shape[1])
    return Problem(phi, y, s, loss, C, intercept, rho, offset=offset, z=z, **limits)


@pytest.mark.thin(3)
@every_job
def test_the_optimum_of_the_judge(name: str) -> None:
    """Objective, gap, violation and every pass's bound; the margins of the model are the matrix's."""
    job, model = JOBS[name], trained(name).result.model
    certificate, tol = model.certificate, job.arguments()["tol"]
    assert trained(name).result.converged and certificate.gap <= tol
    objectives = [entry["objective"] for entry in model.history]
    assert all(after <= before * (1.0 + 1e-12) for before, after in pairwise(objectives))
    phi, sd = matrix(job)
    assert certificate.n_priced == phi.shape[1] and len(model.ids) > 10
    problem, own = problem_of(job, phi), dense(model, phi.shape[1])
    w = own * (sd if own.ndim == 1 else sd[:, None])
    b = model.intercept
    added = {key: job.arguments().get(key) for key in ("offset", "covariates")}
    margins = model.margins(fcl.open_data(job.rows()[0], y=None), **added)
    if problem.z is not None:
        b = (
            np.vstack([b, coefficients(model)])
            if own.ndim > 1
            else np.append(b, coefficients(model))
        )
    if isinstance(problem, ClassProblem):
        np.testing.assert_allclose(margins, problem.margins(w, b), rtol=0, atol=1e-9)
        judge_outputs.confirm(problem, w, b, certificate, tol)
        if problem.group:  # a feature has weights of all outputs, or of none
            assert ((w != 0.0).all(axis=1) | (w == 0.0).all(axis=1)).all()
        return
    np.testing.assert_allclose(margins, problem.margins(w, b), rtol=0, atol=1e-9)
    best = problem.improved(w, b)
    confirm(problem, w, b, certificate, best)
    largest = problem.largest(w, b)  # the claim allows for rounding
    assert certificate.max_violation == pytest.approx(largest, rel=1e-6)
    assert all(entry["bound"] <= best.objective * (1.0 + 1e-12) for entry in model.history)
    if problem.z is None:
        assert model.options["C_min"] == pytest.approx(problem.null()[1], rel=1e-7)
    assert problem.intercept or b == 0.0
    assert (model.support == (phi[:, model.ids] != 0.0).sum(axis=0)).all()


@pytest.mark.thin(2)
@every_job
def test_the_model_is_empty_up_to_the_smallest_C(name: str) -> None:
    job, least = JOBS[name], trained(name).result.model.options["C_min"]
    none = job.train(C=0.999 * least)
    assert none.converged and none.passes == 1 and not len(none.model.ids)
    some = job.train(C=1.02 * least, tol=1e-6)
    assert some.converged and 0 < len(some.model.ids) < 10


# -- the same bits, and resuming -------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A result, and the checkpoints of a run that saves one whenever it may."""

    result: fcl.TrainResult
    checkpoints: tuple[Checkpoint, ...]

    def of_each_pass(self) -> Iterator[Checkpoint]:
        """One checkpoint of each pass, each time after another event."""
        passes: dict[int, list[Checkpoint]] = {}
        for saved in self.checkpoints:
            passes.setdefault(len(saved.history), []).append(saved)
        for number, some in passes.items():
            yield some[number % len(some)]


@pytest.fixture(scope="module", autouse=True)
def _eager() -> Iterator[None]:
    """Threads share even the little work of these jobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LEAST_ENTRIES", 0)
        patch.setattr(admission, "LEAST_PIECE", 1)
        patch.setattr(inner_descent, "LONG_SWEEP", 2000)
        patch.setattr(inner_descent, "LEAST_PLAIN", 1000)
        patch.setattr(pricing, "PAIR_ROWS", 0)
        yield


@cache
def trained(name: str) -> Run:
    kept: dict[int, Checkpoint] = {}
    with tempfile.TemporaryDirectory() as path:
        folder = CheckpointFolder(Path(path) / "c")

        def keep() -> bool:
            if not kept.keys() >= set(folder.numbers()[-1:]):
                saved = folder.load()
                kept[saved.number] = saved
            return False

        result = JOBS[name].train(
            checkpoint=folder.path, should_stop=keep, should_checkpoint=lambda: True
        )
        keep()
    return Run(result, tuple(kept.values()))


@pytest.mark.thin(4)
@every_job
def test_threads_and_a_scratch_file_change_no_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do checkpoints, which the first run saved at every opportunity."""
    expected = bits(trained(name).result)
    assert bits(JOBS[name].train(threads=2)) == expected

    def on_disk(*args: Any, **options: Any) -> plan.Plan:
        made = plan.make_plan(*args, **options)
        there = plan.make_plan(*args, **{**options, "scratch": True})
        return replace(there, cache_bytes=made.cache_bytes, max_columns=made.max_columns)

    monkeypatch.setitem(make_job.__kwdefaults__, "divide", on_disk)
    assert bits(JOBS[name].train(threads=3, scratch=tmp_path)) == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.thin(4)
@every_job
def test_resumed_at_every_pass(name: str) -> None:
    if name == "sparse-strong":
        pytest.skip("30 passes like those of sparse")
    run = trained(name)
    assert len(run.checkpoints) >= 3 * (run.result.passes - 1)
    assert {len(saved.history) for saved in run.checkpoints} == set(range(run.result.passes))
    for saved in run.of_each_pass():
        assert bits(JOBS[name].train(resume=saved)) == bits(run.result), (
            f"pass {len(saved.history)}"
        )
