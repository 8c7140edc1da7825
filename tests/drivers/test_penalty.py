"""Penalty factors of features, and class weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uneven
from judge import LOSSES, Problem, Solution, kmer_matrix
from rows import acceptors, pyrimidines

import fcl
from fcl.drivers.job import make_job
from fcl.drivers.processes import children
from fcl.files.folder import CheckpointFolder
from fcl.files.same_job import JobFacts
from fcl.options import TrainOptions
from tests.drivers.conftest import check, fit

STRENGTHS = {"logistic": 1.0, "squared": 0.05, "squared_hinge": 0.3}
N, LENGTH, D, TOL = 400, 14, 2, 1e-8


def train(features: Any, y: Any, s: Any = None, **options: Any) -> fcl.TrainResult:
    codes, _ = acceptors(LENGTH, N)
    data = fcl.open_data(codes, y=y, weights=s)
    return fit(data, features, **({"tol": TOL, "block_rows": 128} | options))


@cache
def solved(loss: str, rho: float) -> tuple[Problem, Solution]:
    codes, labels = acceptors(LENGTH, N)
    y = pyrimidines(N) if loss == "squared" else labels
    family = uneven.UnevenFamily(D, LENGTH)
    factors = family.penalty_factors(np.arange(family.n_features))
    assert factors.min() == 0.5 and factors.max() == 2.0
    phi = kmer_matrix(codes, D)
    problem = Problem(phi, y, np.ones(N), loss, STRENGTHS[loss], True, rho, factors)
    return problem, problem.solve(1e-9)


def confirm(result: fcl.TrainResult, problem: Problem, best: Solution) -> None:
    check(result, problem, best, rel=10 * TOL)
    assert result.model.options["C_min"] == pytest.approx(problem.null()[1], rel=1e-9)


# -- factors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
def test_factors(loss: str, rho: float) -> None:
    problem, best = solved(loss, rho)
    result = train(uneven.UnevenKmers(D), problem.y, C=problem.C, loss=loss, l1_ratio=rho)
    confirm(result, problem, best)


def test_factors_in_processes_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    from fcl.drivers import plan

    monkeypatch.setattr(children, "_ENTRY", Path(uneven.__file__))
    monkeypatch.setattr(plan, "ALL_ROWS", 64)
    monkeypatch.setattr(plan, "LEAST_SAMPLE", 128)
    problem, best = solved("logistic", 0.3)
    result = train(
        uneven.UnevenKmers(D), problem.y, C=problem.C, l1_ratio=0.3, driver="processes", writers=2
    )
    confirm(result, problem, best)


# -- classes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ((0, 1), "1"),
        ((0, 1), 1),
        ((0.0, 1.0), "1"),
        (("no", "yes"), "yes"),
        ((False, True), "True"),
    ],
)
def test_labels_may_be_given_as_text(labels: tuple[Any, Any], key: Any) -> None:
    codes, y = acceptors(LENGTH, N)
    target = np.array(labels)[(y > 0).astype(int)]
    job = make_job(
        fcl.open_data(codes, y=target),
        "kmers:d=2",
        TrainOptions.checked(C=1.0, class_weight={key: 4.0}),
    )
    assert job.options.class_weight == ((labels[0], 1.0), (labels[1], 4.0))
    assert (job.train.s == np.where(y > 0, 4.0, 1.0)).all()


# -- checkpoints and model files -------------------------------------------------------------------


def test_a_checkpoint_from_before_had_neither(tmp_path: Path) -> None:
    _, y = acceptors(LENGTH, N)
    train("kmers:d=2", y, C=0.7, max_passes=2, checkpoint=tmp_path)
    saved = CheckpointFolder(tmp_path).load()
    for name in ("l1_ratio", "class_weight"):
        del saved.options[name]  # type: ignore[attr-defined]
    saved.check_job(JobFacts({"l1_ratio": 1.0, "class_weight": None}))
    with pytest.raises(fcl.InputError, match=r"l1_ratio was 1\.0, is 0\.5"):
        saved.check_job(JobFacts({"l1_ratio": 0.5}))


def test_numbers_of_a_certificate_are_plain() -> None:
    _, y = acceptors(LENGTH, N)
    certificate = train("kmers:d=2", y, C=0.7, l1_ratio=0.5).certificate
    for name in ("objective", "bound", "gap", "max_violation"):
        assert type(getattr(certificate, name)) is float, name
    assert type(certificate.n_priced) is int and type(certificate.passes) is int
