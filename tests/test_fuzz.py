"""A sample of the fuzz cases: odd input must succeed, or fail with one message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.fuzz import __main__ as fuzz
from tools.fuzz import commands, kinds
from tools.fuzz.case import Case
from tools.fuzz.stock import READERS, make_stock
from tools.fuzz.worker import kind_of

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


@pytest.mark.slow
def test_every_option_of_every_command_is_drawn(stock: Path, tmp_path: Path) -> None:
    case = Case(SEED, 0, "command", tmp_path, stock)
    for name, command in commands.commands().items():
        line = commands.Line(case, name, "numbers")
        drawn = set(line.options()) | commands.LEFT_OUT
        assert drawn >= {parameter.name for parameter in command.params} | {"storage_option"}
        for option in line.options():
            line.good(option)  # raises for a type that is not known
        assert {0, 2} <= commands.documented_codes(name)
