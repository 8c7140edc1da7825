"""fcl train --path, with real training on small data."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from sklearn.metrics import roc_auc_score

import fcl
from fcl.cli import progress
from fcl.path import regularization_path as paths
from tests.cli.conftest import ok, save
from tests.cli.refusals import check_refusal

Run = Callable[..., Result]

FEATURES = ("--features", "kmers:d=2", "--memory", "1GiB", "--tol", 1e-3)


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    """Rows of the same kind as the fixture ``data``, with groups and folds."""
    random = np.random.default_rng(4)
    windows = random.integers(0, 4, (300, 12), dtype=np.uint8)
    y = ((windows[:, 5] == 2) ^ (random.random(300) < 0.1)).astype(np.int8)
    return save(tmp_path / "valid", X=windows, y=y, group=random.integers(0, 3, 300))


def test_a_path_with_validation(data: Path, valid: Path, tmp_path: Path, run: Run) -> None:
    out, log = tmp_path / "m.fcl", tmp_path / "log.jsonl"
    result = ok(run(
        "train", data, *FEATURES, "--path", 6, "--valid", valid, "--select", "1se",
        "--patience", 2, "--out", out, "--log-json", log,
    ))  # fmt: skip
    model, folder = fcl.load_model(out), tmp_path / "m.fcl.path"
    table = json.loads((folder / "path.json").read_text())
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "point",
        "C",
        "active",
        "objective",
        "gap",
        "AUPRC",
        "se",
        "AUROC",
        "seconds",
    ]
    marked = [line for line in lines if line.lstrip().startswith("* ")]
    chosen = table["result"]["chosen"]
    assert len(marked) == 1 and int(marked[0].split()[1]) == chosen + 1
    assert table["points"][chosen]["C"] == model.C
    point = fcl.load_model(folder / f"point-{chosen + 1:02}.fcl")
    np.testing.assert_array_equal(point.weights, model.weights)
    for word in ("stopped", f"chosen       point {chosen + 1}: the smallest C within one standard",
                 "errors       standard errors from 50 bootstrap samples of the validation rows",
                 f"points       {folder}"):  # fmt: skip
        assert word in result.stdout, word
    assert f"point 1 of 6  C {table['grid'][0]:.4g}  active 0" in result.stderr
    assert "pass " not in result.stderr  # a line for each point, not for each pass
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events.count("PointDone") == len(table["points"])


@pytest.mark.parametrize("cv", ["2", "groups:group", "folds:group"])
def test_cross_validation(valid: Path, tmp_path: Path, run: Run, cv: str) -> None:
    out, oof = tmp_path / "m.fcl", tmp_path / "oof.npy"
    result = ok(run(
        "train", valid, *FEATURES, "--path", 2, "--C-max", 0.5, "--cv", cv, "--save-oof", oof,
        "--out", out, "--quiet",
    ))  # fmt: skip
    assert result.output == ""
    table = json.loads((tmp_path / "m.fcl.path" / "path.json").read_text())
    folds = table["result"]["folds"]
    assert len(folds) == {"2": 2, "groups:group": 3, "folds:group": 3}[cv]
    margins, y = np.load(oof), np.load(valid / "y.npy")
    assert margins.shape == y.shape and np.isfinite(margins).all()
    if cv == "folds:group":
        groups = np.load(valid / "group.npy")
        chosen = table["result"]["chosen"] + 1
        some = fcl.load_model(tmp_path / f"m.fcl.path/fold-3/point-{chosen:02}.fcl")
        expected = some.margins(np.load(valid / "X.npy")[groups == 2])
        np.testing.assert_allclose(margins[groups == 2], expected)


def test_table_of_held_out_rows(valid: Path, tmp_path: Path, run: Run) -> None:
    """A table as programs for sequences read it; the summary has all scores of the same margins."""
    oof = tmp_path / "oof.tsv"
    result = ok(run(
        "train", valid, *FEATURES, "--path", 2, "--C-max", 0.5, "--cv", "folds:group", "--save-oof",
        oof, "--out", tmp_path / "m.fcl",
    ))  # fmt: skip
    head, *rows = [line.split("\t") for line in oof.read_text().splitlines()]
    y, groups = np.load(valid / "y.npy"), np.load(valid / "group.npy")
    assert head == ["name", "label", "fold", "margin"]
    assert [row[0] for row in rows] == [str(i) for i in range(len(y))]
    assert [row[1] for row in rows] == [str(label) for label in y]
    order = np.unique(groups, return_inverse=True)[1] + 1
    assert [row[2] for row in rows] == [str(fold) for fold in order]
    margins = np.array([float(row[3]) for row in rows])
    each = [roc_auc_score(y[groups == g], margins[groups == g]) for g in np.unique(groups)]
    se = np.std(each, ddof=1) / np.sqrt(len(each))
    assert f", AUROC {np.mean(each):.4f} (SE {se:.4f}), " in result.stdout
    table = json.loads((tmp_path / "m.fcl.path" / "path.json").read_text())["result"]
    chosen = table["chosen"]
    np.testing.assert_allclose(table["auroc"][chosen], np.mean(each))
    np.testing.assert_allclose(table["auroc_se"][chosen], se)
    marked = next(line.split() for line in result.stdout.splitlines() if line.startswith("  *"))
    assert marked[8:10] == [f"{np.mean(each):.6g}", f"{se:.6g}"]
    share = np.mean([np.mean(y[groups == g] > 0) for g in np.unique(groups)])
    held_out = next(line for line in result.stdout.splitlines() if line.startswith("held out"))
    assert f", random {share:.4f}), AUROC " in held_out and held_out.count("SE") == 3


@pytest.mark.slow
def test_refit_and_outer_folds(valid: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "m.fcl"
    result = ok(run(
        "train", valid, *FEATURES, "--path", 3, "--C-max", 0.5, "--cv", "groups:group", "--outer",
        "groups:group", "--refit", "--refit-alpha", 1e-3, "--out", out,
    ))  # fmt: skip
    chosen, model = fcl.load_model(out), fcl.load_model(tmp_path / "m.refit.fcl")
    np.testing.assert_array_equal(model.ids, chosen.ids[chosen.weights != 0.0])
    np.testing.assert_allclose(model.alpha, 1e-3)
    stored = json.loads((tmp_path / "m.fcl.path" / "path.json").read_text())["result"]
    assert stored["refit"]["objective"] == model.certificate.objective
    outer, sizes = stored["outer"], np.bincount(np.load(valid / "group.npy"))
    assert sorted(row["rows"] for row in outer["folds"]) == sorted(sizes)
    for text in (
        f"the {chosen.n_active} chosen features again, ridge penalty alpha 0.001",
        f"over the {model.n_active} features of the support alone, not over the family",
        f"AUPRC {stored['refit']['score']:.6g} (SE {stored['refit']['se']:.2g}), the chosen model",
        f"each with its own choice of C: AUPRC {outer['mean']:.6g} (SE {outer['se']:.2g})",
        f"refit model  {tmp_path / 'm.refit.fcl'}",
    ):
        assert text in result.stdout, text
    empty = run(
        "train", valid, *FEATURES, "--path", 2, "--cv", 2, "--min-gain", 9, "--patience", 1,
        "--max-active", 1, "--max-time", 1e-3, "--refit", "--out", tmp_path / "e.fcl",
    )  # fmt: skip
    assert empty.exit_code == 0 and "has no features, so there is no refit" in empty.stderr
    lines = result.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "outer fold" in line)
    assert lines[at].split() == ["outer", "fold", "rows", "C", "active", "gap", "AUPRC"]
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["1", "2", "3"]
    inspected = run("inspect", tmp_path / "m.refit.fcl")
    assert "each term j times the variance of its feature" in inspected.output, inspected.output
    scored = run("predict", tmp_path / "m.refit.fcl", valid, "--out", tmp_path / "s.npy")
    assert scored.exit_code == 0 and len(np.load(tmp_path / "s.npy")) == 300
    again = run("train", valid, *FEATURES, "--path", 3, "--refit", "--out", tmp_path / "m")
    assert again.exit_code == 2 and "m.refit.fcl" in again.output  # it is there


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--patience", 1, "patience: the score has not improved for the last points"),
        ("--max-time", 0.001, "max-time: --max-time was reached"),
    ],
)
def test_a_path_says_why_it_stopped(
    data: Path, valid: Path, tmp_path: Path, run: Run, option: str, value: object, reason: str
) -> None:
    result = run(
        "train", data, *FEATURES, "--path", 9, "--valid", valid, option, value,
        "--out", tmp_path / "m.fcl",
    )  # fmt: skip
    assert result.exit_code == 0 and f"stopped      {reason}" in result.stdout, result.output
    table = json.loads((tmp_path / "m.fcl.path" / "path.json").read_text())
    assert table["result"]["reason"] == reason.partition(":")[0] and len(table["points"]) < 9


def test_the_same_command_continues(
    data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m.fcl"
    command = ("train", data, *FEATURES, "--path", 4, "--out", out)
    solve = paths._PathFit._solve
    solved: list[int] = []

    def failing(self: Any, run: Any, number: int) -> Any:
        solved.append(number)
        if solved == [0, 1, 2]:
            raise OSError("the machine failed")
        return solve(self, run, number)

    monkeypatch.setattr(paths._PathFit, "_solve", failing)
    assert run(*command).exit_code == 1
    assert not out.exists()
    ok(run(*command))
    assert solved == [0, 1, 2, 2, 3] and out.exists()
    assert run(*command).exit_code == 2  # the model is there
    assert run(*command, "--overwrite", "--cv", "half").exit_code == 2
    assert (tmp_path / "m.fcl.path/path.json").exists()
    assert run(*command, "--overwrite").exit_code == 0
    assert solved[5:] == [0, 1, 2, 3]  # from the beginning
    (tmp_path / "other.fcl.path").mkdir()
    (tmp_path / "other.fcl.path" / "thesis.txt").touch()
    other = run(*command[:-1], tmp_path / "other.fcl", "--overwrite")
    assert other.exit_code == 2 and "is not the folder of a path" in other.output


def interrupt(patch: pytest.MonkeyPatch, when: Callable[[Any], bool]) -> None:
    """Send the signal at the line of a point."""
    show = progress.point_line

    def killing(event: Any) -> str:
        if when(event):
            os.kill(os.getpid(), signal.SIGTERM)
        return show(event)

    patch.setattr(progress, "point_line", killing)


def test_a_signal_ends_the_path_after_its_points(
    data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda event: event.number == 3)
    out = tmp_path / "m.fcl"
    command = ("train", data, *FEATURES, "--path", 5, "--out", out)
    result = run(*command)
    assert result.exit_code == 143, result.output
    assert "holds 3 points; the same command continues" in result.stderr and not out.exists()
    monkeypatch.undo()
    again = run(*command)
    assert again.exit_code == 0 and "point 3 of 5" not in again.stderr, again.output
    assert "point 4 of 5" in again.stderr and out.exists()


@pytest.mark.slow
def test_how_an_interrupted_path_continues(
    data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold is interrupted, before any model over all rows has a score."""
    interrupt(monkeypatch, lambda event: bool(event.part))
    out = tmp_path / "m.fcl"
    command = ("train", data, *FEATURES, "--path", 3, "--cv", 2, "--out", out)
    for more, words in (
        ((), "the same command continues"),
        (("--overwrite",), f"the same command with --resume {out}.path continues"),
    ):
        result = run(*command, *more)
        assert result.exit_code == 143, result.output
        assert f"interrupted; {out}.path holds points; {words}" in result.stderr
        assert "nothing was written" not in result.stderr
    monkeypatch.undo()
    command += ("--report", tmp_path / "r.html")
    ok(run(*command, "--overwrite", "--resume", f"{out}.path"))
    again = ok(run(*command, "--resume", f"{out}.path"))  # replaces its files, and trains nothing
    assert "point 1 of" not in again.stderr and "error" not in again.stderr
    check_refusal(run(*command, "--resume", tmp_path), "expected the folder of points of", "train")
    (tmp_path / "m.fcl.path/path.json").unlink()
    check_refusal(run(*command, "--resume", f"{out}.path"), "holds no points of a path", "train")


