"""The rows of tables, after a first reading that decides about their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import (
    Budget,
    Categorical,
    Column,
    ConvertedRows,
    ConvertSource,
    OutputLayout,
)
from fcl.convert.files import InputFile
from fcl.convert.reference import Reference
from fcl.convert.tables.columns import ColumnOptions, Roles
from fcl.convert.tables.contract import (
    TableBatch,
    TableFile,
    least_rows,
    shown_columns,
)
from fcl.convert.tables.dates import PARTS, add_parts, computed_batches, parse_parts
from fcl.convert.tables.encoding import TableEncoding
from fcl.convert.tables.survey import Survey
from fcl.errors import InputError
from fcl.units import counted

#: A CSR matrix takes less space than an array if fewer values than this share are not 0.
_SPARSE_BELOW = 0.25


class TableSource(ConvertSource):
    """Rows of tables with the same columns."""

    def __init__(
        self,
        inputs: Sequence[InputFile],
        files: Sequence[TableFile],
        options: ColumnOptions,
        budget: Budget,
    ) -> None:
        super().__init__(inputs)
        self._files, self._options = files, options
        _check_same_columns(files)
        like = options.like
        if isinstance(like, str):
            like = Reference.read(like)
        add_parts(files, parse_parts(options.dates) if like is None else PARTS)
        if like is not None and not like.record.names:
            _refuse_without_names(like, options)
            like = None
        forced: list[int] = []
        if like is None:
            roles = Roles.of(files[0], options)
        else:
            roles, forced = Roles.like(like, files[0], options)
        self._roles = roles
        known_type = None if like is None else like.numbers
        self._survey = survey = Survey(files, roles, options, forced, budget, known_type)
        if not survey.n_rows:
            raise InputError(f"{files[0].name}: has the names of columns, but no rows")
        self._is_complete = like is None or like.is_complete
        if like is None:
            self._encoding = TableEncoding.of(survey)
        else:
            self._encoding = TableEncoding.like(like, survey)
            ignored = files[0].width - len(survey.used)
            if ignored and not self._is_complete:
                self.notes.append(f"columns: left out {ignored:,} of the table")
        self._layout = self._find_layout()
        # the categories of the columns beside X
        self._labels = {
            at: (survey.texts[place].codes, list(survey.texts[place].codes))
            for place, at in enumerate(survey.selection.texts)
            if at in (roles.y, roles.groups)
        }
        self._note_columns()

    @property
    def layout(self) -> OutputLayout:
        return self._layout

    def attributes(self) -> dict[str, Any]:
        encoding = self._encoding
        if note := encoding.unknown_note:
            self.notes.append(note)
        names = [encoding.names[column] for column in encoding.number_columns]
        means = encoding.means[encoding.number_places]
        counts = self._survey.n_rows - self._survey.numbers.count[encoding.number_places]
        filled = dict(zip(names, counts.tolist(), strict=True))
        if self._options.missing != "mean":
            filled = {}
        return {
            "means": dict(zip(names, means.tolist(), strict=True)),
            "filled": {name: count for name, count in filled.items() if count},
            "categories": encoding.categories,
            "numbers": str(self._layout.dtype),
        }

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        selection = self._survey.selection
        if self._roles.name is not None:
            texts = [*selection.texts, self._roles.name]
            selection = replace(selection, texts=texts)
        # a row in memory: the numbers twice, and X
        x = len(self._encoding.names)
        if (
            self._layout.kind == "sparse"
        ):  # entries, their rows and columns, before and after sorting
            x = 6 * (len(self._encoding.number_places) + len(self._encoding.one_hot))
        least = least_rows(len(self._survey.used))
        rows = budget.block_rows(8 * (2 * len(selection.numbers) + x), least)
        for file in self._files:
            for batch in computed_batches(file, selection, last=True):
                for start in range(0, len(batch), rows):
                    yield self._rows(batch.part(slice(start, start + rows)))

    def _find_layout(self) -> OutputLayout:
        encoding, survey, options = self._encoding, self._survey, self._options
        density = encoding.density(survey)
        kind = options.layout
        if kind == "auto":
            kind = "sparse" if density < _SPARSE_BELOW else "dense"
            self.notes.append(
                f"layout: {kind}, as {density:.1%} of the values are not 0 (--layout)"
            )
        dtype, why = survey.stored_type()
        if why and encoding.number_places:
            self.notes.append(f"numbers: {why}")
        names = encoding.names
        return OutputLayout("sparse" if kind == "sparse" else "dense", dtype, len(names), names)

    def _note_columns(self) -> None:
        columns = self._files[0].columns
        survey, roles = self._survey, self._roles
        flags = set(self._encoding.names)  # one column of their own name
        as_text = set(survey.selection.texts)
        texts = [columns[at] for at in roles.x if at in as_text]
        texts = [name for name in texts if name not in flags]
        if texts:
            self.notes.append(f"one-hot: {shown_columns(texts)}")
        if survey.selection.dates:
            dates = shown_columns([columns[at] for at in sorted(survey.selection.dates)])
            self.notes.append(f"dates: {dates}, as days since 1970-01-01 (--dates)")
        for at in roles.left_out:
            why = (
                f"{shown(columns[at])}, the index of pandas" if columns[at] else "which has no name"
            )
            self.notes.append(f"left out: column {at + 1}, {why}")
        if roles.y is None:
            self.notes.append("y: none; name the column of the target with --y")
        missing = int((survey.n_rows - survey.numbers.count).sum())
        missing += sum(stats.missing for stats in survey.texts)
        if missing and self._options.missing == "mean":
            self.notes.append(
                f"missing: {counted(missing, 'value')}; means for numbers, a category for text "
                "(--missing)"
            )

    def _rows(self, batch: TableBatch) -> ConvertedRows:
        source_row = np.arange(self.rows_in, self.rows_in + len(batch))
        self.rows_in += len(batch)
        keep = self._kept(batch)
        if not keep.all():
            batch, source_row = batch.part(keep), source_row[keep]
        encode = self._encoding.sparse if self._layout.kind == "sparse" else self._encoding.dense
        obs: dict[str, Column] = {}
        if self._roles.groups is not None:
            obs["group"] = self._column(batch, self._roles.groups)
        if self._roles.name is not None:
            texts = batch.texts[-1]
            values = [texts.values[code] if code >= 0 else "" for code in texts.codes.tolist()]
            obs["name"] = np.array(values, np.dtypes.StringDType())
        y = None if self._roles.y is None else self._column(batch, self._roles.y)
        weights = None
        if self._roles.weights is not None:
            at = self._survey.selection.numbers.index(self._roles.weights)
            weights = batch.numbers[:, at].copy()  # the writer may keep it
        return ConvertedRows(encode(batch, self._layout.dtype), source_row, y, weights, obs)

    def _kept(self, batch: TableBatch) -> np.ndarray:
        """Which rows are converted; the others are counted."""
        has_target = self._survey.has_target(batch)
        complete = np.ones(len(batch), bool)
        if self._options.missing == "drop":
            complete = ~np.isnan(batch.numbers).any(1)
            for texts in batch.texts[: len(self._survey.selection.texts)]:
                complete &= texts.codes >= 0
        self.drop("without a target", ~has_target)
        self.drop("with missing values", has_target & ~complete)
        return has_target & complete

    def _column(self, batch: TableBatch, at: int) -> Column:
        """A column beside X: numbers, integers if all of them are, or a categorical."""
        selection = self._survey.selection
        if at in selection.texts:
            codes, categories = self._labels[at]
            texts = batch.texts[selection.texts.index(at)]
            return Categorical(texts.recoded(codes), categories)
        place = selection.numbers.index(at)
        whole = self._survey.numbers.whole[place]
        return batch.numbers[:, place].astype(np.int64 if whole else np.float64)


def _refuse_without_names(like: Reference, options: ColumnOptions) -> None:
    """Raise InputError if columns without names do not serve; a model may read all columns in order."""
    if like.is_complete:
        raise InputError(
            f"--like: {like.name} has no names of columns; expected an output of fcl convert"
        )
    if options.missing == "mean":
        raise InputError(
            f"--missing mean: the means of the training rows are not known; {like.advice}, or --missing "
            "drop"
        )


def _check_same_columns(files: Sequence[TableFile]) -> None:
    first = files[0]
    for file in files[1:]:
        if file.columns != first.columns:
            other = next((name for name in file.columns if name not in first.columns), None)
            why = "another order" if other is None else f"the column {shown(other)}"
            if len(file.columns) != len(first.columns):
                why = f"{counted(len(file.columns), 'column')} instead of {len(first.columns):,}"
            raise InputError(
                f"{file.name} has {why}; expected the columns of {first.name}, in the same order"
            )
