"""Numbers and categories from texts: dates as days and parts such as the month, and 1.234,56."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from fcl.convert.tables.contract import (
    ColumnSelection,
    TableBatch,
    TableFile,
    TextInNumbersError,
    Texts,
)
from fcl.errors import InputError

#: What a date becomes: days since 1970 and the year are numbers, the other parts are categories.
PARTS = ("days", "year", "month", "weekday", "hour")
NUMBERS = ("days", "year")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: Dates whose day and month may be exchanged.
AMBIGUOUS = re.compile(r"[0-9]{1,2}([./-])[0-9]{1,2}\1([0-9]{2}|[0-9]{4})( .*)?")
_START = datetime(1970, 1, 1, tzinfo=UTC)


def parse_parts(text: str) -> tuple[str, ...]:
    """The parts that an option names; raises InputError for others."""
    found = tuple(part.strip() for part in text.split(","))
    wrong = [part for part in found if part not in PARTS]
    if wrong:
        raise InputError(
            f"--dates: expected some of {', '.join(PARTS)}, separated by commas, got {wrong[0]!r}"
        )
    return found


def add_parts(files: Sequence[TableFile], parts: tuple[str, ...]) -> None:
    """Give tables columns such as ``signup:month`` for the columns of dates of the first one."""
    first = files[0]
    names: list[str] = []
    made: dict[int, tuple[int, str]] = {}
    for at in np.flatnonzero(first.looks_like_date).tolist():
        for part in parts:
            name = f"{first.columns[at]}:{part}"
            if part != "days" and name not in first.columns:
                made[first.width + len(names)] = at, part
                names.append(name)
    for file in files:
        file.date_parts = made
        file.columns = [*file.columns, *names]
        file.looks_like_text += [part not in NUMBERS for _, part in made.values()]


def computed_batches(
    table: TableFile, selection: ColumnSelection, last: bool
) -> Iterator[TableBatch]:
    """The batches of a table; dates, their parts and numbers with marks are computed from texts."""
    parts, grouped = table.date_parts, selection.grouped
    sources = {parts[at][0] for at in (*selection.numbers, *selection.texts) if at in parts}
    sources |= set(selection.dates)
    from_text = {*parts, *selection.dates, *grouped}
    numbers = [at for at in selection.numbers if at not in from_text]
    texts = [at for at in selection.texts if at not in parts]
    stored = ColumnSelection(numbers, [*texts, *sorted((sources | grouped) - set(texts))])
    number_places, text_places = stored.places()
    row = 0
    for batch in table.read(stored, last):
        times = {
            at: _parsed(table.parse_date, batch.texts[text_places[at]], at, row, _START)
            for at in sources
        }

        def number(
            at: int, batch: TableBatch = batch, times: dict = times, row: int = row
        ) -> np.ndarray:
            if at in number_places:
                return np.asarray(batch.numbers[:, number_places[at]])
            if at in grouped:
                texts = batch.texts[text_places[at]]
                values = _parsed(table.parse_grouped, texts, at, row, np.nan)
                return np.array([*values, np.nan])[texts.codes]
            source, part = parts.get(at, (at, "days"))
            return _numbers(times[source], batch.texts[text_places[source]].codes, part)

        def text(at: int, batch: TableBatch = batch, times: dict = times) -> Texts:
            if at in parts:
                source, part = parts[at]
                return _categories(times[source], batch.texts[text_places[source]].codes, part)
            return batch.texts[text_places[at]]

        found = np.empty((len(batch), len(selection.numbers)))
        for place, at in enumerate(selection.numbers):
            found[:, place] = number(at)
        yield TableBatch(found, [text(at) for at in selection.texts])
        row += len(batch)


def _parsed(
    parse: Callable[[str], Any], texts: Texts, column: int, first_row: int, default: Any
) -> list[Any]:
    """What the values of a column mean; ``default`` stands for invalid values that no row has."""
    found = [parse(value) for value in texts.values]
    used = set(texts.codes.tolist())
    wrong = [code for code, value in enumerate(found) if value is None and code in used]
    if wrong:
        row = int(np.isin(texts.codes, wrong).argmax())
        raise TextInNumbersError(column, first_row + row, texts.values[texts.codes[row]])
    return [default if value is None else value for value in found]


def _numbers(times: list[datetime], codes: np.ndarray, part: str) -> np.ndarray:
    if part == "days":
        values = [(time - _START) / timedelta(days=1) for time in times]
    else:
        values = [float(time.year) for time in times]
    return np.array([*values, np.nan])[codes]  # a missing value has the code -1


def _categories(times: list[datetime], codes: np.ndarray, part: str) -> Texts:
    if part == "weekday":
        found = [WEEKDAYS[time.weekday()] for time in times]
    else:
        found = [str(getattr(time, part)) for time in times]
    values = sorted(set(found))
    recoded = np.array([*map(values.index, found), -1])
    return Texts(recoded[codes], values)
