"""What the tables of refused commands share: a case, and the check of its one message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

#: An id, the door, what the door is given, and a pattern of the message.
#: A door writes files into the working folder, and returns the words of a command.
Case = tuple[str, Callable[[Any], list[Any]], Any, str]
#: Runs a case: door, what it is given, and message.
Refuses = Callable[[Callable[[Any], list[Any]], Any, str], None]


def of(door: Callable[[Any], Any], cases: list[tuple[str, Any, str]]) -> list[Any]:
    """Cases of one door, which name only id, what the door is given, and message."""
    return [(name, door, given, message) for name, given, message in cases]


def parametrized(*tables: Iterable[Case]) -> pytest.MarkDecorator:
    """Run a test with ``door``, ``given`` and ``message`` of each case."""
    cases = [
        pytest.param(door, given, message, id=f"{door.__name__}: {name}")
        for table in tables
        for name, door, given, message in table
    ]
    return pytest.mark.parametrize(("door", "given", "message"), cases)


def contents() -> dict[Path, bytes]:
    """All files below the working folder, and what they hold; folders hold nothing."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*")}


def check_refusal(result: Result, message: str, name: str) -> None:
    """Exit code 2, and one line that is an error of the command: it is the last one and short."""
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert re.match(f"fcl[- ]{name}: error: ", lines[-1]), result.stderr
    assert sum("error: " in line for line in lines) == 1, result.stderr
    assert re.search(message, lines[-1]), lines[-1]
    assert len(lines[-1]) < 1000 and lines[-1].isprintable() and result.stdout == ""


def check_refused(run: Callable[..., Result], words: list[Any], message: str) -> None:
    """As above, and every file is as it was before."""
    before = contents()
    name = "report" if words[0] == "report_command" else words[0]
    check_refusal(run(*words), message, name)
    assert contents() == before
