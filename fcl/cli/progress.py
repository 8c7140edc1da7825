"""What a command shows and logs while it learns: lines, a live view, and JSON lines in a file."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fcl.cli.common import messages
from fcl.cli.signals import Stop
from fcl.errors import ConvergenceWarning, OutputExistsError, ScaleWarning, reason
from fcl.facts import class_weight_text, penalty_texts, validation_text
from fcl.memory.ledger import in_words
from fcl.plain import plain
from fcl.run.events import (
    BlockVisited,
    Compiled,
    Compiling,
    Event,
    Jobs,
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
from fcl.store import names_beside
from fcl.units import counted, format_bytes, format_gap, format_seconds, score_text, score_title

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

#: Seconds without a line after which a :class:`LineView` shows the progress of the pass.
PROGRESS_LINE_EVERY = 5.0
#: The columns of :class:`OnlineLines`.
_ONLINE_HEAD = ("rows", "loss", "since last", "constant", "active", "|w|", "rows/s", "memory")


def pass_items(
    event: PassDone, validation: Mapping[str, Any] | None, workers: Workers | None = None
) -> list[tuple[str, str]]:
    """The items of a pass as (name, text), in display order; with the latest scores and workers."""
    fill = event.cache_bytes / event.cache_capacity if event.cache_capacity else 0.0
    items = [
        ("objective", f"{event.objective:.8g}"),
        ("bound", f"{event.bound:.8g}"),
        ("gap", format_gap(event.gap)),
        ("violation", f"{event.max_violation:.4g}"),
        ("active", f"{event.active:,}"),
        ("cached", f"{event.cached:,}"),
        ("priced", f"{event.priced:,}" + (" sampled" if "sampled" in event.scope else "")),
        ("cache", f"{fill:.0%}" + (f" (evicted {event.evicted:,})" if event.evicted else "")),
        ("rows/s", f"{event.rows_per_second:,.0f}"),
        ("memory", format_bytes(event.memory_bytes)),
    ]
    if text := validation_text(validation):
        name, _, value = text.partition(" ")
        items.insert(-1, (name, value))
    if (loss := (validation or {}).get("loss")) is not None:  # by which --patience decides
        items.insert(-1, ("held-out loss", f"{loss:.6g}"))
    if event.busy:
        items.append(("busy", busy_text(event.busy)))
    if workers is not None:
        items.append(("workers", workers_text(workers)))
    if event.time_left is not None:
        items.append(("left", format_seconds(event.time_left)))
    return items


def busy_text(busy: Mapping[str, float]) -> str:
    """Shares of a core in words, such as ``trainer 98%, writers 75% 12%``."""
    writers = " ".join(f"{share:.0%}" for name, share in busy.items() if name.startswith("writer"))
    return f"trainer {busy.get('trainer 0', 0.0):.0%}, writers {writers}"


def workers_text(event: Workers) -> str:
    """The state of a cluster, such as ``3 (12 threads), 8 shards, 70 MiB moved``."""
    return (
        f"{event.workers} ({counted(event.threads, 'thread')}), {counted(event.shards, 'shard')}, "
        f"{format_bytes(event.moved)} moved"
    )


def problem_text(event: Started) -> str:
    """The numbers of rows and features in words."""
    positive = "" if event.n_positive is None else f" ({event.n_positive:,} positive)"
    features = f"{counted(event.n_features, 'feature')}"
    if event.n_sampled is not None:
        sampled = counted(event.n_sampled, "feature")
        features = f"{sampled} sampled each pass, certified for what a pass priced"
    return f"{counted(event.n_rows, 'row')}{positive}, {features}"


def started_line(event: Started) -> str:
    """The problem in one line."""
    options = event.options
    unusual = [
        *penalty_texts(options),
        "standardized" * bool(options.get("standardize")),
        class_weight_text(options.get("class_weight")),
    ]
    strength = f"C {event.C:.6g} = alpha {event.alpha:.6g}"
    return ", ".join(filter(None, [problem_text(event), strength, *unusual]))


def compiling_line(event: Compiling) -> str:
    """The start of compilation in one line, with its estimated time."""
    return f"compiling kernels, once, about {event.seconds:.0f} s"


def progress_line(event: StepProgress) -> str:
    """The completed share of a step: ``pass 3, pricing: 40%``."""
    step = event.step if event.step == "reading" else f"pass {event.number}, {event.step}"
    return f"{step}: {event.share:.0%}"


def say(event: Event) -> None:
    """Write the messages that every view but the quiet one shows for an event."""
    match event:
        case Started():
            if event.driver_in_words:
                messages.say(event.driver_in_words)
            messages.say(started_line(event))
            if event.plan is not None:
                uses = sorted(event.plan.parts, key=lambda part: part[1], reverse=True)
                more = ", less for other uses (--plan lists all)" if len(uses) > 3 else ""
                words = f"{in_words(uses[:3])}{more}"
                messages.say(f"memory {format_bytes(event.plan.budget)}: {words}")
        case Compiling():
            messages.say(compiling_line(event))
        case Compiled():
            spent = format_seconds(event.seconds)
            messages.say(f"kernels compiled in {spent}; later runs load them")
        case Prepared():
            spent = format_seconds(event.seconds)
            messages.say(f"read in {spent}, {event.rows_per_second:,.0f} rows/s")


class View:
    """A context manager that shows nothing (``--quiet``); the base of the other views."""

    def __init__(self) -> None:
        self.validation: Mapping[str, Any] | None = None  # the latest result
        self.workers: Workers | None = None  # the latest state of a cluster

    def __enter__(self) -> View:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassDone | Validated) and event.validation is not None:
            self.validation = event.validation
        if isinstance(event, Workers):
            self.workers = event
        self.show(event)

    def show(self, event: Event) -> None:
        """Show one event."""


class LineView(View):
    """One line for each pass, and one every few seconds within a long pass."""

    def __init__(self) -> None:
        super().__init__()
        self._progress_from = 0.0  # earliest time of a progress line, in seconds since the start

    def show(self, event: Event) -> None:
        say(event)
        if isinstance(event, StepProgress) and event.seconds >= self._progress_from:
            self._progress_from = event.seconds + PROGRESS_LINE_EVERY
            messages.write(progress_line(event))
        elif isinstance(event, PassDone):
            found = pass_items(event, self.validation, self.workers)
            items = "  ".join(f"{name} {text}" for name, text in found)
            messages.write(f"pass {event.number:<3} {format_seconds(event.seconds):>8}  {items}")
            self._progress_from = event.seconds + PROGRESS_LINE_EVERY


class LiveView(View):
    """A table that is redrawn in place; messages go above it."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Live | None = None
        self._since = time.monotonic()
        self._status = "reading"
        self._compiling = ""
        self._last: PassDone | None = None

    def __enter__(self) -> LiveView:
        # late, and only for terminals: rich takes 0.1 s to import
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(stderr=True)
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=4)
        self._live.start()
        messages.write = lambda text: console.print(Text(text))
        return self

    def __exit__(self, *error: object) -> None:
        messages.write = messages.to_stderr
        if self._live is not None:
            self._live.stop()

    def show(self, event: Event) -> None:
        say(event)
        match event:
            case Started():
                self._status = "preparing the rows"
            case Compiling():
                self._compiling = compiling_line(event)
            case Compiled():
                self._compiling = ""
            case StepProgress():
                self._status, self._compiling = progress_line(event), ""
            case Prepared():
                self._status = "first pass"
            case PassDone():
                self._last = event
                self._status = f"after pass {event.number}"
            case Stopped():
                self._status = f"stopped: {event.reason}"
                # the refresh thread redraws the table; only the end is drawn at once
                if self._live is not None:
                    self._live.refresh()

    def render(self) -> Table:
        """The current table; the refresh thread calls this, so the clock runs between passes."""
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column(style="dim")
            table.add_column(justify="right")
        elapsed = format_seconds(time.monotonic() - self._since)
        items = [("elapsed", elapsed), ("", self._compiling or self._status)]
        if self._last is not None:
            items += pass_items(self._last, self.validation, self.workers)
        items += [("", "")] * (-len(items) % 3)
        for i in range(0, len(items), 3):
            table.add_row(*(text for item in items[i : i + 3] for text in item))
        return table


