"""Paths by the driver ``processes``, whose children are started for each point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcl.errors import InputError
from fcl.run.events import PassDone
from fcl.run.reasons import StopReason
from tests.path.conftest import Killed, counting, kill_after, split, train_path

BY_PROCESSES: dict[str, Any] = {"driver": "processes", "writers": 1}


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
def test_the_second_point_begins_at_the_weights_of_the_first(tmp_path: Path) -> None:
    """Grid, errors, folds and refit, and a killed path, all as in one process."""
    data, valid = split()
    options: dict[str, Any] = {"points": 4, "select": "1se", "valid": valid}
    inline = train_path(data, **options)
    path = train_path(data, **options, **BY_PROCESSES)
    assert [p.C for p in path.points] == [p.C for p in inline.points]
    np.testing.assert_allclose(path.scores.mean, inline.scores.mean, atol=0.01)
    np.testing.assert_allclose(path.scores.se, inline.scores.se, atol=0.01)
    given = {**options, **BY_PROCESSES, "folder": tmp_path / "p"}
    with pytest.raises(Killed):
        train_path(data, progress=kill_after(2), **given)
    done: list[Any] = []
    again = train_path(data, progress=counting(done), **given)
    assert [number for _, number in done] == [3, 4]
    for ours, other in zip(again.points, path.points, strict=True):
        assert ours.certificate == other.certificate and ours.score == other.score
    with pytest.raises(InputError, match=r"driver was .processes., is .inline."):
        train_path(data, folder=tmp_path / "p", **options)
    crossed = train_path(data, cv=2, points=3, refit=True, **BY_PROCESSES)
    same = train_path(data, cv=2, points=3, refit=True)
    np.testing.assert_allclose(crossed.scores.folds, same.scores.folds, atol=0.01)
    assert crossed.refit is not None and same.refit is not None
    assert crossed.refit.score == pytest.approx(same.refit.score, abs=0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
def test_an_interrupt_keeps_the_points() -> None:
    data, _ = split()
    done: list[Any] = []

    def progress(event: Any) -> None:
        counting(done)(event)
        if isinstance(event, PassDone) and len(done) == 2:
            raise KeyboardInterrupt

    path = train_path(data, points=4, progress=progress, **BY_PROCESSES)
    assert path.reason is StopReason.INTERRUPTED and len(path.points) == 2
    stopped = train_path(
        data, points=4, progress=counting(done), should_stop=lambda: len(done) >= 5, **BY_PROCESSES
    )
    assert stopped.reason is StopReason.INTERRUPTED and len(stopped.points) == 3
    for asked in (lambda: True, None):
        with pytest.raises(KeyboardInterrupt):
            train_path(data, points=4, should_stop=asked, **BY_PROCESSES, **_breaking(asked))


def _breaking(asked: Any) -> dict[str, Any]:
    """Ctrl-C in the pass that finds C_min, unless a callback asks to stop."""

    def progress(event: Any) -> None:
        if isinstance(event, PassDone):
            raise KeyboardInterrupt

    return {} if asked else {"progress": progress}


@pytest.mark.usefixtures("one_process")
def test_a_time_limit_ends_the_path() -> None:
    data, _ = split()
    path = train_path(data, points=4, max_time=1e-9, **BY_PROCESSES)
    assert path.reason is StopReason.MAX_TIME and len(path.points) == 1
