"""Small data on disk, a model file, and a fake trainer, for tests of the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fcl.drivers.result import TrainResult
from fcl.features import KmerFamily
from fcl.files.folder import Checkpoint, CheckpointFolder
from fcl.memory.ledger import MemoryPlan
from fcl.model import Certificate, Model
from fcl.run.events import PassDone, Prepared, Started, Stopped
from fcl.run.reasons import StopReason
from tests.checkpoints import arrays, state
from tests.cli.refusals import Refuses, check_refused

LENGTH = 12
#: The words of a command.
Job = tuple[Any, ...]


def save(folder: Path, **arrays: Any) -> Path:
    """Write arrays as .npy files to a folder; makes the folder if necessary."""
    folder.mkdir(exist_ok=True)
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of .npy: 600 windows, a target that follows the letter at 5, weights."""
    rng = np.random.default_rng(3)
    windows = rng.integers(0, 4, (600, LENGTH), dtype=np.uint8)
    y = ((windows[:, 5] == 2) ^ (rng.random(600) < 0.1)).astype(np.int8)
    return save(tmp_path / "data", X=windows, y=y, s=rng.uniform(0.5, 2, 600))


@pytest.fixture
def job(data: Path, tmp_path: Path) -> Job:
    """A command of training that writes o.fcl."""
    return "train", data, "--features", "kmers:d=3", "--C", 1, "--out", tmp_path / "o.fcl"


@pytest.fixture
def model() -> Model:
    family = KmerFamily(3, LENGTH, 0)
    return Model(
        family=family,
        ids=np.array([3, 250, 999]),
        weights=np.array([0.1, -2.5, 1 / 3]),
        support=np.array([40, 2, 7]),
        intercept=-0.7,
        loss="logistic",
        C=0.1,
        alpha=0.1,
        labels=(0, 1),
        n_rows=100,
        sum_weights=100.0,
        fingerprint="ab" * 32,
        certificate=Certificate(12.5, 12.4, 0.008, 1.01, family.n_features, passes=3),
        options={"memory": 1 << 30},
    )


@pytest.fixture
def model_file(tmp_path: Path, model: Model) -> Path:
    model.save(tmp_path / "m.fcl")
    return tmp_path / "m.fcl"


def ok(result: Result) -> Result:
    """The result of a command that must succeed."""
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def run() -> Callable[..., Result]:
    """``run("train", ...)``: a command with the error handling of the scripts."""

    def run(name: str, *arguments: object) -> Result:
        from importlib import import_module

        command = import_module(f"fcl.cli.{name}").command
        return CliRunner().invoke(command, [str(argument) for argument in arguments])

    return run


def plan_of(budget: int) -> MemoryPlan:
    return MemoryPlan((("column cache", 1 << 20), ("interpreter", 2 << 20)), budget)


@dataclass
class FakeDriver:
    """Replaces fcl.drivers.train: records its arguments and reports a few passes."""

    model: Model
    calls: list[dict[str, Any]] = field(default_factory=list)
    reason: str = "tolerance"
    checkpoint_failed: bool = False
    before_end: Callable[[dict[str, Any]], None] = lambda arguments: None

    def plan_training(self, data: Any, features: Any, **arguments: Any) -> MemoryPlan:
        self.calls.append({"data": data, "features": features, **arguments})
        return plan_of(arguments["memory"])

    def planned_job(self, **arguments: Any) -> SimpleNamespace:
        return SimpleNamespace(plan=self.plan_training(**arguments))

    def train(self, data: Any, features: Any, **arguments: Any) -> Any:
        self.calls.append({"data": data, "features": features, **arguments})
        progress, certificate = arguments["progress"], self.model.certificate
        progress(Started(plan_of(arguments["memory"]), {"d": 3}, 600, 1000, 0.1, 1.0, 150))
        progress(Prepared(0.5, 1200.0))
        for number in (1, 2, 3):
            validation = {"auprc": 0.75, "n_rows": 600} if number == 2 else None
            values = 12.5, 12.4, 0.008, 1.01, 1000, 20, 3, 512, 1 << 20, 0, 1e6, 1 << 28, 1.0
            progress(PassDone(number, 0.1 * number, *values, validation, 5.0))
        self.before_end(arguments)
        reason = "interrupted" if arguments["should_stop"]() else self.reason
        seconds = {"pass": 1.5, "columns": 0.5}
        progress(Stopped(reason, "why it stopped", certificate, seconds, 1 << 28))
        return TrainResult(
            model=self.model,
            reason=StopReason(reason),
            message="why it stopped",
            seconds=seconds,
            peak_memory=1 << 28,
            passes=3,
            wall_seconds=2.0,
            checkpoint_failed=self.checkpoint_failed,
        )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, model: Model) -> FakeDriver:
    fake = FakeDriver(model)
    module = ModuleType("fcl.drivers.train")
    module.run_training = fake.train  # type: ignore[attr-defined]
    module.planned_job = fake.planned_job  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fcl.drivers.train", module)
    monkeypatch.setattr("fcl.drivers.train", module, raising=False)
    timed = ModuleType("fcl.drivers.pass_time")
    timed.measure_pass = lambda *_, **__: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fcl.drivers.pass_time", timed)
    return fake


@pytest.fixture
def start(
    data: Path, tmp_path: Path, driver: FakeDriver, run: Callable[..., Result], model: Model
) -> Callable[..., Path]:
    """``start(options...)``: a job that was stopped; the folder of its checkpoint."""

    def start(*arguments: object, command: Any = ..., rows: Path = data) -> Path:
        arguments = (*arguments, "--out", tmp_path / "o.fcl")
        result = run("train", rows, "--features", "kmers:d=3", "--C", 0.1, *arguments)
        assert result.exit_code == 0, result.output
        call = driver.calls[-1]
        with CheckpointFolder(call["checkpoint"]) as folder:
            folder.save(
                Checkpoint(
                    options={"C": 0.1, "command": call["command"] if command is ... else command},
                    family=model.family.to_config(),
                    fingerprint=model.fingerprint,
                    n_rows=600,
                    block_checksums=np.empty(0, np.uint64),
                    state=state(),
                    arrays=arrays(),
                    history=[],
                    elapsed=1.0,
                    driver="processes",
                )
            )
        return folder.path

    return start


@pytest.fixture
def refuses(
    data: Path, model_file: Path, tmp_path: Path, run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> Refuses:  # fmt: skip
    """Run a case in a folder with data, their model m.fcl, and a file exists.fcl."""
    del data, model_file  # in this folder
    monkeypatch.chdir(tmp_path)
    Path("exists.fcl").write_text("precious")
    return lambda door, given, message: check_refused(run, door(given), message)
