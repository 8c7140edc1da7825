"""FASTA files as rows of codes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import Budget, Column, ConvertedRows, ConvertSource
from fcl.convert.files import InputFile
from fcl.convert.labels import HEADER, HeaderPattern, NameTable, TextColumn
from fcl.convert.letters import Codes, SequenceSource, select
from fcl.convert.records import RecordPiece, pieces
from fcl.errors import InputError
from fcl.types import Ints
from fcl.units import counted

#: Short records are parsed twice as fast in slices that stay in the cache.
_SLICE_BYTES = 1 << 20
#: Lines and files are stored in one integer.
_MOST_FILES = 1 << 20


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


@dataclass
class _Batch:
    """Complete records; ``codes`` holds their letters one after the other."""

    file: InputFile
    headers: list[bytes]
    lengths: Ints
    codes: Codes
    find_lines: Callable[[], Ints]

    @property
    def starts(self) -> Ints:
        return np.cumsum(self.lengths) - self.lengths

    @functools.cached_property
    def lines(self) -> Ints:
        """Line numbers of the headers, from 1; counted only where a message needs them."""
        return self.find_lines()

    def __len__(self) -> int:
        return len(self.headers)

    def text(self) -> list[str]:
        """The headers as text."""
        if not self.headers:
            return []
        joined = b"\n".join(self.headers).replace(b"\r", b"")
        return joined.decode("utf-8", "replace").split("\n")

    def names(self) -> list[str]:
        """The first word of each header; empty if the header is."""
        words = [(header.split(None, 1) or [b""])[0] for header in self.headers]
        return b"\n".join(words).decode("utf-8", "replace").split("\n") if words else []

    def cut(self) -> list[bytes]:
        """The headers of which a name is only the first word."""
        return [header for header in self.headers if len(header.split(None, 1)) > 1]

    def where(self, record: int) -> str:
        """A record in words, for messages."""
        return f"{self.file.name}: line {self.lines[record]}"


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open one FASTA file, or two whose labels are 1 and -1."""
    if len(inputs) > 2 and options.label is None:
        raise InputError(
            "expected one FASTA file, or one of positive and one of negative sequences, got "
            f"{len(inputs)}; join them, or give --label"
        )
    return _FastaSource(inputs, options, budget)


class _FastaSource(SequenceSource):
    def __init__(self, inputs: list[InputFile], options: Options, budget: Budget) -> None:
        super().__init__(inputs, options)
        self._labels = _Lookup.of("--label", options.label, budget)
        self._groups = _Lookup.of("--groups", options.groups, budget)
        for lookup in (self._labels, self._groups):
            if lookup is not None and lookup.table is not None:
                self.inputs.append(lookup.table.file)
        self._files = self.fit_longest(inputs, budget, lambda file: _lengths(file, budget))
        if len(inputs) == 2 and options.label is None:
            self.notes.append(f"labels: 1 for {inputs[0].name}, -1 for {inputs[1].name}")

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        n_cut, first = 0, b""
        for number, file in enumerate(self._files):
            for batch in _batches(file, budget):
                cut = batch.cut()
                n_cut, first = n_cut + len(cut), first or b"".join(cut[:1])
                yield from self._rows(batch, number, budget)
        if n_cut:
            text = shown(first.decode("utf-8", "replace").strip())
            found = f"{counted(n_cut, 'header')} has" if n_cut == 1 else f"{n_cut:,} headers have"
            self.notes.append(f"names: the first words, as {found} more than one, such as {text}")

    def _rows(self, batch: _Batch, file_number: int, budget: Budget) -> Iterator[ConvertedRows]:
        records = np.arange(self.rows_in, self.rows_in + len(batch))
        self.rows_in += len(batch)
        keep = self.trimmer.keep(batch.lengths, self.drop, batch.where)
        names = batch.names()
        places = {
            lookup: self._places(lookup, batch, names, keep)
            for lookup in (self._labels, self._groups)
            if lookup is not None
        }
        kept = np.flatnonzero(keep)
        columns = {
            lookup.option: lookup.column(found[kept], batch, kept)
            for lookup, found in places.items()
        }
        if len(self._files) == 2 and self._labels is None:
            columns["--label"] = np.full(len(kept), 1 - 2 * file_number, np.int8)
        obs: dict[str, Column] = {"name": np.array(names, np.dtypes.StringDType())[kept]}
        if "--groups" in columns:
            obs["group"] = columns["--groups"]
        rows = ConvertedRows(batch.codes, records[kept], columns.get("--label"), None, obs)
        return self.cut_rows(rows, batch.starts[kept], batch.lengths[kept], budget)

    def _places(
        self, lookup: _Lookup, batch: _Batch, names: list[str], keep: np.ndarray
    ) -> np.ndarray:
        """Where the values of records are; records without one are taken out of ``keep``."""
        places = lookup.find(batch, names)
        self.drop(f"without a {lookup.what} in {lookup.source}", keep & (places < 0))
        keep &= places >= 0
        return places


