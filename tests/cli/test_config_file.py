"""--config: precedence, and what a stranger's file cannot set."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fcl.cli import COMMANDS
from fcl.options.convert import FILE_OPTIONS
from fcl.options.kinds import PATH
from tests.cli.conftest import ok

Run = Callable[..., Result]


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    """As usual, with an output, which no file can name."""

    def with_output(name: str, *arguments: object) -> Result:
        return run(name, *arguments, "--out", tmp_path / "o.fcl")

    return with_output


#: Lines of a file, what the command line adds, and what the trainer gets.
READ: list[tuple[str, str, dict[str, Any]]] = [
    ('C = 1\nmax_time = "2h"\nmax-passes = 7\nmemory = "1GiB"\nintercept = false',
     "--memory 2GiB --max-passes 9",
     {"C": 1.0, "alpha": None, "max_time": 7200, "max_passes": 9, "memory": 2 << 30,
      "intercept": False, "tol": 1e-3, "seed": 0}),
    ('C = 1\nstandardize = true\nl1-ratio = 0.25\nclass-weight = { 0 = 1, "1" = 2.5 }', "",
     {"standardize": True, "l1_ratio": 0.25, "class_weight": {"0": 1.0, "1": 2.5}}),
    ('C = 1\nclass-weight = { 0 = 1, "1" = 2.5 }', "--class-weight balanced",
     {"class_weight": "balanced"}),
    ('C = 1\nclass-weight = "1=3"', "", {"class_weight": {"1": 3.0}}),
    ("C = 1\nrow-view = 500", "", {"row_view": 500}),
    ('C = 1\nrow-view = "all"', "", {"row_view": "all"}),
    ('C = 1\nrow-view = "500"', "", {"row_view": 500}),
    ("C = 1\nno-intercept = true", "", {"intercept": False}),
    ('C = 1\ndriver = "inline"\ncheckpoint-every = "2m"', "--checkpoint c",
     {"driver": "inline", "checkpoint": "c", "checkpoint_every": 120}),
    ("C = 1\nno-checkpoint = true", "", {"checkpoint": None}),
    ("C = 1\nno-checkpoint = true", "--checkpoint c", {"checkpoint": "c"}),
    # a default that is given on purpose wins, and an option of the line replaces its rival
    ("C = 1\ntol = 0.5", "--tol 1e-3", {"tol": 1e-3}),
    ("C = 1", "--alpha 0.5", {"alpha": 0.5, "C": None}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words", "expected"), READ)
def test_file_then_command_line(
    text: str,
    words: str,
    expected: dict[str, Any],
    data: Path,
    tmp_path: Path,
    driver: Any,
    run: Run,
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'data = "{data}"\nfeatures = "kmers:d=3"\n{text}\n')
    ok(run("train", "--config", path, *words.split()))
    assert {name: driver.calls[-1][name] for name in expected} == expected


# -- a file from a stranger

#: What --config must not set, whatever the tables say: the words of the refusal, and a value.
DANGEROUS = {
    "where to connect": {
        "dask": "'tcp://localhost:1'", "dask-tls": "'a,b,c'", "storage-option": "['endpoint=x']",
        "allow-host": "['x']",
    },
    "what to write": {
        "out": "'profile'", "log-json": "'profile'", "report": "'profile'", "save-oof": "'profile'",
        "checkpoint": "'profile'", "scratch": "'.'", "overwrite": "true", "resume": "'c'",
    },
    "which code to load": {"import": "['evil']"},
    "not a setting of a run": {"config": "'x'", "plan": "true", "warmup": "true", "version": "true"},
}  # fmt: skip
WITH_CONFIG = ("train", "stagewise", "online")


def command_of(name: str) -> Any:
    return import_module(COMMANDS[name][0]).command


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_says_whether_a_file_may_set_it(name: str) -> None:
    """Whoever adds an option to a command with --config decides whether a stranger may set it."""
    command = command_of(name)
    names = {str(param.name) for param in command.params}
    assert ("config" in names) == (name in WITH_CONFIG)
    if name not in WITH_CONFIG:
        return
    undeclared = names - command.table.keys()
    assert undeclared - {"second"} == {"version"}  # the second file of fcl train is positional
    undecided = {name for name in names - undeclared if command.table[name].from_file is None}
    assert not undecided, "declare from_file"
    allowed = {name for name in names - undeclared if command.table[name].from_file}
    forbidden = {key.replace("-", "_") for keys in DANGEROUS.values() for key in keys}
    assert not allowed & forbidden
    # what a path or an address may do is in the list above; the rest are numbers, words and names
    for option in (command.table[name] for name in allowed):
        read = ("data", "valid", "initial", *FILE_OPTIONS)
        assert option.kind is not PATH or option.name in read, option.name


@pytest.mark.parametrize("name", WITH_CONFIG)
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [(key, value, words) for words, keys in DANGEROUS.items() for key, value in keys.items()],
)
def test_what_a_file_cannot_set(
    name: str, key: str, value: str, words: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "run.toml").write_text(f"{key} = {value}\n")
    result = run(name, "--config", tmp_path / "run.toml")
    known = {option[2:] for param in command_of(name).params for option in param.opts}
    if key not in known and key not in ("storage-option", "allow-host"):
        assert result.exit_code == 2 and f"unknown option '{key}'" in result.stderr
        return
    assert result.exit_code == 2 and f"run.toml: {key} is not a setting of a run" in result.stderr
    assert words in result.stderr and f"give --{key} on the command line" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


@pytest.mark.parametrize("name", WITH_CONFIG)
@pytest.mark.parametrize("key", ["data", "valid", "initial"])
@pytest.mark.parametrize("url", ["https://localhost:1/x.zarr", "S3://b/x", "memory://x/y"])
def test_a_file_names_no_url(name: str, key: str, url: str, tmp_path: Path, run: Run) -> None:
    if name == "stagewise" and key == "initial":
        return
    (tmp_path / "run.toml").write_text(f"{key} = '{url}'\n")
    result = run(name, "--config", tmp_path / "run.toml")
    assert result.exit_code == 2 and f"run.toml: {key}, a URL, is not a setting" in result.stderr
    spelled = "DATA" if key == "data" else f"--{key}"
    assert f"give {spelled} on the command line" in result.stderr
