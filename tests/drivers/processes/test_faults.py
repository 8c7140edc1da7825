"""A short fault injection campaign: no model is wrong, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import fcl.drivers.processes
from fcl.drivers.processes.logic.stages import TASKS
from fcl.drivers.processes.trainer import _ORDERS
from fcl.model import atomic
from tools import faults
from tools.campaign import cases, command, jobs, others, run

pytestmark = pytest.mark.forked_commands

SEED = 4
#: Cases with their settings. Starting processes takes nearly all of the time.
CASES = {
    "writer-columns-piece-kill": jobs.Setting(1, l1_ratio=0.5),
    "writer-price-done-raise": jobs.Setting(1, family="generator"),
    "writer-columns-commit-kill": jobs.Setting(1, sampled=True),
    "trainer-order-commit-kill": jobs.Setting(1, small=True),
    "trainer-step-stop": jobs.Setting(1, shared_files=True),
    "kill-trainer": jobs.Setting(1, valid=True),
    "terminate-group": jobs.Setting(1, small=True),
    "deaths-trainer-step": jobs.Setting(1, family="columns"),
    "kill-supervisor": jobs.Setting(driver="inline"),
    "kill-saving": jobs.Setting(driver="inline", family="products"),
    "damaged-checkpoint": jobs.Setting(driver="inline"),
    "terminate": jobs.Setting(driver="inline", sampled=True),
    "interrupt": jobs.Setting(driver="inline", family="columns"),
    "interrupt-twice": jobs.Setting(driver="inline", family="several"),
    "hangup": jobs.Setting(driver="inline", l1_ratio=0.5),
    "disk-full": jobs.Setting(driver="inline", resumed=True),
    "model-disk-freed": jobs.Setting(driver="inline", family="generator"),
    "no-reader": jobs.Setting(driver="inline", valid=True),
    "bad-chunk": jobs.Setting(driver="inline"),
    "changed-later": jobs.Setting(driver="inline"),
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> jobs.Job:
    return jobs.Job(tmp_path_factory.mktemp("faults"), jobs.SMALL)


def children(command: command.Command, role: str) -> list[int]:
    """Process ids of the children of a role, which the nursery has named."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(command.pid).children(recursive=True)
        return [process.pid for process in found if process.name() == role]
    return []


@pytest.mark.parametrize("name", CASES)
def test_fault(name: str, job: jobs.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LIMIT", 120.0)  # the machine may be busy
    monkeypatch.setattr(command.Command, "children", children)
    case = next(case for case in cases.all_cases() if case.name == name)
    outcome = run.Run(0, case, SEED, job, tmp_path / "run", CASES[name]).go()
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.good, json.dumps(asdict(outcome), indent=1)
    assert outcome.fired or not case.point
    if case.kind == "deaths":
        assert outcome.codes == [5, 0]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> others.Material:
    return others.Material(tmp_path_factory.mktemp("others"), n_rows=1000)


@pytest.mark.parametrize(
    "name",
    [
        "online-kill",
        "stagewise-kill",
        "path-interrupt",
        "convert-output-disk-full",
        "predict-kill",
    ],
)
def test_other_commands(
    name: str, material: others.Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LIMIT", 120.0)
    case = next(case for case in others.other_cases() if case.name == name)
    outcome = others.OtherRun(0, case, SEED, material, tmp_path / "run").go()
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.good, json.dumps(asdict(outcome), indent=1)


def test_other_bits_and_lost_outputs_are_found(
    material: others.Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in others.other_cases() if case.name == "convert-freeze")
    good = material.reference("convert")
    monkeypatch.setattr(material, "reference", lambda name: ({**good[0], "y/x": "0"}, good[1]))
    wrong = others.OtherRun(0, case, SEED, material, tmp_path / "run").go().wrong
    assert wrong == ["other bits than an undisturbed job: y/x"]
    found = others.OtherRun(0, case, SEED, material, tmp_path / "other")
    found.has_earlier = True
    done = SimpleNamespace(errors="")
    found._judge(done, -9, {})  # type: ignore[arg-type]
    assert "the earlier output is gone" in found.outcome.wrong
    found.out.mkdir()
    (found.out / "zarr.json").write_bytes(b"half")
    found._judge(done, 0, {})  # type: ignore[arg-type]
    assert "is not whole" in found.outcome.wrong[-1]


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
    known = {*cases.WRITER_POINTS, *cases.TRAINER_POINTS, *cases.SUPERVISOR_POINTS}
    assert found == known


def test_a_campaign_resumes_where_it_ended(tmp_path: Path) -> None:
    some = faults.plan_cases(40, seed=3)
    assert some[:10] == faults.plan_cases(10, seed=3) != faults.plan_cases(10, seed=4)
    of_all = [*cases.all_cases(), *others.other_cases()]
    everything = faults.plan_cases(len(of_all), seed=1)
    assert sorted(c.name for c in everything) == sorted(c.name for c in of_all)
    lines = [asdict(run.Outcome(i, c.name, c.group, {})) for i, c in enumerate(some[:3])]
    path = tmp_path / "results.jsonl"
    text = "\n".join(json.dumps(line) for line in lines)
    path.write_text(text[:-20])  # truncated, as by a power failure
    assert faults.done_before(path) == lines[:2]
    assert len(faults.table(lines)) == 1 + len({line["group"] for line in lines})
