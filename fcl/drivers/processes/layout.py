"""The layout of shared memory, which supervisor and children compute alike.

A ``Layout`` is made from a few numbers (the configuration) and returns arrays by name. Segments:

    control   heartbeats, threads of the trainer, shares   config   the configuration
    vectors   over all rows: y, s, margins, residuals, curvatures; over validation rows
    rows      prepared rows and validation rows          sides_<w>       side arrays, by writer
    lists     points, prices, the features that columns are made of
    cache     arena and directory                        sample          rows of the trainer's view
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fcl.cache import Store
from fcl.data.prepared import PreparedRows, SideArrays, unpack_sides
from fcl.drivers.processes.shared import Segment
from fcl.features import Family, family_from_config
from fcl.features.standardized import attach_scales, standardized

__all__ = ["POINTS", "Config", "Layout", "segment_names"]

#: Places of points: the anchors of even and odd passes, the point that a pass tries, the point that a
#: search found, the point being validated, and the trainer's proposal (its mailbox).
POINTS = ("anchor0", "anchor1", "proposed", "found", "validated", "mailbox")
#: Alignment of arrays in bytes: a cache line.
LINE = 64


def segment_names(writers: int) -> list[str]:
    """Names of all segments of a run."""
    fixed = ["control", "config", "vectors", "rows", "lists", "cache", "sample"]
    return [*fixed, *(f"sides_{w}" for w in range(writers))]


@dataclass(frozen=True)
class Config:
    """What children have to know about the run; all values are JSON-serialisable."""

    family: dict[str, Any]
    sources: list[dict[str, str] | None]  #: of training and validation rows
    options: dict[str, Any]  #: of the job: fields of `Options`
    n_rows: int
    n_valid: int
    n_kept: list[int]  #: length of each set's row mask; 0 if all rows are used
    offset: bool  #: whether margins have offsets
    n_scaled: int  #: number of features if they are standardised; else 0
    block_rows: int
    scratch: bool  #: whether prepared rows are in a file
    writers: int
    cores: int
    parts: dict[str, list[list[int]]]  #: ranges of each kind of task: [set, first, stop]
    #: whether the rows are read; the values below are set only then
    ready: bool = False
    max_columns: int = 0
    entries: int = 0
    hessian_columns: int = 0
    staging: int = 0
    extents: int = 0
    extent_bytes: int = 0
    batch: int = 0
    max_active: int = 0  #: most features of a point
    view_rows: int = 0  #: most rows of a sample; 0: the trainer has all rows
    keep: int = 0  #: most candidates for each group of features

    def to_json(self) -> dict[str, Any]:
        """The configuration as a dictionary for JSON."""
        return asdict(self)


class Layout:
    """Arrays in shared memory, by name.

    Parameters
    ----------
    config : Config
    segment : callable
        Returns the segment of a name.
    """

    def __init__(self, config: Config, segment: Callable[[str], Segment]) -> None:
        self.config = config
        self._segment = segment
        self._tables: dict[str, dict[str, tuple[int, np.dtype, tuple[int, ...]]]] = {}
        self._sizes: dict[str, int] = {}
        n, v = config.n_rows, config.n_valid
        blocks = [self._blocks(n), self._blocks(v)]
        self._table(
            "control",
            {
                "beats": (np.int64, (config.writers + 1,)),
                "threads": (np.int64, (1,)),
                # share of its current task that each writer has done
                "shares": (np.float64, (config.writers,)),
            },
        )
        self._table(
            "vectors",
            {
                "y": (np.float64, (n,)),
                "s": (np.float64, (n,)),
                "valid_y": (np.float64, (v,)),
                "valid_s": (np.float64, (v,)),
                "offset": (np.float64, (n * config.offset,)),
                "valid_offset": (np.float64, (v * config.offset,)),
                "keep0": (np.bool_, (config.n_kept[0],)),
                "keep1": (np.bool_, (config.n_kept[1],)),
                # writer, offset and bytes of the side arrays of each block
                "sides": (np.int64, (sum(blocks), 3)),
                "scales": (np.float64, (2, config.n_scaled)),
                "checksums": (np.uint64, (sum(blocks),)),
                **{f"margins{i}": (np.float64, (n,)) for i in range(2)},
                "residuals": (np.float64, (n,)),
                "curvatures": (np.float64, (n,)),
                "units": (np.int64, (n,)),
                "valid_margins": (np.float64, (v,)),
            },
        )
        if not config.ready:
            return
        k, c, e = config.max_active, config.max_columns, config.extents
        kept = sum(stop - first for _, first, stop in config.parts["price"]) * config.keep
        self._table(
            "lists",
            {
                **{f"{name}_ids": (np.int64, (k,)) for name in POINTS},
                **{f"{name}_weights": (np.float64, (k,)) for name in POINTS},
                # watched features: cached, frozen or recalled
                "watch_ids": (np.int64, (k + c,)),
                "watched": (np.float64, (k + c,)),
                "watched_curvatures": (np.float64, (k + c,)),
                "priced_ids": (np.int64, (kept,)),
                "priced_gradients": (np.float64, (kept,)),
                "priced_curvatures": (np.float64, (kept,)),
                "priced_counts": (np.int64, (len(config.parts["price"]),)),
                "priced_largest": (np.float64, (len(config.parts["price"]),)),
                "priced_reach": (np.float64, (len(config.parts["price"]),)),
                "priced_excess": (np.float64, (config.parts["price"][-1][2],)),
                # the list of features whose columns are to be made
                "job_ids": (np.int64, (k,)),
                "job_violations": (np.float64, (k,)),
                "job_gradients": (np.float64, (k,)),
                "job_curvatures": (np.float64, (k,)),
                "job_weights": (np.float64, (k,)),
                "job_slots": (np.int64, (k,)),
                "job_order": (np.int64, (k,)),
                "held": (np.int64, (c,)),
            },
        )
        n_view = config.view_rows or n
        pieces = (c, self._blocks(n_view))
        self._table(
            "cache",
            {
                "first": (np.int64, (c,)),
                "ids": (np.int64, (c,)),
                "hashes": (np.uint64, (c,)),
                "nonzeros": (np.int64, (c,)),
                "sizes": (np.int64, (c,)),
                # for each slot at the anchors of even and odd passes
                "slot_gradients": (np.float64, (2, c)),
                "slot_curvatures": (np.float64, (2, c)),
                "slot_weights": (np.float64, (c,)),
                "extent_slots": (np.int64, (e, config.batch)),
                "offsets": (np.uint32, pieces),
                "counts": (np.uint32, pieces),
                "kinds": (np.uint8, pieces),
                "arena": (np.uint64, (e * config.extent_bytes // 8,)),
            },
        )
        m = config.view_rows
        self._table(
            "sample",
            {
                # the number of rows, and the number of the draw
                "sample_size": (np.int64, (2,)),
                "sample_sides": (np.int64, (self._blocks(m), 3)),
                "sample_rows": (np.int64, (m,)),
                "sample_y": (np.float64, (m,)),
                "sample_s": (np.float64, (m,)),
            },
        )

    def _blocks(self, n_rows: int) -> int:
        return -(-n_rows // self.config.block_rows)

    def _table(self, segment: str, arrays: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        table, at = {}, 0
        for name, (dtype, shape) in arrays.items():
            kind = np.dtype(dtype)
            table[name] = (at, kind, shape)
            at += -(-kind.itemsize * int(np.prod(shape, dtype=np.int64)) // LINE) * LINE
        self._tables[segment] = table
        self._sizes[segment] = at

    # -- supervisor ----------------------------------------------------------------------------

    def allocate(self, record_bytes: int) -> None:
        """Allocate the segments; raises BudgetError if there is not enough room.

        record_bytes : size of the records of a prepared block.
        """
        for name, size in self._sizes.items():
            self._segment(name).allocate(size)
        config = self.config
        blocks = self._blocks(config.n_rows) + self._blocks(config.n_valid)
        self._segment("rows").allocate(blocks * record_bytes)
        if config.ready and config.view_rows:
            size = self._sizes["sample"] + self._blocks(config.view_rows) * record_bytes
            self._segment("sample").allocate(size)

    def shrink(self, record_bytes: int) -> None:
        """Free what was allocated beyond these sizes; call it before any process has mapped it."""
        for name in ("lists", "cache", "sample") if self.config.ready else ():
            size = self._sizes[name]
            if name == "sample" and self.config.view_rows:
                size += self._blocks(self.config.view_rows) * record_bytes
            self._segment(name).shrink(size)

    # -- arrays --------------------------------------------------------------------------------

    def array(self, name: str) -> np.ndarray:
        """The array of this name; KeyError if there is none."""
        for segment, table in self._tables.items():
            if name in table:
                at, dtype, shape = table[name]
                return self._segment(segment).array(dtype, shape, at)
        raise KeyError(name)

    def family(self) -> Family:
        """The family, with the shared scales if it is standardised."""
        family = family_from_config(self.config.family)
        if not self.config.n_scaled:
            return family
        family = standardized(family)
        attach_scales(family, self.array("scales"))
        return family

    def store(self) -> Store:
        """The column store of the cache: arena and directory."""
        config = self.config
        return Store(
            config.extents * config.extent_bytes,
            config.max_columns,
            config.view_rows or config.n_rows,
            config.block_rows,
            self.allocator,
        )

    def offset(self, prefix: str = "") -> np.ndarray | None:
        """Offsets of the training rows, or with the prefix ``valid_`` of the validation rows, if any."""
        return self.array(f"{prefix}offset") if self.config.offset else None

    def allocator(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """An :data:`fcl.cache.store.Allocate`."""
        found = self.array(name)
        assert found.dtype == np.dtype(dtype)
        assert found.shape == shape, (name, found.shape, shape)
        return found

    def records(self, which: int, record_shape: tuple[int, ...]) -> np.ndarray:
        """Records of the training (0) or validation (1) blocks, or those of the sample (2)."""
        config = self.config
        size = int(np.prod(record_shape))
        if which == 2:
            shape = (self._blocks(config.view_rows), *record_shape)
            return self._segment("sample").array(np.uint8, shape, self._sizes["sample"])
        blocks = [self._blocks(config.n_rows), self._blocks(config.n_valid)]
        start = blocks[0] * size if which else 0
        return self._segment("rows").array(np.uint8, (blocks[which], *record_shape), start)

    def prepared(self, which: int, record_shape: tuple[int, ...]) -> PreparedRows:
        """The prepared training (0) or validation (1) rows, or the sample (2), in shared memory."""
        config = self.config
        directory = self.array("sides")
        checksums: np.ndarray | None = self.array("checksums")
        first = self._blocks(config.n_rows) if which == 1 else 0
        n = (config.n_rows, config.n_valid, 0)[which]
        if which == 2:
            directory, checksums = self.array("sample_sides"), None
            n = int(self.array("sample_size")[0])

        def load(block: int) -> SideArrays:
            writer, at, size = (int(x) for x in directory[first + block])
            return unpack_sides(self._segment(f"sides_{writer}").array(np.uint8, (size,), at))

        in_file = config.scratch and which != 2
        return PreparedRows(
            n,
            config.block_rows,
            record_shape,
            records=None if in_file else self.records(which, record_shape),
            file=self._segment("rows").fd if in_file else None,
            file_start=first * int(np.prod(record_shape)),
            load_sides=load,
            checksums=None if checksums is None else checksums[first : first + self._blocks(n)],
        )
