"""Sources of every layout go through the writer and come back from ``fcl.open_data``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fcl
from fcl.convert import arrays, registry, run
from fcl.convert.contract import Budget, Categorical, Layout, Rows, Source
from fcl.convert.options import TABLE
from fcl.convert.run import convert
from fcl.data.foreign import FORMATS
from fcl.data.sparse import SparseRows
from fcl.errors import BudgetError

N = 1000


@dataclass(frozen=True)
class NoOptions:
    """The options of the format ``given``."""


class Given(Source):
    """Blocks of uneven sizes of a given X."""

    def __init__(self, inputs: Any, x: Any, layout: Layout) -> None:
        super().__init__(inputs)
        self.x, self._layout = x, layout

    @property
    def layout(self) -> Layout:
        return self._layout

    def blocks(self, budget: Budget) -> Iterator[Rows]:
        categories: list[str] = []
        for start, stop in ((0, 0), (0, 1), (1, 700), (700, N)):
            part = self.x[start:stop]
            if self.layout.kind == "sparse":
                indptr = part.indptr.astype(np.int64)
                part = SparseRows(indptr, part.indices, part.data, self.layout.width)
            rows = np.arange(start, stop)
            categories += [str(i) for i in range(len(categories), min(stop, 3))]
            self.rows_in += len(rows)
            yield Rows(
                x=part,
                source_row=rows,
                y=rows % 2 * 2 - 1,
                weights=rows + 0.5,
                obs={
                    "kind": Categorical(rows % 3, categories),
                    "name": rows.astype("S4"),
                    "zero": 0 * rows,
                },
            )
        self.dropped["too short"] += 2


def layouts() -> dict[str, tuple[Any, Layout]]:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(N, 3))
    sparse = csr_matrix(dense * (dense > 0.5))
    names = ["a", "b/c", "é"]
    return {
        "codes": (
            rng.integers(0, 5, (N, 7), dtype=np.uint8),
            Layout("codes", np.dtype(np.uint8), 7),
        ),
        "dense": (dense, Layout("dense", np.dtype(np.float64), 3, names)),
        "sparse": (sparse, Layout("sparse", np.dtype(np.float64), 3, names)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["codes", "dense", "sparse"])
@pytest.mark.parametrize("small", [False, True])
def test_a_source_comes_back(
    kind: str, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zarr

    x, layout = layouts()[kind]
    if small:  # several shards of several chunks
        monkeypatch.setattr(
            run, "StoreLayout", lambda **bytes: arrays.StoreLayout(64, 999, 5000, 600)
        )
    monkeypatch.setitem(registry.READERS, "given", "given")
    module = SimpleNamespace(Options=NoOptions, open_source=lambda i, o, b: Given(i, x, layout))
    monkeypatch.setattr(registry, "import_module", lambda name: module)
    (tmp_path / "in").write_text("abc")
    out = tmp_path / "out.zarr"
    summary = convert([tmp_path / "in"], out, format="given")
    assert (summary.rows_in, summary.rows, summary.classes) == (N, N, {-1: 500, 1: 500})
    data, group = fcl.open_data(out, weights="weights"), zarr.open_group(out, mode="r")
    read = data.rows.read(0, N)
    if kind == "sparse":
        assert data.rows.shape == (N, 3)
        read = csr_matrix((read.data, read.indices, read.indptr), (N, 3)).toarray()
        x = x.toarray()
    assert np.array_equal(read, x)
    assert data.column_names == layout.names
    # a chunk that is left out would be reported as missing
    assert group["obs/zero"].nchunks_initialized == group["obs/zero"].nchunks
    assert data.target is not None and data.weights is not None
    assert data.target.tolist() == [-1, 1] * 500
    assert np.array_equal(data.weights, np.arange(N) + 0.5)
    assert fcl.open_data(out, y="obs/kind").target.tolist() == [str(i % 3) for i in range(N)]
    assert fcl.open_data(out, y="obs/name").target.tolist() == [str(i) for i in range(N)]
    found: Any = group.attrs["fcl"]
    assert found["dropped"] == {"too short": 2} and found["rows"] == N
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found["inputs"] == [{"name": "in", "bytes": 3, "sha256": sha}]
    assert (group["X"].shards is not None) == small if kind == "dense" else True


def test_budget_too_small(tmp_path: Path) -> None:
    with pytest.raises(
        BudgetError, match="memory: 1 MiB is too small; expected at least"
    ) as caught:
        convert(["-"], tmp_path / "o.zarr", memory="1MiB")
    assert caught.value.smallest > 64 << 20


def test_every_format_is_known() -> None:
    names = {found.name for found in FORMATS} | {"sequences"}
    assert set(registry.READERS) <= names
    assert all(option.help and option.name == name for name, option in TABLE.items())
