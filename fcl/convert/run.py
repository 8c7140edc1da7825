"""Convert foreign files into a Zarr group, in bounded memory."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import psutil

from fcl.checks import shown
from fcl.convert.arrays import StoreLayout
from fcl.convert.contract import TEXT_BYTES, Budget, ConvertedRows, ConvertSource, OutputLayout
from fcl.convert.files import STDIN, InputFile
from fcl.convert.reference import Reference
from fcl.convert.registry import (
    WITH_COLUMNS,
    format_of,
    open_source,
    options_of,
    refuse_native,
)
from fcl.convert.writer import RowWriter
from fcl.data.columns import READ_BY
from fcl.errors import InputError
from fcl.files.atomic import atomic_folder, check_output
from fcl.memory.allowance import within
from fcl.memory.ledger import LIBRARIES, check_budget
from fcl.options.convert import DEFAULT_MEMORY, OF_SEQUENCES, READING
from fcl.plain import plain
from fcl.store import local_folder
from fcl.units import parse_size
from fcl.version import __version__

#: The part of a budget that the names which were seen may take.
_PART = 8


class RowNames:
    """Counts records whose name an earlier record has, among as many as a part of the budget holds.

    Tables by name would mix up such rows.
    """

    def __init__(self, budget: Budget) -> None:
        self._most = budget.total // _PART // TEXT_BYTES
        self._seen: set[int] = set()  # hashes of the names
        self._n_repeated, self._first = 0, ""

    def add(self, rows: ConvertedRows) -> None:
        """Add the names of a block; rows of one record, such as both strands, share a name."""
        names = rows.obs.get("name")
        if not isinstance(names, np.ndarray) or len(self._seen) >= self._most:
            return
        found = names[np.diff(rows.source_row, prepend=-1) != 0].tolist()
        keys = list(map(hash, found))
        different = set(keys)
        if len(different) < len(keys) or not self._seen.isdisjoint(different):
            for name, key in zip(found, keys, strict=True):
                if key in self._seen and name not in ("", "."):
                    self._first = self._first if self._n_repeated else name
                    self._n_repeated += 1
                self._seen.add(key)
        self._seen |= different

    def notes(self) -> list[str]:
        """A line about repeated names, if there are any."""
        if not self._n_repeated:
            return []
        among = f" (among the first {self._most:,})" if len(self._seen) >= self._most else ""
        words = "row has" if self._n_repeated == 1 else "rows have"
        found = f"{self._n_repeated:,} {words} the name of an earlier row{among}"
        return [f"names: {found}, the first is {shown(self._first)}"]


#: called with (stored bytes read, bytes of all inputs or None, rows written)
Progress = Callable[[int, int | None, int], None]

#: What the interpreter and the libraries take at least, when all are loaded, and at most.
_LIBRARY_BYTES = 96 << 20
_INTERPRETER_BYTES = 192 << 20
#: Least memory beyond the interpreter.
_LEAST_BYTES = 64 << 20
_MIB = 1 << 20


@dataclass(frozen=True)
class Summary:
    """What a conversion did.

    rows_in, rows : records read, and rows written.
    dropped : records dropped, by reason.
    classes : rows by label; None without a target, or if the target has many values.
    """

    format: str
    layout: OutputLayout
    rows_in: int
    rows: int
    dropped: Counter[str]
    classes: Counter[Any] | None
    has_target: bool
    has_weights: bool
    seconds: float
    notes: list[str] = field(default_factory=list)


def divide_memory(memory: int, scratch: str) -> tuple[Budget, StoreLayout]:
    """Divide a budget between the source and the writer; BudgetError if it is too small."""
    free = free_memory(memory)
    # X is held in two shards; one of them is compressed, with copies of all its chunks, and joined
    shard = min(64 * _MIB, free // 10)
    layout = StoreLayout(chunk_bytes=min(16 * _MIB, shard), shard_bytes=shard)
    return Budget(free - 5 * shard, min(8 * _MIB, free // 32), scratch), layout


def free_memory(memory: int) -> int:
    """Bytes of a budget beyond the interpreter; raises BudgetError, with the smallest one, if few."""
    # a notebook may hold any data of its own
    held = psutil.Process().memory_info().rss
    held = min(max(held, _LIBRARY_BYTES), _INTERPRETER_BYTES)
    uses = [(LIBRARIES, held), ("blocks of rows", _LEAST_BYTES)]
    check_budget(memory, uses, "this command")
    return memory - held


class Opened(NamedTuple):
    """Inputs that were recognised and opened."""

    format: str  #: key of ``READERS``
    options: dict[str, Any]  #: that the user gave, validated
    source: ConvertSource


def open_inputs(
    inputs: Sequence[str | os.PathLike[str]],
    format: str | None,
    options: dict[str, Any],
    budget: Budget,
    model: Reference | None = None,
    any_length: bool = False,
) -> Opened:
    """Open files of one format as :func:`convert` does, with the same options and errors.

    model : the columns that a model reads, for rows that it scores.
    any_length : whether sequences of several lengths are filled up to the longest one.
    """
    names, given = _checked_inputs(inputs), _checked_options(options)
    _refuse_repeated([*names, *filter(None, [given.get("negatives")])])
    files = [InputFile(name) for name in names]
    kind = format or format_of(files, given)
    read_like: dict[str, Any] = {}
    if kind in WITH_COLUMNS and (model is not None or "like" in given):
        reference = model or Reference.read(given["like"])
        takes = options_of(kind)
        known = {k: reference.record.reading.get(k) for k in READ_BY if k in takes}
        read_like = {k: v for k, v in _checked_options(known).items() if k not in given}
        given |= {} if model is None else {"like": model}
    if any_length and kind in OF_SEQUENCES and not given.keys() & {"length", "pad"}:
        given |= {"pad": True, "anchor": given.get("anchor", "start")}
    source = open_source(files, kind, read_like | given, budget)
    if read_like:
        texts = (f"{READING[name].spelled} {value}" for name, value in read_like.items())
        source.notes.append(f"read as the training rows: {' '.join(texts)}")
    return Opened(kind, given, source)


def convert(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    memory: int | str = DEFAULT_MEMORY,
    overwrite: bool = False,
    progress: Progress | None = None,
    attributes: Callable[[ConvertSource], dict[str, Any]] | None = None,
    model: Reference | None = None,
    **options: Any,
) -> Summary:
    """Convert files of one format into a Zarr group for :func:`fcl.open_data`.

    inputs : ``-`` is standard input.
    out : the Zarr folder, which becomes visible when it is complete; its name ends in ``.zarr``.
    format : of the inputs; by default found by their names and first bytes.
    progress : called after each block.
    attributes : called with the source when all rows are written; returns more attributes of the group.
    model : the columns that a model reads, for rows that it is to score.
    options : of ``fcl convert``, with underscores; the format decides which it takes.
    """
    if not os.fspath(out).endswith(".zarr"):  # it may be an input, if the output was forgotten
        raise InputError(
            f"the last argument is the output: expected a name that ends in .zarr, got {os.fspath(out)}"
        )
    target = check_output(out, overwrite, folder=True)
    size, since = parse_size(memory, "memory"), time.perf_counter()
    budget, layout = divide_memory(size, local_folder(target))
    with within(size), _named_output(out):
        kind, given, source = open_inputs(inputs, format, options, budget, model)
        names = RowNames(budget)
        with (
            atomic_folder(out, overwrite) as folder,
            RowWriter(folder, layout) as writer,
        ):
            _write(source, writer, names, budget, progress)
            if not writer.n_rows:
                raise source.nothing_left("record", "is left")
            known: dict[str, Any] = {
                "fcl": {
                    "version": __version__,
                    "format": kind,
                    "inputs": [file.describe() for file in source.inputs],
                    "options": given,
                    "rows_in": source.rows_in,
                    "rows": writer.n_rows,
                    "dropped": dict(source.dropped),
                    **source.attributes(),
                }
            }
            known |= attributes(source) if attributes is not None else {}
            writer.finish(source.layout, plain(known))
    return Summary(
        kind,
        source.layout,
        source.rows_in,
        writer.n_rows,
        source.dropped,
        writer.classes,
        writer.has("y"),
        writer.has("weights"),
        time.perf_counter() - since,
        [*source.notes, *names.notes(), *_label_notes(writer.classes)],
    )


def _label_notes(classes: Counter[Any] | None) -> list[str]:
    """Say which of two labels of text training takes as positive."""
    labels = sorted(map(str, classes or ()))
    if len(labels) != 2 or not all(isinstance(label, str) for label in classes or ()):
        return []
    return [f"labels: {labels[1]} is the positive class, {labels[0]} the other"]


@contextmanager
def _named_output(out: str | os.PathLike[str]) -> Iterator[None]:
    """Give errors of a full disk the name of the output; scratch files lie beside it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(out)
        raise


