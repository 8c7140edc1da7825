"""Events as dictionaries, and the live view."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from rich.console import Console

from fcl.cli.certify import _say as say_of_certify
from fcl.cli.common import messages
from fcl.cli.progress import BlockLines, LineView, LiveView, OnlineLines, PathView, View
from fcl.model import Certificate
from fcl.run import (
    BlockVisited,
    Compiled,
    Compiling,
    Event,
    Jobs,
    Measured,
    OnlineProgress,
    PassDone,
    PathStarted,
    PointDone,
    PointStarted,
    Prepared,
    Started,
    StepProgress,
    Stopped,
    Validated,
    Workers,
)
from tests.cli.conftest import plan_of


def a_pass(**changes: float) -> PassDone:
    values = {
        "number": 2, "seconds": 1.0, "objective": 9.0, "bound": -math.inf, "gap": math.inf,
        "max_violation": 3.0, "priced": 1000, "cached": 20, "active": 5, "cache_bytes": 50,
        "cache_capacity": 100, "evicted": 7, "rows_per_second": 1e6, "memory_bytes": 1 << 20,
        "beta": 1.0,
    }  # fmt: skip
    return PassDone(**(values | changes))  # type: ignore[arg-type]


def test_events_are_json_without_infinities() -> None:
    values = a_pass().to_dict()
    assert values["event"] == "PassDone" and values["bound"] is None and values["gap"] is None
    assert values["validation"] is None and values["evicted"] == 7
    json.dumps(values, allow_nan=False)
    with pytest.raises(FrozenInstanceError):
        a_pass().number = 3  # type: ignore[misc]


def test_live_view(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    view = LiveView()
    with view:
        driver.train(None, None, memory=1 << 30, progress=view, should_stop=lambda: False)
        messages.say("a message [in brackets]")
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    for text in ("elapsed", "objective", "12.5", "gap", "0.008", "AUPRC", "0.7500", "left",
                 "stopped: tolerance", "a message [in brackets]", "600 rows"):  # fmt: skip
        assert text in shown, text
    assert messages.write == messages.to_stderr
    assert "\x1b[?25h" in shown  # the cursor is back


def test_lines_and_live_view_show_the_same() -> None:
    from fcl.cli.progress import pass_items

    names = [name for name, _ in pass_items(a_pass(), {"auprc": 0.5})]
    assert names == [
        "objective", "bound", "gap", "violation", "active", "cached", "priced", "cache", "rows/s",
        "AUPRC", "memory",
    ]  # fmt: skip
    assert dict(pass_items(a_pass(), None))["cache"] == "50% (evicted 7)"
    assert Prepared(1.0, 2.0).to_dict() == {
        "event": "Prepared", "seconds": 1.0, "rows_per_second": 2.0,
    }  # fmt: skip


def test_the_problem_in_one_line() -> None:
    from fcl.cli.progress import started_line

    def line(options: dict[str, Any]) -> str:
        return started_line(Started(None, options, 600, 1000, 0.5, 0.25, 150))

    usual = "600 rows (150 positive), 1,000 features, C 0.5 = alpha 0.25"
    assert line({}) == line({"l1_ratio": 1.0, "class_weight": None}) == usual
    mixed = {"l1_ratio": 0.5, "standardize": True, "class_weight": (("a", 1.0), ("b", 2.5))}
    assert line(mixed) == f"{usual}, l1_ratio 0.5, standardized, class weights 'a': 1, 'b': 2.5"
    assert line({"class_weight": "balanced"}) == f"{usual}, class weights balanced"


STARTED = Started(None, {}, 600, 1000, 0.5, 0.25, 150)
PLAN = plan_of(1 << 30)
BLOCK = {
    "number": 5, "loss": 0.5, "error": 0.25, "valid_loss": 0.75, "valid_error": None, "seconds": 2.0,
    "n_blocks": 4, "visits_of_round": 0, "time_left": 90.0,
}  # fmt: skip
ONLINE = {
    "rows": 1000, "number": 2, "seen": True, "loss": 0.5, "loss_since": 0.25, "constant_loss": 0.75,
    "active": 3, "norm": 1.5, "rows_per_second": 2000.0, "memory_bytes": 1 << 20, "seconds": 1.0,
    "validation": {"auprc": 0.5, "n_rows": 9},
}  # fmt: skip
POINT = {
    "number": 2, "of": 9, "C": 0.5, "alpha": 0.1, "active": 7, "objective": 9.0, "gap": 1e-3,
    "seconds": 2.0, "passes": 4, "score": 0.5, "metric": "auprc",
}  # fmt: skip
CERTIFICATE = Certificate(12.5, 12.4, 0.008, 1.01, 100, passes=3)
PASS = (
    "objective 9  bound -inf  gap inf  violation 3  active 5  cached 20  priced 1,000  "
    "cache 50% (evicted 7)  rows/s 1,000,000  memory 1 MiB"
)
#: each event -> what each view writes
MESSAGES: list[tuple[Event, dict[str, list[str]]]] = [
    (STARTED, {
        "lines": ["fcl: 600 rows (150 positive), 1,000 features, C 0.5 = alpha 0.25"],
        "path": ["fcl: 600 rows (150 positive), 1,000 features"],
    }),
    (Started(PLAN, {}, 1, 1000, 0.5, 0.25, None, 50), {
        "lines": [
            "fcl: 1 row, 50 features sampled each pass, certified for what a pass priced, "
            "C 0.5 = alpha 0.25",
            "fcl: memory 1 GiB: interpreter 2 MiB, column cache 1 MiB",
        ],
        "path": ["fcl: 1 row, 50 features sampled each pass, certified for what a pass priced"],
    }),
    (Compiling(25.0), {
        "lines": ["fcl: compiling kernels, once, about 25 s"],
        "path": ["fcl: compiling kernels, once, about 25 s"],
        "certify": ["fcl: compiling kernels, once, about 25 s"],
    }),
    (Compiled(12.0), {
        "lines": ["fcl: kernels compiled in 12.0 s; later runs load them"],
        "path": ["fcl: kernels compiled in 12.0 s; later runs load them"],
    }),
    (Prepared(2.0, 300.0), {"lines": ["fcl: read in 2.00 s, 300 rows/s"]}),
    (StepProgress(3, "pricing", 0.4, 7.0), {
        "lines": ["pass 3, pricing: 40%"],
        "path": ["pass 3, pricing: 40%"],
        "certify": ["fcl: pricing, 40 %"],
    }),
    (StepProgress(0, "reading", 0.4, 7.0), {
        "lines": ["reading: 40%"], "path": ["reading: 40%"], "certify": ["fcl: reading, 40 %"],
    }),
    (a_pass(), {"lines": [f"pass 2     1.00 s  {PASS}"], "path": [f"pass 2     1.00 s  {PASS}"]}),
    (Validated(2, {"auprc": 0.5}), {}),
    (Workers(3, 12, 8, 70 << 20), {}),
    (Stopped("tolerance", "why", CERTIFICATE, {}, 1), {}),
    (Jobs(2, 1, 9, 3), {"path": ["2 of 9 jobs done; running: 1 job on 3 workers"]}),
    (PathStarted("fold 2 of 5"), {}),
    (PointStarted(1, 9, 0.5, 0.1), {}),
    (PointDone(**POINT), {  # type: ignore[arg-type]
        "path": [
            "point 2 of 9  C 0.5  active 7  gap 0.001  AUPRC 0.5  passes 4  2.00 s",
        ],
    }),
    (PointDone(**POINT | {"part": "fold 1 of 5", "score": None}), {  # type: ignore[arg-type]
        "path": [
            "fold 1 of 5, point 2 of 9  C 0.5  active 7  gap 0.001  passes 4  2.00 s",
        ],
    }),
    (BlockVisited(**BLOCK | {"visits_of_round": 2}), {  # type: ignore[arg-type]
        "blocks": [
            "round 1, visit 2, block 1 of 4: loss 0.5, validation loss 0.75, 2.00 s, 90.0 s left",
        ],
    }),
    (BlockVisited(**BLOCK), {  # type: ignore[arg-type]
        "blocks": [
            "visit 2, block 1 of 4: loss 0.5, validation loss 0.75, 2.00 s, 90.0 s left",
        ],
    }),
    (OnlineProgress(**ONLINE), {  # type: ignore[arg-type]
        "online": [
            "      rows       loss since last   constant     active        |w|     rows/s     memory "
            "held out",
            "     1,000        0.5       0.25       0.75          3        1.5      2,000      1 MiB "
            "AUPRC 0.5000 seen",
        ],
    }),
]  # fmt: skip
VIEWS: dict[str, Callable[[], Callable[[Event], None]]] = {
    "lines": LineView,
    "path": lambda: PathView(LineView()),
    "blocks": BlockLines,
    "online": OnlineLines,
    "certify": lambda: say_of_certify,
    "quiet": View,
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_message(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(messages, "write", said.append)
    for event, expected in MESSAGES:
        said.clear()
        VIEWS[view]()(event)
        assert said == expected.get(view, []), (view, event)


def test_every_event_has_its_messages() -> None:
    def below(kind: type) -> set[type]:
        return {kind} | {found for each in kind.__subclasses__() for found in below(each)}

    events = {kind for kind in below(Event) if kind.__module__.startswith("fcl.")} - {
        Event,
        Measured,
    }
    assert events == {type(event) for event, _ in MESSAGES}
    assert all(len(repr(event)) < 400 and "Plan(" not in repr(event) for event, _ in MESSAGES)


def test_signs_of_life_within_a_long_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(messages, "write", lines.append)
    monkeypatch.setattr(messages, "command", "fcl")
    view = LineView()
    view(Compiling(25.0))
    for seconds in range(10):
        view(StepProgress(0, "reading", seconds / 10, seconds))
    view(Compiled(12.0))
    view(a_pass(number=0, seconds=30.0))
    view(StepProgress(1, "pricing", 0.25, 31.0))  # the line of the pass has just come
    view(StepProgress(1, "pricing", 0.5, 37.0))
    assert [line for line in lines if "objective" not in line] == [
        "fcl: compiling kernels, once, about 25 s",
        "reading: 0%",
        "reading: 50%",
        "fcl: kernels compiled in 12.0 s; later runs load them",
        "pass 1, pricing: 50%",
    ]


def test_the_live_view_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "write", lambda text: None)
    view = LiveView()

    def shown() -> str:
        terminal = Console(file=io.StringIO(), width=120)
        terminal.print(view.render())
        return terminal.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    view(Compiling(25.0))
    assert "compiling kernels, once, about 25 s" in shown()
    view(Compiled(12.0))
    assert "compiling" not in shown()
    view(StepProgress(3, "pricing", 0.4, 7.0))
    assert "pass 3, pricing: 40%" in shown()
