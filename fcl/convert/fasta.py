"""FASTA files as rows of codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import Budget, Column, Layout, Rows, Source
from fcl.convert.files import InputFile
from fcl.convert.labels import HEADER, HeaderPattern, NameTable, TextColumn
from fcl.convert.letters import Codes, Cut, Filter, Ints, decoded
from fcl.convert.records import pieces
from fcl.errors import InputError

__all__ = ["Options", "open_source"]


@dataclass(frozen=True)
class Options:
    """The options of ``fcl convert`` that FASTA takes."""

    label: str | None = None
    groups: str | None = None
    length: int | None = None
    anchor: str = "center"
    pad: bool = False
    max_unknown: float | None = None
    both_strands: bool = False


@dataclass(frozen=True)
class _Batch:
    """Complete records; ``codes`` holds their letters one after the other."""

    file: InputFile
    headers: list[bytes]
    lines: Ints
    lengths: Ints
    codes: Codes

    @property
    def starts(self) -> Ints:
        return np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.headers)

    def where(self, record: int) -> str:
        """A record in words, for messages."""
        name = shown(self.headers[record].decode("utf-8", "replace"))
        return f"{self.file.name}: line {self.lines[record]}: the record {name}"


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> Source:
    """Open one FASTA file, or two whose labels are 1 and -1.

    Raises
    ------
    InputError
        The options do not fit each other, or there are more than two files.
    """
    if len(inputs) > 2 and options.label is None:
        raise InputError(
            "expected one FASTA file, or one of positive and one of negative sequences, got "
            f"{len(inputs)}; join them, or give --label"
        )
    if options.pad and options.length is None:
        raise InputError("--pad: give --length too, the letters of a row")
    if options.anchor == "summit":
        raise InputError("--anchor summit is for narrowPeak; expected center, start or end")
    return _FastaSource(inputs, options, budget)


class _FastaSource(Source):
    def __init__(self, inputs: list[InputFile], options: Options, budget: Budget) -> None:
        super().__init__(inputs)
        self._files = inputs
        self._options = options
        self._filter = Filter(options.max_unknown, options.both_strands)
        self._labels = _Lookup.of("--label", options.label)
        self._groups = _Lookup.of("--groups", options.groups)
        for lookup in (self._labels, self._groups):
            if lookup is not None and lookup.table is not None:
                self.inputs.append(lookup.table.file)
        self._width = options.length
        self._names: dict[str, str] = {}  # of records that are looked up -> where they are
        if len(inputs) == 2 and options.label is None:
            self.notes.append(f"labels: 1 for {inputs[0].name}, -1 for {inputs[1].name}")

    @property
    def layout(self) -> Layout:
        return Layout("codes", np.dtype(np.uint8), self._width or 0)

    def blocks(self, budget: Budget) -> Iterator[Rows]:
        for number, file in enumerate(self._files):
            for batch in _batches(file, budget):
                yield self._rows(batch, number)

    def _rows(self, batch: _Batch, file_number: int) -> Rows:
        records = np.arange(self.rows_in, self.rows_in + len(batch))
        self.rows_in += len(batch)
        keep = self._long_enough(batch)
        headers = [header.decode("utf-8", "replace") for header in batch.headers]
        names = [header.partition(" ")[0].partition("\t")[0] for header in headers]
        places = {}
        for lookup in (self._labels, self._groups):
            if lookup is not None:
                places[lookup] = lookup.find(batch, headers, names, self._names)
                missing = keep & (places[lookup] < 0)
                if missing.any():
                    self.dropped[f"without a {lookup.what} in the table"] += int(missing.sum())
                    keep &= ~missing
        kept = np.flatnonzero(keep)
        if self._width is None and len(kept):
            self._width = int(batch.lengths[kept[0]])
        cut = Cut(self._width or 1, self._options.anchor, self._options.pad)
        lengths = batch.lengths[kept]
        y: Column | None = None
        if self._labels is not None:
            y = self._labels.column(places[self._labels][kept], batch.lines[kept])
        elif len(self._files) == 2:
            y = np.full(len(kept), 1 - 2 * file_number, np.int8)
        obs: dict[str, Column] = {"name": decoded([names[i].encode() for i in kept])}
        if self._groups is not None:
            obs["group"] = self._groups.column(places[self._groups][kept], batch.lines[kept])
        rows = Rows(cut.rows(batch.codes, batch.starts[kept], lengths), records[kept], y, None, obs)
        return self._filter.apply(rows, self.dropped, np.maximum(0, cut.length - lengths))

    def _long_enough(self, batch: _Batch) -> np.ndarray:
        """Which records make rows; those that do not are counted, or refused without ``--length``."""
        empty = batch.lengths == 0
        if empty.any():
            self.dropped["without letters"] += int(empty.sum())
        if self._options.pad:
            return ~empty
        if self._options.length is not None:
            short = ~empty & (batch.lengths < self._options.length)
            if short.any():
                self.dropped[f"shorter than {self._options.length} letters"] += int(short.sum())
            return ~empty & ~short
        if not empty.all():
            width = self._width or int(batch.lengths[~empty][0])
            other = ~empty & (batch.lengths != width)
            if other.any():
                at = int(other.argmax())
                raise InputError(
                    f"{batch.where(at)} has {batch.lengths[at]:,} letters, but the first has {width:,}; "
                    "give --length L and --anchor center, start or end to cut all to one length"
                )
        return ~empty


class _Lookup:
    """Labels or groups of records: by a pattern over their headers, or by name in a table."""

    def __init__(self, option: str, text: str) -> None:
        self.what = option.strip("-").rstrip("s")
        self.pattern = HeaderPattern.parse(option, text) if text.startswith(HEADER) else None
        self.table = None if self.pattern else NameTable.read(option, text)
        self._column = TextColumn(option)
        self._found: list[str] = []

    @classmethod
    def of(cls, option: str, text: str | None) -> _Lookup | None:
        return None if text is None else cls(option, text)

    def find(
        self, batch: _Batch, headers: list[str], names: list[str], seen: dict[str, str]
    ) -> np.ndarray:
        """Places of the values of the records, for :meth:`column`; -1 for one without a value."""
        if self.pattern is not None:
            found = (self.pattern.find(h, batch.where(i)) for i, h in enumerate(headers))
            self._found = list(found)
            return np.arange(len(headers))
        assert self.table is not None
        for i, name in enumerate(names):
            where = f"{batch.file.name} line {batch.lines[i]}"
            if seen.setdefault(name, where) != where:
                raise InputError(
                    f"two records have the name {shown(name)}: {seen[name]} and {where}; expected each "
                    "name once, as labels and groups are looked up by name"
                )
        return self.table.find(names)

    def column(self, places: np.ndarray, lines: Ints) -> Column:
        """The values at these places, which belong to records in these lines."""
        if self.table is not None:
            return self.table.take(places)
        return self._column.encode([self._found[i] for i in places], lines.tolist())


def _batches(file: InputFile, budget: Budget) -> Iterator[_Batch]:
    """The records of a file; a record that continues in the next piece waits for its end."""
    header, line, waiting = None, 0, list[Codes]()
    for piece in pieces(file, budget.block):
        waiting.append(piece.continued)
        _check_size(file, header, waiting, budget)
        if not piece.headers:
            continue
        headers, lines, lengths = piece.headers, piece.lines(), piece.lengths
        if header is not None:
            headers, lines = [header, *headers], np.concatenate([[line], lines])
            lengths = np.concatenate([[sum(map(len, waiting))], lengths])
        codes = np.concatenate([*waiting, piece.codes])
        end = len(codes) - int(lengths[-1])
        yield _Batch(file, headers[:-1], lines[:-1], lengths[:-1], codes[:end])
        header, line, waiting = headers[-1], int(lines[-1]), [codes[end:].copy()]
    assert header is not None
    letters = np.concatenate(waiting)
    yield _Batch(file, [header], np.array([line]), np.array([len(letters)]), letters)


def _check_size(
    file: InputFile, header: bytes | None, waiting: Sequence[Codes], budget: Budget
) -> None:
    if header is not None and 2 * sum(map(len, waiting)) > budget.total:
        raise InputError(
            f"{file.name}: the record {shown(header.decode('utf-8', 'replace'))} needs more memory than "
            "the budget; raise --memory, or cut windows out of a genome with --genome"
        )
