"""The features listed row by row are those of the columns, for every family that lists them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generators import Hinges, Listed
from windows import make_windows

from fcl.data import open_data
from fcl.data.prepared import PreparedRows
from fcl.features import Family, bind_features, parse_features
from fcl.features.rows import CHUNK_IDS
from fcl.testing import check_generator


def bound(features: str, source: Any) -> tuple[Family, Any, PreparedRows]:
    """A family over rows, all rows raw, and prepared."""
    rows = open_data(source, y=None).rows
    family = bind_features(parse_features(features), rows)
    ((_, _, raw),) = family.read_rows(rows, 4096)
    prepared = PreparedRows(len(raw), 4096, family.record_shape(4096))
    prepared.commit(0, family.prepare(raw, prepared.writable(0), 4096))
    return family, raw, prepared


@pytest.mark.slow
def test_chunks_are_small_and_in_order() -> None:
    codes = make_windows(0, 500, 60, "none")
    family, raw, _ = bound("kmers:d=5", codes)
    order = np.random.default_rng(0).permutation(500)
    view = family.row_view()
    cut = [(len(chunk), len(chunk.ids)) for chunk in view.chunks(raw, order)]
    assert len(cut) > 5 and max(k for _, k in cut) <= CHUNK_IDS and sum(n for n, _ in cut) == 500
    whole = view.listed(raw, order)
    ids = np.concatenate([chunk.ids.copy() for chunk in view.chunks(raw, order)])
    assert np.array_equal(ids, whole.ids)
    # a row with more features than a chunk holds is a chunk of its own
    family, raw, _ = bound("kmers:d=12", codes[:3])
    assert [len(chunk) for chunk in family.row_view().chunks(raw)] == [1, 1, 1]


def test_large_ids_are_int64() -> None:
    family, raw, _ = bound("kmers:d=12", make_windows(0, 1, 40, "none"))
    (chunk,) = family.row_view().chunks(raw)
    assert chunk.ids.dtype == np.int64 and chunk.ids.max() > 1 << 32
    assert {family.describe(int(j)).partition(" ")[2] for j in chunk.ids[:: 1 << 11]} <= {
        f"at {k}" for k in range(29)
    }


@pytest.mark.slow
def test_check_generator_accepts_a_right_list() -> None:
    X = np.random.default_rng(0).random((100, 3))
    report = check_generator(Listed(4), X, training=False)
    assert "nonzeros" in {check.name for check in report.checks if not check.left_out}
    assert "nonzeros" not in {check.name for check in check_generator(Hinges(4), X, False).checks}
