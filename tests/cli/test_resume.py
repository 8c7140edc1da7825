"""--resume: which value of an option applies, and what happens to the outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fcl.model import Model
from tests.cli.conftest import ok, save

Run = Callable[..., Result]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "o.fcl"


def own_model(model: Model, path: Path) -> None:
    """The model that a run of this job writes when it is stopped."""
    options = {"C": 0.1, "C_min": 0.01}
    Model(**{**vars(model), "options": options}).save(path, overwrite=True)


def test_nothing_but_the_folder(
    start: Callable[..., Path], data: Path, out: Path, driver: Any, run: Run, model: Model
) -> None:
    folder = start(
        "--loss", "squared_hinge", "--no-intercept", "--weights", "s", "--memory", "1GiB",
        "--valid", data, "--tol", 1e-5, "--max-time", "2h", "--max-passes", 9, "--seed", 4,
        "--block-rows", 256, "--scratch", out.parent, "--checkpoint-every", "1m",
        "--driver", "processes:writers=3",
        "--log-json", out.parent / "log", "--quiet", "--row-view", 5000,
    )  # fmt: skip
    assert folder == Path(f"{out}.checkpoint")
    first = dict(driver.calls[-1])
    own_model(model, out)
    result = ok(run("train", "--resume", folder))
    again = driver.calls[-1]
    assert first["resume"] is None and again["resume"].number == 1
    for name in first.keys() - {"resume", "progress", "should_stop", "should_checkpoint"}:
        if name in ("data", "valid"):
            assert again[name].name == first[name].name and again[name].n_rows == 600
        else:
            assert again[name] == first[name], name
    assert again["data"].weights is not None and again["intercept"] is False
    assert "reading" in result.stderr  # outputs are those of now: not quiet, no log


def test_a_folder_among_the_arrays(
    tmp_path: Path, start: Callable[..., Path], driver: Any, run: Run
) -> None:
    """A checkpoint may lie in the folder of the data, where it is no part of them."""
    codes = np.random.default_rng(0).integers(0, 4, (600, 14)).astype(np.uint8)
    save(tmp_path, X=codes, y=np.arange(600) % 2)
    folder = start("--checkpoint", tmp_path / "ck", rows=tmp_path)
    ok(run("train", "--resume", folder, "--out", tmp_path / "b.fcl"))
    assert driver.calls[-1]["checkpoint"] == str(folder)


def test_from_another_folder(
    start: Callable[..., Path],
    tmp_path: Path,
    driver: Any,
    run: Run,
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paths were relative when the job was started."""
    monkeypatch.chdir(tmp_path)
    start("--checkpoint", "c", "--valid", "data", "--driver", "inline", "--scratch", ".")
    command = driver.calls[-1]["command"]
    for name, path in {"data": "data", "valid": "data", "out": "o.fcl", "scratch": ""}.items():
        assert Path(command[name]) == tmp_path / path
    assert json.loads(json.dumps(command)) == command
    (tmp_path / "o.fcl").unlink()
    (tmp_path / "c").rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ok(run("train", "--resume", "../moved"))
    assert driver.calls[-1]["checkpoint"] == "../moved"
    assert driver.calls[-1]["scratch"] == str(tmp_path) and (tmp_path / "o.fcl").exists()


def test_precedence(
    start: Callable[..., Path], tmp_path: Path, out: Path, driver: Any, run: Run
) -> None:
    folder = start(
        "--tol", 1e-2, "--max-passes", 5, "--memory", "1GiB", "--driver", "processes:writers=2"
    )
    config = tmp_path / "run.toml"
    config.write_text("tol = 1e-4\nmax-passes = 7\nC = 0.1\n")
    new = tmp_path / "new2.fcl"
    ok(run("train", "--resume", folder, "--config", config, "--tol", 1e-6, "--out", new))
    call = driver.calls[-1]
    assert call["tol"] == 1e-6  # command line
    assert call["max_passes"] == 7  # TOML
    assert call["memory"] == 1 << 30 and call["writers"] == 2  # checkpoint
    assert call["seed"] == 0  # default
    assert call["command"]["out"] == str(new) and call["command"]["tol"] == 1e-6
    assert new.exists()


