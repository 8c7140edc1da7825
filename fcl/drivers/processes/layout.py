"""The layout of shared memory, which supervisor and children compute alike.

A ``Layout`` is made from a few numbers (the configuration) and returns arrays by name. Segments:

    control   heartbeats, threads of the trainer, shares
    vectors   over all rows: y, s, margins, residuals, curvatures; over validation rows
    rows      prepared rows and validation rows          sides_<w>       their side arrays, by writer
    lists     watched features and their prices
    cache     arena and directory                        sample          rows of the trainer's view
                                                         sample_sides_<w>  their side arrays, by writer

With a scratch file, ``rows`` and ``sides_<w>`` are files on a disk (:func:`in_scratch`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.arrays import Arrays, Shape, of_outputs
from fcl.cache import Store
from fcl.cache.store import directory
from fcl.data.prepared import PreparedRows, SideArrays, pack_sides, unpack_sides
from fcl.drivers.processes.lists import slot_lists, watched_lists
from fcl.drivers.processes.shared import Segment
from fcl.features import Family, family_from_config
from fcl.features.standardized import attach_scales, standardized
from fcl.options import TrainOptions
from fcl.parallel import SERIAL, Team

#: Most columns that a task makes.
MOST_BATCH = 256
#: Alignment of arrays in bytes: a cache line.
LINE = 64


def segment_names(writers: int) -> list[str]:
    """Names of all segments of a run."""
    fixed = ["control", "vectors", "rows", "lists", "cache", "sample"]
    sides = [f"{name}_{w}" for name in ("sides", "sample_sides") for w in range(writers)]
    return [*fixed, *sides]


def in_scratch(segment: str) -> bool:
    """Whether a segment is in the scratch file, if there is one."""
    return segment == "rows" or segment.startswith("sides_")


@dataclass(frozen=True)
class Config:
    """What children have to know about the run."""

    family: dict[str, Any]
    sources: list[dict[str, Any] | None]  #: of training and validation rows
    options: TrainOptions  #: of the job
    n_rows: int
    n_valid: int
    n_kept: list[int]  #: length of each set's row mask; 0 if all rows are used
    n_outputs: int  #: classes or targets whose models share rows and features
    row_outputs: int  #: numbers that the target of a row has
    offset: bool  #: whether margins have offsets
    n_scaled: int  #: number of features if they are standardised; else 0
    cores: int
    record_shape: Sequence[int]  #: of a prepared block
    parts: dict[str, list[tuple[int, range]]]  #: of each kind of task: the set of rows, and a range
    most_ahead: int  #: bytes that a writer may request ahead from an object store
    writers: int
    scratch: bool  #: whether prepared rows are in a file
    # of the memory plan, which is made again when the rows are read
    view_rows: int  #: most rows of a sample; 0: the trainer has all rows
    max_columns: int
    entries: int
    hessian_columns: int
    staging: int
    max_active: int  #: most features of a point
    #: of the arena; 0 until there is one
    extents: int = 0
    extent_bytes: int = 0

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.options.block_rows

    @property
    def n_covariates(self) -> int:
        """Number of unpenalised columns."""
        names = self.options.covariates
        return len(names) + bool(self.options.intercept) if names else 0

    @property
    def n_view(self) -> int:
        """Most rows of the trainer."""
        return self.view_rows or self.n_rows


class Layout:
    """Arrays in shared memory, by name.

    segment : returns the segment of a name.
    """

    def __init__(self, config: Config, segment: Callable[[str], Segment]) -> None:
        self.config = config
        self._segment = segment
        self._places: dict[str, tuple[str, int, np.dtype[Any], Shape]] = {}
        self._sizes: dict[str, int] = {}
        for name, arrays in self._declared().items():
            at = 0
            for array, (kind, shape) in arrays.items():
                self._places[array] = name, at, kind, shape
                at += -(-kind.itemsize * math.prod(shape) // LINE) * LINE
            self._sizes[name] = at

    def _declared(self) -> dict[str, Arrays]:
        """The arrays of each segment."""
        config = self.config
        n, v, m, c = config.n_rows, config.n_valid, config.view_rows, config.max_columns
        blocks, q, outputs = (
            self._blocks(n) + self._blocks(v),
            config.n_covariates,
            config.n_outputs,
        )
        target = of_outputs(config.row_outputs)
        segments = {
            "control": Arrays(
                ("i8", config.writers + 1, "beats"),
                ("i8", 1, "threads"),
                # share of its current task that each writer has done
                ("f8", config.writers, "shares"),
            ),
            "vectors": Arrays(
                ("f8", (*target, n), "y"),
                ("f8", n, "s"),
                ("f8", self._margins(n), "margins0 margins1 residuals curvatures"),
                ("i8", self._margins(n), "units"),
                ("f8", self._margins(n * config.offset), "offset"),
                ("f8", (n, q), "covariates"),
                ("f8", (*target, v), "valid_y"),
                ("f8", v, "valid_s"),
                ("f8", self._margins(v), "valid_margins"),
                ("f8", self._margins(v * config.offset), "valid_offset"),
                ("f8", (v, q), "valid_covariates"),
                ("?", config.n_kept[0], "keep0"),
                ("?", config.n_kept[1], "keep1"),
                # writer, offset and bytes of the side arrays of each block
                ("i8", (blocks, 3), "sides"),
                ("u8", blocks, "checksums"),
                ("f8", (2, config.n_scaled), "scales"),
            ),
        }
        if not config.extents:
            return segments
        e = config.extents
        return segments | {
            "lists": watched_lists(config.max_active + c, outputs),
            "cache": directory(c, self._blocks(config.n_view))
            + slot_lists(c, outputs)
            + Arrays(
                ("i8", (e, MOST_BATCH), "extent_slots"),
                ("u8", e * config.extent_bytes // 8, "arena"),
            ),
            "sample": Arrays(
                # the number of rows, and the number of the draw
                ("i8", 2, "sample_size"),
                ("i8", (self._blocks(m), 3), "sample_sides"),
                ("i8", m, "sample_rows"),
                ("f8", m, "sample_y sample_s"),
            ),
        }

    def _margins(self, n_rows: int) -> Shape:
        """Shape of a number for each row, and for each output if there are several."""
        return *of_outputs(self.config.n_outputs), n_rows

    def _blocks(self, n_rows: int) -> int:
        return -(-n_rows // self.config.block_rows)

    def allocate(self) -> None:
        """Give each segment exactly the size of its layout.

        The memory of the arena is allocated later (:meth:`back`). Call it only while no process has
        mapped a part that will be freed.

        Raises BudgetError if there is not enough room.
        """
        config = self.config
        record_bytes = math.prod(config.record_shape)
        blocks = self._blocks(config.n_rows) + self._blocks(config.n_valid)
        sizes = self._sizes | {"rows": blocks * record_bytes}
        if config.extents:
            sizes["sample"] += self._blocks(config.view_rows) * record_bytes
        for name, size in sizes.items():
            segment = self._segment(name)
            segment.allocate(size, self._arena if name == "cache" else None)
            segment.shrink(size)

    @property
    def _arena(self) -> int:
        """Where the arena begins in its segment, which it ends."""
        return self._places["arena"][1]

    def back(self, extent: int) -> None:
        """Allocate the memory of the arena up to the end of this extent, before a process uses it.

        Raises BudgetError if there is not enough room.
        """
        self._segment("cache").fill(self._arena + (extent + 1) * self.config.extent_bytes)

    def back_more(self, size: int) -> None:
        """Allocate up to ``size`` more bytes of the arena.

        Raises BudgetError if there is not enough room.
        """
        cache = self._segment("cache")
        cache.fill(min(cache.filled + size, cache.size))

    # -- arrays --------------------------------------------------------------------------------

    def array(self, name: str) -> np.ndarray:
        """The array of this name; raises KeyError if the name is unknown."""
        segment, at, dtype, shape = self._places[name]
        return self._segment(segment).array(dtype, shape, at)

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
            config.n_view,
            config.block_rows,
            self.allocator,
        )

    def offset(self, prefix: str = "") -> np.ndarray | None:
        """Offsets of the training rows, or with the prefix ``valid_`` of the validation rows, if any."""
        return self.array(f"{prefix}offset") if self.config.offset else None

    def covariates(self, prefix: str = "") -> np.ndarray | None:
        """Covariates, as :meth:`offset`."""
        return self.array(f"{prefix}covariates") if self.config.n_covariates else None

    def allocator(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """An :data:`fcl.arrays.Allocate`."""
        found = self.array(name)
        assert found.dtype == np.dtype(dtype)
        assert found.shape == shape, (name, found.shape, shape)
        return found

    def first_block(self, which: int) -> int:
        """Position of the first block of a set of rows in ``sides`` and ``checksums``."""
        return self._blocks(self.config.n_rows) if which == 1 else 0

    def _records(self, which: int) -> np.ndarray:
        config = self.config
        n_blocks = self._blocks((config.n_rows, config.n_valid, config.view_rows)[which])
        name, start = "rows", self.first_block(which) * math.prod(config.record_shape)
        if which == 2:
            name, start = "sample", self._sizes["sample"]
        return self._segment(name).array(np.uint8, (n_blocks, *config.record_shape), start)

    def prepared(self, which: int) -> PreparedRows:
        """The prepared training (0) or validation (1) rows, or the sample (2), in shared memory."""
        config = self.config
        name, directory = "sides", self.array("sides")
        checksums: np.ndarray | None = self.array("checksums")
        first = self.first_block(which)
        n = (config.n_rows, config.n_valid, 0)[which]
        if which == 2:
            name, directory, checksums = "sample_sides", self.array("sample_sides"), None
            n = int(self.array("sample_size")[0])

        in_file = config.scratch and which != 2

        def load(block: int) -> SideArrays:
            writer, at, size = (int(x) for x in directory[first + block])
            segment = self._segment(f"{name}_{writer}")
            return unpack_sides(
                segment.piece(at, size) if in_file else segment.array(np.uint8, (size,), at)
            )

        return PreparedRows(
            n,
            config.block_rows,
            tuple(config.record_shape),
            records=None if in_file else self._records(which),
            file=self._segment("rows").fd if in_file else None,
            file_start=first * math.prod(config.record_shape),
            load_sides=load,
            checksums=None if checksums is None else checksums[first : first + self._blocks(n)],
        )

    def objective(self, team: Team = SERIAL) -> Any:
        """The objective over all rows, which are in shared memory."""
        return self.config.options.objective(
            self.array("y"),
            self.array("s"),
            team,
            self.offset(),
            self.covariates(),
            n_outputs=self.config.n_outputs,
        )

    def keep_sides(self, directory: str, block: int, writer: int, sides: SideArrays) -> None:
        """Append side arrays to the segment of a writer, and write their place to the directory.

        directory : "sides" or "sample_sides".
        """
        place = self._segment(f"{directory}_{writer}").append(*pack_sides(sides))
        self.array(directory)[block] = (writer, *place)
