"""What notebooks show of a path: its progress on a bar, and its points as HTML."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from fcl.run.events import PointDone
from tests.path.conftest import split, train_path


class Bar:
    """The methods of tqdm's bars that training uses."""

    made: list[Bar]

    def __init__(self, total: float | None) -> None:
        assert total is None
        self.n, self.closed = 0.0, 0
        self.shown: list[dict[str, Any]] = []
        self.made.append(self)

    def update(self, n: float) -> None:
        self.n += n

    def set_postfix(self, **values: Any) -> None:
        self.shown.append(values)

    def close(self) -> None:
        self.closed += 1


class Cells(HTMLParser):
    """The texts of headings and cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[tuple[str, str]] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.texts.append((self.lasttag, data))


def test_a_bar_counts_the_points_of_folds_and_of_all_rows() -> None:
    Bar.made = []
    data, _ = split()
    events: list[object] = []
    choices: list[Callable[[Any], None] | Any] = [Bar, Bar(None), events.append]
    for progress in choices:
        train_path(data, points=2, cv=2, progress=progress)
    done = sum(isinstance(event, PointDone) for event in events)
    assert done >= 4 and len(Bar.made) == 2
    for bar in Bar.made:
        assert bar.n == done and bar.closed == 1
        parts = list(dict.fromkeys(shown.get("part", "") for shown in bar.shown))
        assert parts == ["", "fold 1 of 2", "fold 2 of 2"]
        assert {"C", "gap"} == bar.shown[-1].keys()


def test_a_bar_is_closed_when_a_path_fails() -> None:
    Bar.made = []
    data, valid = split()

    def stop() -> bool:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        train_path(data, valid=valid, progress=Bar, should_stop=stop)
    assert Bar.made[0].closed == 1


def test_points_as_html() -> None:
    data, valid = split()
    path = train_path(data, valid=valid, points=3)
    texts = Cells(path._repr_html_()).texts
    (chosen,) = (("td", fact.text) for fact in path.facts() if fact.name == "chosen")
    for point in path.points:
        tag = "th" if point is path.chosen else "td"
        assert (tag, f"{point.C:.4g}") in texts and (tag, f"{point.score:.6g}") in texts
    assert ("th", "AUPRC") in texts and chosen in texts
    assert ("td", path.chosen.model.describe(1)[0].feature) in texts
