"""``fcl online`` over 24-bit tables: resumed and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.files.online import read_state
from tests.cli.conftest import ok, save

N, P = 3000, 30
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.3, 1.0, 0.0)
Y = np.where(RANDOM.random(N) < 1 / (1 + np.exp(-X @ RANDOM.normal(size=P))), 1, -1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "data", X=X, y=Y)
    return tmp_path


COMMAND = ("--features", "columns", "--method", "ogd", "--alpha", 1e-6, "--no-certify")


@pytest.mark.slow
def test_command(run: Callable[..., Result], folder: Path) -> None:
    out = folder / "m.fcl"
    given = ("online", folder / "data", *COMMAND, "--out")
    result = ok(run(*given, out, "--table", "q"))
    assert "table        q2.13, in steps of 2^-13; 0 weights at +-3.99988\n" in result.output
    result = run(*given, folder / "n.fcl", "--table", "q0.15", "--rate", 4)
    assert "weights at +-0.999969, the ends of the range: --table q1.14 has room" in result.output
    given = (*given, folder / "v.fcl", "--overwrite")
    result = ok(run(*given, "--table", "q1.6", "--method", "ogd:gamma=0.5,max_weight=1.25"))
    assert "table        q1.6, in steps of 2^-6;" in result.output and "at +-1.25" in result.output
    assert " bits a weight in a table of variable width, 8 in this one\n" in result.output
    assert run(*given, "--table", "float32", "--method", "ogd:rates=global").exit_code == 0
    given = given[:-2]
    result = run(*given, folder / "f.fcl", "--table", "float32")
    assert result.exit_code == 0 and "\ntable " not in result.output


def test_rows_that_diverge_leave_the_last_good_state(
    run: Callable[..., Result], folder: Path
) -> None:
    bad = X.copy()
    bad[1234] = 1e200
    np.save(folder / "data" / "X.npy", bad)
    out = folder / "m.fcl"
    given = (*COMMAND, "--table", "q2.13", "--rate", 0.1, "--no-shuffle", "--out", out)
    result = run("online", folder / "data", *given)
    assert result.exit_code == 2 and "row 1234" in result.output
    assert fcl.load_model(out).options["rows_learnt"] == 1234


KILLED = """
import os, signal, sys
from fcl.cli import process
from fcl.cli.online import command
from fcl.drivers.online import run
run.SAVE_EVERY = 0.0
step, count = run.OnlineRun._learn, 0
def learn(self, *given):
    global count
    count += 1
    if count == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *given)
run.OnlineRun._learn = learn
process.run(command)
"""


@pytest.mark.slow
@pytest.mark.forked_commands
def test_a_killed_command_goes_on(run: Callable[..., Result], folder: Path) -> None:
    given = ("--table", "q2.13", "--rate", "0.25", "--passes", "2", "--block-rows", "256")
    command = [str(value) for value in (folder / "data", *COMMAND, *given, "--out")]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *command, str(folder / "k.fcl")],
        capture_output=True, check=False, env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert run("online", *command, folder / "w.fcl").exit_code == 0
    more = ("--resume", folder / "k.fcl", "--no-certify")  # with the passes of the file
    ok(run("online", folder / "data", *more, "--out", folder / "r.fcl"))
    whole, resumed = (read_state(folder / f"{name}.fcl") for name in "wr")
    assert whole.table.tobytes() == resumed.table.tobytes()
    assert whole.sums.tobytes() == resumed.sums.tobytes()
