"""The first reading of a table: kinds of columns, categories, missing values, over all rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from fcl.checks import shown
from fcl.convert.cells import is_sequence
from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.precision import (
    FIRST_INEXACT,
    Precision,
    is_rounded_integer,
    needs_survey,
    stored_type,
)
from fcl.convert.tables.columns import ColumnOptions, Roles, categories_of
from fcl.convert.tables.contract import (
    ColumnSelection,
    TableBatch,
    TableFile,
    TextInNumbersError,
    Texts,
    shown_columns,
)
from fcl.convert.tables.dates import AMBIGUOUS, computed_batches
from fcl.errors import InputError
from fcl.types import Ints
from fcl.units import counted

_COMMA = "--decimal , if commas mark decimals, --thousands , if they separate thousands"
#: Numbers with marks between thousands, or a comma before decimals, and the options that read them.
_MARKS = [
    (re.compile(rf"[-+]?{pattern}"), options)
    for pattern, options in (
        ("[0-9]{1,3},[0-9]{3}", _COMMA),
        (r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", "--thousands ,"),
        ("[0-9]+,[0-9]+", "--decimal ,"),
        (r"[0-9]{1,3}(\.[0-9]{3})+,[0-9]+", "--decimal , --thousands ."),
        (r"[0-9]{1,3}(\.[0-9]{3}){2,}", "--thousands . --decimal ,"),
        ("[0-9]{1,3}([ \u00a0\u202f][0-9]{3})+,[0-9]+", "--decimal , --thousands space"),
        ("[0-9]{1,3}([ \u00a0\u202f][0-9]{3})+([.][0-9]+)?", "--thousands space"),
        ("[0-9]{1,3}('[0-9]{3})+([.][0-9]+)?", "--thousands \\'"),
    )
]
#: Percentages and amounts of money.
_WITH_UNIT = re.compile(r"([$€£] ?)?[-+]?[0-9][0-9.,']*( ?[%$€£])?")
#: A column of text that differs in each row names the rows, if there are so many.
_NAMED_ROWS = 200
#: Letters of a sequence, and blanks in a text of words, that a message recognises.
_BASES, _LEAST_WORDS = set("ACGTUNacgtun"), 5
#: Problems that a message lists, and in which words problems of one kind differ.
_MOST_PROBLEMS = 8
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9][0-9,]*")


@dataclass
class NumberStats:
    """What is known about the columns of numbers: arrays (k,), in the order of the selection."""

    count: np.ndarray
    total: np.ndarray
    nonzero: np.ndarray
    whole: np.ndarray
    large: np.ndarray

    @classmethod
    def empty(cls, k: int) -> NumberStats:
        zeros = np.zeros(k, np.int64)
        return cls(zeros, np.zeros(k), zeros.copy(), np.ones(k, bool), np.zeros(k, bool))

    @property
    def mean(self) -> np.ndarray:
        """Mean of the values that are there; 0 without any."""
        return self.total / np.maximum(self.count, 1)

    def add(self, numbers: np.ndarray) -> None:
        """Add the values of a batch."""
        there = ~np.isnan(numbers)
        self.count += there.sum(0)
        self.total += np.nansum(numbers, 0)
        self.nonzero += (there & (numbers != 0)).sum(0)
        large = np.abs(numbers) >= FIRST_INEXACT
        self.large |= large.any(0)
        self.whole &= ((np.trunc(numbers) == numbers) & ~large | ~there).all(0)


@dataclass
class TextStats:
    """What is known about a column of text.

    codes : value -> its number, in the order of appearance
    missing : rows without a value
    number, text : where the first value stands that is a number, and the first that is not
    """

    codes: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    size: int = 0  #: bytes of the values
    number: tuple[int, str] | None = None
    text: tuple[int, str] | None = None

    def add(self, texts: Texts, rows: Ints, is_number: Callable[[str], bool]) -> None:
        """Add the values of these rows."""
        self.missing += int((texts.codes < 0).sum())
        first = np.full(len(texts.values) + 1, -1)  # row of each value; the last is "missing"
        first[texts.codes[::-1]] = np.arange(len(texts.codes))[::-1]
        for value, at in zip(texts.values, first[:-1].tolist(), strict=True):
            if at >= 0 and value not in self.codes:
                self.codes[value] = len(self.codes)
                self.size += TEXT_BYTES + len(value)
                if is_number(value):
                    self.number = self.number or (int(rows[at]), value)
                else:
                    self.text = self.text or (int(rows[at]), value)


class Survey:
    """Read all rows of the files once.

    files : with the same columns.
    forced : columns to read as text.
    known_type : {"float32", "float64"} or None, the dtype of the training rows.
    precision : of the columns of numbers in X, in the order of the selection, if the dtype depends on
        values.
    texts : in the order of the selection; empty for the column of names.
    """

    def __init__(
        self,
        files: Sequence[TableFile],
        roles: Roles,
        options: ColumnOptions,
        forced: Sequence[int],
        budget: Budget,
        known_type: str | None = None,
    ) -> None:
        self.files, self.roles, self.options, self._budget = files, roles, options, budget
        self._known_type = known_type
        self._examines = needs_survey(options.dtype, known_type)
        table = files[0]
        self.categorical = set(forced) | set(categories_of(table, options))
        self.categorical |= {at for at in table.date_parts if table.looks_like_text[at]}
        beside = (roles.y, roles.weights, roles.groups)
        # with the columns of a model, the groups may be a column of X, too
        self.used = [*dict.fromkeys([*roles.x, *(at for at in beside if at is not None)])]
        self._x = set(roles.x)
        self._as_text = {at for at in self.used if at in self.categorical}
        self._dates = {at for at in roles.x if at < table.width and table.looks_like_date[at]}
        self._dates -= self.categorical
        self._as_text |= {at for at in self.used if table.looks_like_text[at]} - self._dates
        self._grouped = {at for file in files for at in file.looks_grouped}
        if roles.weights in self._as_text:
            raise InputError(f"--weights: {table.name}: expected numbers, got text")
        self._problems: dict[int, str] = {}  # by column, the first one of each
        self._lacking: dict[int, str] = {}  # columns without a value in some row, and where
        while not self._read():
            pass  # a column turned out to be text
        self._check_numeric_texts()
        self._check_names()
        self._check_problems()
        self._check_integers()

    def stored_type(self) -> tuple[np.dtype, str]:
        """The dtype of X, and why; raises InputError if it cannot be the one that the user asks for."""

        def name(at: int) -> str:
            return self.files[0].columns[self.selection.numbers[self._x_numbers[at]]]

        return stored_type(self.options.dtype, self._known_type, self.precision, name)

    def _check_problems(self) -> None:
        """Raise InputError if columns cannot be read as they are, with the problems of all of them."""
        columns, file = self.files[0].columns, f"{self.files[0].name}: "
        for column, where in self._lacking.items():
            what = (
                f"{where}: the column {shown(columns[column])} has no value; give --missing mean, "
            )
            self._refuse(column, f"{what}which makes a missing text a category, or drop")
        alike: dict[str, list[int]] = {}
        for column in sorted(self._problems):
            alike.setdefault(_VALUE.sub("", self._problems[column]), []).append(column)
        problems = []
        for first, *others in alike.values():
            names = shown_columns([columns[at] for at in others])
            likewise = f" (likewise {counted(len(others), 'column')}: {names})" if others else ""
            problems.append(self._problems[first] + likewise)
        if len(problems) == 1:
            raise InputError(problems[0])
        if problems:
            listed = [text.removeprefix(file) for text in problems[:_MOST_PROBLEMS]]
            numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(listed, 1))
            rest = f" (the first {_MOST_PROBLEMS} faults follow)" * (len(problems) > _MOST_PROBLEMS)
            raise InputError(
                f"{file}{len(self._problems):,} columns need an option{rest}: {numbered}"
            )

    def _check_names(self) -> None:
        """Refuse a column of text that only names the rows."""
        for column, stats in zip(self.selection.texts, self.texts, strict=True):
            if (
                column in self._x - self.categorical
                and self.options.like is None
                and len(stats.codes) == self.n_rows >= _NAMED_ROWS
            ):
                name = self.files[0].columns[column]
                example = shown(next(iter(stats.codes)))
                self._refuse(
                    column,
                    f"{self.files[0].name}: the column {shown(name)} has another text in each row, such "
                    f"as {example}; give --name {shown(name)} if it names the rows, leave it out with "
                    f"--x '!{name}', or give --categorical",
                )

    def _refuse(self, column: int, problem: str) -> None:
        self._problems.setdefault(column, problem)

    def _check_numeric_texts(self) -> None:
        """Refuse columns of text that are meant as numbers: with commas, or with odd blanks."""
        table = self.files[0]
        if table.is_typed:
            return
        for column, stats in zip(self.selection.texts, self.texts, strict=True):
            if column in self.categorical or not stats.codes:
                continue
            start = f"{table.name}: the column {shown(table.columns[column])} holds"
            if not stats.text:
                self._refuse(
                    column,
                    f"{start} numbers such as {shown(next(iter(stats.codes)))}, and unusual blanks "
                    "around values; remove the blanks, or give --categorical",
                )
            elif self._refuse_marks(table, column, stats.codes):
                continue
            elif column in self._x and all(map(_WITH_UNIT.fullmatch, stats.codes)):
                example = shown(next(iter(stats.codes)))
                advice = "remove the signs, or give --categorical"
                self._refuse(column, f"{start} numbers with signs such as {example}; {advice}")
            elif column in self._x and all(map(AMBIGUOUS.fullmatch, stats.codes)):
                other = next((text for text in stats.codes if not table.parse_date(text)), "")
                advice = (
                    "whose day and month may be exchanged; give --date-order dmy or mdy for dates with "
                    "four digits of the year"
                )
                if order := getattr(self.options, "date_order", None):
                    advice = f"which --date-order {order} cannot read; correct them, give the other order"
                self._refuse(
                    column, f"{start} dates such as {shown(other)}, {advice}, or --categorical"
                )

    def _refuse_marks(self, file: TableFile, column: int, texts: Collection[str]) -> bool:
        """Refuse a column if all its texts are numbers with commas or other marks; whether it is one."""
        found = set(map(_options_of_marks, texts))
        if file.is_typed or "" in found:
            return False
        self._refuse(
            column,
            f"{file.name}: the column {shown(file.columns[column])} holds numbers with commas or other "
            f"marks, such as {shown(next(iter(texts)))}; give {max(found - {_COMMA} or found, key=len)} "
            "(or --categorical)",
        )
        return True

    def _check_integers(self) -> None:
        """Refuse integers that float64 changes; the text tells them from numbers such as 1e20."""
        columns = [
            self.selection.numbers[place] for place in np.flatnonzero(self.numbers.large).tolist()
        ]
        for file in self.files if columns else ():
            row = 0
            for batch in file.read(ColumnSelection([], columns), last=False):
                for column, texts in zip(columns, batch.texts, strict=True):
                    self._check_exact(file, column, texts, row)
                row += len(batch.texts[0].codes)

    def _check_exact(self, file: TableFile, column: int, texts: Texts, first_row: int) -> None:
        wrong = [code for code, value in enumerate(texts.values) if is_rounded_integer(value)]
        rows = np.flatnonzero(np.isin(texts.codes, wrong))
        if rows.size:
            found = texts.values[texts.codes[rows[0]]]
            raise InputError(
                f"{file.where(first_row + int(rows[0]))}: the column {shown(file.columns[column])} holds "
                f"{found}, an integer beyond 2^53, which is not exact as a number; leave the column out, "
                "or read it as --categorical"
            )

    def _read(self) -> bool:
        """Read the files; returns False if it must be done again, with another column as text."""
        numbers = [at for at in self.used if at not in self._as_text]
        texts = [at for at in self.used if at in self._as_text]
        # values of the column of names are read in the second pass only
        grouped = frozenset(self._grouped.intersection(numbers))
        self.selection = ColumnSelection(numbers, texts, frozenset(self._dates), grouped)
        self.numbers = NumberStats.empty(len(numbers))
        self.precision = Precision(self._budget)
        self._x_numbers = [place for place, at in enumerate(numbers) if at in self._x]
        self.texts = [TextStats() for _ in texts]
        self.n_rows = 0
        for file in self.files:
            row = 0
            try:
                for batch in computed_batches(file, self.selection, last=False):
                    rows = row + np.flatnonzero(keep := self.has_target(batch))
                    self._add(file, batch if keep.all() else batch.part(keep), rows)
                    row += len(batch)
            except TextInNumbersError as error:
                self._add_text(file, error)
                return False
        return True

    def has_target(self, batch: TableBatch) -> np.ndarray:
        """Which rows have a target, bool (m,); all, unless those without one are to be dropped."""
        at = self.roles.y
        if at is None or self.options.missing_target != "drop":
            return np.ones(len(batch), bool)
        if at in self.selection.texts:
            return batch.texts[self.selection.texts.index(at)].codes >= 0
        return ~np.isnan(batch.numbers[:, self.selection.numbers.index(at)])

    def _add_text(self, file: TableFile, error: TextInNumbersError) -> None:
        """Note that a column holds text; refuse it if other rows held numbers or dates."""
        column, what = error.column, f"the text {shown(error.value)}, but"
        if file.is_grouped(error.value) and column not in self._grouped:
            self._grouped.add(column)
            return
        parts = {at for at, (source, _) in file.date_parts.items() if source == column}
        if column in self._dates or parts:
            self._dates.discard(column)
            self.used = [at for at in self.used if at not in parts]
            self._refuse_mixed(file, error.row, column, f"{what} dates in other rows", error.value)
        elif (
            column == self.roles.weights or self.numbers.count[self.selection.numbers.index(column)]
        ):
            self._refuse_mixed(
                file, error.row, column, f"{what} numbers in other rows", error.value
            )
        if column == self.roles.weights:
            self._check_problems()
        self._as_text.add(column)

    def _add(self, file: TableFile, batch: TableBatch, rows: Ints) -> None:
        self.n_rows += len(rows)
        self._check_numbers(file, batch.numbers, rows)
        self.numbers.add(batch.numbers)
        if self._examines:
            self.precision.add_rows(batch.numbers[:, self._x_numbers])
        for place, texts in enumerate(batch.texts):
            self._check_missing(file, texts.codes < 0, self.selection.texts[place], rows)
            self._check_nul(file, texts, self.selection.texts[place], rows)
            if self.selection.texts[place] not in self._problems:
                self.texts[place].add(texts, rows, file.is_number)
        for place in range(len(batch.texts)):
            self._check_categories(file, place)
        size = sum(stats.size for stats in self.texts)
        self._budget.check(f"{file.name}: the different texts of the columns", size)

    def _check_numbers(self, file: TableFile, numbers: np.ndarray, rows: Ints) -> None:
        infinite, missing = np.isinf(numbers), np.isnan(numbers)
        if infinite.any():
            line, place = np.argwhere(infinite)[0].tolist()
            name = shown(file.columns[self.selection.numbers[place]])
            problem = (
                f"{file.where(rows[line])}: the column {name} is infinite; expected a finite number"
            )
            self._refuse(self.selection.numbers[place], problem)
        for place in np.flatnonzero(missing.any(0)).tolist():
            self._check_missing(file, missing[:, place], self.selection.numbers[place], rows)
        if self.roles.weights is not None:
            weights = numbers[:, self.selection.numbers.index(self.roles.weights)]
            if (weights < 0).any():
                line = int((weights < 0).argmax())
                raise InputError(
                    f"{file.where(rows[line])}: expected weights >= 0 in the column "
                    f"{shown(file.columns[self.roles.weights])}, got {weights[line]:g}; correct it, or "
                    "remove the row"
                )

    def _check_missing(self, file: TableFile, missing: np.ndarray, column: int, rows: Ints) -> None:
        accepted = self.options.missing == "drop" or (
            self.options.missing == "mean" and column in self._x
        )
        if accepted or not missing.any():
            return
        where = file.where(rows[missing.argmax()])
        if column in self._x:
            self._lacking.setdefault(column, where)
            return
        option = "--missing-target" if column == self.roles.y else "--missing"
        self._refuse(
            column,
            f"{where}: the column {shown(file.columns[column])} has no value; give {option} drop, to "
            "leave out such rows",
        )

    def _check_nul(self, file: TableFile, texts: Texts, column: int, rows: Ints) -> None:
        wrong = [code for code, value in enumerate(texts.values) if "\0" in value]
        found = rows[np.isin(texts.codes, wrong)]
        if found.size:
            self._refuse(
                column,
                f"{file.where(found[0])}: the column {shown(file.columns[column])} "
                "holds a NUL byte; expected text: is the file damaged? Otherwise remove the byte",
            )

    def _check_categories(self, file: TableFile, place: int) -> None:
        column, stats = self.selection.texts[place], self.texts[place]
        if column == self.roles.groups or column in self._problems:
            return
        if stats.number and stats.text and column not in self.categorical and not file.is_typed:
            late = max(stats.number, stats.text)
            other = min(stats.number, stats.text)
            kinds = ("number", "text") if late is stats.number else ("text", "number")
            what = f"the {kinds[0]} {shown(late[1])}, but the {kinds[1]} {shown(other[1])} before"
            self._refuse_mixed(file, late[0], column, what, stats.text[1])
        elif self.options.like is None and len(stats.codes) > self.options.max_categories:
            if column not in self.categorical and self._refuse_marks(file, column, stats.codes):
                return
            name, text = file.columns[column], next(iter(stats.codes))
            leave = (
                f"leave it out with --x '!{name}'" if column in self._x else "name another column"
            )
            if text.count(" ") >= _LEAST_WORDS:
                leave = f"count the words of texts first (sklearn's CountVectorizer), or {leave}"
            if (sequences := self._column_of_sequences(file)) is not None:
                alone = f"if the rows are sequences, name their column alone: --x '{sequences}'"
                leave = f"{alone}; otherwise {leave}"
            self._refuse(
                column,
                f"{file.name}: the column {shown(name)} has more than "
                f"{self.options.max_categories:,} different texts, such as {shown(text)}; {leave}, "
                "or raise --max-categories",
            )

    def _column_of_sequences(self, file: TableFile) -> str | None:
        """The name of the first column of text that begins with a sequence."""
        firsts = (next(iter(stats.codes), "") for stats in self.texts)
        named = zip(self.selection.texts, firsts, strict=True)
        # words such as "cars" consist of ambiguity codes, too
        sequences = (at for at, text in named if is_sequence(text) and not set(text) - _BASES)
        return next((file.columns[at] for at in sequences), None)

    def _refuse_mixed(self, file: TableFile, row: int, column: int, what: str, text: str) -> None:
        name = file.columns[column]
        advice = (
            f"correct it, give --na {shown(text)} if this means a missing value, or --categorical "
            f"{shown(name)} if all its values are categories"
        )
        if (options := _options_of_marks(text)) and not file.is_typed:
            advice = f"give {options} (or --categorical)"
        self._refuse(column, f"{file.where(row)}: the column {shown(name)} holds {what}; {advice}")


def _options_of_marks(text: str) -> str:
    """The options that read a number with other marks than a point before decimals; empty for others."""
    return next((options for marks, options in _MARKS if marks.fullmatch(text)), "")
