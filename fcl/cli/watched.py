"""What a command does while it learns: show, log, listen to signals."""

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
from fcl.run.events import Compiled, Compiling, Event


def passes_view(lines: bool) -> View:
    """A table of the passes on a terminal; elsewhere, if ``lines``, a line for each pass."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return LiveView()
    return LineView() if lines else View()


@contextmanager
def watched(
    options: Mapping[str, Any],
    stop: Stop,
    view: View,
    listens: Callable[[Event], bool],
) -> Iterator[Callable[[Event], None]]:
    """Provide the ``progress`` callback of a run, and print the warnings of the run.

    Parameters
    ----------
    options : mapping
        Effective options of the command.
    stop : Stop
    view : View
        Shows each event; ``--log-json`` logs it, too.
    listens : callable
        Whether from this event on a signal only asks the run to stop.
    """
    with ExitStack() as stack:
        stack.enter_context(view)
        log = None
        if options["log_json"] is not None:
            log = stack.enter_context(JsonLog(options["log_json"], options))

        said: set[type] = set()  # a job compiles kernels more than once, which is said once

        def progress(event: Event) -> None:
            stop.listening |= listens(event)
            if not isinstance(event, Compiling | Compiled) or type(event) not in said:
                view(event)
            said.add(type(event))
            if log is not None:
                log(event)

        stack.enter_context(warnings.catch_warnings())
        for category in (ConvergenceWarning, ScaleWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _say_warning  # type: ignore[assignment]
        yield progress


def _say_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    messages.say(f"warning: {message}")
