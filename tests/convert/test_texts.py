"""Arrays of text come back, and their chunks hold a limited number of bytes."""

import numpy as np
import pytest
import zarr

from fcl.convert.arrays import TEXT, ArrayStore, StoreLayout
from fcl.convert.writer import TextArray, write_texts

LIMIT = 2000
LENGTHS = {
    "none": [],
    "few": [3] * 7,
    "many": [3] * 200,
    "smaller chunks once": [3] * 150 + [60] * 40,
    "and again, down to single rows": [3] * 70 + [500] * 3 + [5000] * 2 + [3] * 40,
    "long": [5000] * 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LENGTHS)
def test_chunks_of_text(name, tmp_path):
    lengths = LENGTHS[name]
    texts = ["é" * (length - 1) + "abc"[i % 3] for i, length in enumerate(lengths)]
    layout = StoreLayout(chunk_rows=64, column_bytes=LIMIT)
    for step in (1, 13, 1000):
        path = tmp_path / f"{step}.zarr"
        with ArrayStore(path, layout) as store:
            store.group("obs", "dataframe", "0.2.0")
            array = TextArray(store, "obs/name")
            for start in range(0, len(texts), step):
                array.append(np.array(texts[start : start + step], TEXT))
            array.finish()
            write_texts(store, "obs/same", texts)
        group = zarr.open_group(path, mode="r")
        for found in (group["obs/name"], group["obs/same"]):
            assert found[:].tolist() == texts
            rows = found.chunks[0]
            full = range(0, len(texts) - rows + 1, rows)
            sizes = [sum(lengths[at : at + rows]) + 64 * rows for at in full]
            assert rows == 1 or all(size <= LIMIT + 64 for size in sizes)
        assert {path.name for path in (path / "obs").iterdir()} == {"name", "same", "zarr.json"}
