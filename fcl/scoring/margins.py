"""Margins of the blocks of rows that a source yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fcl.convert.contract import Categorical, Column, OutputLayout
from fcl.data.base import RowReader
from fcl.data.column_map import ColumnMap, cut
from fcl.data.covariates import CovariateArray
from fcl.data.memory import MemoryReader
from fcl.data.sparse import SparseRows, from_matrix
from fcl.errors import InputError
from fcl.model.columns import match
from fcl.model.covariates import covariate_margins
from fcl.model.explain import ExplainedOutput, Explanation, explain_rows
from fcl.model.model import Model
from fcl.model.outputs import scores_of
from fcl.model.predictor import Predictor
from fcl.types import Floats
from fcl.units import counted


class BlockScorer:
    """Computes the margins of rows block by block, with one scorer for all blocks.

    ignored_entries : entries of sparse rows in columns that the training rows did not have.
    """

    def __init__(self, model: Predictor) -> None:
        if model.has_offset:
            raise InputError(
                "the model was trained with an offset, which these inputs lack; convert them with fcl "
                "convert, add the offset as an array, and give --offset NAME"
            )
        self.model = model
        self.ignored_entries = 0
        self._name = ""
        self._family = model.family
        self._margins_of = model.scorer()
        self._shape = scores_of(model, "margin").shape
        self._map: ColumnMap | None = None
        self._note = ""
        self._is_matched = False

    @property
    def notes(self) -> list[str]:
        """Lines for the summary."""
        notes = [self._note] if self._note else []
        if self.ignored_entries:
            notes.append(
                f"columns: ignored {counted(self.ignored_entries, 'entry', 'entries')} beyond the "
                f"{counted(self._family.row_width, 'column')} of the training rows"
            )
        return notes

    def margins(
        self,
        x: np.ndarray | SparseRows,
        layout: OutputLayout,
        name: str,
        obs: Mapping[str, Column] | None = None,
    ) -> Floats:
        """Margins of the rows of a block, with the intercept: float64 (m,), or (m, K) for K outputs.

        x : array (m, width) or SparseRows, as a source yields it.
        obs : mapping of str to column, optional, what is known about the rows, such as their covariates.
        """
        if not len(x):
            return np.empty(self._shape(0))
        if not self._is_matched:
            self._match(layout, name)
        self._name = name
        if isinstance(x, SparseRows) and self._map is None:
            self.ignored_entries += int((x.indices >= self._family.row_width).sum())
        margins = self.of_rows(self._reader(x))
        if self.model.covariate_names:
            margins += self._added(len(x), obs or {}, name).reshape(margins.shape)
        return margins

    def _added(self, n_rows: int, obs: Mapping[str, Column], name: str) -> Floats:
        """What covariates add to the margins (n, K), given what is known about the rows."""
        assert isinstance(self.model, Model)  # others have no covariates
        found = []
        for wanted in self.model.covariate_names:
            column = obs.get(wanted.removeprefix("obs/"))
            if column is None:
                names = ",".join(self.model.covariate_names)
                raise InputError(
                    f"{name} lacks {wanted}, and the model was trained with the covariates {names}; for "
                    "PLINK files give --covariates FILE; convert others with fcl convert, and add arrays "
                    "of these names"
                )
            if isinstance(column, Categorical):
                found.append(CovariateArray(wanted, column.codes, tuple(column.categories)))
            else:
                found.append(CovariateArray(wanted, np.asarray(column, np.float64)[:, None]))
        return covariate_margins(self.model.covariates, found, n_rows, self.model.n_outputs, name)

    def explanations(
        self, output: ExplainedOutput, x: np.ndarray | SparseRows, top: int
    ) -> Iterator[Explanation]:
        """The `top` largest contributions to an output of rows that were scored before."""
        if len(x):
            yield from explain_rows(output, self._reader(x), np.zeros(len(x)), top)

    def of_rows(self, rows: RowReader) -> Floats:
        """Margins of rows like the training rows, as :meth:`margins` returns them."""
        found = np.empty(self._shape(rows.shape[0]))
        for start, stop, block in self._family.read_rows(rows, self._family.most_block_rows()):
            found[start:stop] = self._margins_of(block).reshape(found[start:stop].shape)
        return found

    def _match(self, layout: OutputLayout, name: str) -> None:
        """Match the columns of the input to the columns that the model reads, once."""
        self._is_matched = True
        if (layout.kind == "codes") != (self._family.row_kind == "sequences"):
            kinds = {"codes": "sequences", "dense": "numbers", "sparse": "sparse numbers"}
            raise InputError(
                f"{name} has rows of {kinds[layout.kind]}, but the features of the model "
                f"({self._family.name}) are made for {self._family.row_kind}"
            )
        width = self._family.row_width
        wanted, given = self.model.column_record, layout.record
        # rows of svmlight files may have fewer columns than the training rows, or more
        n_given = width if given.names is None else len(given.names)
        try:
            found = match(wanted, given, width, n_given)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        self._note = found.note
        if not found.changes_nothing:
            self._map = found
            return
        if given.names is not None and wanted.names is not None:
            return
        if layout.kind == "dense" and layout.width != width:
            raise InputError(
                f"{name} has {counted(layout.width, 'column')}, but the model has no names of "
                "columns and was "
                f"trained with {width:,}; expected the same columns in the same order"
            )
        elif layout.kind == "codes" and layout.width != width:
            raise InputError(_other_length(name, layout.width, width, self._family))

    def _reader(self, x: np.ndarray | SparseRows) -> RowReader:
        """The rows of a block, with the columns of the training rows."""
        if isinstance(x, SparseRows):
            rows = cut(x, self._family.row_width) if self._map is None else self._map.sparse(x)
            return from_matrix(rows, self._name)
        return MemoryReader(x if self._map is None else self._map.dense(x), self._name)


def _other_length(name: str, length: int, expected: int, family: object) -> str:
    """The message about windows of another length than the model's."""
    origin = getattr(family, "origin", 0)
    window = (
        f"; for intervals, --window -{origin}:+{expected - origin}" if 0 < origin < expected else ""
    )
    return (
        f"{name}: the rows have {counted(length, 'letter')}, but the model is made for windows "
        f"of {expected:,}; "
        f"give --length {expected} (and --anchor, or --pad for shorter sequences){window}"
    )
