"""Names of rows that occur twice, which convert notes: tables by name would mix up their rows."""

from __future__ import annotations

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import TEXT_BYTES, Budget, ConvertedRows

#: The part of a budget that the names which were seen may take.
_PART = 8


class RowNames:
    """Counts records whose name an earlier record has, among as many as a part of the budget holds."""

    def __init__(self, budget: Budget) -> None:
        self._most = budget.total // _PART // TEXT_BYTES
        self._seen: set[int] = set()  # hashes of the names
        self._n_repeated, self._first = 0, ""

    def add(self, rows: ConvertedRows) -> None:
        """Add the names of a block; rows of one record, such as both strands, share a name."""
        names = rows.obs.get("name")
        if not isinstance(names, np.ndarray) or len(self._seen) >= self._most:
            return
        found = names[np.diff(rows.source_row, prepend=-1) != 0].tolist()
        keys = list(map(hash, found))
        different = set(keys)
        if len(different) < len(keys) or not self._seen.isdisjoint(different):
            for name, key in zip(found, keys, strict=True):
                if key in self._seen and name not in ("", "."):
                    self._first = self._first if self._n_repeated else name
                    self._n_repeated += 1
                self._seen.add(key)
        self._seen |= different

    def notes(self) -> list[str]:
        """A line about repeated names, if there are any."""
        if not self._n_repeated:
            return []
        among = f" (among the first {self._most:,})" if len(self._seen) >= self._most else ""
        words = "row has" if self._n_repeated == 1 else "rows have"
        found = f"{self._n_repeated:,} {words} that of an earlier row{among}"
        return [f"names: {found}, the first is {shown(self._first)}"]
