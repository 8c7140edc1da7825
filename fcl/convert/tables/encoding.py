"""From the columns of a table to the columns of X: numbers as they are, text as one-hot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fcl.checks import listed, shortened, shown
from fcl.convert.reference import Reference
from fcl.convert.tables.columns import find_columns
from fcl.convert.tables.contract import TableBatch
from fcl.convert.tables.survey import Survey, TextStats
from fcl.data.columns import by_whole_number, spellings, whole_number
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.units import counted

#: The name of the category of rows without a value.
NO_VALUE = "(missing)"
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}


@dataclass(frozen=True)
class _OneHot:
    """A column of text: value -> column of X; ``missing`` is the column for rows without a value."""

    name: str
    place: int  #: in the texts of a batch
    columns: dict[str, int]
    missing: int = -1  #: -1 if there is none
    known: frozenset[str] = frozenset()  #: categories of the training data without a column of X

    @cached_property
    def expected(self) -> frozenset[str]:
        """Texts that need no second look."""
        return frozenset({*self.columns, *self.known, *_FALSE})

    def respelled(self, value: str) -> int:
        """The column of X of a whole number that is spelled in another way; -1 for none."""
        number = whole_number(value)
        return -1 if number is None else self._numbers.get(number, -1)

    def is_known(self, value: str) -> bool:
        """Whether a value without a column of X is one of the training data."""
        return value in self.known or value in _FALSE or whole_number(value) in self._numbers

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return by_whole_number({**dict.fromkeys(self.known, -1), **self.columns})


@dataclass
class TableEncoding:
    """The columns of X.

    number_places : in the numbers of a batch.
    number_columns : of X, for each of these.
    means : float64 (k,), values for missing numbers, by place in a batch.
    keeps_missing : whether texts without a value are a category.
    categories : dict of str to list of str, columns of text that are one-hot, and their categories.
    unknown : values that no column of X stands for, as (column, value), and their numbers of rows.
    reference_words : where these values are lacking.
    """

    means: np.ndarray
    keeps_missing: bool
    names: list[str] = field(default_factory=list)
    number_places: list[int] = field(default_factory=list)
    number_columns: list[int] = field(default_factory=list)
    one_hot: list[_OneHot] = field(default_factory=list)
    categories: dict[str, list[str]] = field(default_factory=dict)
    unknown: Counter[tuple[str, str]] = field(default_factory=Counter)
    reference_words: str = ""

    @classmethod
    def of(cls, survey: Survey) -> TableEncoding:
        """One column for each number, and one for each category, in alphabetical order."""
        found = cls(survey.numbers.mean, survey.options.missing == "mean")
        numbers, texts = survey.selection.places()
        for at in survey.roles.x:
            name = survey.files[0].columns[at]
            if at in numbers:
                if survey.options.missing == "mean" and not survey.numbers.count[numbers[at]]:
                    raise InputError(
                        f"{survey.files[0].name}: the column {shown(name)} has no value in any row, "
                        "and so no mean; leave it out with --x"
                    )
                found.number_places.append(numbers[at])
                found.number_columns.append(len(found.names))
                found.names.append(name)
            else:
                place = texts[at]
                stats = survey.texts[place]
                is_flag = at not in survey.categorical and _is_flag(stats)
                found._add_text(name, place, stats, is_flag)
        if len(set(found.names)) < len(found.names):
            twice = next(name for name, count in Counter(found.names).items() if count > 1)
            raise InputError(
                f"{survey.files[0].name}: a column and a category would both have the name "
                f"{shown(twice)}; rename the column"
            )
        return found

    @classmethod
    def like(cls, reference: Reference, survey: Survey) -> TableEncoding:
        """The columns of another data set, or of a model, by their names."""
        table = survey.files[0]
        number_places, text_places = survey.selection.places()
        record = reference.record
        names = [name for _, name in record.named]
        found = cls(survey.numbers.mean, survey.options.missing == "mean", names)
        texts: dict[int, _OneHot] = {}
        for number, (name, at, value) in enumerate(find_columns(reference, table)):
            if at in number_places:
                place = number_places[at]
                if name in record.means:
                    found.means[place] = record.means[name]
                elif found.keeps_missing and survey.numbers.count[place] < survey.n_rows:
                    raise InputError(
                        f"{table.name}: the column {shown(name)} has missing values, and the mean of "
                        f"the training rows is not known: {reference.advice}, or --missing drop"
                    )
                found.number_places.append(place)
                found.number_columns.append(number)
                continue
            place = text_places[at]
            column = table.columns[at]
            known = frozenset(record.categories.get(column, ()))
            old = texts.get(at) or _OneHot(column, place, {}, known=known)
            if value is None:
                if not _is_flag(survey.texts[place]):
                    raise InputError(
                        f"{table.name}: the column {shown(name)} holds text, but numbers in "
                        f"{reference.words}; expected the same kind"
                    )
                columns = dict.fromkeys(_TRUE, number)
            else:
                columns = {**old.columns, value: number}
            missing = number if value == NO_VALUE else old.missing
            texts[at] = replace(old, columns=columns, missing=missing)
        found.one_hot = list(texts.values())
        if reference.is_complete:
            found.reference_words = "--like"
        elif all(one.known or one.columns.keys() <= _TRUE for one in found.one_hot):
            found.reference_words = "the training data"
        else:  # a model of an earlier version, which does not know the others
            found.reference_words = "the categories that the model reads"
        found.categories = {
            one.name: list(record.categories.get(one.name, one.columns)) for one in found.one_hot
        }
        return found

    def _add_text(self, name: str, place: int, stats: TextStats, is_flag: bool) -> None:
        has_missing = stats.missing and self.keeps_missing
        start = len(self.names)
        if is_flag:
            self.names.append(name)
            columns = dict.fromkeys(_TRUE, start)
        else:
            kept = spellings(stats.codes)
            values = sorted(set(kept.values()))
            self.names += [f"{name}={value}" for value in values]
            codes = {value: start + code for code, value in enumerate(values)}
            columns = {value: codes[spelling] for value, spelling in kept.items()}
            self.categories[name] = values + [NO_VALUE] * bool(has_missing)
        missing = -1
        if has_missing:
            missing = columns.get(NO_VALUE, len(self.names))
            if missing == len(self.names):
                self.names.append(f"{name}={NO_VALUE}")
        self.one_hot.append(_OneHot(name, place, columns, missing))

    def density(self, survey: Survey) -> float:
        """The share of the values of X that are not 0."""
        entries = int(survey.numbers.nonzero[self.number_places].sum())
        entries += len(self.one_hot) * survey.n_rows
        return entries / max(1, survey.n_rows * len(self.names))

    def dense(self, batch: TableBatch, dtype: np.dtype) -> np.ndarray:
        """Rows of X: array (m, columns)."""
        x = np.zeros((len(batch), len(self.names)), dtype)
        x[:, self.number_columns] = self._numbers(batch)
        for one_hot in self.one_hot:
            columns = self._columns(batch, one_hot)
            rows = np.flatnonzero(columns >= 0)
            x[rows, columns[rows]] = 1
        return x

    def sparse(self, batch: TableBatch, dtype: np.dtype) -> SparseRows:
        """Rows of X as CSR."""
        from scipy.sparse import csr_matrix

        numbers = self._numbers(batch).astype(dtype)
        at = np.nonzero(numbers)
        rows, columns = [at[0]], [np.asarray(self.number_columns, np.int64)[at[1]]]
        for one_hot in self.one_hot:
            found = self._columns(batch, one_hot)
            rows.append(np.flatnonzero(found >= 0))
            columns.append(found[found >= 0])
        ones = np.ones(sum(map(len, rows[1:])), dtype)
        data = np.concatenate([numbers[at], ones])
        indices = np.concatenate(rows), np.concatenate(columns)
        x = csr_matrix((data, indices), (len(batch), len(self.names)))
        x.sort_indices()
        return SparseRows(x.indptr.astype(np.int64), x.indices, x.data, len(self.names))

    def _numbers(self, batch: TableBatch) -> np.ndarray:
        numbers = batch.numbers[:, self.number_places]
        if np.isnan(numbers).any():
            numbers = np.where(np.isnan(numbers), self.means[self.number_places], numbers)
        return numbers

    def _columns(self, batch: TableBatch, one_hot: _OneHot) -> np.ndarray:
        """The column of X in which each row has a 1; -1 for none."""
        texts = batch.texts[one_hot.place]
        columns = one_hot.columns
        others = [code for code, value in enumerate(texts.values) if value not in one_hot.expected]
        if others:
            respelled = {
                texts.values[code]: one_hot.respelled(texts.values[code]) for code in others
            }
            columns = columns | respelled
            counts = np.bincount(texts.codes[texts.codes >= 0], minlength=len(texts.values))
            for value, count in zip(respelled, counts[others].tolist(), strict=True):
                if count and respelled[value] < 0 and not one_hot.is_known(value):
                    self.unknown[one_hot.name, value] += count
        is_missing = texts.codes < 0
        if one_hot.missing < 0 and is_missing.any() and not one_hot.is_known(NO_VALUE):
            self.unknown[one_hot.name, NO_VALUE] += int(is_missing.sum())
        return np.where(is_missing, one_hot.missing, texts.recoded(columns))

    @property
    def unknown_note(self) -> str:
        """Count and name the values without a column in X, in one line; empty if each has a column."""
        if not self.unknown:
            return ""
        some = [
            f"{shortened(column, 40)}={shown(value)} ({count:,})"
            for (column, value), count in self.unknown.most_common()
        ]
        return (
            f"categories: {counted(self.unknown.total(), 'value')} not in {self.reference_words}; "
            f"columns of 0 stand for them: {listed(some, show=str)}"
        )


def _is_flag(stats: TextStats) -> bool:
    return bool(stats.codes) and stats.codes.keys() <= _TRUE | _FALSE
