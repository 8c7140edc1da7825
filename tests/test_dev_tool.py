"""tools/dev.py: what it decides and says; nothing is installed here."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fcl.drivers import kinds

SCRIPT = Path(__file__).parent.parent / "tools" / "dev.py"


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
            binaries = Path(command[-1], "bin")
            binaries.mkdir()
            (binaries / "python").symlink_to(sys.executable)

    monkeypatch.setattr(dev, "run_quietly", pretend)
    return seen


def stages(commands: list[list[str]]) -> list[str]:
    return [name for name, *_ in commands]


# --- the command line


def call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_unknown_command_names_the_commands(tmp_path):
    done = call("tets", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown command 'tets'" in done.stderr
    assert all(name in done.stderr for name in ("demo", "test", "lint"))
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-v"]])
def test_help(arguments, tmp_path):
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "dev.py demo" in done.stdout


def test_only_test_takes_arguments(dev, capsys):
    assert dev.main(["demo", "--fast"]) == 2
    assert "demo takes no arguments, got: --fast" in capsys.readouterr().err


def test_needs_the_standard_library_alone(tmp_path):
    code = f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='dev')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# --- what the machine lacks


def test_this_machine_will_do(dev):
    dev.check_platform()
    dev.check_python()


def test_windows_is_refused(dev):
    with pytest.raises(dev.SetupError, match="Linux and macOS"):
        dev.check_platform("win32")


def test_old_python_says_what_to_install(dev, monkeypatch):
    monkeypatch.setattr(dev, "find_newer_python", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(dev.SetupError) as caught:
        dev.check_python((3, 10, 12), "cpython", "/usr/bin/python3")
    assert "Python 3.11 or newer" in str(caught.value)
    assert "3.10.12 (/usr/bin/python3)" in str(caught.value)
    assert "apt install python3.11 python3.11-venv" in str(caught.value)


def test_old_python_names_a_newer_one_at_hand(dev, monkeypatch):
    monkeypatch.setattr(
        shutil, "which", lambda name: sys.executable if name == "python3.12" else None
    )
    with pytest.raises(dev.SetupError, match="Run a newer one: ") as caught:
        dev.check_python((3, 9, 6), "cpython", "/usr/bin/python3")
    assert f"{sys.executable} tools/dev.py" in str(caught.value)


def test_a_python_that_does_not_start_is_ignored(dev, tmp_path, monkeypatch):
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dev.find_newer_python() is None


def test_other_implementations_are_refused(dev):
    with pytest.raises(dev.SetupError, match=r"CPython.*pypy"):
        dev.check_python((3, 11, 9), "pypy", "/usr/bin/pypy3")


def test_missing_ensurepip_says_what_to_install(dev, monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object()
    )
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    with pytest.raises(dev.SetupError, match=rf"lacks ensurepip.*apt install {own}"):
        dev.check_venv_parts()


# --- the environment and its stamp


def test_made_once(dev, checkout, commands):
    assert dev.prepare({"test"}, verbose=False) > 0
    assert stages(commands) == ["venv", "pip"]
    assert commands[1][-1] == ".[test]"
    assert dev.prepare({"test"}, verbose=False) == 0
    assert dev.prepare(set(), verbose=False) == 0, "less is wanted than there is"
    assert stages(commands) == ["venv", "pip"]


def test_updated_for_another_extra_and_keeps_the_first(dev, checkout, commands):
    dev.prepare({"test"}, verbose=False)
    dev.prepare({"lint"}, verbose=False)
    assert stages(commands) == ["venv", "pip", "pip"]
    assert commands[2][-1] == ".[lint,test]"
    assert dev.prepare({"test", "lint"}, verbose=False) == 0


def test_updated_when_pyproject_changes(dev, checkout, commands):
    dev.prepare(set(), verbose=False)
    (checkout / "pyproject.toml").write_text("[project]\nname = 'fcl'\n")
    dev.prepare(set(), verbose=False)
    assert stages(commands) == ["venv", "pip", "pip"]


@pytest.mark.parametrize("key", ["python", "root", "folder"])
def test_made_again_when_python_or_place_changed(dev, checkout, commands, key):
    dev.prepare(set(), verbose=False)
    folder = checkout / ".venv"
    (folder / "old").touch()
    dev.write_stamp(folder, {**dev.read_stamp(folder), key: "other"})
    dev.prepare(set(), verbose=False)
    assert stages(commands) == ["venv", "pip", "venv", "pip"]
    assert not (folder / "old").exists()
    assert sorted(path.name for path in checkout.iterdir()) == [".venv", "pyproject.toml"]


def test_made_again_when_incomplete(dev, checkout, commands, capsys):
    dev.prepare({"test"}, verbose=False)
    folder = checkout / ".venv"
    dev.write_stamp(folder, {**dev.read_stamp(folder), "complete": False})
    dev.prepare(set(), verbose=False)
    assert stages(commands) == ["venv", "pip", "venv", "pip"]
    assert "incomplete" in capsys.readouterr().out


def test_made_again_when_its_python_is_gone(dev, checkout, commands):
    dev.prepare(set(), verbose=False)
    (checkout / ".venv" / "bin" / "python").unlink()
    dev.prepare(set(), verbose=False)
    assert stages(commands) == ["venv", "pip", "venv", "pip"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"complete": tr'])
def test_made_again_when_the_stamp_is_damaged(dev, checkout, commands, damage):
    dev.prepare(set(), verbose=False)
    (checkout / ".venv" / dev.STAMP).write_text(damage)
    dev.prepare(set(), verbose=False)
    assert stages(commands) == ["venv", "pip", "venv", "pip"]


def test_failed_first_installation_is_not_taken_for_complete(dev, checkout, commands, monkeypatch):
    pretend = dev.run_quietly

    def fail(command, name, verbose):
        pretend(command, name, verbose)
        if name == "pip":
            raise dev.SetupError("pip failed (exit code 1)")

    monkeypatch.setattr(dev, "run_quietly", fail)
    with pytest.raises(dev.SetupError, match="pip failed"):
        dev.prepare(set(), verbose=False)
    assert dev.read_stamp(checkout / ".venv")["complete"] is False


def test_failed_update_leaves_the_earlier_environment(dev, checkout, commands, monkeypatch):
    dev.prepare(set(), verbose=False)
    before = dev.read_stamp(checkout / ".venv")

    def fail(*_):
        raise dev.SetupError("pip failed (exit code 1)")

    monkeypatch.setattr(dev, "run_quietly", fail)
    with pytest.raises(dev.SetupError, match="pip failed"):
        dev.prepare({"test"}, verbose=False)
    assert dev.read_stamp(checkout / ".venv") == before
    assert dev.prepare(set(), verbose=False) == 0


def test_a_folder_of_someone_else_is_left_alone(dev, checkout, commands, monkeypatch):
    theirs = checkout / "theirs"
    theirs.mkdir()
    (theirs / "thesis.tex").touch()
    monkeypatch.setenv("FCL_VENV", str(theirs))
    with pytest.raises(dev.SetupError, match="not made by this tool"):
        dev.prepare(set(), verbose=False)
    assert [path.name for path in theirs.iterdir()] == ["thesis.tex"]
    assert commands == []


def test_a_file_is_not_a_folder(dev, checkout, commands, monkeypatch):
    (checkout / "file").touch()
    monkeypatch.setenv("FCL_VENV", str(checkout / "file"))
    with pytest.raises(dev.SetupError, match="is a file"):
        dev.prepare(set(), verbose=False)


def test_fcl_venv_names_the_folder(dev, checkout, commands, monkeypatch):
    monkeypatch.setenv("FCL_VENV", "elsewhere")
    monkeypatch.chdir(checkout)
    with dev.ready_venv(set(), verbose=False) as (binaries, seconds):
        assert binaries == checkout / "elsewhere" / "bin"
        assert seconds > 0
    assert not (checkout / ".venv").exists()


PYPROJECT = """
[project]
dependencies = ["numpy>=2.0", "click>=8.2"]
[project.optional-dependencies]
test = ["moto[server]>=5.1", "numpy>=2.0"]
lint = ["ruff>=0.9"]
"""


def test_lowest_versions_in_an_environment_of_their_own(dev, checkout, commands):
    (checkout / "pyproject.toml").write_text(PYPROJECT)
    with dev.ready_venv({"test"}, verbose=False, lowest=True) as (binaries, _):
        assert binaries == checkout / ".venv-lowest" / "bin"
    constraints = checkout / ".venv-lowest" / "lowest.txt"
    assert constraints.read_text() == "click==8.2\nmoto==5.1\nnumpy==2.0\n"
    assert commands[1][-4:] == ["--constraint", str(constraints), "--editable", ".[test]"]
    with dev.ready_venv({"test"}, verbose=False):
        pass
    assert stages(commands) == ["venv", "pip", "venv", "pip"]
    assert "--constraint" not in commands[3] and (checkout / ".venv").is_dir()


@pytest.mark.parametrize("requirement", ["numpy", "numpy<3", "numpy>=2,<3", "numpy>=2; x == 'y'"])
def test_a_requirement_without_a_lowest_version(dev, checkout, requirement):
    text = PYPROJECT.replace("numpy>=2.0", requirement)
    (checkout / "pyproject.toml").write_text(text)
    with pytest.raises(dev.SetupError, match=r"expected NAME>=VERSION for --lowest, got .numpy"):
        dev.lowest_versions(checkout / "pyproject.toml", set())


def test_lowest_is_an_option_of_test(dev, monkeypatch):
    seen = []

    @contextlib.contextmanager
    def ready(extras, verbose, lowest):
        seen.append(lowest)
        yield Path("bin"), 0.0

    monkeypatch.setattr(dev, "ready_venv", ready)
    monkeypatch.setattr(dev, "run", lambda command: seen.append(list(map(str, command))) or 0)
    assert dev.main(["test", "-k", "x", "--lowest"]) == 0
    lowest, command = seen
    assert lowest and command[:3] == ["bin/python", "-m", "pytest"] and command[-2:] == ["-k", "x"]
    # libraries that are older than Python and one another use what newer ones deprecate
    assert "default::DeprecationWarning" in command
    seen.clear()
    assert dev.main(["test", "-k", "x"]) == 0
    assert seen == [False, ["bin/python", "-m", "pytest", "-k", "x"]]


def test_pages_name_the_lowest_versions(dev):
    """The table of CONTRIBUTING.md has those of pyproject.toml."""
    page = (dev.ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| [\d.]+ \|$", page, re.MULTILINE)
    extras = {"tables", "dask", "plink", "cloud", "report"}
    lines = dev.lowest_versions(dev.ROOT / "pyproject.toml", extras)
    assert sorted(f"{name}=={version}" for name, version in rows) == lines


def test_what_pip_says_is_shown_only_if_it_fails(dev, checkout, capfd):
    said = [sys.executable, "-c", "print('no space left'); raise SystemExit(int(input()))"]
    for status, silent in (("0", True), ("3", False)):
        command = ["sh", "-c", f'echo {status} | "$@"', "sh", *said]
        if silent:
            dev.run_quietly(command, "pip", verbose=False)
        else:
            with pytest.raises(dev.SetupError, match="exit code 3"):
                dev.run_quietly(command, "pip", verbose=False)
        output = capfd.readouterr()
        assert ("no space left" in output.out + output.err) is not silent


# --- two runs at once


def test_a_change_waits_for_the_runs_that_use_the_environment(dev, checkout, commands, capsys):
    with dev.ready_venv(set(), verbose=False):
        pass
    with (checkout / ".venv.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # another run uses the environment
        with dev.ready_venv(set(), verbose=False):
            pass  # this run shares it
        thread = threading.Thread(target=_enter, args=(dev, {"test"}))
        thread.start()
        time.sleep(0.3)
        assert stages(commands) == ["venv", "pip"], "changed while in use"
        fcntl.flock(other, fcntl.LOCK_UN)
        thread.join(10)
    assert stages(commands) == ["venv", "pip", "pip"]
    assert "waiting for another run" in capsys.readouterr().out


def test_two_first_runs_make_it_once(dev, checkout, commands):
    threads = [threading.Thread(target=_enter, args=(dev, {"test"})) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert stages(commands) == ["venv", "pip"]


def test_the_lock_outlives_a_killed_run_while_its_installation_continues(checkout):
    code = (
        f"import pathlib, runpy; dev = runpy.run_path({str(SCRIPT)!r}, run_name='dev')\n"
        f"names = dev['prepare'].__globals__; names['ROOT'] = pathlib.Path({str(checkout)!r})\n"
        "names['prepare'] = lambda *_: dev['run_quietly'](\n"
        "    ['sh', '-c', 'echo ready; read line'], 'pip', verbose=True)\n"
        "with dev['ready_venv'](set(), False): pass\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait(10)
        with (checkout / ".venv.lock").open("w") as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.stdin.close()  # ends the installation
            assert process.stdout.read() == b""
            fcntl.flock(lock, fcntl.LOCK_EX)


def _enter(dev: ModuleType, extras: set[str]) -> None:
    with dev.ready_venv(extras, verbose=False):
        pass


# --- running commands


def test_the_exit_code_is_that_of_the_command(dev):
    assert dev.run(["sh", "-c", "exit 7"]) == 7
    assert dev.run(["sh", "-c", "kill -KILL $$"]) == 128 + signal.SIGKILL


def test_commands_side_by_side(dev, tmp_path):
    meet = "touch {}; for i in $(seq 500); do [ -e {} ] && exit {}; sleep 0.01; done; exit 9"
    names = (("a", "b", 0), ("b", "a", 3))
    commands = [["sh", "-c", f"cd {tmp_path}; " + meet.format(*some)] for some in names]
    assert dev.run(*commands) == 3


def test_a_termination_is_passed_on(tmp_path):
    code = (
        f"import runpy; dev = runpy.run_path({str(SCRIPT)!r}, run_name='dev')\n"
        "raise SystemExit(dev['run'](['sh', '-c', "
        "'trap \"exit 9\" TERM; echo ready; while :; do sleep 0.02; done']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(10) == 9


def test_lint_runs_every_check(dev, monkeypatch):
    seen = []

    def fail(command, **_):
        seen.append(Path(command[0]).name)
        return len(seen)

    monkeypatch.setattr(dev, "run", fail)
    assert dev.lint(Path("bin")) == 1
    assert seen == ["ruff", "ruff", "mypy"]


def test_all_tests_run_once_the_kernels_are_compiled(dev, monkeypatch):
    seen = []

    def pretend(*commands, **_):
        seen.append([[Path(command[0]).name, *map(str, command[1:])] for command in commands])
        return failure if len(seen) == 1 else 0

    monkeypatch.setattr(dev, "run", pretend)
    failure = 0
    assert dev.test(Path("bin"), [], lowest=False) == 0
    (first, second), (pytest_command,) = seen
    named = {name for command in (first, second) for name in kinds.kinds_named(command[-1])}
    # every warm-up compiles those of several outputs; few tests need those of online learners
    assert named | {kinds.OUTPUTS, kinds.ONLINE} == set(kinds.KIND_SECONDS)
    assert pytest_command[:3] == ["python", "-m", "pytest"]
    seen.clear()
    failure = 1
    assert dev.test(Path("bin"), [], lowest=False) == 1
    assert len(seen) == 1
    seen.clear()
    failure = 0
    assert dev.test(Path("bin"), ["-k", "x"], lowest=False) == 0
    assert seen == [[["python", "-m", "pytest", "-k", "x"]]]


def test_demo_compiles_trains_and_inspects(dev, monkeypatch, capsys):
    seen = []

    def pretend(command, **_):
        seen.append([Path(command[0]).name, *map(str, command[1:])])
        return 0

    monkeypatch.setattr(dev, "run", pretend)
    assert dev.demo(Path("bin"), installation=31.0) == 0
    assert [command[0] for command in seen] == ["fcl-train", "fcl-train", "fcl-inspect"]
    assert seen[0][1:] == ["--warmup", "--features", "kmers"]
    assert seen[1][1:3] == ["--config", dev.DEMO_CONFIG]
    assert seen[2][-1] == seen[1][-1], "what was trained is inspected"
    assert not os.path.exists(seen[1][-1])
    assert "31 s for installation" in capsys.readouterr().out


def test_stamp_is_plain_json(dev, checkout, commands):
    dev.prepare({"test"}, verbose=False)
    stamp = json.loads((checkout / ".venv" / dev.STAMP).read_text())
    assert stamp["complete"] is True
    assert stamp["extras"] == ["test"]
    assert stamp["pyproject"] == dev.fingerprint(checkout / "pyproject.toml")
