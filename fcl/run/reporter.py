"""Callbacks of a run: they get its events, and may end it, without ever losing its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from fcl.errors import StopTraining
from fcl.run.bar import BarView, Progress, on_event
from fcl.run.events import Event
from fcl.run.reasons import StopReason

Result = TypeVar("Result")


class Reporter:
    """Passes the events of a run to ``progress``, which may end the run.

    ``progress`` ends it by returning False or raising :class:`fcl.StopTraining`. Any other exception of a
    callback ends it, too, and is raised again by :meth:`finish`, when checkpoint and result are safe. An
    exception before there is anything to keep is raised at once; a request to stop is honoured once there
    is a model.

    should_stop : polled; True ends the run.
    """

    def __init__(
        self, progress: Progress | None, should_stop: Callable[[], bool] | None = None
    ) -> None:
        self._tell = on_event(progress)
        self._ends = self.guarded(should_stop)
        self._has_model = False
        self._asked = False
        #: the exception of a callback, after which no callback is called any more
        self.error: Exception | None = None

    def report(self, event: Event) -> None:
        """Pass an event on."""
        self._has_model |= event.is_progress
        answer = self._call(self._tell, event)
        # only False: most functions return None
        self._asked |= isinstance(answer, bool | np.bool) and not answer

    def next_run(self) -> None:
        """Begin a further run: a request to stop that came earlier is honoured once it has a model."""
        self._has_model = False

    def should_stop(self) -> bool:
        """Whether a callback asks for the end of the run."""
        return self._ends() or (self._asked and self._has_model)

    def cause(self, reason: StopReason) -> StopReason:
        """The reason of the end, which names ``progress`` if that asked for it."""
        by_callback = self._asked and reason is StopReason.INTERRUPTED
        return StopReason.CALLBACK if by_callback else reason

    def guarded(self, poll: Callable[[], bool] | None) -> Callable[[], bool]:
        """A function that calls ``poll``; it returns False after an exception, which ends the run."""
        return lambda: poll is not None and bool(self._call(poll))

    def finish(self, result: Result) -> Result:
        """Return the result of the run, or raise the exception of a callback with it as ``result``."""
        if self.error is None:
            return result
        with suppress(AttributeError):  # an exception with slots
            self.error.result = result  # type: ignore[attr-defined]
        raise self.error from None

    @contextmanager
    def explained(self, ended: str = "the run before there was a model") -> Iterator[None]:
        """Raise a callback's exception in place of the KeyboardInterrupt of a run without a result.

        Closes a bar in any case.  ended : what a callback ended, and when.
        """
        try:
            yield
        except KeyboardInterrupt:
            if self.error is not None:
                self.finish(None)
            if self._asked:
                raise StopTraining(f"progress ended {ended}") from None
            raise
        finally:
            if isinstance(self._tell, BarView):
                self._tell.close()

    def _call(self, callback: Callable[..., Any], *args: Any) -> Any:
        if self.error is not None:
            return None
        try:
            return callback(*args)
        except StopTraining:
            self._asked = True
        except Exception as error:
            if not self._has_model:
                raise
            self.error, self._asked = error, True
        return None
