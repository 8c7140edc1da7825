"""Online learning as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fcl.cli.certify_report import ball_text
from fcl.cli.common import messages
from fcl.cli.progress import View, validation_text
from fcl.cli.report import aligned, certificate_items, hashing_items, strongest_lines
from fcl.drivers.events import Event
from fcl.drivers.online.progress import OnlineProgress
from fcl.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from fcl.drivers.online.train import OnlineResult
    from fcl.online import Learner

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


def _clipped(learner: Learner) -> list[tuple[str, str]]:
    """How many weights are at the ends of their range; nothing for tables without a limit."""
    from fcl.online.ogd import Ogd
    from fcl.online.vectors import VectorLearner

    if not isinstance(learner, VectorLearner) or math.isinf(learner.largest):
        return []
    if learner.grid is None:
        return [("table", f"{counted(learner.clipped, 'weight')} at +-{learner.largest:g}")]
    grid, largest = learner.grid, learner.largest * learner.grid.step
    words = f"{grid.text}, in steps of 2^-{grid.m}; {counted(learner.clipped, 'weight')} at +-{largest:g}"
    if learner.clipped and largest < grid.largest:
        words += ", the ends of the range: a larger --max-weight has room for more"
    elif learner.clipped and grid.m:
        words += f", the ends of the range: --table q{grid.n + 1}.{grid.m - 1} has room for more"
    found = [("table", words)]
    if isinstance(learner, Ogd) and learner.options.gamma is not None:
        bits = f"{learner.mean_bits:.3g} bits a weight in a table of variable width"
        found.append(("precision", f"{bits}, {grid.bits} in this one"))
    return found


def result_lines(result: OnlineResult, written: str, memory: int, top: int = 10) -> list[str]:
    """The summary at the end of learning."""
    model = result.model
    steps = ", ".join(f"{step} {format_seconds(spent)}" for step, spent in result.seconds.items())
    proof = certificate_items(model.certificate, model.n_active)
    if result.uncertified is not None:
        proof[0] = ("certificate", f"not certified: {result.uncertified}")
    if result.optimality is not None and model.options["radius"] is not None:
        proof.append(("ball", ball_text(result.optimality)))
    items = [
        ("stopped", result.message),
        *proof,
        ("intercept", f"{model.intercept:+.6g}"),
        ("C", f"{model.C:.8g} (alpha {model.alpha:.8g})"),
        ("rate", f"{model.options['rate']:.6g}"),
        *_clipped(result.learner),
        *hashing_items(model.family),
        ("time", steps),
        ("memory", f"peak {format_bytes(result.peak_memory)} of {format_bytes(memory)}"),
        ("model", written),
    ]
    lines = aligned(items)
    if strongest := strongest_lines(model, top):
        lines += ["strongest features:", *strongest]
    return lines