def test_a_resumed_path_says_which_rows_it_counts(
    data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows, although the first job of the second run is a fold."""
    new_points = paths._PathFit.new_points

    def failing(self: Any) -> Any:
        if self._rows.part == "fold 2 of 2":
            raise OSError("the machine failed")
        return new_points(self)

    command = ("train", data, *FEATURES, "--path", 2, "--cv", 2, "--out", tmp_path / "m.fcl")
    monkeypatch.setattr(paths._PathFit, "new_points", failing)
    first = run(*command)
    n = len(np.load(data / "y.npy"))
    assert first.exit_code == 1 and f"fcl train: {n:,} rows (" in first.stderr, first.output
    monkeypatch.undo()
    again = ok(run(*command))
    assert again.stderr.count(f"fcl train: {n:,} rows (") == 1, again.stderr


def test_the_plan_of_a_path(data: Path, run: Run) -> None:
    result = run("train", data, *FEATURES, "--path", 5, "--plan")
    assert result.exit_code == 0 and "budget" in result.stdout


def test_a_hint_to_raise_C_max_if_the_last_point_is_the_best(
    data: Path, valid: Path, tmp_path: Path, run: Run
) -> None:
    hint, found = "the last point has the best score", []
    for number, (points, C_max) in enumerate(((2, 0.5), (3, 100.0))):
        out = tmp_path / f"{number}.fcl"
        result = ok(run(
            "train", data, *FEATURES, "--path", points, "--C-max", C_max, "--valid", valid,
            "--patience", 9, "--out", out,
        ))  # fmt: skip
        table = json.loads((tmp_path / f"{number}.fcl.path" / "path.json").read_text())["result"]
        found.append(int(np.argmax(table["score"])) == points - 1)
        assert (hint in result.stdout) == found[-1]
    assert found == [True, False]
