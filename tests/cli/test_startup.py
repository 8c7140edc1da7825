"""Lazy imports, the list of commands, versions, and the time to the first line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

import fcl
from fcl.cli import COMMANDS
from fcl.cli.umbrella import command, main

HEAVY = ["numba", "zarr", "h5py", "sklearn", "matplotlib", "scipy", "pandas", "jinja2"]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def imported_by(code: str, absent: list[str]) -> list[str]:
    """Which of `absent` are imported by `code`."""
    result = python("-c", f"{code}\nimport sys; print([m for m in {absent} if m in sys.modules])")
    assert result.returncode == 0, result.stderr
    return list(eval(result.stdout.splitlines()[-1]))


def test_import_fcl_is_light() -> None:
    assert imported_by("import fcl; dir(fcl); fcl.InputError", [*HEAVY, "numpy", "click"]) == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "warmup"])
def test_any_option_alone_gives_one_message(name: str, run: Callable[..., Result]) -> None:
    """Values of all kinds without the inputs that the command needs, as beside ``--resume``."""
    module = COMMANDS[name][0].removeprefix("fcl.cli.")
    found = import_module(COMMANDS[name][0]).command
    for option in found.get_params(click.Context(found)):
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        result = run(module, option.opts[-1], "?")
        assert result.exit_code == 2, (option.name, result.output, result.exception)
        *notes, line = result.stderr.splitlines()
        assert all("is an old spelling" in note for note in notes)
        assert f"fcl{'-' if line.startswith('fcl-') else ' '}{name}: error: " in line


def test_help_is_light() -> None:
    modules = ["fcl.cli.umbrella", *(module for module, _ in COMMANDS.values())]
    code = (
        f"from importlib import import_module\nfor name in {modules}:\n"
        "    try: import_module(name).command.main(['--help'])\n"
        "    except SystemExit as e: assert e.code == 0"
    )
    assert imported_by(code, [*HEAVY, "numpy", "rich"]) == []


def test_importing_the_model_is_light() -> None:
    assert imported_by("import fcl; fcl.Model, fcl.average_precision", HEAVY) == []


def test_public_names() -> None:
    for name in fcl.__all__:
        if name in ("train", "plan_training", "TrainResult"):
            pytest.importorskip("fcl.drivers.inline")
        assert getattr(fcl, name) is not None
    assert set(fcl.__all__) <= set(dir(fcl))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fcl.nonsense  # noqa: B018
    assert isinstance(fcl.__version__, str)


@pytest.mark.forked_commands
def test_python_m_fcl() -> None:
    result = python("-m", "fcl")
    assert result.returncode == 0
    table = result.stdout.partition("Commands:\n")[2].splitlines()[: len(COMMANDS)]
    assert [line.split(maxsplit=1) for line in table] == [[n, s] for n, (_, s) in COMMANDS.items()]
    wrong = python("-m", "fcl", "bake")
    assert wrong.returncode == 2 and "unknown command 'bake'" in wrong.stderr
    assert python("-m", "fcl", "train", "--version").stdout.startswith("fcl train ")
    assert python("-m", "fcl", "inspect", "nothing.fcl").returncode == 2


def test_the_command_fcl(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fcl {fcl.__version__}\n"
    for arguments, code, said in (
        (["fcl-inspect", "nothing.fcl"], 2, "fcl inspect: error: nothing.fcl"),
        (["convert", "a.fa"], 2, "fcl convert: error: Missing argument 'IN...'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code and said in capsys.readouterr().err
    names = [item.value for item in command.shell_complete(click.Context(command), "")]
    assert sorted(names) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fcl convert --anchor s", [("plain", "start"), ("plain", "summit")]),
        ("fcl convert pos.", [("file", "pos.")]),
        ("fcl convert --genome h", [("file", "h")]),
        ("fcl train DA", [("file", "DA")]),
        ("fcl predict model.fcl te", [("file", "te")]),
        ("fcl report model.fcl --data te", [("file", "te")]),
        ("fcl inspect mo", [("file", "mo")]),
    ],
)
def test_the_shell_completes_values_and_files(words: str, expected: list[tuple[str, str]]) -> None:
    *before, last = words.split()[1:]
    found = ShellComplete(command, {}, "fcl", "_FCL_COMPLETE").get_completions(before, last)
    assert [(item.type, item.value) for item in found] == expected


@pytest.mark.forked_commands
def test_help_names_the_exit_codes() -> None:
    text = python("-m", "fcl", "train", "--help").stdout
    assert all(code in text for code in ("130", "143", "  0 ", "  1 ", "  2 ", "  5 ", "  6 "))


@pytest.mark.forked_commands
def test_the_first_line_says_what_is_read(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fcl", "train", str(tmp_path / "no"), "--features", "kmers:d=3",
         "--C", "1", "--out", str(tmp_path / "o.fcl")],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        first = process.stderr.readline()
        process.stderr.read()
    assert "reading" in first
    assert process.returncode == 2
