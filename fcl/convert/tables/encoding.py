"""From the columns of a table to the columns of X: numbers as they are, text as one-hot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from fcl.checks import shown
from fcl.convert.tables.contract import Batch
from fcl.convert.tables.reference import ReferenceColumns
from fcl.convert.tables.survey import Survey, TextStats
from fcl.data.sparse import SparseRows
from fcl.errors import InputError

__all__ = ["Encoding"]

#: The name of the category of rows without a value.
NO_VALUE = "(missing)"
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}


@dataclass(frozen=True)
class _OneHot:
    """A column of text: value -> column of X; ``missing`` is the column for rows without a value."""

    place: int  #: in the texts of a batch
    columns: dict[str, int]
    missing: int = -1  #: -1 if there is none


@dataclass
class Encoding:
    """The columns of X.

    Attributes
    ----------
    names : list of str
    number_places : list of int
        In the numbers of a batch.
    number_columns : list of int
        Of X, for each of these.
    means : float64 (k,)
        Values for missing numbers, by place in a batch.
    keeps_missing : bool
        Whether texts without a value are a category.
    unknown : int
        Values of rows that no column of X stands for.
    """

    means: np.ndarray
    keeps_missing: bool
    names: list[str] = field(default_factory=list)
    number_places: list[int] = field(default_factory=list)
    number_columns: list[int] = field(default_factory=list)
    one_hot: list[_OneHot] = field(default_factory=list)
    unknown: int = 0

    @classmethod
    def of(cls, survey: Survey) -> Encoding:
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
                found._add_number(name, numbers[at])
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
    def like(cls, reference: ReferenceColumns, survey: Survey) -> Encoding:
        """The columns of another data set, or of a model, by their names.

        Raises InputError for a mean that is needed and not known, or for a column of another kind.
        """
        table = survey.files[0]
        number_places, text_places = survey.selection.places()
        found = cls(survey.numbers.mean, survey.options.missing == "mean", list(reference.names))
        texts: dict[int, _OneHot] = {}
        for number, (name, at, value) in enumerate(reference.find(table)):
            if at in number_places:
                place = number_places[at]
                if name in reference.means:
                    found.means[place] = reference.means[name]
                elif found.keeps_missing and survey.numbers.count[place] < survey.n_rows:
                    raise InputError(
                        f"{table.name}: the column {shown(name)} has missing values, and the mean of "
                        f"the training rows is not known: {reference.advice}, or --missing drop"
                    )
                found.number_places.append(place)
                found.number_columns.append(number)
                continue
            place = text_places[at]
            old = texts.get(at) or _OneHot(place, {})
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
            texts[at] = _OneHot(place, columns, missing)
        found.one_hot = list(texts.values())
        return found

    def _add_number(self, name: str, place: int) -> None:
        self.number_places.append(place)
        self.number_columns.append(len(self.names))
        self.names.append(name)

    def _add_text(self, name: str, place: int, stats: TextStats, is_flag: bool) -> None:
        has_missing = stats.missing and self.keeps_missing
        start = len(self.names)
        if is_flag:
            self.names.append(name)
            columns = dict.fromkeys(_TRUE, start)
        else:
            values = sorted(stats.codes)
            self.names += [f"{name}={value}" for value in values]
            columns = {value: start + code for code, value in enumerate(values)}
        missing = -1
        if has_missing:
            missing = columns.get(NO_VALUE, len(self.names))
            if missing == len(self.names):
                self.names.append(f"{name}={NO_VALUE}")
        self.one_hot.append(_OneHot(place, columns, missing))

    def density(self, survey: Survey) -> float:
        """The share of the values of X that are not 0."""
        entries = int(survey.numbers.nonzero[self.number_places].sum())
        entries += len(self.one_hot) * survey.n_rows
        return entries / max(1, survey.n_rows * len(self.names))

    def dense(self, batch: Batch, dtype: np.dtype) -> np.ndarray:
        """Rows of X: array (m, columns)."""
        x = np.zeros((len(batch), len(self.names)), dtype)
        x[:, self.number_columns] = self._numbers(batch)
        for one_hot in self.one_hot:
            columns = self._columns(batch, one_hot)
            rows = np.flatnonzero(columns >= 0)
            x[rows, columns[rows]] = 1
        return x

    def sparse(self, batch: Batch, dtype: np.dtype) -> SparseRows:
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

    def _numbers(self, batch: Batch) -> np.ndarray:
        numbers = batch.numbers[:, self.number_places]
        if np.isnan(numbers).any():
            numbers = np.where(np.isnan(numbers), self.means[self.number_places], numbers)
        return numbers

    def _columns(self, batch: Batch, one_hot: _OneHot) -> np.ndarray:
        """The column of X in which each row has a 1; -1 for none."""
        texts = batch.texts[one_hot.place]
        found = texts.recoded(one_hot.columns)
        known = one_hot.columns.keys() | _FALSE
        lacking = [code for code, value in enumerate(texts.values) if value not in known]
        self.unknown += int(np.isin(texts.codes, lacking).sum()) if lacking else 0
        return np.where(texts.codes < 0, one_hot.missing, found)


def _is_flag(stats: TextStats) -> bool:
    return bool(stats.codes) and stats.codes.keys() <= _TRUE | _FALSE