class PathView(View):
    """A line for each point; another view may show the passes between them."""

    def __init__(self, inner: View | None = None) -> None:
        super().__init__()
        self._inner = inner or View()
        self._n_done = 0  # jobs on a cluster

    def __enter__(self) -> PathView:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def show(self, event: Event) -> None:
        if isinstance(event, PointDone):
            messages.write(point_line(event))
        if isinstance(event, Jobs) and event.done > self._n_done:
            self._n_done = event.done
            messages.write(jobs_line(event))
        if isinstance(event, Started):
            messages.say(problem_text(event))
        if isinstance(event, PathStarted | PointStarted | PointDone | Jobs | Started):
            return
        if not isinstance(event, Prepared):  # once for each fold
            self._inner(event)


def point_line(event: PointDone) -> str:
    """A finished point in one line."""
    part = f"{event.part}, " if event.part else ""
    score = (
        "" if event.score is None else f"  {score_title(event.metric)} {score_text(event.score)}"
    )
    return (
        f"{part}point {event.number} of {event.of}  C {event.C:.4g}  active {event.active:,}  "
        f"gap {format_gap(event.gap)}{score}  passes {event.passes}  {format_seconds(event.seconds)}"
    )


def jobs_line(event: Jobs) -> str:
    """The jobs on a cluster in one line."""
    running = f"{counted(event.running, 'job')} on {counted(event.workers, 'worker')}"
    return f"{event.done} of {counted(event.sent, 'job')} done; running: {running}"


