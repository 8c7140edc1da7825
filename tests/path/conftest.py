"""Small problems for paths."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from judge import Problem, confirm, kmer_matrix
from rows import acceptors, targets

import fcl
from fcl.drivers.inline import InlineRun
from fcl.drivers.processes import supervisor
from fcl.drivers.session import Session
from fcl.run.events import PointDone
from tests import by_name

N, LENGTH, D = 420, 12, 2


def rows(loss: str = "logistic", n: int = N) -> tuple[np.ndarray, np.ndarray]:
    return acceptors(LENGTH, n)[0], targets(loss, n)


def split(loss: str = "logistic", **more: np.ndarray) -> tuple[fcl.DataSet, fcl.DataSet]:
    """Training and validation rows, two thirds and a third. more : weights or offset."""
    codes, y = rows(loss)
    held = np.arange(N) % 3 == 0
    parts = [
        fcl.open_data(codes[some], y=y[some], **{k: v[some] for k, v in more.items()})
        for some in (~held, held)
    ]
    return parts[0], parts[1]


def train_path(data: fcl.DataSet, **options: Any) -> fcl.PathResult:
    defaults = {"points": 6, "tol": 1e-4, "block_rows": 128, "memory": "1GiB"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        return by_name.train_path(data, fcl.Kmers(D), **(defaults | options))


class OneProcess:
    """Stands in for the supervisor: the same session, without children."""

    def __init__(self, session: Session) -> None:
        self.run = InlineRun(session).run


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs of the driver ``processes`` in this process."""
    monkeypatch.setattr(supervisor, "Supervisor", OneProcess)


class Killed(BaseException):
    """As a signal that no handler catches."""


def kill_after(points: int, part: str = "") -> Any:
    """A progress callback that ends the path after this point."""

    def progress(event: Any) -> None:
        if isinstance(event, PointDone) and event.part == part and event.number == points:
            raise Killed

    return progress


def counting(events: list[Any]) -> Any:
    """A progress callback that lists the points."""

    def progress(event: Any) -> None:
        if isinstance(event, PointDone):
            events.append((event.part, event.number))

    return progress


def problem_of(data: fcl.DataSet, model: fcl.Model, s: np.ndarray | None = None) -> Problem:
    """The judge's problem of a model, over the rows of a data set in memory."""
    codes = np.asarray(data.rows.read(0, data.n_rows))
    y = np.asarray(data.target, float)
    weights = data.weights if s is None else s
    return Problem(
        kmer_matrix(codes, D),
        y,
        np.ones(len(y)) if weights is None else weights,
        model.loss,
        model.C,
        True,
        float(model.options.get("l1_ratio", 1.0)),
        offset=0.0 if data.offset is None else data.offset,
    )


def confirm_points(path: fcl.PathResult, data: fcl.DataSet, s: np.ndarray | None = None) -> None:
    """Confirm the certificate of each point with the judge."""
    for model in path.models:
        problem = problem_of(data, model, s)
        w = np.zeros(problem.phi.shape[1])
        w[model.ids] = model.weights
        confirm(problem, w, model.intercept, model.certificate, problem.solve(1e-9))


def models(path: fcl.PathResult) -> list[fcl.Model]:
    """The models of points, folds and refit."""
    found = [point.model for point in path.points]
    found += [point.model for fold in path.fold_points for point in fold]
    return found + ([] if path.refit is None else [path.refit.model])


def bits(path: fcl.PathResult) -> list[Any]:
    """All that a path finds, but for times."""
    found: list[Any] = [path.reason, path.chosen.number]
    for model in models(path):
        found += [model.ids.tobytes(), model.weights.tobytes(), model.intercept]
        found += [model.C, model.certificate]
    if path.scores is not None:
        found += [path.scores.mean.tobytes(), path.scores.se.tobytes()]
        found += [np.asarray(path.scores.folds).tobytes()]
    if path.oof is not None:
        found.append(path.oof.tobytes())
    if path.outer is not None:
        found += [[fold.score for fold in path.outer.folds], path.outer.mean, path.outer.se]
    return found
