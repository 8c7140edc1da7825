"""Arrays of text come back, and their chunks hold a limited number of bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from fcl.convert.arrays import TEXT, Store, StoreLayout
from fcl.convert.texts import TextArray, write_texts

LIMIT = 2000


@pytest.mark.parametrize(
    "lengths",
    [
        [],
        [3] * 7,
        [3] * 200,
        [3] * 150 + [60] * 40,  # smaller chunks once
        [3] * 70 + [500] * 3 + [5000] * 2 + [3] * 40,  # and again, down to single rows
        [5000] * 3,
    ],
    ids=lambda lengths: f"{len(lengths)} to {max(lengths, default=0)}",
)
@pytest.mark.parametrize("step", [1, 13, 1000])
def test_chunks_of_text(lengths: list[int], step: int, tmp_path: Path) -> None:
    texts = ["é" * (length - 1) + "abc"[i % 3] for i, length in enumerate(lengths)]
    with Store(tmp_path / "o.zarr", StoreLayout(chunk_rows=64, column_bytes=LIMIT)) as store:
        store.group("obs", "dataframe", "0.2.0")
        array = TextArray(store, "obs/name")
        for start in range(0, len(texts), step):
            array.append(np.array(texts[start : start + step], TEXT))
        array.finish()
        write_texts(store, "obs/same", texts)
    group = zarr.open_group(tmp_path / "o.zarr", mode="r")
    for found in (group["obs/name"], group["obs/same"]):
        assert isinstance(found, zarr.Array) and found[:].tolist() == texts  # type: ignore[union-attr]
        rows = found.chunks[0]
        assert rows == 1 or all(
            sum(lengths[at : at + rows]) + 64 * rows <= LIMIT + 64
            for at in range(0, len(lengths) - rows + 1, rows)
        )
    assert sorted(path.name for path in (tmp_path / "o.zarr" / "obs").iterdir()) == [
        "name", "same", "zarr.json",
    ]  # fmt: skip
