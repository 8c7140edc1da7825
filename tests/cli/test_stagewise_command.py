"""``fcl stagewise``: from data on disk to a model, resumed with the same bits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from waves import Problem

from fcl.stagewise.model import load_stagewise
from tests.cli.conftest import ok, save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    problem = Problem()
    t, u = problem.numbers.T
    arrays = {"X": problem.x, "y": problem.y, "s": problem.s, "t": t, "u": u}
    save(tmp_path / "data", **arrays, both=problem.numbers, o=problem.x[:, :3])
    return tmp_path


OPTIONS = ("--features", "waves:Waves", "--block", 8, "--weights", "s")


def test_a_resumed_command_gives_the_same_model(
    run: Callable[..., Result], folder: Path, monkeypatch: Any
) -> None:
    data, out = folder / "data", folder / "m.fcl"
    result = ok(run("stagewise", data, *OPTIONS, "--certify", "--out", out))
    gap = r"gap +at most \S+ to the joint optimum over 30 features, a bound that is loose far from "
    assert re.search(gap + "the optimum; a further visit takes", result.output)
    assert result.output.count("validation loss") > 8
    for pattern in (
        "^visit 2, block 1 of 4: loss .*, .* s, .* s left$",
        "^stopped +all visits done, after visit 3, block 4 of 4$",
        "^weights +after visit [1-3], block [1-4] of 4: loss",
    ):
        assert re.search(pattern, result.output, re.MULTILINE)
    whole = load_stagewise(out)
    assert whole.certificate is not None
    part = folder / "part.fcl"
    stopped = run("stagewise", data, *OPTIONS, "--max-time", "0.000001s", "--out", part)
    assert (
        stopped.exit_code == 0
        and "time limit reached, after visit 1, block 1 of 4; the other 3 blocks" in stopped.output
    )
    refused = run("stagewise", "--resume", f"{part}.checkpoint", "--alpha", 2)
    assert refused.exit_code == 2 and "--alpha: a resumed job of ls keeps" in refused.output
    args = ("--resume", f"{part}.checkpoint", "--import", "waves", "--overwrite")
    ok(run("stagewise", *args))
    assert np.array_equal(load_stagewise(part).weights.features, whole.weights.features)
    again = run(*("stagewise", *args[:-1]))
    assert again.exit_code == 2 and "this checkpoint has finished (all visits are" in again.output
    assert "--visits above 3" in again.output
    more = run("stagewise", *args, "--visits", 5, "--patience", 99)
    assert more.exit_code == 0 and "after visit 5, block 4 of 4" in more.output
    longer = ("--visits", 5, "--patience", 99, "--out", out, "--overwrite")
    assert run("stagewise", data, *OPTIONS, *longer).exit_code == 0
    assert np.array_equal(
        load_stagewise(part).weights.features, load_stagewise(out).weights.features
    )


def test_regression_and_the_plan(run: Callable[..., Result], folder: Path) -> None:
    arguments = (folder / "data", *OPTIONS, "--regression", "--y", "t")
    plan = run("stagewise", *arguments, "--plan")
    assert plan.exit_code == 0 and "Gram matrix" in plan.output and "budget" in plan.output
    result = run("stagewise", *arguments, "--quiet", "--out", folder / "r.fcl")
    assert result.exit_code == 0 and not result.output
    assert load_stagewise(folder / "r.fcl").labels is None


def test_blocks_that_patience_leaves_out_are_named(
    run: Callable[..., Result], folder: Path
) -> None:
    options = ("--features", "waves:Waves:n=200", "--block", 10, "--alpha", 1e-6, "--patience", 1)
    args = (*options, "--valid-fraction", 0.3, "--out", folder / "m.fcl", "--overwrite")
    found = ok(run("stagewise", folder / "data", *args))
    assert "stopped      patience ran out, 1 block without a lower" in found.output
    warning = "warning: the patience of 1 block ran out in the first visit: the model uses"
    assert warning in found.output and "(--patience, --alpha)" in found.output
    assert warning in run("stagewise", folder / "data", *args, "--quiet").output


def test_fcl_train_names_what_is_of_a_stagewise_job(
    run: Callable[..., Result], folder: Path
) -> None:
    out = folder / "m.fcl"
    assert run("stagewise", folder / "data", "--features", "columns", "--out", out).exit_code == 0
    resumed = run("train", "--resume", f"{out}.checkpoint")
    assert resumed.exit_code == 2 and "damaged" not in resumed.output
    assert f"resume it with fcl stagewise --resume {out}.checkpoint" in resumed.output
    args = ("--features", "columns", "--C", 1, "--initial", out, "--out", folder / "t.fcl")
    began = run("train", folder / "data", *args)
    assert began.exit_code == 2
    assert "got a stagewise model, which cannot be an initial point" in began.output


def test_config_log_offset_and_class_weights(run: Callable[..., Result], folder: Path) -> None:
    """A TOML file gives the same model as the command line, which overrides it."""
    config = folder / "run.toml"
    config.write_text(
        'features = "waves:Waves"\nblock = 8\nweights = "s"\noffset = "o"\nupdate = "gls"\n'
        "valid-fraction = 0.2\nalpha = 9.0\n[class-weight]\na = 2.0\n"
    )
    log = folder / "log.jsonl"
    args = ("--config", config, "--alpha", 2, "--import", "waves", "--log-json", log)
    ok(run("stagewise", folder / "data", *args, "--out", folder / "m.fcl"))
    more = ("--offset", "o", "--update", "gls", "--valid-fraction", 0.2, "--alpha", 2)
    ok(run(
        "stagewise", folder / "data", *OPTIONS, *more, "--class-weight", "a=2", "--out",
        folder / "t.fcl",
    ))  # fmt: skip
    model, other = load_stagewise(folder / "m.fcl"), load_stagewise(folder / "t.fcl")
    assert model.has_offset and model.settings == other.settings
    assert model.settings.class_weight == [["a", 2.0], ["b", 1.0], ["c", 1.0]]
    assert np.array_equal(model.weights.features, other.weights.features)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    names = [record["event"] for record in records]
    visits = len(model.history)
    assert names == ["Options", "Started", *["BlockVisited"] * visits, "Stopped"]
    assert records[0]["options"]["alpha"] == 2.0 and records[1]["n_valid"] > 0
    assert [record["loss"] for record in records[2:-1]] == [row["loss"] for row in model.history]
    assert records[-1]["best"] == model.best_number


def test_several_targets(run: Callable[..., Result], folder: Path) -> None:
    for y, out in (("t,u", "named.fcl"), ("both", "both.fcl")):
        args = ("--regression", "--y", y, "--quiet", "--out", folder / out)
        ok(run("stagewise", folder / "data", *OPTIONS, *args))
    named, both = load_stagewise(folder / "named.fcl"), load_stagewise(folder / "both.fcl")
    assert named.labels == ("t", "u") and both.labels is None
    assert np.array_equal(named.weights.features, both.weights.features)


def test_inspect(run: Callable[..., Result], folder: Path) -> None:
    args = (folder / "data", "--features", "columns", "--weights", "s", "--block", 3, "--certify")
    assert run("stagewise", *args, "--out", folder / "m.fcl").exit_code == 0
    model = load_stagewise(folder / "m.fcl")
    result = ok(run("inspect", folder / "m.fcl", "--tsv", folder / "f.tsv", "--top", 2))
    text = result.output
    assert model.certificate is not None
    for words in (
        "3 classes: a, b, c", "squared, update ls, ridge alpha 1", "2 of 3 features", "valid_loss",
        "weights      after visit ", "\nvisit 3, block 1 of 2  ",
        "nearest point of the simplex", f"{model.certificate.gap:.3g} relative, to the joint optimum",
    ):  # fmt: skip
        assert words in text, words
    for k, label in enumerate("abc"):
        largest = np.abs(model.weights.features[:, k]).max()
        rows = text.split(f"feature, class {label}\n")[1].splitlines()[:2]
        assert abs(float(rows[0].split()[0])) == pytest.approx(largest, rel=1e-4)
    head, *lines = (folder / "f.tsv").read_text().splitlines()
    assert head == "feature\tweight_a\tweight_b\tweight_c"
    assert np.array_equal(
        np.array([line.split("\t")[1:] for line in lines], float), model.weights.features
    )
    refused = run("inspect", folder / "m.fcl", "--meme", folder / "x.meme")
    assert refused.exit_code == 2 and "--meme is not for stagewise models" in refused.output
    waves = run("stagewise", folder / "data", *OPTIONS, "--quiet", "--out", folder / "w.fcl")
    shown = run("inspect", folder / "w.fcl", "--import", "waves").output
    assert waves.exit_code == 0 and "feature, class" not in shown and "30 features" in shown
