"""The rate that ``--rate auto`` chooses, where positives are rare."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import fcl
from fcl.drivers.online.train import train_online


def rare_positives(n: int = 12_000, p: int = 2000, often: float = 0.03) -> fcl.DataSet:
    """Rows of 40 random columns; few of them are positive, by the first ten columns."""
    rng = np.random.default_rng(0)
    X = sparse.random(n, p, density=0.02, format="csr", rng=rng, data_rvs=np.ones)
    margins = X[:, :10] @ np.full(10, 4.0)
    margins += np.log(often / (1.0 - often)) - 0.5
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-margins)), 1.0, -1.0)
    return fcl.open_data(X, y=y)


@pytest.mark.filterwarnings("ignore:the progressive loss")  # of rates of the grid
def test_auto_makes_half_of_the_progress_of_the_best_rate_on_rare_positives() -> None:
    data = rare_positives()

    def learnt(rate: float | str) -> tuple[float, float]:
        model = train_online(data, "columns", C=0.5, rate=rate, certify=False).model
        optimality = fcl.certify(model, data, C=0.5, top=0)
        return optimality.certificate.objective, float(model.options["rate"])

    best = min(learnt(rate)[0] for rate in (0.01, 0.03, 0.1, 0.3, 1.0))
    nothing, _ = learnt(1e-9)
    found, rate = learnt("auto")
    assert found < best + 0.5 * (nothing - best), f"rate {rate}: {found}, {best}, {nothing}"
