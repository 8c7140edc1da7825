"""``fcl-predict --explain``: the largest contributions to the margin of each row, as TSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fcl.cli.common import printable
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model import Model
    from fcl.model.explain import Explanation
    from fcl.model.scores import OnMargins

__all__ = ["check_explained", "write_explanations"]


def check_explained(out: str) -> None:
    """Raise InputError unless the output is text: ``.tsv``, ``.tsv.gz`` or standard output."""
    from fcl.model.text_output import text_suffix

    if text_suffix(out) != ".tsv":
        raise InputError(
            f"{out}: --explain writes text and numbers; expected a name that ends in .tsv"
        )


def write_explanations(
    model: Model,
    data: DataSet,
    out: str,
    kind: str,
    top: int,
    overwrite: bool,
    on_margins: OnMargins | None = None,
) -> int:
    """Write one line for each row; returns the number of rows.

    The columns are the score (if `kind` is not ``margin``), the margin, the intercept, the offset plus
    what covariates add (if there are any), ``feature_1``, ``contribution_1`` and so on by decreasing
    |contribution|, and ``others``: the sum of all other contributions. The margin is the sum of the
    columns after it.

    Parameters
    ----------
    model, data : Model, DataSet
    out : str
        A file whose name ends in ``.tsv``.
    kind : {"margin", "probability", "mean"}
        As for :func:`fcl.model.scores.write_scores`.
    top : int
        Number of contributions.
    overwrite : bool
        Whether to replace an existing file.
    on_margins : callable
        As for :func:`fcl.model.scores.write_scores`.

    Raises
    ------
    InputError
        As from :meth:`fcl.Model.explain`, or as :func:`fcl.model.atomic.atomic_file` does.
    """
    from fcl.model.explain import iter_explanations
    from fcl.model.text_output import text_output

    lines = _Lines(
        model, kind, data.offset is not None or bool(model.covariates), min(top, len(model.ids))
    )
    n_rows = 0
    with text_output(out, overwrite) as file:
        file.write(lines.head().encode())
        for explained in iter_explanations(model, data, top):
            file.write("".join(lines.of(explained)).encode())
            if on_margins is not None:
                on_margins(n_rows, n_rows + len(explained), explained.margins)
            n_rows += len(explained)
    return n_rows


@dataclass(frozen=True)
class _Lines:
    """Formats explanations as lines."""

    model: Model
    kind: str
    has_offset: bool
    top: int

    def head(self) -> str:
        """The names of the columns."""
        names = [] if self.kind == "margin" else [self.kind]
        names += ["margin", "intercept", *["offset"] * self.has_offset]
        for rank in range(1, self.top + 1):
            names += [f"feature_{rank}", f"contribution_{rank}"]
        return "\t".join([*names, "others"]) + "\n"

    def of(self, explained: Explanation) -> Iterator[str]:
        """The lines of a block of rows."""
        words = cache(self._words)
        scores = self.model.loss_object.mean(explained.margins) if self.kind != "margin" else None
        for i in range(len(explained)):
            numbers = [] if scores is None else [scores[i]]
            numbers += [explained.margins[i], self.model.intercept]
            numbers += [explained.offset[i]] * self.has_offset
            cells = [f"{number:.17g}" for number in numbers]
            pairs = zip(explained.indices[i], explained.contributions[i], strict=True)
            for index, value in pairs:
                # a feature that is 0 in the row contributes nothing, whichever it is
                cells += [words(int(index)), f"{value:.17g}"] if value else ["", "0"]
            yield "\t".join([*cells, f"{explained.others[i]:.17g}"]) + "\n"

    def _words(self, index: int) -> str:
        return printable(self.model.feature_text(index))
