"""--config: precedence, unknown keys, wrong types."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fcl.cli import COMMANDS
from fcl.options import PATH

Run = Callable[..., Result]


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    """As usual, with an output, which no file can name."""

    def with_output(name: str, *arguments: object) -> Result:
        return run(name, *arguments, "--out", tmp_path / "o.fcl")

    return with_output


@pytest.fixture
def config(tmp_path: Path, data: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "run.toml"
        path.write_text(f'data = "{data}"\nfeatures = "kmers:d=3"\n' + text)
        return path

    return write


def test_file_then_command_line(config: Callable[[str], Path], driver: Any, run: Run) -> None:
    path = config('C = 1\nmax_time = "2h"\nmax-passes = 7\nmemory = "1GiB"\nintercept = false\n')
    result = run("train", "--config", path, "--memory", "2GiB", "--max-passes", 9)
    assert result.exit_code == 0, result.output
    call = driver.calls[-1]
    assert call["C"] == 1.0 and call["alpha"] is None
    assert call["max_time"] == 7200 and call["max_passes"] == 9
    assert call["memory"] == 2 << 30 and call["intercept"] is False
    assert call["tol"] == 1e-3 and call["seed"] == 0


def test_class_weights(config: Callable[[str], Path], driver: Any, run: Run) -> None:
    path = config(
        'C = 1\nstandardize = true\nl1-ratio = 0.25\nclass-weight = { 0 = 1, "1" = 2.5 }\n'
    )
    result = run("train", "--config", path)
    assert result.exit_code == 0, result.output
    call = driver.calls[-1]
    assert call["l1_ratio"] == 0.25 and call["class_weight"] == {"0": 1.0, "1": 2.5}
    assert call["standardize"] is True
    result = run("train", "--config", path, "--overwrite", "--class-weight", "balanced")
    assert result.exit_code == 0, result.output
    assert driver.calls[-1]["class_weight"] == "balanced"
    path = config('C = 1\nclass-weight = "1=3"\n')
    assert run("train", "--config", path, "--overwrite").exit_code == 0
    assert driver.calls[-1]["class_weight"] == {"1": 3.0}


def test_row_view(config: Callable[[str], Path], driver: Any, run: Run) -> None:
    for value, expected in ((500, 500), ('"all"', "all"), ('"500"', 500)):
        path = config(f"C = 1\nrow-view = {value}\n")
        assert run("train", "--config", path, "--overwrite").exit_code == 0
        assert driver.calls[-1]["row_view"] == expected


def test_negated_name(config: Callable[[str], Path], driver: Any, run: Run) -> None:
    assert run("train", "--config", config("C = 1\nno-intercept = true\n")).exit_code == 0
    assert driver.calls[-1]["intercept"] is False


def test_driver_and_checkpoint(config: Callable[[str], Path], driver: Any, run: Run) -> None:
    path = config('C = 1\ndriver = "inline"\ncheckpoint-every = "2m"\n')
    assert run("train", "--config", path, "--checkpoint", "c").exit_code == 0
    call = driver.calls[-1]
    assert (call["driver"], call["checkpoint"], call["checkpoint_every"]) == ("inline", "c", 120)
    path = config("C = 1\nno-checkpoint = true\n")
    assert run("train", "--config", path, "--overwrite").exit_code == 0
    assert driver.calls[-1]["checkpoint"] is None
    assert run("train", "--config", path, "--checkpoint", "c", "--overwrite").exit_code == 0
    assert driver.calls[-1]["checkpoint"] == "c"


def test_a_default_given_on_purpose_wins(
    config: Callable[[str], Path], driver: Any, run: Run
) -> None:
    assert run("train", "--config", config("C = 1\ntol = 0.5\n"), "--tol", "1e-3").exit_code == 0
    assert driver.calls[-1]["tol"] == 1e-3


def test_the_rival_in_the_file_gives_way(
    config: Callable[[str], Path], driver: Any, run: Run
) -> None:
    assert run("train", "--config", config("C = 1\n"), "--alpha", "0.5").exit_code == 0
    assert driver.calls[-1]["alpha"] == 0.5 and driver.calls[-1]["C"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "C = 1\nmax-pases = 3",
            "run.toml: unknown option 'max-pases'; did you mean 'max-passes'?",
        ),
        ("C = 1\nclass-weight = 3", 'expected "balanced" or a table of weights by label, got 3'),
        (
            "C = 1\nrow-view = 0",
            "row-view: expected all, auto, or a whole number of rows of at least",
        ),
        ("C = 1\nrow-view = 'x'", "of rows of at least 64, got 'x'"),
        ("C = 1\nrow-view = 1.5", 'expected "all", "auto" or a number of rows, got 1.5'),
        ("C = 1\nl1-ratio = 2", "l1-ratio: expected above 0 and at most 1, got 2"),
        ("C = 1\nblock_row = 64", "unknown option 'block_row'; did you mean 'block-rows'?"),
        ("c = 1", "unknown option 'c'; did you mean 'C'?"),
        ("C = 1\nqqqq = 3", "unknown option 'qqqq'; options are: C, "),
        ("C = 1\nplan = true", "plan is not a setting of a run"),
        ("C = 1\nconfig = 'b'", "config is not a setting of a run"),
        ("C = 1\nmax-time = '1h'\nmax_time = '2h'", "max_time and max-time are the same option"),
        ("C = 1\nintercept = true\nno-intercept = true", "are the same option"),
        ("C = 'much'", "run.toml: C: expected a number, got 'much'"),
        ("C = true", "run.toml: C: expected a number, got True"),
        ("C = -1", "run.toml: C: expected a finite number above 0, got -1"),
        ("C = nan", "run.toml: C: expected a finite number above 0, got nan"),
        ("C = 1\nalpha = 1", "give --C or --alpha, not both"),
        ("C = 1\nseed = 1.5", "run.toml: seed: expected a whole number, got 1.5"),
        ("C = 1\nmemory = []", "run.toml: memory: expected a size"),
        ("C = 1\nmemory = 'big'", "run.toml: memory: expected a size"),
        ("C = 1\nmax-time = '5 moons'", "run.toml: max-time: expected a duration"),
        ("C = 1\nquiet = 'yes'", "run.toml: quiet: expected true or false, got 'yes'"),
        ("C = 1\nloss = 'cosh'", "run.toml: loss: unknown loss 'cosh'; expected one of logistic"),
        ("C = 1\n[features2]\nd = 8", "unknown option 'features2'; did you mean 'features'?"),
        ("C = 1\n[initial]\nd = 8", "run.toml: initial: expected a string, got {'d': 8}"),
        ("C = 1\nwriters = 0", "run.toml: writers: expected a whole number of at least 1, got 0"),
        ("C = 1\nshare-cores = true", "run.toml: unknown option 'share-cores'"),
        ("C = ", "run.toml: not TOML: "),
        ("a" + ".a" * 20_000 + " = 1", "run.toml: expected keys that are names of options"),
        ("[a" + '."b c"' * 5000 + "]", "of more than 4,096 parts with dots between them"),
        ("\n".join(f"[x{i}" + ".a" * 31 + "]" for i in range(9000)), "parts of dotted keys need"),
        (
            "C = 1 # " + "a." * 40 + '\ninitial = "' + "a." * 40 + '\\u0000"',
            "expected text without",
        ),
        (f"C = {'9' * 5000}", "run.toml: not TOML: "),
        ('initial = "a\\u0000"', "run.toml: initial: expected text without NUL"),
    ],
)
def test_what_is_wrong_is_named(
    config: Callable[[str], Path], driver: Any, run: Run, text: str, message: str
) -> None:
    result = run("train", "--config", config(text))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("fcl-train: error: ")
    assert driver.calls == []


def test_file_that_is_not_there(tmp_path: Path, driver: Any, run: Run) -> None:
    result = run("train", "--config", tmp_path / "no.toml")
    assert result.exit_code == 2 and "no.toml: cannot be read: No such file" in result.stderr


#: Options that take whole numbers, which TOML writes in any length.
HUGE = (b"C", b"memory", b"max-time", b"row-view", b"writers", b"block-rows", b"max-passes")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = " + b"[" * 1000 + b"]" * 1000, "nested too deeply"),
        (b"C = " + b"{a=" * 1000 + b"1" + b"}" * 1000, "nested too deeply"),
        (b"C" + b".a" * 2000 + b" = 1", "C: expected a number, got"),
        *((name + b" = 0x" + b"f" * 9000, f"{name.decode()}: ") for name in HUGE),
        (b"C = " + b"9" * 9000, "not TOML"),
        (b"a" * 160_000 + b" = 1", "unknown option 'aaaa"),
        (b"features = 'x\xff'", "not TOML"),
        (b"#" * ((1 << 20) + 1), "more than 1,048,576 bytes"),
    ],
)
def test_made_by_hand(tmp_path: Path, run: Any, content: bytes, words: str) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    result = run("train", "--config", tmp_path / "run.toml")
    assert result.exit_code == 2 and words in result.stderr, result.stderr[:500]
    assert len(result.stderr) < 1500


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
    assert undeclared <= {"imports", "allowed_hosts", "version"}
    undecided = {name for name in names - undeclared if command.table[name].from_file is None}
    assert not undecided, "declare from_file"
    allowed = {name for name in names - undeclared if command.table[name].from_file}
    forbidden = {key.replace("-", "_") for keys in DANGEROUS.values() for key in keys}
    assert not allowed & forbidden
    # what a path or an address may do is in the list above; the rest are numbers, words and names
    for option in (command.table[name] for name in allowed):
        assert option.kind is not PATH or option.name in ("data", "valid", "initial"), option.name


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


def test_a_log_does_not_replace_a_profile(
    config: Callable[[str], Path], tmp_path: Path, run: Run
) -> None:
    """The log holds names of features, in which there may be text that a shell runs."""
    profile = tmp_path / ".profile"
    profile.write_text("# mine\n")
    result = run("train", "--config", config(f"C = 1\noverwrite = true\nlog-json = '{profile}'\n"))
    assert result.exit_code == 2 and profile.read_text() == "# mine\n"
