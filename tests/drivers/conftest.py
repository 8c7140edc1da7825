"""What tests of several drivers share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fcl.drivers import plan


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the smallest cache have room for so few columns, however small these are."""

    def limit(columns: int) -> None:
        for name in ("MIN_COLUMNS", "LEAST_COLUMNS", "MAX_COLUMNS", "MAX_LISTED"):
            monkeypatch.setattr(plan, name, columns)

    return limit
