"""Checks of the arrays of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.errors import InputError

_DTYPES = {"ids": np.int64, "weights": np.float64, "support": np.int64}


def checked_arrays(ids: Any, weights: Any, support: Any) -> dict[str, np.ndarray]:
    """Read-only copies of ids (k,), weights (k,) or (k, K) and support (k,) of features, by name.

    Raises InputError for arrays of different lengths, a single column of weights, ids that do not
    increase, weights that are not finite, and negative support.
    """
    given = {"ids": ids, "weights": weights, "support": support}
    found = {name: np.array(given[name], dtype, order="C") for name, dtype in _DTYPES.items()}
    for array in found.values():
        array.flags.writeable = False
    ids, weights, support = found.values()
    if weights.ndim == 2 and weights.shape[1] < 2:
        raise InputError(
            f"weights of several outputs need at least two columns, got shape {weights.shape}"
        )
    first = weights[:, 0] if weights.ndim == 2 else weights
    if ids.ndim != 1 or not ids.shape == first.shape == support.shape:
        raise InputError(
            "ids, weights and support must be three vectors of one length, got shapes "
            f"{ids.shape}, {weights.shape} and {support.shape}"
        )
    wrong = np.flatnonzero(ids[1:] <= ids[:-1])
    if wrong.size:
        at = int(wrong[0]) + 1
        raise InputError(
            f"ids must increase strictly, got {ids[at]} after {ids[at - 1]} at position {at}"
        )
    if not np.isfinite(weights).all():
        raise InputError("weights and intercept must be finite")
    if (support < 0).any():
        raise InputError("support counts rows and cannot be negative")
    return found
