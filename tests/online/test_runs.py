"""Runs of online learners: what they start from, save, count in advance, and say at the end."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fcl
from fcl.cli.online import command
from fcl.cli.train import command as train_command
from fcl.drivers.online import train
from fcl.drivers.online.train import plan_online
from fcl.errors import InputError
from fcl.model.certificate import Scope
from fcl.scoring.compact import compact_model
from tests import by_name
from tests.online.conftest import LABELS, ROWS

C = 0.05
RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(800, 15))
Y = np.where(X[:, :3].sum(axis=1) + RANDOM.logistic(size=800) > 0.0, 1, 0)
S = RANDOM.choice([0.0, 1.0, 3.0], 800)


def learn(**options: Any) -> fcl.OnlineResult:
    data = fcl.open_data(X, y=Y, weights=S)
    return by_name.train_online(data, "columns", **{"C": C, "rate": 0.3, **options})


def rounded(**options: Any) -> fcl.OnlineResult:
    """A run over a table of 24 bits a feature."""
    given = {"method": "ogd", "weights": "q2.13", "alpha": 1e-6, "rate": 0.25, "certify": False}
    return fcl.train_online(fcl.open_data(ROWS, y=LABELS), "columns", **given | options)


def invoke(*words: Any, of: Any = command, **more: Any) -> Any:
    result = CliRunner().invoke(of, [str(word) for word in words], **more)
    assert result.exit_code == 0, result.output
    return result


def stored(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    folder.mkdir()
    np.save(folder / "X.npy", x)
    np.save(folder / "y.npy", y)
    return folder


# -- the certificate at the end --------------------------------------------------------------------


def test_the_reason_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learn(certify=False).uncertified == "the certificate was declined"
    assert "before its passes" in str(learn(should_stop=lambda: True).uncertified)

    def unreadable(*args: Any, **options: Any) -> Any:
        raise fcl.InputError("rows.h5: the file is gone")

    monkeypatch.setattr(train, "certify_model", unreadable)
    result = learn()
    assert result.uncertified == "rows.h5: the file is gone"
    assert result.model.certificate.scope is Scope.UNKNOWN and result.model.n_active


def test_the_command_prints_it(tmp_path: Path) -> None:
    given = [stored(tmp_path / "d", X, Y), "--features", "columns", "--C", C, "--rate", 0.3]
    done = invoke(*given, "--out", tmp_path / "m.fcl")
    own = fcl.load_model(tmp_path / "m.fcl").certificate
    for name, value in (("objective", own.objective), ("bound", own.bound)):
        assert f"{name:<12} {value:.10g}\n" in done.output
    assert f"{own.gap:.3g} relative, over all features of the family" in done.output
    done = invoke(*given, "--out", tmp_path / "n.fcl", "--no-certify")
    assert "not certified: the certificate was declined" in done.output


# -- the weights at the start ----------------------------------------------------------------------


def test_commands_start_from_a_model(tmp_path: Path) -> None:
    """At hardly any rate the online command keeps it; the command of training ends at the optimum."""
    initial, folder = learn(passes=2).model, stored(tmp_path / "d", X, Y)
    initial.save(tmp_path / "i.fcl")
    lines = "".join(
        f"{y} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row)) + "\n"
        for row, y in zip(X.tolist(), Y, strict=True)
    )
    start = ["--features", "columns", "--C", C, "--initial", tmp_path / "i.fcl"]
    for number, source in enumerate([[folder, "--no-certify"], ["-", "--columns", 15]]):
        own = start if number == 0 else [*start[:2], "--alpha", 1e-3, *start[4:]]
        out = tmp_path / f"m{number}.fcl"
        given = [*own, "--rate", 1e-9, "--method", "truncated-gradient", "--out", out]
        invoke(*source, *given, input=lines)
        found = fcl.load_model(out)
        large = np.abs(found.weights) > 1e-6
        np.testing.assert_array_equal(found.ids[large], initial.ids)
        np.testing.assert_allclose(found.weights[large], initial.weights, atol=1e-6)
    invoke(
        folder,
        *start,
        "--tol",
        1e-8,
        "--driver",
        "inline",
        "--out",
        tmp_path / "t.fcl",
        of=train_command,
    )
    optimum = fcl.train(fcl.open_data(X, y=Y), "columns", C=C, tol=1e-8).certificate
    found = fcl.load_model(tmp_path / "t.fcl").certificate
    assert found.objective == pytest.approx(optimum.objective, rel=1e-7)
    words = [folder, *start[:2], *start[4:], "--path", 3, "--valid-fraction", 0.5, "--out", "x.fcl"]
    refused = CliRunner().invoke(train_command, [str(word) for word in words])
    assert refused.exit_code == 2 and "--initial does not go with --path" in refused.output


# -- tables and files ------------------------------------------------------------------------------


def test_the_model_has_the_weights_of_the_table() -> None:
    result = rounded()
    steps = result.model.weights * 2**13
    assert (steps == np.rint(steps)).all() and np.abs(steps).max() <= 32767
    assert np.array_equal(result.state.table[:, 0][np.flatnonzero(result.state.table[:, 0])], steps)
    seeds = {rounded(seed=seed, shuffle=False).model.weights.tobytes() for seed in range(3)}
    assert len(seeds) == 3  # the order is the same: rounding alone differs


@pytest.mark.filterwarnings("ignore:the progressive loss")
def test_the_grid_is_chosen_by_the_features(tmp_path: Path) -> None:
    for scale, grid in ((1.0, "q2.13"), (0.1, "q5.10")):
        data = fcl.open_data(ROWS * scale, y=LABELS)
        own: dict[str, Any] = {"method": "ogd", "weights": "q", "alpha": 1e-6, "certify": False}
        found = fcl.train_online(data, "columns", **own, rate=0.25)
        assert found.model.options["weights"] == grid
        found.save(tmp_path / f"{grid}.fcl")
        more = fcl.train_online(data, resume=tmp_path / f"{grid}.fcl", passes=2, certify=False)
        whole = fcl.train_online(data, "columns", **own, rate=0.25, passes=2)
        assert more.model.weights.tobytes() == whole.model.weights.tobytes()


def test_a_compact_model_of_an_online_model(tmp_path: Path) -> None:
    """It predicts, and is refused by --resume."""
    data = fcl.open_data(ROWS, y=LABELS)
    rounded().save(tmp_path / "full.fcl")
    small = compact_model(fcl.load_model(tmp_path / "full.fcl"), data, max_loss=1e-3).model
    small.save(tmp_path / "small.fcl")
    again: Any = fcl.load_model(tmp_path / "small.fcl")
    assert again.margins(ROWS).tobytes() == small.margins(ROWS).tobytes()
    assert small.encoding.loss <= 1.001 * small.encoding.loss_full
    with pytest.raises(InputError, match=r"got a model without one .* compact"):
        fcl.train_online(data, resume=tmp_path / "small.fcl", passes=3)


@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
@pytest.mark.parametrize(
    ("method", "weights"), [("ftrl", "float64"), ("ogd", "q2.13"), ("ftrl", "float32")]
)
def test_the_plan_counts_what_a_dense_run_saves(tmp_path: Path, method: str, weights: str) -> None:
    """Every feature is touched; what model and state take is at most what the plan says, and near it."""
    from scipy.sparse import csr_array

    p, n = 1 << 19, 64
    indices = np.random.default_rng(0).permutation(p)
    matrix = csr_array((np.ones(p), indices, np.arange(0, p + 1, p // n)), shape=(n, p))
    rows = fcl.open_data(matrix, y=np.arange(n) % 2)
    given = {"method": method, "weights": weights, "alpha": 1e-9, "rate": 0.5, "certify": False}
    fcl.train_online(rows, "columns", **given).save(tmp_path / "m.fcl")  # compiles
    planned = dict(plan_online(rows, "columns", **given).parts)
    size = planned[f"model and saved state of {p:,} features"]
    result = fcl.train_online(rows, "columns", **given)
    assert len(result.model.ids) > 0.9 * p and len(result.state.ids) > 0.9 * p
    tracemalloc.start()
    try:
        state, point = result.learner.saved(), result.learner.point()
        result.save(tmp_path / "again.fcl")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(state["ids"]) == len(result.state.ids) and len(point[0]) == len(result.model.ids)
    settled = 24 * p  # of the part of the plan for weights while they are counted
    assert 0.5 * size < peak < size + settled
