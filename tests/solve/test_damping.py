"""The damping from step to step."""

from __future__ import annotations

import pytest

from fcl.solve.damping import Damping


@pytest.mark.parametrize(
    ("before", "beta", "raised"),
    [
        (0.0, 0.2, 1e-3),
        (1e-3, 0.2, 1e-2),
        (0.5, 0.2, 1.0),
        (0.0, 0.5, 0.0),
        (1e-2, 0.5, 1e-2),
        (1e-2, 1.0, 1e-3),
        (1e-3, 1.0, 0.0),
    ],
)
def test_a_cut_step_raises_and_a_whole_one_lowers(
    before: float, beta: float, raised: float
) -> None:
    for careful in (False, True):
        after = Damping(before, careful).after(beta)
        assert after.raised == pytest.approx(raised) and after.careful == careful


def test_failures_raise_the_share_then_ask_for_care_then_leave_nothing() -> None:
    damping, seen = Damping(), []
    while not damping.exhausted:
        damping = damping.after_failure()
        seen.append((damping.raised, damping.careful))
    shares = [pytest.approx(10.0**k) for k in (-3, -2, -1, 0)]
    assert seen == [*((share, False) for share in shares), (1.0, True)]
    assert not damping.with_care(False).exhausted
    assert Damping(1.0, True, most=10.0).after_failure().raised == 10.0