class OnlineLines(View):
    """A table with one line for each report of progress."""

    def __init__(self) -> None:
        self._headed = False

    def show(self, event: Event) -> None:
        if not isinstance(event, OnlineProgress):
            return
        if not self._headed:
            self._headed = True
            words = [f"{word:>10}" for word in _ONLINE_HEAD]
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


class BlockLines(View):
    """One line for each visit of a block."""

    def show(self, event: Event) -> None:
        if isinstance(event, BlockVisited):
            from fcl.stagewise.describe import place, scores_text

            times = f"{format_seconds(event.seconds)}, {format_seconds(event.time_left)} left"
            where = place(event.number, event.n_blocks, event.visits_of_round)
            messages.write(f"{where}: {scores_text(asdict(event))}, {times}")


class JsonLog:
    """``--log-json``: one JSON object per line, flushed so that other programs can follow the file.

    The first line holds the effective options. The file is created after the first pass, so that a run
    rejected for its input creates no log and leaves an older one unchanged. If another process has taken
    the name by then, and ``options`` do not say ``overwrite``, the log gets an unused name beside it.
    """

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._path = path
        self._options = options
        self._file: IO[str] | None = None
        self._failed = False
        self._early: list[dict[str, Any]] = []  # events before the file is created

    def __enter__(self) -> JsonLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # closing retries a failed line, which was reported before
                self._file.close()

    def __call__(self, event: Event) -> None:
        if self._failed:
            return
        try:
            if self._file is None:
                self._early.append({"time": _now(), **event.to_dict()})
                if not event.is_progress:
                    return
                self._file = self._open()
                options = {"event": "Options", "options": plain(self._options)}
                self._write({"time": self._early[0]["time"], **options})
                for record in self._early:
                    self._write(record)
                return
            self._write({"time": _now(), **event.to_dict()})
        except OSError as error:
            # a full disk must not end a run of hours; the training itself needs no log
            self._failed = True
            messages.say(f"warning: {self._path}: {reason(error)}; the log ends here")

    def _open(self) -> IO[str]:
        if self._options.get("overwrite"):
            return open(self._path, "w", encoding="utf-8")
        wanted = Path(os.path.realpath(self._path))  # a link may lead to a name that is free
        for path in chain([wanted], names_beside(Path(self._path))):
            with suppress(FileExistsError):
                file = open(path, "x", encoding="utf-8")  # noqa: SIM115
                if path != wanted:
                    error = OutputExistsError(self._path, str(path))
                    messages.say(f"warning: {error}")
                return file
        raise AssertionError("names without end")

    def _write(self, values: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(values, allow_nan=False) + "\n")
        self._file.flush()


def _now() -> float:
    return round(time.time(), 3)


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

    options : effective ones of the command.
    listens : whether from this event on a signal only asks the run to stop.
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
