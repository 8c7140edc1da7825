"""What a generator returns, looked at: a wrong shape or value is told by family, features and block."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.errors import InputError
from fcl.features.base import Floats, Ids
from fcl.features.generator import Generator

__all__ = ["checked_columns", "checked_vector", "name_of"]


def name_of(generator: Generator) -> str:
    """How a generator is called in messages."""
    return type(generator).__name__


def checked_columns(generator: Generator, ids: Ids, block: Any, number: int, n: int) -> np.ndarray:
    """``generator.columns`` on block ``number`` of n rows: a real, finite matrix (n, len(ids))."""
    where = f"features {name_of(generator)}: columns({_some(ids)}) on row block {number}"
    try:
        found = generator.columns(ids, block)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise InputError(f"{where} raised {type(error).__name__}: {error}") from error
    if not isinstance(found, np.ndarray):
        raise InputError(f"{where}: expected a numpy array, got {type(found).__name__}")
    if found.shape != (n, len(ids)):
        raise InputError(
            f"{where}: expected shape {(n, len(ids))}, rows by features, got {found.shape}"
        )
    if found.dtype.kind not in "biuf":
        raise InputError(f"{where}: expected real numbers, got dtype {found.dtype}")
    if generator.binary and found.dtype != np.bool_:
        wrong = (found != 0) & (found != 1)
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            raise InputError(
                f"{where}: the class says binary = True, but feature {ids[k]} is {found[row, k]} at "
                f"row {row} of the block"
            )
    if found.dtype.kind == "f" and not np.isfinite(found.sum()) and not np.isfinite(found).all():
        row, k = (int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise InputError(
            f"{where}: feature {ids[k]} is {found[row, k]} at row {row} of the block; values must be "
            "finite"
        )
    return found


def checked_vector(generator: Generator, what: str, found: Any, n: int, number: int) -> Floats:
    """A vector that a faster way of the generator returned, as float64 (n,)."""
    where = f"features {name_of(generator)}: {what} on row block {number}"
    if not isinstance(found, np.ndarray) or found.shape != (n,) or found.dtype.kind not in "biuf":
        got = (
            f"{found.dtype} {found.shape}"
            if isinstance(found, np.ndarray)
            else type(found).__name__
        )
        raise InputError(f"{where}: expected float64 {(n,)}, got {got}")
    if not np.isfinite(found).all():
        raise InputError(f"{where}: expected finite numbers, got {found[~np.isfinite(found)][0]}")
    return found.astype(np.float64, copy=False)


def _some(ids: Ids) -> str:
    if len(ids) == 1:
        return f"feature {ids[0]}"
    return f"{len(ids)} features, {ids[0]} to {ids[-1]}"
