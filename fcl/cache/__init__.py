"""The bounded cache of columns.

``store``    arena and directory: bytes by slot, in memory that may be shared
``columns``  the live columns, and the cache of a single process
``extents``  the live columns of an arena that writers fill
``policy``   which columns to evict and which to admit
"""

from fcl.cache.columns import ColumnCache, LiveColumns
from fcl.cache.extents import ExtentCache
from fcl.cache.policy import Rotation, evict_order, fit_in_room
from fcl.cache.store import StagedColumns, StagedPieces, Store

__all__ = [
    "ColumnCache",
    "ExtentCache",
    "LiveColumns",
    "Rotation",
    "StagedColumns",
    "StagedPieces",
    "Store",
    "evict_order",
    "fit_in_room",
]
