"""Buffers declared once: a declaration gives the bytes that a plan counts, and allocates the arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
#: Allocates an array by name, dtype and shape: private memory, or a view of shared memory.
Allocate = Callable[[str, Any, Shape], np.ndarray]


def of_outputs(n_outputs: int) -> Shape:
    """The axis of numbers by output: none for one output."""
    return (n_outputs,) if n_outputs > 1 else ()


def fresh(name: str, dtype: Any, shape: Shape) -> np.ndarray:
    """The :data:`Allocate` of private memory."""
    return np.empty(shape, dtype)


def zeros(name: str, dtype: Any, shape: Shape) -> np.ndarray:
    """The :data:`Allocate` of private memory that is 0; the system provides it where it is used."""
    return np.zeros(shape, dtype)


class Arrays(dict[str, tuple[np.dtype[Any], Shape]]):
    """Dtypes and shapes of arrays by name.

    groups : dtype, shape and names, as in ``Arrays(("i8", n, "ids sizes"), ("f8", (k, n), "sums"))``.
    """

    def __init__(self, *groups: tuple[npt.DTypeLike, int | Shape, str]) -> None:
        super().__init__(
            (name, (np.dtype(dtype), shape if isinstance(shape, tuple) else (shape,)))
            for dtype, shape, names in groups
            for name in names.split()
        )

    def __add__(self, more: Arrays) -> Arrays:
        both = Arrays()
        both.update(self, **more)
        return both

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.values())

    def allocate(self, allocate: Allocate = fresh) -> dict[str, np.ndarray]:
        """The arrays by name."""
        return {name: allocate(name, *place) for name, place in self.items()}
