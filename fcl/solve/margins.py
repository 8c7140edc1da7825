"""The margins of a point, of one output or of K."""

from __future__ import annotations

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.base import Family
from fcl.solve.state import Point
from fcl.types import Floats


def write_features(
    family: Family, prepared: PreparedRows, point: Point, out: Floats, blocks: range | None = None
) -> None:
    """Write the sums of weights times features on some row blocks; by default on all.

    out : float64 (n,), or (K, n) with K outputs, each of which makes the columns of its own features.
    """
    for weights, m in zip(np.atleast_2d(point.weights.T), np.atleast_2d(out), strict=True):
        own = np.flatnonzero(weights)
        family.write_margins(prepared, point.ids[own], weights[own], m, blocks)


def write_margins(
    family: Family,
    prepared: PreparedRows,
    point: Point,
    out: Floats,
    offset: Floats | None = None,
    covariates: Floats | None = None,
    blocks: range | None = None,
) -> None:
    """Write the whole margins of a point: features, offsets, and the unpenalised part.

    out, offset : float64 (n,) or (K, n).  covariates : float64 (n, q), or None.
    """
    write_features(family, prepared, point, out, blocks)
    some = range(prepared.n_blocks) if blocks is None else blocks
    if not len(some):
        return
    rows = slice(prepared.rows_of(some.start).start, prepared.rows_of(some.stop - 1).stop)
    margins = out[..., rows]
    margins += point.intercept if offset is None else point.intercept + offset[..., rows]
    if covariates is not None:
        v = point.covariates.reshape(*out.shape[:-1], -1)
        margins += (covariates[rows] @ v.T).T
    elif out.ndim > 1:
        margins += point.covariates[:, None]
