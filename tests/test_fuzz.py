"""A sample of the fuzz cases: odd input must succeed, or fail with one message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from tools.fuzz import __main__ as fuzz
from tools.fuzz import certify, commands, doors, kinds, odd, verdict
from tools.fuzz.case import Case, Trial
from tools.fuzz.run import MOST_BYTES, Done, Watch
from tools.fuzz.stock import FAMILIES, READERS, make_stock
from tools.fuzz.worker import discard, kind_of

SEED = 2024
#: Kinds that run separate processes are left out; the tests of the commands cover them.
QUICK = [name for name, kind in kinds.KINDS.items() if kind.is_quick]
INSIDE = [kind for kind in QUICK if kind != "processes"]
RUNS, PARTS = 150, 10


def numbers_of_cases() -> list[int]:
    """The first cases, and one case for each kind of file."""
    numbers = list(range(RUNS))
    wanted = set(range(len(READERS)))
    number = RUNS
    while wanted:
        at = number % len(READERS)
        if at in wanted and kind_of(SEED, number, INSIDE) == "file":
            wanted.remove(at)
            numbers.append(number)
        number += 1
    return numbers


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fuzz.Remote]:
    """A worker in a process of its own, because it limits its memory and changes its streams."""
    remote = fuzz.Remote(SEED, INSIDE, tmp_path_factory.mktemp("fuzz"), patience=4.0)
    remote.start()
    yield remote
    remote.stop()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_sample(part: int, remote: fuzz.Remote) -> None:
    results = [remote.do(number) for number in numbers_of_cases()[part::PARTS]]
    failed = [result for result in results if result["faults"]]
    assert not failed, json.dumps(failed, indent=1)
    assert {"success", "exit 2"} <= {result["outcome"] for result in results}


def test_the_files_of_each_command() -> None:
    lines = [line.split() for readers in READERS.values() for line in readers]
    assert {line[0] for line in lines} == set(commands.commands())
    # each option that names a file which is read is in some line, or in Line
    given = {word for line in lines for word in line if word.startswith("--")}
    for option in ("valid", "like", "names", "keep", "genome", "negatives", "vcf", "initial", "resume",
                   "config", "bound-from", "data", "label", "y"):  # fmt: skip
        assert f"--{option}" in given


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    make_stock(folder)
    return folder


@pytest.mark.parametrize("kind", QUICK)
def test_a_number_gives_the_same_case(kind: str, stock: Path, tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        case = Case(SEED, 5, kind, folder, stock)
        trial = kinds.KINDS[kind].make(case)
        files = {path: what for path, what in verdict.tree(folder).items() if ".zarr" not in path}
        made.append((case.notes, case.outputs, trial.arguments, trial.streams, files))
    assert made[0] == made[1]


def test_every_option_of_every_command_is_drawn(stock: Path, tmp_path: Path) -> None:
    case = Case(SEED, 0, "command", tmp_path, stock)
    for name, command in commands.commands().items():
        line = commands.Line(case, name, "numbers")
        drawn = set(line.options()) | commands.LEFT_OUT
        assert drawn >= {parameter.name for parameter in command.params} | {"storage_option"}
        for option in line.options():
            line.good(option)  # raises for a type that is not known
        assert {0, 2} <= commands.documented_codes(name)


ERROR = "fcl-inspect: error: "
#: The result of a command, and the fault that must be found.
WRONG = {
    "a password": (Done(2, "", f"{ERROR}{odd.SECRET}\n"), "password in standard error"),
    "a traceback": (Done(1, "", "Traceback (most recent call last):\n  x\nKeyError: 1\n"), "KeyError"),
    "no message": (Done(2, "", ""), "no messages"),
    "two messages": (Done(2, "", 2 * f"{ERROR}x\n"), "2 messages"),
    "an undocumented code": (Done(77, "", f"{ERROR}x\n"), "exit code 77"),
    "a failure of the machine": (Done(1, "", f"{ERROR}x\n"), "exit code 1"),
    "a warning of a library": (Done(0, "", "/a/b.py:3: UserWarning: x\n"), "UserWarning"),
    "a long message": (Done(2, "", f"{ERROR}{'x' * 9999}\n"), "long message"),
    "something left": (Done(0, left=["process: x"]), "process: x"),
}  # fmt: skip


def test_verdict_finds(stock: Path, tmp_path: Path) -> None:
    case = Case(SEED, 0, "command", tmp_path, stock)
    for done, expected in WRONG.values():
        _, found = verdict.judge(case, Trial(["inspect", "m.fcl"]), done, {}, {})
        assert any(expected in fault for fault in found)
    refused, trial = Done(2, "", f"{ERROR}x\n"), Trial(["inspect", "m.fcl"], refuse="1_0")
    assert verdict.judge(case, trial, Done(), {}, {})[1] == ["accepted 1_0"]
    assert verdict.judge(case, trial, refused, {}, {})[1] == []


def test_verdict_finds_what_was_written(stock: Path, tmp_path: Path) -> None:
    case = Case(SEED, 0, "command", tmp_path, stock)
    case.output("out.fcl")
    refused = Done(2, "", f"{ERROR}x\n")
    trial = Trial(["inspect", "m.fcl"])
    assert verdict.judge(case, trial, refused, {"a": "1"}, {"a": "1"})[1] == []
    for after in ({"a": "2"}, {}, {"a": "1", "b": ""}, {"a": "1", "out.fcl": ""}):
        assert verdict.judge(case, trial, refused, {"a": "1"}, after)[1]
    written = {"out.fcl": "", "out.fcl.checkpoint/x": ""}
    assert verdict.judge(case, trial, Done(), {}, written)[1] == []
    assert verdict.judge(case, trial, Done(), {}, {"other": ""})[1]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="there is no /proc here")
def test_watch_finds_what_is_left(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.left() == []
    with (tmp_path / "x").open("w"):
        assert watch.left() == ["descriptor: ./x"]
    np.ones(MOST_BYTES // 4)  # twice the limit, as other memory may be freed meanwhile
    assert [words.partition(":")[0] for words in watch.left()] == ["memory"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_certificates_that_are_false_are_found(kind: str, stock: Path) -> None:
    data = fcl.open_data(stock / kind)
    for place, _ in enumerate(FAMILIES[kind]):
        model = fcl.load_model(stock / f"{kind}{place}.fcl")
        claimed = model.certificate
        if claimed.scope_text != "all features of the family":
            continue
        assert certify.wrong(model, data, {}) == []
        assert claimed.gap > 1e-6  # so far from the optimum that the changes below are false
        lower = claimed.objective * (1.0 - 1e-6)
        for changed in (
            replace(claimed, objective=lower, gap=(lower - claimed.bound) / lower),
            replace(claimed, bound=claimed.objective, gap=0.0),
            replace(claimed, gap=0.5 * claimed.gap),
            replace(claimed, max_violation=1.0),
        ):
            assert certify.wrong(replace(model, certificate=changed), data, {})
        other = replace(model, weights=np.asarray(model.weights) * 1.001)
        assert certify.wrong(other, data, {})


@pytest.mark.thin(2)
@pytest.mark.parametrize("make", [doors._svmlight, doors._table, doors._plink])
def test_rows_in_other_columns_are_found(make: Any, stock: Path, tmp_path: Path) -> None:
    case = Case(SEED, 1, "doors", tmp_path, stock)
    rows = make(case)
    assert doors._through(case, rows) == []
    # what the columns were called does not matter to the files, so these margins are wrong
    rows = replace(rows, matrix=rows.matrix[:, ::-1] + 1.0)
    for path in tmp_path.iterdir():
        if not path.name.startswith(("train.", "test.")) or path.is_dir():
            discard(path)
    found = doors._through(case, rows)
    assert found and all("margins off" in fault for fault in found)
