"""svmlight (libsvm) text as a CSR matrix, parsed by scikit-learn in slices of whole lines."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import (
    TEXT_BYTES,
    Budget,
    Column,
    ConvertedRows,
    ConvertSource,
    OutputLayout,
)
from fcl.convert.files import InputFile, named_twice
from fcl.convert.precision import (
    FIRST_INEXACT,
    Precision,
    any_inexact_in_float32,
    is_rounded_integer,
    needs_survey,
    stored_type,
)
from fcl.convert.reference import Reference
from fcl.convert.rereading import RereadableFile, complete_lines
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.numerals import read_number
from fcl.units import counted


@dataclass(frozen=True)
class IdColumns:
    """What is known about the columns before the files are read.

    width : number of columns; None if the largest id decides.
    words : where the number comes from, for messages.
    names : one for each column.
    first_id : id of the first column; None if the files decide.
    ignores_others : whether entries with ids beyond the last column are left out, instead of refused.
    asks : whether the first id must be stated, unless an id is 0: the rows are for a model that does not
        know the first id of its training rows.
    numbers : {"float32", "float64"} or None, dtype of the training rows; None without any.
    """

    width: int | None = None
    words: str = ""
    names: Sequence[str] | None = None
    first_id: int | None = None
    ignores_others: bool = False
    asks: bool = False
    numbers: str | None = None

    @classmethod
    def of(
        cls,
        columns: int | None,
        names: InputFile | None,
        like: str | Reference | None,
        budget: Budget,
    ) -> IdColumns:
        """The columns that one of the options decides; raises InputError if two of them are given."""
        reference = Reference.read(like) if isinstance(like, str) else like
        model = None if reference is None or reference.is_complete else reference
        given = {"--columns": columns, "--names": names, "--like": None if model else reference}
        found = [option for option, value in given.items() if value is not None]
        if len(found) > 1:
            raise InputError(
                f"{' and '.join(found)} each decide the number of columns; give one of them"
            )
        if reference is not None and reference.is_complete:
            return cls._like(reference)
        first_id = None if model is None else model.record.first_id
        asks = model is not None and first_id is None
        numbers = None if model is None else model.numbers
        if names is not None:
            texts = _read_names(names, budget)
            words = f"the {counted(len(texts), 'name')} of {names.name}"
            return cls(len(texts), words, texts, first_id, asks=asks, numbers=numbers)
        words = f"--columns {columns}"
        return cls(columns, words, None, first_id, asks=asks, numbers=numbers)

    @classmethod
    def _like(cls, found: Reference) -> IdColumns:
        """The columns of an output of fcl convert."""
        record = found.record
        if record.first_id is None:
            raise InputError(
                f"--like: expected an output of fcl convert from svmlight files, got {found.name}"
            )
        names = None if record.names is None else [name for _, name in record.named]
        words = f"--like {found.name}"
        return cls(found.width, words, names, record.first_id, True, numbers=found.numbers)


def _read_names(file: InputFile, budget: Budget) -> list[str]:
    """The lines of a file: the name of a column in each."""
    text = file.read_text()
    n_names = text.count("\n") + 1
    budget.check(
        f"{file.name}: {counted(n_names, 'name')} of columns",
        TEXT_BYTES * n_names + 2 * len(text),
        part=1,
    )
    names = text.splitlines()
    lines: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InputError(f"{file.name}: line {number}: expected the name of a column, got none")
        if name in lines:
            raise named_twice(file.name, "name", name, lines[name], number)
        lines[name] = number
    if not names:
        raise InputError(f"{file.name}: expected the name of a column in each line, found no line")
    return names


#: Bytes of a slice of text; a larger one is not faster, and takes 10 times as much memory when parsed.
_SLICE = 4 << 20
#: An underscore that is not in a comment.
_UNDERSCORE = re.compile(rb"^[^#\n]*_", re.MULTILINE)
_MOST_COLUMNS = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Options:
    """The options of ``fcl convert`` that svmlight takes."""

    zero_based: str = "auto"
    columns: int | None = None
    names: str | None = None
    like: str | Reference | None = None
    dtype: str = "auto"


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open svmlight files, whose rows follow each other."""
    return _SvmlightSource(inputs, options, budget)


