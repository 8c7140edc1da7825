"""A forged checkpoint of a stagewise job never leads to a loss that is not the model's."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite
from scipy.special import log_softmax
from waves import Problem

from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.train import StagewiseRunOptions
from tests.stagewise.conftest import interrupted

OPTIONS: dict[str, Any] = {"block": 8, "inner": 2, "valid_fraction": 0.25}


def change_array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    def edit(members: dict[str, bytes]) -> None:
        values = np.frombuffer(members[name][-_size(members[name]) :], "<f8")
        members[name] = npy(change(values.copy()))

    return edit


def _size(content: bytes) -> int:
    return len(content) - 10 - int.from_bytes(content[8:10], "little")


def change_history(change: Callable[[list[dict[str, Any]]], None]) -> Any:
    def edit(members: dict[str, bytes]) -> None:
        header = json.loads(members["header.json"])
        change(header["history"])
        members["header.json"] = json.dumps(header).encode()

    return edit


def losses_of(problem: Problem, model: StagewiseModel) -> tuple[float, float]:
    """Mean loss of the training and of the validation rows, from predictions of the model."""
    from fcl.stagewise.targets import held_out

    settings = model.settings
    codes = np.unique(problem.y, return_inverse=True)[1]
    held = held_out(codes, settings.valid_fraction, settings.seed)
    margins, hot = model.margins(problem.x), problem.one_hot
    if settings.loss == "softmax":
        each = -(log_softmax(margins, axis=1) * hot).sum(axis=1)
    else:
        each = 0.5 * ((margins - hot) ** 2).sum(axis=1)
    return tuple(float(np.average(each[m], weights=problem.s[m])) for m in (~held, held))  # type: ignore[return-value]


def is_true(problem: Problem, model: StagewiseModel) -> None:
    row = model.history[model.best_number - 1]
    loss, valid = losses_of(problem, model)
    assert row["loss"] == pytest.approx(loss, rel=1e-6)
    assert row["valid_loss"] == pytest.approx(valid, rel=1e-6)


def zeros(values: np.ndarray) -> np.ndarray:
    return np.zeros_like(values)


EDITS: dict[str, Any] = {
    "training margins": change_array("margins-0.npy", zeros),
    "validation margins": change_array("margins-1.npy", zeros),
    "margins that differ a little": change_array("margins-0.npy", lambda m: m + 1e-3),
    "margins that are infinite": change_array("margins-0.npy", lambda m: m + np.inf),
    "losses of the last block": change_history(lambda rows: rows[-1].update(loss=0.01, error=0.0)),
    "all validation losses": change_history(
        lambda rows: [row.update(valid_loss=row["valid_loss"] * 1e-3) for row in rows]
    ),
    "weights": change_array("features.npy", lambda w: 0.5 * w),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("update", ["ls", "gls", "cls"])
@pytest.mark.parametrize("edit", EDITS)
def test_losses_are_those_of_the_model(
    problem: Problem, tmp_path: Path, update: str, edit: str, caplog: Any
) -> None:
    folder = interrupted(problem, tmp_path / "c", 3, **OPTIONS, update=update)
    rewrite(tmp_path / "c" / "checkpoint-1.fcl-ckpt", EDITS[edit])
    for more in ({}, {"max_time": 1e-9}):  # to the end, and one block more
        saved = folder.load()
        running = StagewiseRunOptions(cores=1, resume=saved, **more)
        model = problem.train(**OPTIONS, update=update, running=running).model
        is_true(problem, model)
    if "margins" in edit:
        assert "the margins in the checkpoint do not follow from its weights" in caplog.text


def test_a_finished_job_with_forged_margins(problem: Problem, tmp_path: Path) -> None:
    """No block is left, so that nothing else would compute them."""
    folder = StateFolder(tmp_path / "c")
    options = OPTIONS | {"visits": 1, "valid_fraction": 0.0}
    whole = problem.train(**options, running=StagewiseRunOptions(cores=1, checkpoint=folder)).model
    path = tmp_path / "c" / "checkpoint-1.fcl-ckpt"
    rewrite(path, change_array("margins-0.npy", zeros))
    rewrite(path, change_history(lambda rows: rows[-1].update(loss=0.001)))
    model = problem.train(
        **options, running=StagewiseRunOptions(cores=1, resume=folder.load())
    ).model
    assert model.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=1e-6)


def test_honest_checkpoints_cause_no_warning(
    problem: Problem, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Among them those of float32 features: many rows, of which the first ones train."""
    for number, (update, n) in enumerate([("ls", 300), ("gls", 300), ("cls", 300), ("ls", 20_000)]):
        own = problem if n == 300 else Problem(n)
        folder = interrupted(own, tmp_path / str(number), 3, **OPTIONS, update=update)
        with caplog.at_level(logging.WARNING):
            own.train(
                **OPTIONS, update=update, running=StagewiseRunOptions(cores=1, resume=folder.load())
            )
    assert caplog.text == ""
