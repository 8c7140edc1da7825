"""tools/dev.py: what it decides and says; nothing is installed here."""

from __future__ import annotations

import importlib.util
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fcl.drivers import kinds

SCRIPT = Path(__file__).parent.parent / "tools" / "dev.py"
#: The stages of an environment that is made, and made again.
MADE = ["venv", "pip"]
AGAIN = [*MADE, *MADE]


@pytest.fixture
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fcl_dev_tool", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository that dev.py takes for its own, and no FCL_VENV."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.delenv("FCL_VENV", raising=False)
    return tmp_path


@pytest.fixture
def commands(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that setting up would run; `venv` makes a folder whose Python works."""
    seen: list[list[str]] = []

    def pretend(command: list[Any], name: str, verbose: bool) -> None:
        seen.append([name, *map(str, command)])
        if name == "venv":
            shutil.rmtree(command[-1])  # as --clear does
            binaries = Path(command[-1], "bin")
            binaries.mkdir(parents=True)
            (binaries / "python").symlink_to(sys.executable)

    monkeypatch.setattr(dev, "run_quietly", pretend)
    return seen


@pytest.fixture
def run(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that dev.py would run, each of which succeeds."""
    seen: list[list[str]] = []

    def pretend(*side_by_side: list[Any], **_: Any) -> int:
        for command in side_by_side:
            seen.append([Path(command[0]).name, *map(str, command[1:])])
        return 0

    monkeypatch.setattr(dev, "run", pretend)
    return seen


def stages(commands: list[list[str]]) -> list[str]:
    return [name for name, *_ in commands]


def refused(dev: ModuleType, message: str) -> Any:
    return pytest.raises(dev.SetupError, match=message)


# --- the command line


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tets"], 2, ["unknown command 'tets'", "demo", "test", "lint"]),
        ([], 0, ["dev.py demo"]),
        (["--help"], 0, ["dev.py demo"]),
        (["-v"], 0, ["dev.py demo"]),
        (["demo", "--fast"], 2, ["demo takes no arguments, got: --fast"]),
        (["docs", "--html"], 2, ["docs takes no arguments, got: --html"]),
    ],
)
def test_command_line(arguments: list[str], code: int, words: list[str], tmp_path: Path) -> None:
    """It needs the standard library alone."""
    line = [sys.executable, "-I", "-S", SCRIPT, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == code
    output = done.stderr if code else done.stdout
    assert all(word in output for word in words) and "Traceback" not in done.stderr


# --- what the machine lacks


def test_other_machines_are_refused(dev):
    with refused(dev, "Linux and macOS"):
        dev.check_platform("win32")
    with refused(dev, r"CPython.*pypy"):
        dev.check_python((3, 11, 9), "pypy", "/usr/bin/pypy3")
    with refused(dev, r"3\.11 or newer, this is 3\.10\.12 \(/usr/bin/python3\)"):
        dev.check_python((3, 10, 12), "cpython", "/usr/bin/python3")


# --- the environment and its stamp


def test_made_once_and_updated_for_more(dev, checkout, commands):
    assert dev.prepare({"test"}, verbose=False)[1] > 0
    assert stages(commands) == MADE and commands[1][-1] == ".[test]"
    current = checkout / ".venv" / "bin", 0.0
    assert dev.prepare({"test"}, verbose=False) == dev.prepare(set(), verbose=False) == current
    dev.prepare({"lint"}, verbose=False)
    assert stages(commands) == [*MADE, "pip"] and commands[2][-1] == ".[lint,test]"
    assert dev.prepare({"test", "lint"}, verbose=False) == current
    (checkout / "pyproject.toml").write_text("[project]\nname = 'fcl'\n")
    dev.prepare(set(), verbose=False)
    assert stages(commands) == [*MADE, "pip", "pip"]


def _stamp(**changes: Any) -> Callable[[ModuleType, Path], None]:
    return lambda dev, venv: dev.write_stamp(venv, dev.read_stamp(venv) | changes)


def _text(text: str) -> Callable[[ModuleType, Path], object]:
    return lambda dev, venv: (venv / dev.STAMP).write_text(text)


@pytest.mark.parametrize(
    "damage",
    [
        *(_stamp(**{key: "other"}) for key in ("python", "root", "folder")),
        lambda dev, venv: dev.write_stamp(venv, {}),
        *map(_text, ("", "{", "[]", '{"complete": tr')),
        lambda dev, venv: (venv / "bin" / "python").unlink(),
    ],
)
def test_made_again_when_it_is_of_no_use(damage, dev, checkout, commands):
    dev.prepare({"test"}, verbose=False)
    venv = checkout / ".venv"
    damage(dev, venv)
    dev.prepare(set(), verbose=False)
    assert stages(commands) == AGAIN and "--clear" in commands[2]
    assert dev.prepare(set(), verbose=False)[1] == 0.0


@pytest.mark.parametrize("update", [False, True])
def test_a_failed_installation(update, dev, checkout, commands, monkeypatch):
    """The first is not taken for complete; an update leaves the earlier environment."""
    pretend = dev.run_quietly
    if update:
        dev.prepare(set(), verbose=False)
    before = dev.read_stamp(checkout / ".venv")

    def fail(command, name, verbose):
        pretend(command, name, verbose)
        if name == "pip":
            raise dev.SetupError("pip failed (exit code 1)")

    monkeypatch.setattr(dev, "run_quietly", fail)
    with refused(dev, "pip failed"):
        dev.prepare({"test"}, verbose=False)
    after = dev.read_stamp(checkout / ".venv")
    assert after == (before if update else {})


def test_files_of_someone_else_are_left_alone(dev, checkout, commands, monkeypatch):
    theirs = checkout / "theirs"
    theirs.mkdir()
    (theirs / "thesis.tex").touch()
    for place, message in (
        (theirs, "not made by this tool"),
        (theirs / "thesis.tex", "not made by"),
    ):
        monkeypatch.setenv("FCL_VENV", str(place))
        with refused(dev, message):
            dev.prepare(set(), verbose=False)
    assert [path.name for path in theirs.iterdir()] == ["thesis.tex"] and commands == []


PYPROJECT = """
[project]
dependencies = ["numpy>=2.0", "click>=8.2"]
[project.optional-dependencies]
test = ["moto[server]>=5.1", "numpy>=2.0"]
lint = ["ruff>=0.9"]
"""


def test_lowest_versions_in_an_environment_of_their_own(dev, checkout, commands):
    (checkout / "pyproject.toml").write_text(PYPROJECT)
    binaries, _ = dev.prepare({"test"}, verbose=False, lowest=True)
    assert binaries == checkout / ".venv-lowest" / "bin"
    constraints = checkout / ".venv-lowest" / "lowest.txt"
    assert constraints.read_text() == "click==8.2\nmoto==5.1\nnumpy==2.0\n"
    assert commands[1][-4:] == ["--constraint", str(constraints), "--editable", ".[test]"]
    dev.prepare({"test"}, verbose=False)
    assert stages(commands) == AGAIN
    assert "--constraint" not in commands[3] and (checkout / ".venv").is_dir()
    for requirement in ("numpy", "numpy<3", "numpy>=2,<3", "numpy>=2; x == 'y'"):
        text = PYPROJECT.replace("numpy>=2.0", requirement)
        (checkout / "pyproject.toml").write_text(text)
        with refused(dev, r"expected NAME>=VERSION for --lowest, got .numpy"):
            dev.lowest_versions(checkout / "pyproject.toml", set())


def test_pages_name_the_lowest_versions(dev):
    """The table of CONTRIBUTING.md has those of pyproject.toml."""
    page = (dev.ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| [\d.]+ \|$", page, re.MULTILINE)
    extras = {"tables", "dask", "plink", "cloud", "report"}
    lines = dev.lowest_versions(dev.ROOT / "pyproject.toml", extras)
    assert sorted(f"{name}=={version}" for name, version in rows) == lines


# --- running commands


def test_the_exit_code_is_that_of_the_command(dev, tmp_path):
    assert dev.run(["sh", "-c", "exit 7"]) == 7
    assert dev.run(["sh", "-c", "kill -KILL $$"]) == 128 + signal.SIGKILL
    meet = "touch {}; for i in $(seq 500); do [ -e {} ] && exit {}; sleep 0.01; done; exit 9"
    names = (("a", "b", 0), ("b", "a", 3))  # side by side: each waits for the other
    commands = [["sh", "-c", f"cd {tmp_path}; " + meet.format(*some)] for some in names]
    assert dev.run(*commands) == 3


def test_all_tests_run_once_the_kernels_are_compiled(dev, run, monkeypatch):
    assert dev.test(Path("bin"), [], lowest=False) == 0
    first, second, tests = run
    named = {name for command in (first, second) for name in kinds.kinds_named(command[-1])}
    # every warm-up compiles those of several outputs; few tests need those of online learners
    assert named | {kinds.OUTPUTS, kinds.ONLINE} == set(kinds.KIND_SECONDS)
    assert tests[:3] == ["python", "-m", "pytest"]
    monkeypatch.setattr(dev, "run", lambda *commands: len(commands) - 1)  # fails if side by side
    assert dev.test(Path("bin"), [], lowest=False) == 1
