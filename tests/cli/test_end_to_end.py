"""The commands with the real trainer, from data on disk to scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fcl.model import load_model
from fcl.objective.metrics import average_precision
from tests.cli.conftest import Job, ok, save

pytestmark = pytest.mark.forked_commands

Run = Callable[..., Result]

#: the one process that gives the same bits each time
INLINE = ("--driver", "inline")


@pytest.fixture
def run(run: Run) -> Run:
    """The commands, of which ``fcl train`` uses the inline driver."""

    def run_inline(name: str, *arguments: object) -> Result:
        return run(name, *arguments, *(INLINE if name == "train" else ()))

    return run_inline


def test_validation(data: Path, tmp_path: Path, run: Run) -> None:
    X, y = np.load(data / "X.npy"), np.load(data / "y.npy")
    train = save(tmp_path / "t", X=X[:400], y=y[:400])
    valid = save(tmp_path / "v", X=X[400:], y=y[400:])
    out, log = tmp_path / "m.fcl", tmp_path / "log"
    arguments = ["--features", "kmers:d=2", "--C", 0.3, "--out", out, "--overwrite"]
    result = ok(run("train", train, *arguments, "--valid", valid, "--log-json", log))
    passes = [json.loads(line) for line in log.read_text().splitlines() if "PassDone" in line]
    expected = average_precision(y[400:], load_model(out).margins(X[400:]))
    assert passes[-1]["validation"]["auprc"] == pytest.approx(expected, rel=1e-9)
    assert f"AUPRC {expected:.4f} over 200 rows" in result.stdout
    result = ok(run("train", train, *arguments, "--valid-fraction", 0.2, "--loss", "squared"))
    model = load_model(out)
    held = 400 - model.n_rows
    assert 50 < held < 110 and f"over {held} rows" in result.stdout
    assert "MSE" in result.stdout and "MSE" in result.stderr and model.labels is None


def test_plan_writes_nothing(job: Job, tmp_path: Path, run: Run) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = ok(run(*job, "--plan", "--memory", "1GiB", "--scratch", tmp_path))
    *lines, time = result.stdout.splitlines()
    sizes = [int(line.split()[-1].replace(",", "")) for line in lines]
    assert time.startswith("about ")
    assert sizes[-1] == 1 << 30 and sum(sizes[:-2]) == sizes[-2] <= sizes[-1]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refused_run_leaves_an_older_log(job: Job, data: Path, tmp_path: Path, run: Run) -> None:
    windows = np.load(data / "X.npy")
    windows[200, 3] = 9  # found when the rows are read, after the start was reported
    save(data, X=windows)
    log = tmp_path / "log"
    log.write_text("older")
    result = run(*job, "--log-json", log, "--overwrite")
    assert result.exit_code == 2 and "row 200, column 3" in result.stderr
    assert log.read_text() == "older"


@pytest.mark.slow
@pytest.mark.fresh_interpreters  # modules that it imports
def test_script_in_a_process_of_its_own(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.fcl"
    code = (
        "import sys\nfrom fcl.cli.train import command\n"
        f"arguments = [{str(data)!r}, '--features', 'kmers:d=3', '--C', '0.3', '--out', "
        f"{str(out)!r}, *{INLINE!r}]\n"
        "try: command.main(arguments)\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'sklearn', 'matplotlib', 'pandas', 'zarr', 'h5py', 'rich'}\n"
        "print('heavy', sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "heavy []" in result.stdout and out.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_live_view_on_a_terminal(data: Path, tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-m", "fcl", "train", str(data), "--features", "kmers:d=3", "--C",
         "0.3", "--out", str(tmp_path / "m.fcl"), *INLINE],
        stderr=follower, stdout=subprocess.PIPE, env=environment, text=True,
    ) as process:  # fmt: skip
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(leader)
        stdout, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    text = shown.decode()
    assert "reading" in text and "violation" in text and "stopped: tolerance" in text
    assert text.count("\x1b[?25h") >= 1  # the cursor is shown again
    assert "converged" in stdout and "\x1b" not in stdout


# -- stopped and resumed -----------------------------------------------------------------------

#: The keys that may differ between two runs of one job.
TIMES = ("seconds", "rows_per_second", "memory_bytes", "time_left", "resumed", "sample", "models")


def contents(path: Path) -> dict[str, Any]:
    """A model without the times of its training and its limit of passes, for comparisons."""
    model = load_model(path)
    found = {name: value for name, value in model.header().items() if name != "created"}
    found["arrays"] = [array.tobytes() for array in (model.ids, model.weights, model.support)]
    found["history"] = [
        {name: value for name, value in entry.items() if name not in TIMES}
        for entry in model.history
    ]
    found["options"] = {k: v for k, v in model.options.items() if k != "max_passes"}
    return found


@contextmanager
def started(*arguments: object) -> Iterator[tuple[Any, Callable[[str], list[str]]]]:
    """Start ``fcl train``; yields the process and a function that reads up to a line with some words."""
    command = [sys.executable, "-m", "fcl", "train", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:

        def read(words: str) -> list[str]:
            """The lines up to that one; with words that no line has, all lines up to the end."""
            lines: list[str] = []
            for line in process.stderr or ():
                lines.append(line)
                if words in line:
                    return lines
            process.wait(timeout=120)
            return lines

        try:
            yield process, read
        finally:
            process.kill()


def finished(*arguments: object) -> tuple[int, str]:
    """The exit code and the messages of ``fcl train``."""
    with started(*arguments) as (process, read):
        lines = read("no line has these words")
        return process.returncode, "".join(lines)


@pytest.mark.slow
def test_a_job_that_is_stopped_and_killed_finds_the_same_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    windows = rng.integers(0, 4, (8_000, 24), dtype=np.uint8)
    margins = 1.5 * (windows[:, 6] == 2) + 1.0 * (windows[:, 8] == 0) - 1.5
    y = (rng.random(len(windows)) < 1 / (1 + np.exp(-margins))).astype(np.int8)
    data = save(tmp_path / "d", X=windows, y=y)
    options = ("--features", "kmers:d=4", "--C", 0.25, "--tol", 1e-9, "--block-rows", 256)
    job = (data, *options, "--valid-fraction", 0.1, *INLINE, "--out")
    assert finished(*job, tmp_path / "whole.fcl", "--no-checkpoint")[0] == 0
    out, folder = tmp_path / "m.fcl", tmp_path / "m.fcl.checkpoint"
    with started(*job, out) as (process, read):
        read("pass 1")
        assert not list(folder.glob("*.fcl-ckpt"))
        process.send_signal(signal.SIGUSR1)
        assert "checkpoint-1.fcl-ckpt" in read("checkpoint written to")[-1]
        read("pass ")  # it continues
        process.send_signal(signal.SIGSTOP)
        code, said = finished("--resume", folder, "--out", tmp_path / "other.fcl")
        assert code == 2 and f"in use by process {process.pid}" in said
        process.kill()
    assert not out.exists() and len(list(folder.glob("*.fcl-ckpt"))) == 1
    with started("--resume", folder) as (process, read):
        read("pass 3")
        process.send_signal(signal.SIGTERM)
        assert "stopped early (interrupted)" in "".join(read("no line has these words"))
    assert process.returncode == 128 + signal.SIGTERM
    assert load_model(out).certificate.gap > 1e-9
    # its own early model makes way, each time
    code, said = finished("--resume", folder, "--max-passes", 4)
    assert code == 0 and "--max-passes" in said
    assert finished("--resume", folder, "--max-passes", 100)[0] == 0
    assert len(load_model(out).history) > 5
    assert contents(out) == contents(tmp_path / "whole.fcl")
