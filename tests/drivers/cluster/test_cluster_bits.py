"""The driver dask gives the bits of the inline driver, whatever the workers.

tests/contracts/test_drivers.py compares more jobs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from dask_cluster import own_cluster, scale
from hypothesis import given
from hypothesis import strategies as st

from fcl.drivers.cluster import passes
from fcl.drivers.cluster.packed import Packed
from fcl.drivers.cluster.rows import LEAST_BLOCKS, MOST_BLOCKS, shard_blocks
from fcl.drivers.cluster.run import ClusterRun
from fcl.drivers.session import Session
from fcl.errors import BudgetError
from fcl.run.events import PassDone

from .runs import bits, train


@pytest.mark.slow
def test_any_number_of_workers(folder: Path, cluster: Any, client: Any) -> None:
    """Workers come and go between passes, too."""
    expected = bits(train(folder, warn=False))
    for n in (1, 2):  # the other tests have three
        scale(cluster, client, n)
        assert bits(train(folder, warn=False, client=client)) == expected
    sizes = itertools.cycle([1, 3, 2])

    def resize(event: Any) -> None:
        if isinstance(event, PassDone):
            cluster.scale(next(sizes))

    assert bits(train(folder, warn=False, client=client, progress=resize)) == expected


@pytest.mark.slow
def test_several_threads_and_slices_of_the_sums(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of a thread are added one after another, groups of parts apart, slices in turn."""
    # a table of 8 KiB for each of 20 positions
    job: dict[str, Any] = {"features": "kmers:d=5", "max_passes": 2, "warn": False}
    with own_cluster(1, 2) as own, distributed.Client(own, set_as_default=False) as client:
        expected = bits(train(folder, **job))
        assert bits(train(folder, client=client, **job)) == expected
        monkeypatch.setattr(passes, "SUMS_AT_ONCE", 1 << 16)
        assert bits(train(folder, client=client, **job)) == expected


@pytest.mark.slow
def test_two_jobs_at_once(folder: Path, client: Any) -> None:
    jobs = [{"C": 0.5}, {"C": 0.3, "features": "bag:d=3"}]
    found: dict[int, Any] = {}

    def run(k: int) -> None:
        found[k] = bits(train(folder, warn=False, client=client, **jobs[k]))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k] for k in range(2)] == [bits(train(folder, warn=False, **job)) for job in jobs]


@given(st.integers(1, 10**6))
def test_shards_grow_with_the_number_of_blocks(n_blocks: int) -> None:
    size = shard_blocks(n_blocks)
    assert LEAST_BLOCKS <= size <= MOST_BLOCKS
    assert shard_blocks(n_blocks + 1) >= size


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50), st.integers(1, 200))
def test_packed_vectors(levels: list[float], n: int) -> None:
    values = np.resize(np.array(levels), n)
    packed = Packed.of(values)
    assert packed.values().tobytes() == values.tobytes()
    assert packed.codes is not None
    many = np.arange(5000.0)
    assert Packed.of(many).values().tobytes() == many.tobytes()


@pytest.mark.slow
def test_a_callback_that_fails_loses_no_model(
    folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends at its pass, with the model of as many passes in this process."""

    def fail(event: Any) -> None:
        if isinstance(event, PassDone) and event.number == 2:
            raise ZeroDivisionError

    def end(event: Any) -> bool:
        return not (isinstance(event, PassDone) and event.number == 2)

    def slow(session: Session, *arguments: Any) -> Any:
        """As if the end took so long that the client looks for a request to stop meanwhile."""
        runs[-1].cluster.between()
        return result(session, *arguments)

    def started(run: ClusterRun, *arguments: Any) -> None:
        begin(run, *arguments)
        runs.append(run)

    runs: list[ClusterRun] = []
    begin, result = ClusterRun.__init__, Session.result
    monkeypatch.setattr(ClusterRun, "__init__", started)
    monkeypatch.setattr(Session, "result", slow)
    given: dict[str, Any] = {"tol": 1e-9, "max_passes": None, "warn": False}
    with pytest.raises(ZeroDivisionError) as caught:
        train(folder, client=client, progress=fail, **given)
    ended = train(folder, client=client, progress=end, **given)
    assert len(runs) == 2
    alike = train(folder, **given | {"max_passes": 2})
    for found in (caught.value.result, ended):  # type: ignore[attr-defined]
        np.testing.assert_array_equal(found.model.weights, alike.model.weights)
        assert found.passes == alike.passes and not found.converged


@pytest.mark.slow
def test_the_smallest_budget_that_a_message_names(
    few: Callable[[int], None], folder: Path, client: Any
) -> None:
    """It trains to the same optimum, with the bits of the inline driver at this budget."""
    given: dict[str, Any] = {"max_passes": 200, "warn": False}
    ample = train(folder, **given)
    few(60)
    with pytest.raises(BudgetError) as caught:
        train(folder, client=client, **(given | {"memory": "1MiB"}))
    given["memory"] = f"{-(-caught.value.smallest >> 20)}MiB"  # unknown letters need a little more
    result = train(folder, client=client, **given)
    assert result.converged, result.message
    assert result.certificate.objective == pytest.approx(ample.certificate.objective, rel=2e-2)
    assert bits(result) == bits(train(folder, **given))
