"""A small problem for each test."""

from __future__ import annotations

import pytest
from waves import Problem


@pytest.fixture
def problem() -> Problem:
    return Problem()
