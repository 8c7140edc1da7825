"""Compile every kernel once, so that later runs only load them."""

from __future__ import annotations

import numpy as np


def warmup() -> None:
    """Train and predict on a few made-up rows in every way that reaches another kernel."""
    from fcl.data import open_data
    from fcl.drivers.inline import train

    random = np.random.default_rng(0)
    codes = random.integers(0, 4, (256, 12)).astype(np.uint8)
    codes[::7, 3] = 4
    labels = np.where(codes[:, 5] == 2, 1, -1)
    labels[:16] = -labels[:16]
    for loss in ("logistic", "squared_hinge", "squared"):
        data = open_data(codes, y=labels)
        result = train(
            data,
            "kmers:d=3",
            C=1.0,
            loss=loss,
            tol=1e-2,
            block_rows=128,
            memory="1GiB",
            valid_fraction=0.2,
        )
        result.model.margins(data)
