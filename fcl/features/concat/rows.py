"""The features of a row in several families, listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcl.features.rows import BatchedView, RowChunk, RowLister, id_type
from fcl.types import Ids


class ConcatRows(BatchedView):
    """Lists the features of each member, with the member's first id added."""

    def __init__(self, n_features: int, members: Sequence[RowLister], first_ids: Ids) -> None:
        self._members, self._first, self._id_type = members, first_ids, id_type(n_features)

    def listed(self, raw: Any, rows: Ids) -> RowChunk:
        parts = [member.listed(raw, rows) for member in self._members]
        counts = np.array([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        ids = np.empty(indptr[-1], self._id_type)
        values = np.empty(indptr[-1], np.result_type(*(part.values for part in parts)))
        starts = indptr[:-1] + np.cumsum(counts, axis=0) - counts
        for part, start, count, first in zip(parts, starts, counts, self._first, strict=False):
            at = np.arange(len(part.ids)) + np.repeat(start - part.indptr[:-1], count)
            ids[at] = part.ids + first
            values[at] = part.values
        return RowChunk(indptr, ids, values)
