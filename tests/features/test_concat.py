"""Several families as one, against their explicit matrices side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from fcl.features import Bag, Columns, Concat, Kmers, bind_features
from fcl.features.base import Family
from tests.explicit import prepare
from tests.families import Alone, Shares, values_of
from tests.pricing import Pricing
from tests.windows import make_residuals, make_windows


def bind(spec: Any, codes: np.ndarray) -> Family:
    return bind_features(spec, fcl.open_data(codes, y=np.arange(len(codes)) % 2).rows)


def dense(made: Any) -> np.ndarray:
    return np.concatenate([values_of(block) for block in made], axis=1)


def test_a_scratch_file_of_many_planes_and_blocks_does_not_change_a_bit(tmp_path: Path) -> None:
    codes = make_windows(6, 400, 26, "few")
    family = bind(Concat([Kmers(7), Shares(), Bag(3), (Kmers(2), 0.5), Alone()]), codes)
    in_memory, on_disk = (prepare(family, codes, 64, scratch) for scratch in (None, tmp_path))
    rng = np.random.default_rng(6)
    ids = np.sort(rng.choice(family.n_features, 300, replace=False))
    w, r = rng.normal(size=300), make_residuals(6, 400, "balanced")
    margins = np.empty((2, 400))
    found = []
    for out, prepared in zip(margins, (in_memory, on_disk), strict=True):
        family.write_margins(prepared, ids, w, out)
        found.append(Pricing(family, prepared, 20).price(r, ids, 0.5))
    assert margins[0].tobytes() == margins[1].tobytes()
    assert found[0].gradients.tobytes() == found[1].gradients.tobytes()
    assert found[0].watched.tobytes() == found[1].watched.tobytes()
    for number in (2, 5, 2, 0):  # numbers of the class are aligned, whatever was read before
        record = family.part(on_disk, 1).read(number)[0]
        assert record.ctypes.data % 64 == on_disk.read(number)[0].ctypes.data % 64


def test_members_that_prepare_alike_share_records() -> None:
    codes = make_windows(1, 100, 8, "few")
    one = bind(Kmers(2), codes).record_shape(128)
    shared = bind(Concat([Kmers(2), Bag(3), Kmers(4)]), codes)
    assert math.prod(shared.record_shape(128)) == math.prod(one)
    other = bind(Concat([Kmers(2), Shares(), Alone()]), codes)
    assert math.prod(other.record_shape(128)) == math.prod(one) + 128 * (8 + 1)


def test_descriptions_name_the_member() -> None:
    codes = make_windows(1, 100, 8, "none")
    family = bind(Concat([Kmers(2), (Bag(2), 2.0), Kmers(3, origin=4)]), codes)
    first = family.n_features - 6 * 100
    assert family.describe(0) == "kmers 1: AA at 0"
    assert family.describe(first - 16) == "bag: AA anywhere"
    assert family.describe(first) == "kmers 2: AAA at -4"
    assert bind(Concat([(Kmers(2), 2.0)]), codes).describe(0) == "AA at 0"


def test_nested_members_are_flat() -> None:
    inner = Concat([Kmers(2), ("bag:d=3", 2.0)])
    assert Concat([(inner, 3.0), Bag(4)]) == Concat([(Kmers(2), 3.0), (Bag(3), 6.0), Bag(4)])


def test_numbers_stay_whole_beside_one_another(tmp_path: Path) -> None:
    """Two members of one dense matrix: both float64, records aligned, a ragged block."""
    x = np.random.default_rng(2).normal(size=(150, 3))
    rows = fcl.open_data(x, y=np.arange(150) % 2).rows
    family = bind_features(Concat([Columns(), (Columns(), 2.0)]), rows)
    assert family.record_shape(128) == (3 * 8 * 128,)
    prepared = prepare(family, x, 128, tmp_path)
    made = dense(family.column_maker(prepared, 1 << 16).make(np.arange(6)))
    assert (made.T.astype(np.float32) == np.hstack([x, x]).astype(np.float32)).all()
    assert family.describe(4) == "columns 2: x1"
    assert family.describe(4, ["a", "b", "c"]) == "columns 2: b"
