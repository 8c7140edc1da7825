"""The default tolerance is reached where the losses outweigh the penalty by far."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from fcl.errors import InputError


def strong(loss: str, n: int = 2000) -> fcl.DataSet:
    """Many rows, few letters: an overdetermined problem with noise."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (n, 10)).astype(np.uint8)
    signal = (codes[:, 2] == 1) * 2.0 - (codes[:, 6] == 3) + rng.normal(size=n)
    y = signal if loss == "squared" else np.where(signal > 0.4, 1, -1)
    return fcl.open_data(codes, y=y)


@pytest.mark.parametrize("C", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("loss", ["logistic", "squared", "squared_hinge"])
def test_strong_losses(loss: str, C: float) -> None:
    for tol in (1e-2, 1e-3):
        result = fcl.train(strong(loss), "kmers:d=2", C=C, loss=loss, tol=tol)
        assert result.converged and result.certificate.gap <= tol
        assert result.passes <= 100


@pytest.mark.parametrize("scale", [1e-14, 1e-6, 1e6])
def test_weights_and_C_scale_against_each_other(scale: float) -> None:
    data = strong("logistic", 400)
    plain = fcl.train(data, "kmers:d=2", C=1.0, tol=1e-6)
    weighted = fcl.open_data(data.rows.read(0, 400), y=data.target, weights=np.full(400, scale))
    other = fcl.train(weighted, "kmers:d=2", C=1.0 / scale, tol=1e-6)
    assert other.converged
    assert other.certificate.objective == pytest.approx(plain.certificate.objective, rel=3e-6)


def test_an_objective_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="C is 1e"):
        fcl.train(strong("logistic", 400), "kmers:d=2", C=1e308)


def test_data_that_are_not_open_are_refused() -> None:
    with pytest.raises(InputError, match=r"open it with fcl\.open_data"):
        fcl.train("train.zarr", "kmers:d=2", C=1.0)  # type: ignore[arg-type]