def line_parser(
    name: str, columns: int, zero_based: bool, remedy: str
) -> Callable[[int, bytes], tuple[SparseRows, np.ndarray]]:
    """A parser of slices of a stream, which need not end and cannot be read twice.

    columns : number of columns.
    zero_based : whether the ids begin at 0, not at 1.
    remedy : what to do about an id 0 if they begin at 1, for messages.

    The parser takes the number of the first line, from 1, and complete lines. It returns their m rows,
    float64, and float64 (m,) targets, and raises InputError that names the first wrong line.
    """
    options = Options("yes" if zero_based else "no", columns, dtype="float64")
    source = _SvmlightSource([], options, Budget(_SLICE, _SLICE))
    source.remedy = remedy

    def parse(first: int, text: bytes) -> tuple[SparseRows, np.ndarray]:
        found = source._rows(_Lines(name, text, first))
        assert isinstance(found.x, SparseRows) and isinstance(found.y, np.ndarray)
        return replace(found.x, n_columns=columns), found.y

    return parse


@dataclass(frozen=True)
class _Lines:
    """Complete lines of the input ``name``; ``first`` is the number of the first one, from 1."""

    name: str
    text: bytes
    first: int


class _SvmlightSource(ConvertSource):
    #: what to do about an id 0 among ids from 1
    remedy = "give --zero-based yes if they begin at 0"

    def __init__(self, inputs: list[InputFile], options: Options, budget: Budget) -> None:
        names = [] if options.names is None else [InputFile(options.names)]
        super().__init__([*inputs, *names])
        self._files = [RereadableFile(file, budget.scratch) for file in inputs]
        self._options = options
        self._columns = IdColumns.of(options.columns, next(iter(names), None), options.like, budget)
        self._base = self._find_base(budget)
        self._width = self._columns.width or 0
        self._ignored = 0
        self._has_groups: bool | None = None
        # with "auto", blocks are float64, and all values together decide how X is stored
        self._dtype = np.dtype(np.float32 if options.dtype == "float32" else np.float64)
        self._rounds = options.dtype == "auto" and self._columns.numbers == "float32"
        self._precision = Precision(budget)
        self._examines = options.dtype == "auto" and needs_survey("auto", self._columns.numbers)

    @property
    def layout(self) -> OutputLayout:
        return OutputLayout(
            "sparse",
            self._dtype,
            self._width,
            self._columns.names,
            first_id=self._base,
            is_stated=self._options.zero_based != "auto",
        )

    def attributes(self) -> dict[str, Any]:
        return {"first_id": self._base, "numbers": str(self._dtype)}

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        for file in self._files:
            for lines in _lines(file.open_last(), min(_SLICE, budget.block)):
                yield self._rows(lines)
        if not self._width and self._options.like is None:  # with a model, rows of zeros are valid
            raise InputError(
                f"{self._files[0].name}: expected entries ID:VALUE, found none in "
                f"{counted(self.rows_in, 'line')}"
            )
        if self._options.dtype == "auto":
            self._dtype, why = stored_type(
                "auto", self._columns.numbers, self._precision, self._name_of, is_sparse=True
            )
            self.notes.append(f"numbers: {why}")
        if self._ignored:
            self.notes.append(
                f"ids: left out {counted(self._ignored, 'value')} beyond the columns of --like"
            )

    def _name_of(self, column: int) -> str:
        names = self._columns.names
        return f"x{column}" if names is None else names[column]

    def _find_base(self, budget: Budget) -> int:
        """The first id: 0 if any id of the files is 0, unless the user says which."""
        if self._options.zero_based != "auto":
            return 0 if self._options.zero_based == "yes" else 1
        if self._columns.first_id is not None:
            base = self._columns.first_id
            self.notes.append(f"ids: from {base}, as in the training data")
            return base
        slices = (
            lines.text
            for file in self._files
            for lines in _lines(file.reopen(), min(_SLICE, budget.block))
        )
        base = 0 if any(_has_id_0(text) for text in slices) else 1
        if base and self._columns.asks:
            raise InputError(
                f"{self._files[0].name}: no id is 0, and the model does not know whether the ids of its "
                "training rows begin at 0 or at 1; give --zero-based yes or no, or --like TRAIN.zarr"
            )
        found = "an id is 0" if base == 0 else "no id is 0"
        first = "x0" if self._columns.names is None else shown(self._columns.names[0])
        self.notes.append(
            f"ids: from {base}, since {found} (--zero-based); the column {first} has the id {base}"
        )
        return base

    def _rows(self, lines: _Lines) -> ConvertedRows:
        x, y, groups = self._parse(lines)
        self._check_numbers(lines, x.data, y)
        most = self._width if self._columns.ignores_others else _MOST_COLUMNS
        if self._rounds:
            with np.errstate(over="ignore"):
                rounded = x.data.astype(np.float32)
            x.data = np.where(np.isfinite(rounded), rounded, x.data)  # beyond its range as they are
        entries = _kept_entries(x, self._dtype, self._base, most)
        if self._examines:
            self._precision.add_entries(entries.indices, entries.data, len(y))
        self._ignored += int((x.indices >= self._base + most).sum())
        widest = int(entries.indices.max()) + 1 if entries.nnz else 0
        if self._columns.width is None:
            self._width = max(self._width, widest)
        elif widest > self._width:
            raise self._explained(lines, f"an id is beyond {self._columns.words}")
        records = np.arange(self.rows_in, self.rows_in + len(y))
        self.rows_in += len(y)
        obs: dict[str, Column] = {"group": groups} if self._has_groups else {}
        return ConvertedRows(entries, records, y, None, obs)

    def _parse(self, lines: _Lines) -> tuple[Any, np.ndarray, np.ndarray]:
        """Matrix, labels and query ids of some lines; an error names the first wrong line."""
        from sklearn.datasets import load_svmlight_file

        try:
            x, y, groups = load_svmlight_file(
                io.BytesIO(lines.text), query_id=True, zero_based=True, dtype=np.float64
            )
        except (ValueError, OverflowError) as error:
            raise self._explained(lines, str(error)) from None
        if b"_" in lines.text and _UNDERSCORE.search(lines.text):
            wrong = self._first_wrong(lines, check_float32=False)
            if wrong is not None:
                raise wrong  # scikit-learn reads 1_0 as 10
        if self._has_groups is None and len(y) and len(groups) in (0, len(y)):
            self._has_groups = len(groups) > 0
            if self._has_groups:
                self.notes.append("groups: qid, as obs/group")
        if len(y) and len(groups) != len(y) * bool(self._has_groups):
            raise self._explained(lines, "some lines have a qid, others have none")
        if self._base and x.indices.size and x.indices.min() == 0:
            raise self._explained(lines, "an id is 0")
        return x, y, groups

    def _check_numbers(self, lines: _Lines, values: np.ndarray, y: np.ndarray) -> None:
        if not (np.isfinite(values).all() and np.isfinite(y).all()):
            raise self._explained(lines, "a number is not finite")
        if max(np.abs(values).max(initial=0), np.abs(y).max(initial=0)) >= FIRST_INEXACT and (
            error := self._first_wrong(lines, check_float32=False)
        ):
            raise error
        if self._dtype == np.float32 and any_inexact_in_float32(values):
            raise self._explained(
                lines, "float32 cannot hold a value; give --dtype float64", check_float32=True
            )

    def _explained(self, lines: _Lines, why: str, check_float32: bool = False) -> InputError:
        """The error of the first wrong line; ``why`` is what is known without looking for it."""
        last = lines.first + lines.text.count(b"\n")
        return self._first_wrong(lines, check_float32) or InputError(
            f"{lines.name}: lines {lines.first} to {last}: {why}"
        )

    def _first_wrong(self, lines: _Lines, check_float32: bool) -> InputError | None:
        for number, line in enumerate(lines.text.split(b"\n"), lines.first):
            words = line.partition(b"#")[0].split()
            wrong = words and self._wrong(words, check_float32)
            if wrong:
                return InputError(f"{lines.name}: line {number}: {wrong}")
        return None

    def _wrong(self, words: Sequence[bytes], check_float32: bool) -> str:
        """What is wrong with a line; empty if nothing is."""
        if _number(words[0]) is None:
            return f"expected a finite number as label, got {_shown(words[0])}"
        if is_rounded_integer(words[0].decode()):
            return f"the integer {_shown(words[0])} is beyond 2^53, and not exact as a number"
        entries = list(words[1:])
        has_group = bool(entries) and entries[0].startswith(b"qid:")
        if has_group and not re.fullmatch(rb"qid:-?\d{1,18}", entries.pop(0)):
            return f"expected qid:INTEGER, got {_shown(words[1])}"
        if self._has_groups is None:
            self._has_groups = has_group
        if has_group != self._has_groups:
            expected = "a qid" if self._has_groups else "no qid"
            return f"expected {expected}, as in the lines before; give all lines a qid, or none"
        last = self._base - 1
        for entry in entries:
            found = re.fullmatch(rb"(\d+):(\S+)", entry)
            value = _number(found[2]) if found else None
            if not found or value is None:
                return f"expected ID:VALUE with a finite number, got {_shown(entry)}"
            if is_rounded_integer(found[2].decode()):
                return f"the integer {_shown(found[2])} is beyond 2^53, and not exact as a number"
            if int(found[1]) <= last:
                return self._wrong_id(int(found[1]), last)
            last = int(found[1])
            if beyond := self._beyond(last - self._base):
                return f"the id {last} is beyond {beyond}"
            if check_float32 and any_inexact_in_float32(np.array([value])):
                return f"float32 cannot hold the value {_shown(found[2])}; give --dtype float64"
        return ""

    def _beyond(self, column: int) -> str:
        """What a column is beyond; empty if it may exist."""
        width = None if self._columns.ignores_others else self._columns.width
        if column < (width or _MOST_COLUMNS):
            return ""
        return self._columns.words if width else "2^31 ids"

    def _wrong_id(self, found: int, last: int) -> str:
        if found < self._base:
            return f"the id is 0, but ids begin at 1; {self.remedy}"
        if found == last:
            return f"the id {found} stands twice; expected each id once, in ascending order"
        return f"the id {found} comes after {last}; expected ids in ascending order: sort each line"


def _lines(file: InputFile, size: int) -> Iterator[_Lines]:
    for first, text in complete_lines(file, size):
        yield _Lines(file.name, text, first)


def _has_id_0(text: bytes) -> bool:
    # other spellings of 0 are found later, and refused with a message that names --zero-based
    if b" 0:" not in text and b"\t0:" not in text:
        return False
    return re.search(rb"^[^#\n]*[ \t]0:", text, re.MULTILINE) is not None  # not in a comment


def _kept_entries(x: Any, dtype: np.dtype, base: int, most: int) -> SparseRows:
    """The entries of a matrix of scipy, without zeros, in the columns from 0 to ``most`` - 1."""
    data, indices, indptr = x.data.astype(dtype), x.indices, x.indptr.astype(np.int64)
    keep = (data != 0) & (indices - base < most)
    if not keep.all():
        data, indices = data[keep], indices[keep]
        indptr = np.concatenate([[0], np.cumsum(keep)])[indptr]
    return SparseRows(indptr, (indices - base).astype(np.int32), data, x.shape[1])


def _number(text: bytes) -> float | None:
    found = read_number(text)
    return found if found is not None and np.isfinite(found) else None


def _shown(text: bytes) -> str:
    return shown(text.decode("utf-8", "replace"))
