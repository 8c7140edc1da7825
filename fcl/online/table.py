"""Tables of 10^8 to 10^9 weights in a few bytes each, and their checkpoints.

Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via randomization", ICML 2013:
weights on a grid of 4 to 32 bits, with randomised rounding; events of a coordinate in a Morris counter
of 8 bits.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError
from fcl.files import schema
from fcl.files.bundle import FileKind, open_bundle, write_bundle, write_json
from fcl.files.packing import CODECS, best_codec
from fcl.options.kinds import grid_bits
from fcl.types import Floats

#: Base of the Morris counters: a relative standard deviation of 22 %; 255 stands for 3.6e11 events.
BASE = 1.1
#: Bits of a weight with its sign in a grid that is chosen for the inputs.
DEFAULT_BITS = 16
#: Coordinates in a piece of a checkpoint: at most 64 MiB of int16.
PIECE = 1 << 25
#: Of the compression of a checkpoint.
LEVEL = 1
_HEADER = "table.json"


@dataclass(frozen=True)
class WeightGrid:
    """The numbers k 2^-m with |k| < 2^(n + m): Qn.m of 1 + n + m bits, from 4 to 32.

    n, m : bits before and behind the point.
    """

    n: int
    m: int

    def __post_init__(self) -> None:
        grid_bits("weights", self.text)

    @property
    def bits(self) -> int:
        """Bits of a weight with its sign."""
        return 1 + self.n + self.m

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest dtype that holds the steps: int8, int16 or int32."""
        size = next(size for size in (8, 16, 32) if size >= self.bits)
        return np.dtype(f"int{size}")

    @property
    def limit(self) -> int:
        """The largest step; its negative is the smallest, so that the range is symmetric."""
        return (1 << (self.n + self.m)) - 1

    def steps_of(self, size: float) -> int:
        """The steps of a largest weight; raises InputError unless it is a number of the grid."""
        steps = size / self.step
        if steps != int(steps) or steps > self.limit:
            below = min(int(steps), self.limit) * self.step
            wider = ", or more bits" * (size > self.largest)
            raise InputError(
                f"max_weight: expected a multiple of {self.step:g} up to {self.largest:g} for weights "
                f"{self.text}, got {size!r}; choose {max(below, self.step)!r}{wider}"
            )
        return int(steps)

    @classmethod
    def parse(cls, text: str) -> WeightGrid:
        """The grid that a text such as ``q2.13`` names; raises InputError for any other text."""
        return cls(*grid_bits("weights", text))

    @classmethod
    def fitting(cls, rms: float) -> WeightGrid:
        """The grid for inputs whose nonzero values have this root mean square.

        Weights grow as inputs shrink: n = 2 + max(0, round(log2(1 / rms))).
        """
        if not 0.0 < rms < math.inf:
            raise InputError(f"weights: expected a root mean square above 0, got {rms}")
        n = min(2 + max(0, round(-math.log2(rms))), DEFAULT_BITS - 1)
        return cls(n, DEFAULT_BITS - 1 - n)

    @property
    def text(self) -> str:
        """How the grid is spelled."""
        return f"q{self.n}.{self.m}"

    @property
    def step(self) -> float:
        """2^-m."""
        return math.ldexp(1.0, -self.m)

    @property
    def largest(self) -> float:
        """The largest weight; its negative is the smallest."""
        return self.limit * self.step

    def check(self, size: float) -> None:
        """Raise InputError unless the grid has a weight of this size."""
        if size > self.largest:
            grids = (WeightGrid(n, self.bits - 1 - n) for n in range(self.n + 1, self.bits))
            fitting = next((f"{grid.text} or " for grid in grids if grid.largest >= size), "")
            raise InputError(
                f"weights: {self.text} holds weights up to {self.largest:g}, got one of size {size:g}; "
                f"choose {fitting}float32"
            )


def anonymous(n: int, dtype: Any) -> np.ndarray:
    """A vector of n zeros whose pages take memory only once they are written; may raise MemoryError."""
    size = n * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(n, dtype)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"a table of {size:,} bytes") from error
    return np.frombuffer(memory, dtype)


def morris(base: float = BASE) -> tuple[npt.NDArray[np.uint64], Floats]:
    """Thresholds and estimates of Morris counters of 8 bits that begin at 0.

    A counter C grows with probability base^-C at each event, and stays at 255. After t events the
    estimate (base^C - 1) / (base - 1) has mean t and variance (base - 1) t (t - 1) / 2; the first event
    is counted for certain (Morris, "Counting large numbers of events in small registers", CACM 1978).

    Returns up, uint64 (256,), 2^32 times the probability of an increment at each level, rounded down; 0
        at 255; events, float64 (256,), the estimates.
    """
    up, events, power = np.zeros(256, np.uint64), np.zeros(256), 1.0
    for level in range(256):  # products alone, which all machines round in the same way
        events[level] = (power - 1.0) / (base - 1.0)
        up[level] = int(4294967296.0 / power) if level < 255 else 0
        power *= base
    return up, events


# -- checkpoints ---------------------------------------------------------------------------------


def _slices(n: int) -> Iterator[tuple[int, slice]]:
    for number, first in enumerate(range(0, n, PIECE)):
        yield number, slice(first, min(first + PIECE, n))


def _shapes(vectors: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Length and dtype of each vector, as JSON values."""
    return {name: [len(vector), vector.dtype.str[1:]] for name, vector in vectors.items()}


def write_pieces(
    path: str | os.PathLike[str], header: Mapping[str, Any], vectors: Mapping[str, np.ndarray]
) -> None:
    """Write vectors in compressed pieces, without those that are 0; replaces an existing file.

    header : JSON values that the caller needs to read the vectors back.
    """
    codec = best_codec()
    head = {"header": dict(header), "vectors": _shapes(vectors), "codec": codec}

    def members() -> Iterator[tuple[str, bytes]]:
        yield _HEADER, write_json(head)
        for name, vector in vectors.items():
            stored = vector.dtype.newbyteorder("<")
            for number, some in _slices(len(vector)):
                if vector[some].any():
                    content = vector[some].astype(stored, copy=False).tobytes()
                    yield f"{name}.{number}", CODECS[codec].encode(content, LEVEL)

    write_bundle(path, members(), overwrite=True)


def read_pieces(
    path: str | os.PathLike[str], vectors: Mapping[str, np.ndarray], header: schema.Check
) -> dict[str, Any]:
    """Fill vectors, which must be 0, from a file of :func:`write_pieces`; returns its header.

    header : what the header may contain.

    Raises ModelFileError for a damaged file, and for one with other vectors.
    """
    shapes = _shapes(vectors)
    table = schema.record(header=header, vectors=schema.table, codec=schema.one_of(*CODECS))
    with open_bundle(path, FileKind("", 1, "checkpoint of a table", table, _HEADER)) as bundle:
        found = bundle.header
        if found["vectors"] != shapes:
            raise InputError(
                f"expected vectors {shapes}, got {shown(found['vectors'])}; resume with the options of "
                "the first run"
            )
        codec = CODECS[found["codec"]]
        for name, vector in vectors.items():
            stored = vector.dtype.newbyteorder("<")
            for number, some in _slices(len(vector)):
                member = f"{name}.{number}"
                if member in bundle.member_names:
                    content = codec.decode(bundle.member(member), vector[some].nbytes)
                    vector[some] = np.frombuffer(content, stored)
        return dict(found["header"])
