"""Standard streams, and names of any bytes: commands in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from click.testing import Result

from fcl.cli.common import printable
from fcl.model import load_model

pytestmark = pytest.mark.forked_commands

FCL = [sys.executable, "-m", "fcl"]
OPTIONS = ["--features", "kmers:d=2", "--C", "1", "--max-passes", "1", "--driver", "inline"]


def shell(line: str, *arguments: str | bytes | Path) -> subprocess.CompletedProcess[bytes]:
    """A line of sh in which "$@" is the command."""
    command = [*FCL, *map(os.fspath, arguments)]
    if line != '"$@"':
        command = ["sh", "-c", line, "sh", *command]
    return subprocess.run(command, capture_output=True, timeout=240)


@pytest.mark.slow
def test_streams_that_are_closed_at_the_start(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.fcl"
    done = shell('exec "$@" <&- >&- 2>&-', "train", data, *OPTIONS, "--out", out)
    assert done.returncode == 0 and load_model(out).n_active


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("command", ["train", "inspect"])
def test_output_that_nobody_reads(
    data: Path, tmp_path: Path, model_file: Path, unread: int, command: str
) -> None:
    """As in ``fcl inspect model | head``: no error, and the work is done."""
    out = tmp_path / "o.fcl"
    arguments = {"train": [data, *OPTIONS, "--out", out], "inspect": [model_file]}[command]
    done = subprocess.run(
        [*FCL, command, *arguments], stdout=unread, stderr=subprocess.PIPE, timeout=240
    )
    assert done.returncode == 0 and b"rror" not in done.stderr
    assert out.exists() == (command == "train")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--version"], ["bake"]])
def test_the_list_of_commands_needs_no_streams(arguments: list[str], unread: int) -> None:
    code = 2 if arguments == ["bake"] else 0
    assert shell('exec "$@" >&- 2>&-', *arguments).returncode == code
    done = subprocess.run([*FCL, *arguments], stdout=unread, stderr=unread, timeout=60)
    assert done.returncode == code
    if os.path.exists("/dev/full") and not code:
        done = shell('"$@" > /dev/full', *arguments)
        assert done.stderr == b"fcl: error: standard output: No space left on device\n"
        assert done.returncode == 1


def test_messages_that_nobody_reads(data: Path, tmp_path: Path, unread: int) -> None:
    out = tmp_path / "o.fcl"
    done = subprocess.run(
        [*FCL, "train", data, *OPTIONS, "--out", out, "--verbose"],
        stdout=subprocess.PIPE,
        stderr=unread,
        timeout=240,
    )
    assert done.returncode == 0 and out.exists() and b"objective" in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_output_on_a_full_disk(model_file: Path) -> None:
    done = shell('"$@" > /dev/full', "inspect", model_file)
    assert done.returncode == 1
    assert done.stderr == b"fcl inspect: error: standard output: No space left on device\n"


@pytest.mark.slow
def test_a_limit_of_the_size_of_files_is_named(data: Path, tmp_path: Path) -> None:
    arguments = [*OPTIONS, "--driver", "processes", "--out", tmp_path / "o.fcl"]
    done = shell('ulimit -f 10; "$@"', "train", data, *arguments)
    assert done.returncode == 2 and b"--memory" not in done.stderr
    assert b"File too large: this process may write files of at most " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "convert", "train"])
def test_a_limit_of_open_files(data: Path, model_file: Path, tmp_path: Path, command: str) -> None:
    """One message, which names the limit, and nothing left behind; or success."""
    (tmp_path / "rows.csv").write_text("y,a\n0,1.5\n1,2.5\n")
    arguments: tuple[str | Path, ...] = {
        "predict": ("predict", model_file, data, "--out", "OUT"),
        "convert": ("convert", tmp_path / "rows.csv", "OUT"),
        "train": ("train", data, *OPTIONS, "--driver", "processes", "--out", "OUT"),
    }[command]
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / ("o.fcl" if command == "train" else "o.zarr")
    limit = 19 if command == "train" else 9
    line = f'ulimit -n {limit}; "$@" --quiet'
    done = shell(line, *(out if argument == "OUT" else argument for argument in arguments))
    if done.returncode == 0:
        assert out.exists() and command != "train"
        return
    assert done.returncode == 1 and os.listdir(folder) == []
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert b"Too many open files: this process may open %d at once" % limit in done.stderr


@pytest.mark.fresh_interpreters  # whose memory is cleared
def test_what_libraries_say_of_their_own_ends() -> None:
    """A destructor that fails after an error says nothing beside the message."""
    code = (
        "import click\n"
        "from fcl.cli.common import Command\n"
        "from fcl.cli.process import run\n"
        "from fcl.errors import InputError\n"
        "class Half:\n"
        "    def __del__(self): raise AttributeError('half made')\n"
        "async def never(): pass\n"
        "@click.command('fcl', cls=Command)\n"
        "def command():\n"
        "    half, other = Half(), never()\n"
        "    raise InputError('the message')\n"
        "run(command, [])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 2 and done.stderr == b"fcl: error: the message\n"


@pytest.mark.slow
def test_names_that_are_not_text(data: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff\xfe"
    try:
        shutil.copytree(os.fsencode(data), odd)
    except OSError:
        pytest.skip("this file system has names of text alone")
    train = [odd, *OPTIONS, "--out", odd + b".fcl", "--log-json", odd + b".log", "--verbose"]
    done = shell('"$@"', "train", *train)
    assert done.returncode == 0, done.stderr
    assert rb"/\xff\xfe.fcl" in done.stdout  # as an escape
    assert all(os.path.exists(odd + end) for end in (b".fcl", b".log"))
    # the checkpoint has the names of data and model
    done = shell('"$@"', "train", "--resume", odd + b".fcl.checkpoint", "--max-passes", "2")
    assert done.returncode == 0, done.stderr
    done = shell('"$@"', "predict", odd + b".fcl", odd, "--out", odd + b".npy")
    assert done.returncode == 0 and os.path.exists(odd + b".npy"), done.stderr
    done = shell('"$@"', "inspect", odd + b".missing")
    assert done.returncode == 2 and rb"\xff\xfe.missing: no such model file" in done.stderr


def test_printable() -> None:
    assert printable("é 日本\n\t", keep="\n\t") == "é 日本\n\t"
    assert printable("a\udcff\x1b[2J\u202e\ud800\r") == r"a\xff\x1b[2J\u202e\ud800\r"
    assert printable("a\tb\nc") == r"a\tb\nc"


@pytest.mark.parametrize("format", ["npy", "hdf5", "zarr"])
def test_names_of_arrays_are_shown_in_one_line(
    tmp_path: Path, run: Callable[..., Result], format: str
) -> None:
    name = "a\nfcl train: done\x1b[31m"
    values = {name: np.full((4, 2), np.nan), "y": np.arange(4) % 2}
    path = tmp_path / "d"
    if format == "hdf5":
        with h5py.File(path, "w") as file:
            file.update(values)
    elif format == "zarr":
        root = zarr.open_group(path, mode="w")
        for key, array in values.items():
            root.create_array(key, data=array)
    else:
        path.mkdir()
        for key, array in values.items():
            np.save(path / f"{key}.npy", array)
    for x in ("X", name):
        done = run("train", path, "--x", x, *OPTIONS[2:], "--features", "columns", "--plan")
        assert done.exit_code == 2
        assert r"a\nfcl train: done\x1b[31m" in done.stderr.splitlines()[1]
        assert len(done.stderr.splitlines()) == 2 and "\x1b" not in done.stderr
