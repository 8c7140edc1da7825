"""Events as dictionaries, and the live view."""

from __future__ import annotations

import io
import json
import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from rich.console import Console

from fcl.cli.common import messages
from fcl.cli.progress import LineView, LiveView
from fcl.drivers.events import Compiled, Compiling, PassDone, Prepared, Started, StepProgress


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
    for text in ("elapsed", "objective", "12.5", "gap", "8.00e-03", "AUPRC", "0.7500", "left",
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
