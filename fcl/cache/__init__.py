"""The bounded cache of columns: storage (``columns``) and what to keep (``policy``)."""

from fcl.cache.columns import ColumnCache, StagedColumns
from fcl.cache.policy import evict_order, fit_in_room

__all__ = ["ColumnCache", "StagedColumns", "evict_order", "fit_in_room"]
