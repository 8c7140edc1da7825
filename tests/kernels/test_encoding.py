"""What is known of columns before they are stored."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels import encoding
from tests.windows import examples

SIZES = st.sampled_from([0.0, 1.0, -1.0, 2.0, 127.0, 128.0, 0.5, 63.5, 0.1, 3.7, 1e-30])


@examples(80)
@given(st.lists(SIZES, min_size=1, max_size=12), st.sampled_from([np.float32, np.float64]))
def test_values_of_all_rows_are_measured_as_lists_of_the_nonzeros(
    sizes: list[float], dtype: type
) -> None:
    values = np.array([sizes, sizes[::-1]], dtype)
    n = len(sizes)
    coarse = values.astype(np.float32)
    rest = (values - coarse).view(np.uint64) if dtype is np.float64 else None
    whole = np.ones(2, np.int64), np.ones(2, np.int64), np.ones(2, np.uint64)
    encoding.measure_values(values, coarse.view(np.uint32), rest, 3, *whole)
    _, rows = filled = np.nonzero(values)
    start = np.concatenate([[0], np.cumsum((values != 0.0).sum(axis=1))])
    listed = np.ones(2, np.int64), np.ones(2, np.int64), np.ones(2, np.uint64)
    own = values[filled], coarse.view(np.uint32)[filled], None if rest is None else rest[filled]
    encoding.measure_lists(start, rows.astype(np.uint16), *own, n, 3, *listed)
    for one, other in zip(whole, listed, strict=True):
        assert one.tolist() == other.tolist()
    for column in coarse:
        step = encoding.common_step(column)
        multiples = np.arange(-127, 128) * step
        assert step == 0.0 or np.isin(column, multiples.astype(np.float32)).all()
