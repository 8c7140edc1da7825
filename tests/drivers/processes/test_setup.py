"""The shared memory of a run is large enough for what it is for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.drivers.job import make_job
from fcl.drivers.processes.layout import MOST_BATCH
from fcl.drivers.processes.setup import SharedMemory
from fcl.options import TrainOptions
from tests import by_name


@contextmanager
def reserved(
    data: fcl.DataSet, features: str, **options: Any
) -> Iterator[tuple[SharedMemory, int]]:
    """The shared memory of a job, and its number of extents."""
    job = make_job(
        data, features, TrainOptions.checked(C=1.0, loss="squared", driver="processes", **options)
    )
    shared = SharedMemory(job)
    try:
        shared.reserve()
        shared.prepare_own(lambda share: None)
        yield shared, shared.complete()
    finally:
        shared.close()


@pytest.mark.parametrize("writers", [1, 2, 8])
@pytest.mark.parametrize("n_features", [1, 5, 20, 41, 100, 1000])
def test_a_small_family_fits_into_the_cache(n_features: int, writers: int) -> None:
    """Also while writers hold extents, and one is kept for moves."""
    random = np.random.default_rng(0)
    data = fcl.open_data(random.normal(size=(200, n_features)), y=random.normal(size=200))
    with reserved(data, "columns", writers=writers, memory="4GiB") as (shared, extents):
        with_writers = min(writers, -(-n_features // MOST_BATCH))
        columns_an_extent = shared.config.extent_bytes // shared._largest
        assert (extents - 1 - with_writers) * columns_an_extent >= n_features


def test_the_cache_is_allocated_as_it_is_used() -> None:
    data = fcl.open_data(np.zeros((5000, 200), np.uint8), y=np.arange(5000.0))
    with reserved(data, "kmers:d=8", writers=1, memory="1GiB") as (shared, extents):
        cache, layout = shared.segments["cache"], shared.layout
        assert cache.size > 32 << 20 and cache.allocated < 16 << 20
        layout.back(extents // 2)
        half = cache.allocated
        assert half > cache.size // 2
        layout.back_more(1 << 20)
        assert half + (1 << 20) <= cache.allocated < half + (2 << 20)
        layout.back(extents - 1)
        layout.back_more(1 << 20)
        assert cache.size <= cache.allocated < cache.size + (1 << 20)


def test_all_columns_are_active() -> None:
    """Each of the few features has a weight; a cache without room for one of them would never settle."""
    random = np.random.default_rng(3)
    X = random.normal(size=(200, 20))
    y = 1e4 * (X[:, :4] @ [1.0, -2.0, 0.5, 1.5] + 0.3 * random.standard_t(2, size=200))
    options = {"C": 1.0, "loss": "huber:delta=0.5", "tol": 1e-6, "max_passes": 20}
    result = by_name.train(
        fcl.open_data(X, y=y), "columns", driver="processes", writers=2, **options
    )
    assert result.converged
    assert result.model.n_active == 20
