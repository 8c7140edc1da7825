"""Progress on a callback and on a bar."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from fcl.model import Certificate
from fcl.run.bar import on_event
from fcl.run.events import Event, PassDone, Started, StepProgress, Stopped


class Bar:
    """The methods of tqdm's bars that training uses."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, total: float = 0.0) -> None:
        self.total, self.n, self.closed = total, 0.0, 0
        self.shown: dict[str, Any] = {}
        self.made.append(self)

    def update(self, n: float) -> None:
        assert n > 0
        self.n += n

    def set_postfix(self, **values: Any) -> None:
        self.shown = values

    def close(self) -> None:
        self.closed += 1


def run(progress: Any, gaps: list[float], tol: float = 1e-4) -> None:
    report = on_event(progress)
    report(Started(None, {"tol": tol}, 10, 10, 1.0, 1.0))
    report(StepProgress(0, "pricing", 0.5, 1.0))
    for number, gap in enumerate(gaps):
        values = 2.0, 1.0, gap, 1.0, 10, 5, 1_234, 0, 0, 0, 1.0, 0, 1.0
        report(PassDone(number, 0.1, *values))
    report(Stopped("tolerance", "", Certificate(1, 1, 0, 1, 1), {}, 0))


@pytest.mark.parametrize("given", [Bar, Bar(total=100)])
def test_a_bar_shows_how_far_the_gap_has_fallen(given: Any) -> None:
    reached = []
    for gaps in ([1.0], [1.0, 0.1], [1.0, 1e-3, 0.5], [float("inf"), 1e-2, 1e-5]):
        progress = given if given is Bar else Bar(total=100)
        run(progress, gaps)
        bar = Bar.made[-1]
        assert bar.total == 100 and bar.closed == 1 and bar.shown["active"] == "1,234"
        reached.append(bar.n)
    assert reached == pytest.approx([0.0, 25.0, 75.0, 100.0])
    run(Bar(total=100), [1.0, 3.0], tol=2.0)
    assert Bar.made[-1].n == 100.0


def test_a_callback_gets_every_event() -> None:
    events: list[Event] = []
    run(events.append, [1.0, 0.1])
    assert [type(event).__name__ for event in events] == [
        "Started", "StepProgress", "PassDone", "PassDone", "Stopped",
    ]  # fmt: skip
    run(None, [1.0])
