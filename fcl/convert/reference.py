"""The data set that ``--like`` names: an earlier output of ``fcl convert``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fcl.data import DataSet
from fcl.errors import InputError

__all__ = ["Reference"]


@dataclass(frozen=True)
class Reference:
    """An output of ``fcl convert``.

    Attributes
    ----------
    path : str
    data : DataSet
    group : zarr.Group
    attributes : dict
        What the output says about its conversion; empty if another program wrote it.
    """

    path: str
    data: DataSet
    group: Any
    attributes: dict[str, Any]

    @classmethod
    def open(cls, path: str) -> Reference:
        """Open a Zarr group; raises InputError for anything else."""
        import zarr

        from fcl.data.open import open_data

        data = open_data(path, y=None)
        try:
            group: Any = zarr.open_group(path, mode="r")
        except (OSError, ValueError) as error:
            raise InputError(
                f"--like: expected an output of fcl convert, which ends in .zarr, got {path}"
            ) from error
        return cls(path, data, group, group.attrs.get("fcl", {}))
