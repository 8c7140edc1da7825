"""A ``should_stop`` for tests."""

from __future__ import annotations


class After:
    """Returns True from the k-th call on, and counts the calls."""

    def __init__(self, k: int = 1 << 30) -> None:
        self.k, self.calls = k, 0

    def __call__(self) -> bool:
        self.calls += 1
        return self.calls > self.k
