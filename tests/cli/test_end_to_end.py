"""The commands with the real trainer, from data on disk to scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fcl.model import load_model
from fcl.objective.metrics import average_precision
from tests.cli.conftest import Job, ok, save

pytestmark = pytest.mark.forked_commands

Run = Callable[..., Result]

#: the one process that gives the same bits each time
INLINE = ("--driver", "inline")


@pytest.fixture
def run(run: Run) -> Run:
    """The commands, of which ``fcl-train`` uses the inline driver."""

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


def test_early_stop(job: Job, tmp_path: Path, run: Run) -> None:
    result = ok(run(*job, "--max-passes", 1, "--tol", 1e-9))
    warnings = [line for line in result.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1 and "--max-passes" in warnings[0] and "1e-09" in warnings[0]
    assert load_model(tmp_path / "o.fcl").certificate.gap > 1e-9


def test_plan_writes_nothing(job: Job, tmp_path: Path, run: Run) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = ok(run(*job, "--plan", "--memory", "1GiB", "--scratch", tmp_path))
    sizes = [int(line.split()[-1].replace(",", "")) for line in result.stdout.splitlines()]
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
TIMES = ("seconds", "rows_per_second", "memory_bytes", "time_left", "resumed")


def contents(path: Path) -> dict[str, Any]:
    """A model without the times of its training, for comparisons."""
    held = {name: value for name, value in vars(load_model(path)).items() if name != "created"}
    for name in ("ids", "weights", "support"):
        held[name] = held[name].tobytes()
    held["history"] = [
        {name: value for name, value in entry.items() if name not in TIMES}
        for entry in held["history"]
    ]
    return held


class Running:
    """``fcl-train`` in a process of its own, followed line by line."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "fcl", "train", *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.seen: list[str] = []

    def wait_for(self, words: str) -> str:
        """Read up to a line that contains these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.seen.append(line)
            if words in line:
                return line
        raise AssertionError(f"ended without {words!r}:\n{''.join(self.seen)}")

    def end(self) -> int:
        """Read to the end; the exit code."""
        assert self.process.stderr is not None
        self.seen += self.process.stderr
        return self.process.wait(timeout=120)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    jobs: list[Running] = []

    def start(*arguments: object) -> Running:
        jobs.append(Running(*arguments))
        return jobs[-1]

    yield start
    for job in jobs:
        with job.process as process:
            process.kill()


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments of a job of several passes, all but --out."""
    rng = np.random.default_rng(5)
    windows = rng.integers(0, 4, (8_000, 24), dtype=np.uint8)
    margins = 1.5 * (windows[:, 6] == 2) + 1.0 * (windows[:, 8] == 0) - 1.5
    y = (rng.random(len(windows)) < 1 / (1 + np.exp(-margins))).astype(np.int8)
    folder = save(tmp_path_factory.mktemp("long"), X=windows, y=y)
    return [
        *(str(folder), "--features", "kmers:d=4", "--C", "0.25", "--tol", "1e-9"),
        *("--block-rows", "256", "--valid-fraction", "0.1", *INLINE),
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, long_job: list[str]) -> dict[str, Any]:
    """The model of that job if nothing stops it."""
    from fcl.cli.train import command

    out = tmp_path_factory.mktemp("whole") / "m.fcl"
    ok(CliRunner().invoke(command, [*long_job, "--no-checkpoint", "--out", str(out)]))
    model = contents(out)
    assert len(model["history"]) > 5
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "signum"),
    [("pass 0", signal.SIGTERM), ("pass 3", signal.SIGINT)],
)
def test_interrupt_and_resume(
    tmp_path: Path,
    long_job: list[str],
    whole: dict[str, Any],
    start: Callable[..., Running],
    after: str,
    signum: int,
) -> None:
    out = tmp_path / "m.fcl"
    folder = Path(f"{out}.checkpoint")
    job = start(*long_job, "--out", out)
    job.wait_for(after)
    job.process.send_signal(signum)
    assert job.end() == 128 + signum, job.seen
    assert any("stopped early (interrupted)" in line for line in job.seen)
    early = load_model(out)
    assert early.certificate.gap > 1e-9 and early.n_rows == whole["n_rows"]
    again = start("--resume", folder)  # nothing else, and its own early model makes way
    assert again.end() == 0, again.seen
    assert contents(out) == whole
    # the pass that it was stopped after is made again, and no earlier one
    first = next(line for line in again.seen if line.startswith("pass ") and "objective" in line)
    assert int(first.split()[1]) >= int(after.split()[1])


@pytest.mark.slow
def test_a_checkpoint_on_demand_and_a_run_that_is_killed(
    tmp_path: Path, long_job: list[str], whole: dict[str, Any], start: Callable[..., Running]
) -> None:
    out = tmp_path / "m.fcl"
    folder = Path(f"{out}.checkpoint")
    job = start(*long_job, "--out", out)
    job.wait_for("pass 1")
    assert not list(folder.glob("*.fcl-ckpt"))
    job.process.send_signal(signal.SIGUSR1)
    assert "checkpoint-1.fcl-ckpt" in job.wait_for("checkpoint written to")
    job.wait_for("pass ")  # it continues
    job.process.send_signal(signal.SIGSTOP)
    other = start("--resume", folder, "--out", tmp_path / "other.fcl")
    assert other.end() == 2 and f"in use by process {job.process.pid}" in other.seen[-1]
    job.process.kill()
    job.end()
    assert not out.exists() and len(list(folder.glob("*.fcl-ckpt"))) == 1
    again = start("--resume", folder, "--max-passes", 4)
    assert again.end() == 0 and "--max-passes" in "".join(again.seen)
    last = start("--resume", folder, "--max-passes", 100)
    assert last.end() == 0, last.seen
    found = contents(out)
    assert found["options"].pop("max_passes") == 100
    options = {name: value for name, value in whole["options"].items() if name != "max_passes"}
    assert found == whole | {"options": options}


@pytest.mark.slow
def test_a_signal_does_no_harm_to_the_model(
    tmp_path: Path, long_job: list[str], whole: dict[str, Any], start: Callable[..., Running]
) -> None:
    """SIGUSR1 again and again, from before the first pass on."""
    out = tmp_path / "m.fcl"
    job = start(*long_job, "--out", out, "--log-json", tmp_path / "log")
    job.wait_for("reading")
    job.process.send_signal(signal.SIGUSR1)
    for number in (1, 2, 3):
        assert f"checkpoint-{number}.fcl-ckpt" in job.wait_for("checkpoint written to")
        job.process.send_signal(signal.SIGUSR1)
    assert job.end() == 0, job.seen
    assert contents(out) == whole
    assert len(list(Path(f"{out}.checkpoint").glob("*.fcl-ckpt"))) == 2
