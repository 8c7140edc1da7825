"""Online learning as lines of text."""

from __future__ import annotations

from fcl.cli.common import messages
from fcl.cli.progress import View
from fcl.facts import validation_text
from fcl.run.events import Event, OnlineProgress
from fcl.units import format_bytes

HEAD = ("rows", "loss", "since last", "constant", "active", "|w|", "rows/s", "memory")


class OnlineLines(View):
    """A table with one line for each report of progress."""

    def __init__(self) -> None:
        self._headed = False

    def show(self, event: Event) -> None:
        if not isinstance(event, OnlineProgress):
            return
        if not self._headed:
            self._headed = True
            words = [f"{word:>10}" for word in HEAD]
            messages.write(" ".join([*words, "held out" if event.validation else ""]).rstrip())
        cells = (
            f"{event.rows:,}",
            f"{event.loss:.5g}",
            f"{event.loss_since:.5g}",
            f"{event.constant_loss:.5g}",
            f"{event.active:,}",
            f"{event.norm:.4g}",
            f"{event.rows_per_second:,.0f}",
            format_bytes(event.memory_bytes),
        )
        more = f"{validation_text(event.validation)} {'seen' * event.seen}"
        messages.write(" ".join([*(f"{cell:>10}" for cell in cells), more]).rstrip())
