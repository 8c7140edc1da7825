"""The smallest budget that a message names trains to the same optimum, in every driver."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from jobs import JOBS, Job

from fcl.cache import ColumnCache
from fcl.errors import BudgetError

TOL = 1e-3
#: Jobs of every kind, and a C at which the model has a few weights more than the cache has columns.
TIGHT: dict[str, dict[str, Any]] = {
    "kmers-logistic": {"C": 0.25},
    "kmers-squared": {},
    "kmers-squared_hinge": {"C": 0.05},
    "kmers-huber": {},
    "kmers-poisson": {},
    "kmers-elastic": {"C": 0.125},
    "kmers-softmax": {"C": 0.3},
    "kmers-softmax-group": {"C": 0.125},
    "kmers-labels": {"C": 0.3},
    "bag": {"C": 0.5},
    "bag-search": {},
    "columns": {},
    "columns-targets": {},
    "columns-standardize": {},
    "columns-covariates": {},
    "sparse": {"C": 0.11},
    "products": {"C": 0.07},
    "fourier-steps": {"C": 0.15},
    "union": {"C": 0.25},
}
#: Drivers and views, in turn.
KINDS = itertools.cycle(itertools.product(("all", 128), ("inline", "processes")))
QUICK = "kmers-logistic"


@pytest.fixture(autouse=True)
def _fixed_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache stays as small as the plan makes it, though bytes of the arena could become slots."""
    monkeypatch.setattr(ColumnCache, "grow", lambda self, slots: False)


def smallest(job: Job, **options: Any) -> int | str:
    """The budget that the message about a small one names.

    In bytes, if the rows cannot make the job larger; else rounded up to MiB, as users read it.
    """
    with pytest.raises(BudgetError) as caught:
        job.train(memory="1MiB", **options)
    found = re.search(r"this job needs at least [^(]*\(--memory (\d+)MiB\)", str(caught.value))
    assert found is not None
    assert 0 <= (int(found[1]) << 20) - caught.value.smallest < 1 << 20
    return f"{found[1]}MiB" if "unknown letters" in str(caught.value) else caught.value.smallest


@pytest.mark.parametrize(
    ("name", "view", "driver"),
    [
        pytest.param(name, view, driver, marks=() if name == QUICK else pytest.mark.slow)
        for name, (view, driver) in zip(TIGHT, KINDS, strict=False)
    ],
)
def test_the_smallest_budget(
    few: Callable[[int], None], name: str, view: str | int, driver: str
) -> None:
    few(12)
    job, more = JOBS[name], {"tol": TOL, "max_passes": 200, "block_rows": 64} | TIGHT[name]
    options: dict[str, Any] = {"driver": driver, "row_view": view, **more}
    result = job.train(memory=smallest(job, **options), **options)
    assert result.converged, result.message
    ample = job.train(**more).certificate
    assert result.certificate.objective == pytest.approx(ample.objective, rel=2 * TOL)
    assert result.certificate.bound <= ample.objective * (1.0 + 1e-12)
    assert len(result.model.ids) > max(h["cached"] for h in result.history)
