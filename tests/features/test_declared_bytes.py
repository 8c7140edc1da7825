"""The bytes that the memory plan counts are those of the arrays that are allocated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fcl.arrays import Arrays, zeros
from fcl.data import open_data
from fcl.data.prepared import PreparedRows
from fcl.features import bind_features, parse_features
from fcl.features.bag.columns import BagColumns, code_slots, margin_bytes
from fcl.features.bag.pricing import pricing_tables
from fcl.features.bag.search import lists
from fcl.features.kmers import lanes, pricing
from tests.windows import make_windows

N, LENGTH = 300, 14


def held(owner: object, *names: str) -> int:
    """Bytes of the arrays of some attributes, which may be in a tuple or a dictionary."""
    found = []
    for name in names:
        value: Any = getattr(owner, name)
        value = value.values() if isinstance(value, dict) else value
        found += [value] if isinstance(value, np.ndarray) else list(value)
    return sum(array.nbytes for array in found)


def bound(text: str) -> tuple[Any, PreparedRows]:
    source = make_windows(0, N, LENGTH, "many")
    rows = open_data(source, y=None).rows
    family = bind_features(parse_features(text), rows)
    prepared = PreparedRows(N, 128, family.record_shape(128))
    for _ in family.fill(prepared, rows):
        pass
    return family, prepared


def test_a_declaration_gives_bytes_and_arrays() -> None:
    declared = Arrays(("u4", 3, "rows ids")) + Arrays(("f8", (2, 3), "sums"))
    made = declared.allocate(zeros)
    assert declared.nbytes == 2 * 3 * 4 + 6 * 8 == sum(array.nbytes for array in made.values())
    assert [(name, a.dtype.str, a.shape) for name, a in made.items()] == [
        ("rows", "<u4", (3,)),
        ("ids", "<u4", (3,)),
        ("sums", "<f8", (2, 3)),
    ]
    assert not any(array.any() for array in made.values())


@pytest.mark.parametrize("d", [3, 7, 9])
def test_kmers(d: int) -> None:
    family, prepared = bound(f"kmers:d={d}")
    one = pricing.KmerPricer(family, prepared, 1)
    tables = pricing.scan_tables(family, one._group)
    assert held(one, "_cells", "_shared") == tables.nbytes <= pricing.pricing_bytes(family, False)
    unknown = held(one, "_items", "_stack", "_five_cells")
    assert unknown == pricing.unknown_bytes(family, prepared) > 0
    if d <= lanes.MAX_LANE_D:
        several = lanes.LanePricer(family, prepared, 1)
        assert held(several, "_lane_cells") == lanes.lane_tables(family).nbytes
        assert held(several, "_lane_items") == lanes.lane_item_bytes(family, prepared)
    else:
        assert not lanes.lane_tables(family).nbytes


@pytest.mark.parametrize("options", ["", ",wildcards=true", ",value=presence,strands=both"])
def test_bag(options: str) -> None:
    family, prepared = bound(f"bag:d=4{options}")
    pricer, scorer = family.pricer(prepared, 1), family.scorer(np.arange(3), np.ones(3))
    assert held(pricer, "_tables", "_five", "_stamps") == pricing_tables(family).nbytes
    assert held(scorer, "_tables", "_five", "_stamps") == margin_bytes(family)
    maker = BagColumns(family, prepared, 0)
    maker.make(np.arange(3))
    assert held(maker, "_slots") == code_slots(family).nbytes


def test_bag_that_is_searched() -> None:
    family, prepared = bound("bag:d=4,value=presence,wildcards=true")
    pricer = family.pricer(prepared, 1)
    assert held(pricer, "_occurrences", "_units") == lists(family, prepared).nbytes