def _checked_inputs(inputs: Sequence[str | os.PathLike[str]]) -> list[str]:
    names = [os.fspath(path) for path in inputs]
    if not names:
        raise InputError("no input was given; expected the name of a file, or - for standard input")
    if names.count("-") > 1:
        raise InputError("standard input (-) was given twice; it can be read once")
    for name in names:
        if name != STDIN:
            refuse_native(name)
    return names


def _refuse_repeated(names: Sequence[str]) -> None:
    """Raise InputError if two names, or links, lead to the same file."""
    seen: dict[tuple[int, int], str] = {}
    for name in names:
        try:
            found = os.stat(name)
        except (OSError, ValueError):  # reported when the file is opened
            continue
        key = found.st_dev, found.st_ino
        if key in seen:
            raise InputError(
                f"{seen[key]} and {name} are the same file; expected different files, as its rows would "
                "be stored twice, or in both classes"
            )
        seen[key] = name


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, validated."""
    given = {}
    for name, value in options.items():
        if name not in READING:
            raise InputError(
                f"{name} is not an option of convert; expected one of {', '.join(READING)}"
            )
        if value is not None and value is not False:
            given[name] = READING[name].check(value)
    return given


def _write(
    source: ConvertSource,
    writer: RowWriter,
    names: RowNames,
    budget: Budget,
    progress: Progress | None,
) -> None:
    """Write all blocks."""
    for rows in source.blocks(budget):
        writer.append(rows, source.layout)
        names.add(rows)
        budget.check("the different texts of labels, groups and contigs", writer.held_bytes)
        if progress is not None:
            sizes = [file.size for file in source.inputs]
            total = None if None in sizes else sum(size or 0 for size in sizes)
            progress(sum(file.done for file in source.inputs), total, writer.n_rows)
