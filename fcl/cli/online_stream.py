"""Rows for ``fcl online`` from standard input: svmlight lines, which need not end."""

from __future__ import annotations

import os
import select
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import Interrupted, messages
from fcl.cli.signals import Stop
from fcl.errors import InputError
from fcl.memory.allowance import budget
from fcl.options.online import ONLINE_OPTIONS
from fcl.parallel import POLL

if TYPE_CHECKING:
    from fcl.drivers.online.stream import StreamBlock
    from fcl.model import Model

STDIN, NAME = "-", "standard input"
#: Options that need rows which can be counted or read again.
REFUSED = (
    "C",
    "block_rows",
    "offset",
    "passes",
    "plan",
    "valid_fraction",
    "weights",
    "x",
    "y",
)
#: Bytes of a read; text that waits is learnt once it has as many.
PIECE = 1 << 20
#: Bytes of the longest line.
LONGEST = 64 * PIECE
#: Share of the budget for text that waits; parsed rows take about ten times as much.
BUDGET_SHARE = 16


def check_stream(options: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Raise InputError for options that do not fit rows from standard input, or only these."""
    if options["data"] != STDIN:
        wrong = [given[name] for name in ("columns", "zero_based") if name in given]
        if wrong:
            raise InputError(
                f"{wrong[0]}: expected DATA - (standard input) beside it; leave it out"
            )
        return
    wrong = [given[name] for name in REFUSED if name in given]
    if wrong:
        advice = "give --alpha" if wrong[0] == "--C" else "leave it out, or convert the rows first"
        raise InputError(
            f"{wrong[0]}: {NAME} is read once, row by row, and has no known end; {advice}"
        )
    if options["class_weight"] == "balanced":
        raise InputError(
            f"--class-weight: expected a weight for each label, such as -1=1,1=20, got balanced: {NAME} "
            "has no known end, so that the rows of a label cannot be counted"
        )
    if options["columns"] is None and options["resume"] is None:
        raise click.UsageError("--columns is missing: the number of columns of standard input")


def stream_arguments(
    options: Mapping[str, Any], stop: Stop, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """The arguments of ``learn_stream`` for the rows of standard input and the options of learning."""
    if sys.stdin is None:
        raise InputError(f"{NAME} (-) is closed; expected a file or a pipe")
    from fcl.model.model import load_model

    pieces, resumes = _pieces(sys.stdin.buffer, should_stop), options["resume"] is not None
    path = options["resume"] or options["initial"]
    model = None if path is None else load_model(path, options["imports"])
    first_id = _first_id(options, model)
    columns = options["columns"]
    if columns is None:  # a stream continues with the columns of its model
        assert model is not None
        columns = model.family.row_width
    blocks = _blocks(pieces, columns, first_id, _remedy(options), stop, resumes)
    return {**_learning(options), "blocks": blocks}


def _learning(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of learning that a stream has; its rows come in their order."""
    left_out = {*REFUSED, "shuffle"}
    return {
        name: options[option.parameter]
        for name, option in ONLINE_OPTIONS.items()
        if option.parameter not in left_out
    }


def _first_id(options: Mapping[str, Any], model: Model | None) -> int:
    """The id of the first column: as the user says, and as a model to begin with knows it."""
    stated = 0 if options["zero_based"] else 1
    path = options["resume"] or options["initial"]
    known = None if model is None else model.column_record.first_id
    if known is None or known == stated:
        return stated
    if options["zero_based"]:
        raise InputError(
            f"--zero-based: the ids of {path} begin at 1, to which its weights belong; leave it out"
        )
    messages.note(f"ids: from {known}, as in {path}")
    return known


def _remedy(options: Mapping[str, Any]) -> str:
    """What to do about an id 0 if ids begin at 1."""
    path = options["resume"] or options["initial"]
    if path is None:
        return "give --zero-based if they begin at 0"
    return f"{path} and its weights count ids from 1: add 1 to all ids of the stream"


def _pieces(file: Any, should_stop: Callable[[], bool]) -> Iterator[bytes]:
    """Pieces of text as they come, until the end or a stop; an empty one when none is waiting.

    Text in gzip format is unpacked.
    """
    packed, begun = None, False
    for piece in _read(file, should_stop):
        if piece is None:
            if packed is not None:
                yield from packed.end()
            yield b"\n"  # the last line may lack it
            return
        if piece and not begun:
            begun = True
            if piece[:1] == b"\x1f":  # no line of text begins with this byte
                packed = _Unpack()
        if packed is None or not piece:
            yield piece
        else:
            yield from packed.of(piece)


class _Unpack:
    """Unpacks text in gzip format, of one member after another, in pieces of bounded size."""

    def __init__(self) -> None:
        self._inflate: Any = None

    def of(self, packed: bytes) -> Iterator[bytes]:
        """The text of the next packed bytes."""
        while packed:
            if self._inflate is None:
                self._inflate = zlib.decompressobj(31)  # with the header and checksum of gzip
            try:
                yield self._inflate.decompress(packed, PIECE)
            except zlib.error as error:
                raise InputError(
                    f"{NAME}: expected text in gzip format, got other bytes ({error})"
                ) from None
            packed = self._inflate.unconsumed_tail
            if self._inflate.eof:
                packed, self._inflate = self._inflate.unused_data, None

    def end(self) -> Iterator[bytes]:
        """The text that is left; raises InputError unless the last member is complete."""
        if self._inflate is not None:
            yield self._inflate.flush()
            raise InputError(f"{NAME}: the gzip data end early; the input was cut")


def _read(file: Any, should_stop: Callable[[], bool]) -> Iterator[bytes | None]:
    """What is read: bytes, empty while none are waiting, and None at the end of the file."""
    try:
        number = file.fileno()
    except OSError:  # not a file of the system
        yield from iter(lambda: file.read(PIECE), b"")
        yield None
        return
    while not should_stop():
        if not select.select([number], [], [], 0.0)[0]:
            yield b""
            if not select.select([number], [], [], POLL)[0]:
                continue
        piece = os.read(number, PIECE)
        yield piece or None
        if not piece:
            return


def _texts(pieces: Iterator[bytes], first_lines: int) -> Iterator[tuple[int, bytes]]:
    """Complete lines, and the number of the first: at first many, then as many as are waiting.

    The first lines are given together, unless they need more than a share of the budget.
    """
    most = budget() // BUDGET_SHARE
    line, wanted = 1, first_lines
    parts: list[bytes] = []
    size = lines = 0  # of the parts
    for piece in pieces:
        parts.append(piece)
        size, lines = size + len(piece), lines + piece.count(b"\n")
        if (lines < wanted and size <= most) or (not wanted and piece and size < PIECE):
            continue
        text = b"".join(parts)
        end = text.rfind(b"\n") + 1
        cut = len(text) - len(text.split(b"\n", wanted)[wanted]) if lines > wanted > 0 else end
        for part in filter(None, (text[:cut], text[cut:end])):
            yield line, part
            line += part.count(b"\n")
        if end:
            wanted = 0
        parts, size, lines = [text[end:]], len(text) - end, 0
        if size > min(most, LONGEST):
            raise InputError(
                f"{NAME}: line {line} has more than {min(most, LONGEST):,} bytes; raise --memory, or "
                "check whether the lines end with a newline"
            )
    text = b"".join(parts)
    if end := text.rfind(b"\n") + 1:
        yield line, text[:end]


def _blocks(
    pieces: Iterator[bytes], columns: int, first_id: int, remedy: str, stop: Stop, resumes: bool
) -> Iterator[StreamBlock]:
    """The rows of the lines; raises Interrupted if a signal comes before the first row.

    remedy : what to do about an id 0 if ids begin at 1.
    resumes : whether the first block needs no more rows than are waiting.
    """
    from fcl.convert.svmlight import line_parser
    from fcl.data.columns import ColumnRecord
    from fcl.drivers.online.stream import FIRST_ROWS, StreamBlock

    parse = line_parser(NAME, columns, first_id == 0, remedy)
    record = ColumnRecord(first_id=first_id, is_stated=True)
    none = True
    for first, text in _texts(pieces, 1 if resumes else FIRST_ROWS):
        x, y = parse(first, text)
        if len(y):
            none = False
            yield StreamBlock(x, y, partial(_line, first, text), record)
    if none and stop.signum is not None:
        raise Interrupted(stop.signum)


def _line(first: int, text: bytes, row: int) -> int:
    """The number of the line of a row, given the number of the first line of a text."""
    lines = enumerate(text.split(b"\n"), first)
    return [number for number, line in lines if line.partition(b"#")[0].strip()][row]
