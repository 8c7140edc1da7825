"""Two runs of one job by drivers that take other steps."""

from __future__ import annotations

from typing import Any

#: The figures of the null model that are the same to the last bit.
PRICED = ("objective", "bound", "gap", "max_violation", "priced", "active")
#: Relative differences below this are ignored.
ROUNDING = 1e-12


def same_optimum(one: Any, other: Any) -> None:
    """Check that each bound is below the other's objective, and the bits of the null model."""
    for a, b in ((one, other), (other, one)):
        assert a.converged, a.message
        assert a.certificate.bound <= b.certificate.objective * (1.0 + ROUNDING)
    first, second = (run.model.history[0] for run in (one, other))
    assert [first[name] for name in PRICED] == [second[name] for name in PRICED]
