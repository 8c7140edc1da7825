"""What ``fcl-train`` does while it trains, at one C or along a path: show, log, listen to signals."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from fcl.cli.common import messages
from fcl.cli.progress import JsonLog, LineView, LiveView, View
from fcl.cli.signals import Stop
from fcl.errors import ConvergenceWarning, ScaleWarning
from fcl.run.events import Event


def effective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that describe a run."""
    return {name: value for name, value in options.items() if name not in ("plan", "warmup")}


def passes_view(options: Mapping[str, Any], lines: bool) -> View:
    """A table of the passes on a terminal; elsewhere, if ``lines``, a line for each pass."""
    if options["quiet"]:
        return View()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return LiveView()
    return LineView() if lines else View()


@contextmanager
def watched(
    options: Mapping[str, Any],
    stop: Stop,
    view: View,
    listening_from: type[Event] | tuple[type[Event], ...],
) -> Iterator[Callable[[Event], None]]:
    """Provide the ``progress`` callback of a run, and print the warnings of the run.

    Parameters
    ----------
    options : mapping
        Effective options of the command.
    stop : Stop
        From the first event of ``listening_from``, a signal only asks the run to stop.
    view : View
        Shows each event; ``--log-json`` logs it, too.
    listening_from : class of events, or several
    """
    with ExitStack() as stack:
        stack.enter_context(view)
        log = None
        if options["log_json"] is not None:
            log = stack.enter_context(JsonLog(options["log_json"], effective(options)))

        def progress(event: Event) -> None:
            stop.listening |= isinstance(event, listening_from)
            view(event)
            if log is not None:
                log(event)

        stack.enter_context(warnings.catch_warnings())
        for category in (ConvergenceWarning, ScaleWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _say_warning  # type: ignore[assignment]
        yield progress


def _say_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    messages.say(f"warning: {message}")
