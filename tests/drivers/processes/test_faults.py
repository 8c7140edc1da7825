"""A short fault injection campaign: no model is wrong, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import psutil
import pytest

import fcl.drivers.processes
from fcl.drivers.processes.logic.protocol import TASKS
from fcl.drivers.processes.trainer import _ORDERS
from fcl.files import atomic
from tools.fuzz import faults, outputs, run, training
from tools.fuzz.case import Case
from tools.fuzz.run import Session

pytestmark = pytest.mark.forked_commands

SEED = 4
#: Cases with their settings. Starting processes takes nearly all of the time.
CASES = {
    "writer-columns-piece-kill": training.Setting(1, l1_ratio=0.5),
    "writer-price-done-raise": training.Setting(1, family="generator"),
    "writer-columns-commit-kill": training.Setting(1, sampled=True),
    "trainer-order-commit-kill": training.Setting(1, small=True),
    "trainer-step-stop": training.Setting(1, shared_files=True),
    "kill-trainer": training.Setting(1, valid=True),
    "terminate-group": training.Setting(1, small=True),
    "deaths-trainer-step": training.Setting(1, family="columns"),
    "kill-supervisor": training.Setting(driver="inline"),
    "kill-saving": training.Setting(driver="inline", family="products"),
    "damaged-checkpoint": training.Setting(driver="inline"),
    "terminate": training.Setting(driver="inline", sampled=True),
    "interrupt": training.Setting(driver="inline", family="columns"),
    "interrupt-twice": training.Setting(driver="inline", family="several"),
    "hangup": training.Setting(driver="inline", l1_ratio=0.5),
    "disk-full": training.Setting(driver="inline", resumed=True),
    "model-disk-freed": training.Setting(driver="inline", family="generator"),
    "no-reader": training.Setting(driver="inline", valid=True),
    "bad-chunk": training.Setting(driver="inline"),
    "changed-later": training.Setting(driver="inline"),
}


#: Other commands with their faults.
OTHERS = (
    "online-kill-supervisor",
    "stagewise-kill-supervisor",
    "path-interrupt",
    "convert-output-disk-full",
    "predict-kill-supervisor",
)
N_ROWS = 1000


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(autouse=True)
def _sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LIMIT", 120.0)  # the machine may be busy
    monkeypatch.setattr(Session, "children", children)


def children(session: Session, role: str) -> list[int]:
    """Process ids of the children of a role, which the nursery has named."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(session.pid).children(recursive=True)
        return [process.pid for process in found if process.name() == role]
    return []


def find(name: str) -> faults.Fault:
    return next(fault for fault in faults.all_faults() if fault.name == name)


def assert_good(run: training.Run) -> None:
    wrong = run.go()
    if run.case.outcome == "skipped":
        pytest.skip(run.case.notes[-1])
    assert not wrong, json.dumps([*wrong, *run.case.notes, run.case.said], indent=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_fault(name: str, stock: Path, tmp_path: Path) -> None:
    case, fault = Case(SEED, 0, "fault", tmp_path, stock), find(name)
    made = training.Training(case, fault, training.SMALL, CASES[name])
    assert_good(made)
    assert made.fired or not fault.point
    if fault.act == "deaths":
        assert made.codes == [5, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_commands(name: str, stock: Path, tmp_path: Path) -> None:
    case = Case(SEED, 0, "fault", tmp_path, stock)
    assert_good(outputs.OutputRun(case, find(name), N_ROWS))


def test_all_marked_points_are_in_the_campaign() -> None:
    found = set()
    for path in Path(fcl.drivers.processes.__file__).parent.glob("*.py"):
        for point in re.findall(r'\bfault\(f?"([^"]+)"\)', path.read_text()):
            if path.stem != "faults":
                found.add(point)
    for name in ("{task.kind}-begin", "{task.kind}-done"):
        found.remove(name)
        found |= {name.replace("{task.kind}", kind) for kind in TASKS}
    found.remove("write-{name}")
    found |= {
        f"write-{step}"
        for step in re.findall(r'\bstep\("(\w+)"\)', Path(atomic.__file__).read_text())
    }
    found.remove("order-{name}")
    found |= {f"order-{name}" for name in _ORDERS.values()}
    assert found == {point for points in faults.POINTS.values() for point in points}


def test_a_round_has_every_fault(stock: Path, tmp_path: Path) -> None:
    names = [fault.name for fault in faults.all_faults()]
    cases = [Case(3, number, "fault", tmp_path, stock) for number in range(len(names))]
    chosen = [faults.choose(case).name for case in cases]
    assert sorted(chosen) == sorted(names) and chosen != names
    other = Case(3, 1, "fault", tmp_path, stock, within="trainer-step")
    assert faults.choose(other).name.startswith("trainer-step")
