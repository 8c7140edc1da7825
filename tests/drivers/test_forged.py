"""A forged checkpoint, with valid checksums, never leads to a false certificate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from checkpoints import rewrite, set_array, set_header
from rows import acceptors

import fcl
from fcl.drivers.train import TrainResult
from fcl.files.folder import CheckpointFolder
from tests.drivers.conftest import fit

TOL = 1e-4


def train(**options: Any) -> TrainResult:
    codes, y = acceptors(10, 300)
    return fit(fcl.open_data(codes, y=y), "kmers:d=3", **({"C": 1.0, "tol": TOL} | options))


@pytest.fixture(scope="module")
def optimum() -> float:
    return train(tol=1e-10).certificate.objective


@pytest.fixture(params=["inline", "processes"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, driver: str) -> Path:
    """The newest checkpoint of a run that is far from its end."""
    stopped = train(max_passes=2, checkpoint=tmp_path / "c", driver="inline")
    assert stopped.certificate.gap > 10 * TOL
    return sorted((tmp_path / "c").glob("*.fcl-ckpt"))[-1]


def claims(path: Path) -> dict[str, Any]:
    return dict(CheckpointFolder(path.parent).load().state)


def is_true(result: TrainResult, optimum: float) -> None:
    """Check that the claims about the model are true."""
    found = result.certificate
    assert found.bound <= optimum * (1 + 1e-9) <= found.objective * (1 + 2e-9)
    assert found.gap == pytest.approx((found.objective - found.bound) / found.objective, abs=1e-12)
    assert result.converged == (found.gap <= TOL)


def test_a_forged_bound(path: Path, driver: str, optimum: float) -> None:
    """A bound just below the objective gave a gap of 9.9e-7."""
    objective = claims(path)["objective"]
    bound = (1 - 1e-7) * objective
    set_header(path, "state", bound=bound, gap=0.0, max_violation=1.0)
    set_header(path, "state", last={"objective": objective, "bound": bound})
    result = train(resume=path.parent, driver=driver)
    assert result.converged
    is_true(result, optimum)


def test_a_forged_objective(path: Path, driver: str, optimum: float) -> None:
    set_header(path, "state", objective=0.0)
    is_true(train(resume=path.parent, driver=driver), optimum)


def test_forged_points(path: Path, driver: str, optimum: float) -> None:
    """The weights are accepted as a point; the point of the bound gives another bound, also valid."""
    state = claims(path)
    arrays = CheckpointFolder(path.parent).load().arrays
    for prefix in ("", "best_"):
        set_array(path, f"{prefix}ids", arrays["ids"])
        set_array(path, f"{prefix}weights", 0.9 * arrays["weights"])
    set_header(path, "state", bound=state["objective"] * (1 - 1e-7), best_intercept=0.5)
    is_true(train(resume=path.parent, driver=driver), optimum)


def test_stopped_before_its_first_pass(path: Path, driver: str, optimum: float) -> None:
    """Nothing of the file is in the result where nothing was computed yet."""
    set_header(path, "state", objective=1e-3, bound=1e-3)
    result = None
    for k in range(0, 60, 6):
        calls = iter([False] * k)
        try:
            result = train(
                resume=path.parent, driver=driver, should_stop=lambda c=calls: next(c, True)
            )
        except KeyboardInterrupt:
            continue
        is_true(result, optimum) if math.isfinite(result.certificate.gap) else None
        assert result.certificate.objective >= optimum * (1 - 1e-9)
        break
    assert result is not None or driver == "processes"


def test_least_C_is_that_of_the_data(path: Path, driver: str) -> None:
    """The inline driver computes it again; ``processes`` does not report it for a resumed job."""
    set_header(path, "state", C_min=77.0, max_violation=1.0)
    found = train(resume=path.parent, driver=driver).model.options["C_min"]
    assert found == (train().model.options["C_min"] if driver == "inline" else None)


def test_a_checkpoint_of_version_1(path: Path, driver: str, optimum: float) -> None:
    """It has the bound but not its point: the run continues, and proves a bound itself."""
    bound = claims(path)["bound"]
    drop = ("arrays/best_ids.npy", "arrays/best_weights.npy")
    rewrite(path, lambda members: [members.pop(name) for name in drop])
    set_header(path, "state", best_intercept=..., C_min=0.5, bound=bound)
    names = ["cached", "ids", "seen", "weights"]
    set_header(path, version=1, arrays=names)
    result = train(resume=path.parent, driver=driver)
    assert result.converged
    is_true(result, optimum)


def test_the_file_is_skipped_by_name(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The earlier file is used; a refused run writes nothing."""
    newest = path.with_name("checkpoint-9.fcl-ckpt")
    newest.write_bytes(path.read_bytes())
    set_header(newest, "state", grown="2")
    assert train(resume=path.parent).converged
    assert (
        "checkpoint-9.fcl-ckpt: damaged (header.json: state.grown: expected a finite number"
        in caplog.text
    )
    set_header(path, "state", idle=None)
    before = {p: p.read_bytes() for p in path.parent.iterdir()}
    with pytest.raises(fcl.InputError, match="holds no intact checkpoint"):
        train(resume=path.parent, checkpoint=path.parent)
    assert {p: p.read_bytes() for p in path.parent.iterdir()} == before