def test_a_default_on_the_command_line_counts(
    start: Callable[..., Path], out: Path, driver: Any, run: Run
) -> None:
    folder = start("--tol", 1e-2, "--driver", "inline", "--checkpoint-every", "1h")
    ok(run(
        "train", "--resume", folder, "--tol", "1e-3", "--driver", "processes:writers=2",
        "--checkpoint-every", "5m", "--overwrite",
    ))  # fmt: skip
    call = driver.calls[-1]
    assert (call["tol"], call["driver"], call["checkpoint_every"]) == (1e-3, "processes", 300.0)


def test_moved_data(
    start: Callable[..., Path], data: Path, out: Path, tmp_path: Path, driver: Any, run: Run
) -> None:
    folder = start()
    data.rename(tmp_path / "moved")
    gone = run("train", "--resume", folder, "--overwrite")
    assert gone.exit_code == 2 and f"{data} does not exist" in gone.stderr
    ok(run("train", tmp_path / "moved", "--resume", folder, "--overwrite"))
    assert driver.calls[-1]["command"]["data"] == str(tmp_path / "moved")


def test_the_same_given_again(
    start: Callable[..., Path], data: Path, out: Path, driver: Any, run: Run
) -> None:
    folder = start("--seed", 4)
    result = ok(run(
        "train", data, "--features", "kmers: d=3", "--C", "1e-1", "--seed", 4, "--y", "y",
        "--checkpoint", folder, "--resume", folder, "--out", out, "--overwrite", "--verbose",
    ))  # fmt: skip
    echoed = json.loads(result.stderr.splitlines()[0])
    assert echoed["seed"] == 4 and echoed["resume"] == str(folder)


def test_an_option_that_the_checkpoint_does_not_know(
    start: Callable[..., Path], data: Path, driver: Any, run: Run
) -> None:
    folder = start(command={"data": str(data), "features": "kmers:d=3", "C": 0.1, "out": "o.fcl"})
    ok(run("train", "--resume", folder, "--out", data.parent / "p.fcl"))
    assert driver.calls[-1]["seed"] == 0


def test_a_foreign_model_is_not_replaced(
    start: Callable[..., Path], out: Path, model: Model, driver: Any, run: Run
) -> None:
    folder = start()
    foreign = {"options": {"C": 0.1}, "fingerprint": "cd" * 32}
    for change in (foreign, {"options": {"C": 0.2}}):
        Model(**{**vars(model), **change}).save(out, overwrite=True)
        before = out.read_bytes()
        result = run("train", "--resume", folder)
        assert result.exit_code == 2 and "o.fcl: exists already" in result.stderr
        assert out.read_bytes() == before
    own_model(model, out)
    result = run("train", "--resume", folder, "--out", out)  # given now: on purpose or not?
    assert result.exit_code == 2 and "exists already" in result.stderr
    assert run("train", "--resume", folder).exit_code == 0


def test_plan_of_a_resumed_job(
    start: Callable[..., Path], driver: Any, run: Run, tmp_path: Path
) -> None:
    folder = start("--memory", "1GiB")
    before = sorted(tmp_path.rglob("*"))
    ok(run("train", "--resume", folder, "--plan"))
    assert driver.calls[-1]["memory"] == 1 << 30 and driver.calls[-1]["resume"].number == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_softmax_that_was_chosen_for_the_labels(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    out = tmp_path / "o.fcl"
    rows = save(tmp_path / "rows", X=rng.normal(size=(300, 6)) + y[:, None] * 0.5, y=y)
    job = ("train", rows, "--features", "columns", "--C", 0.5, "--driver", "inline", "--out", out)
    first = run(*job, "--max-passes", 1)
    assert "3 classes, so the loss is softmax" in first.output
    ok(run("train", "--resume", f"{out}.checkpoint", "--max-passes", 50))
    assert Model.load(out).options["loss"] == "softmax"
    ok(run(*job, "--resume", f"{out}.checkpoint", "--tol", 1e-6, "--overwrite"))
    assert Model.load(out).labels == (0, 1, 2)