class _Lookup:
    """Labels or groups of records: by a pattern over their headers, or by name in a table."""

    def __init__(self, option: str, text: str, budget: Budget) -> None:
        self.option = option
        self.what = option.strip("-").removesuffix("s")
        self.pattern = HeaderPattern.parse(option, text) if text.startswith(HEADER) else None
        self.table = None if self.pattern else NameTable.read(option, text, budget)
        self.source = "" if self.table is None else self.table.file.name
        self._column = TextColumn(option, None if option == "--label" else False)
        self._found: list[str] = []
        # lines of the records that have the names of the table; 0 for a name without a record
        self._lines = np.zeros(len(self.table.rows) + 1 if self.table else 0, np.int64)
        self._files: list[InputFile] = []

    @classmethod
    def of(cls, option: str, text: str | None, budget: Budget) -> _Lookup | None:
        return None if text is None else cls(option, text, budget)

    def find(self, batch: _Batch, names: list[str]) -> np.ndarray:
        """Places of the values of the records, for :meth:`column`; -1 for one without a value."""
        if self.table is not None:
            places = self.table.find(names)
            self._check_names(batch, names, places)
            return places
        assert self.pattern is not None
        headers = enumerate(batch.text())
        self._found = [self.pattern.find(header, batch.where, i) for i, header in headers]
        return np.arange(len(batch))

    def _check_names(self, batch: _Batch, names: list[str], places: np.ndarray) -> None:
        """Raise InputError for a name of the table that occurs twice."""
        if batch.file not in self._files:
            self._files.append(batch.file)
        n_files = len(self._files)
        for i in np.flatnonzero(places >= 0).tolist():
            if before := int(self._lines[places[i]]):
                line, file = divmod(before, _MOST_FILES)
                raise InputError(
                    f"two records have the name {shown(names[i])}: {self._files[file].name}: line {line} "
                    f"and {batch.where(i)}; expected each name once, as labels and groups are looked up "
                    "by name"
                )
            self._lines[places[i]] = batch.lines[i] * _MOST_FILES + n_files - 1

    def column(self, places: np.ndarray, batch: _Batch, records: Ints) -> Column:
        """The values at these places, which belong to these records of a batch."""
        if self.table is not None:
            return select(self.table.column, places)
        found = [self._found[i] for i in places]
        return self._column.encode(found, lambda i: batch.where(int(records[i])))


def _batches(file: InputFile, budget: Budget) -> Iterator[_Batch]:
    """The records of a file; a record that continues in the next piece waits for its end."""
    header: bytes | None = None
    before: RecordPiece | None = None  # in which the waiting record begins
    waiting: list[Codes] = []
    for piece in pieces(file, min(budget.block, _SLICE_BYTES)):
        waiting.append(piece.continued)
        if header is not None and 2 * sum(map(len, waiting)) > budget.total:
            name = shown(header.decode("utf-8", "replace"))
            raise InputError(
                f"{file.name}: the record {name} needs more memory than the budget; raise --memory, or "
                "cut windows out of a genome with --genome"
            )
        if not piece.headers:
            continue
        headers, lengths = piece.headers, piece.lengths
        if header is not None:
            headers = [header, *headers]
            lengths = np.concatenate([[sum(map(len, waiting))], lengths])
        codes = np.concatenate([*waiting, piece.codes])
        end = len(codes) - int(lengths[-1])
        lines = functools.partial(_lines, before, piece)
        yield _Batch(file, headers[:-1], lengths[:-1], codes[:end], lines)
        header, before, waiting = headers[-1], piece, [codes[end:].copy()]
    assert header is not None
    letters = np.concatenate(waiting)
    lines = functools.partial(_lines, before, None)
    yield _Batch(file, [header], np.array([len(letters)]), letters, lines)


def _lengths(file: InputFile, budget: Budget) -> Iterator[Ints]:
    """The letters of the records of a file."""
    return (batch.lengths for batch in _batches(file, budget))


def _lines(before: RecordPiece | None, piece: RecordPiece | None) -> Ints:
    """Lines of the last record of a piece, and of all but the last one of the next piece."""
    first = np.empty(0, np.int64) if before is None else before.lines()[-1:]
    return first if piece is None else np.concatenate([first, piece.lines()[:-1]])
