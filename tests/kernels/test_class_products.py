"""Products of columns with pairs of classes agree with dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from fcl.kernels.coupled import class_products


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("valued", [False, True])
def test_products_of_classes_equal_dense_sums(squared: bool, valued: bool) -> None:
    random = np.random.default_rng(1)
    held = random.random((40, 5)) < 0.2
    x = held * (random.normal(size=held.shape) if valued else 1.0)
    p = random.dirichlet(np.ones(3), 40).astype(np.float32)
    s = random.random(40).astype(np.float32)
    rows = np.nonzero(held.T)[1]
    stop = np.cumsum(held.sum(axis=0))
    start = stop - held.sum(axis=0)
    values = x.T[held.T].astype(np.float32) if valued else np.empty(0, np.float32)
    out = np.empty((5, 3, 3))
    class_products(start, stop, rows.astype(np.int32), values, p, s, squared, out)
    expected = np.einsum("ij,i,ik,il->jkl", x * x if squared else x, s, p, p)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
