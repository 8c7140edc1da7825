"""What a section of the report gets, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from fcl.checks import shortened
from fcl.model.outputs import label_text, output_names
from fcl.numerals import read_number

if TYPE_CHECKING:
    from fcl.features.motif import Motif
    from fcl.model import Model
    from fcl.model.predictor import Predictor
    from fcl.report.measured import Measured
    from fcl.store import Location
    from fcl.types import Floats

#: Characters of a feature's description that the page shows.
LONGEST_NAME = 120


@dataclass(frozen=True)
class Table:
    """Rows of a table; numbers are float, int or None, everything else is text."""

    name: str  #: of the CSV file of ``--save-data``
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    shown: bool = True  #: whether the page shows the table; otherwise only the CSV file has it
    #: whether the page sorts and filters the table. Its last column is folded: the page shows the text
    #: before the first colon, and the rest on a click
    sortable: bool = False
    marked: int | None = None  #: the row that the page prints in bold

    @classmethod
    def of(cls, name: str, columns: Mapping[str, Iterable[Any]], caption: str = "") -> Table:
        """A table of columns by their names; without a caption, only the CSV file has it."""
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        return cls(name, list(columns), rows, caption, shown=bool(caption))


@dataclass(frozen=True)
class Figure:
    """A picture, with the numbers that it shows."""

    name: str  #: of the SVG file of ``--save-plots``, and of the CSV file of ``--save-data``
    #: SVG of each part, made by :mod:`fcl.report.figures`. The page shows them side by side, or one below
    #: the other where it is narrow
    panels: Sequence[str]
    caption: str = ""
    data: Table | None = None  #: the plotted numbers


@dataclass(frozen=True)
class Section:
    """A section of the page. All text is plain text, which the page escapes."""

    key: str  #: identifier in the page, such as ``scores``
    title: str
    lead: str = ""  #: sentences below the title
    facts: Sequence[tuple[str, str]] = ()
    blocks: Sequence[Figure | Table] = ()  #: in the order of the page
    notes: Sequence[str] = ()  #: paragraphs at the end
    folded: bool = False  #: whether the page shows the section only on a click


@dataclass(frozen=True)
class Context:
    """What the sections of one report share."""

    predictor: Predictor  #: the model, which may be a stagewise model
    path: Location  #: the model file; a section may look for folders beside it, such as checkpoints
    checksum: str  #: SHA-256 of the model file, hex
    names: Sequence[str] | None = None  #: of the columns of the rows, if the user gave them
    measured: Measured | None = None  #: on rows of data; None without data
    _words: dict[int, str] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model, for sections about models of :func:`fcl.train` alone."""
        return cast("Model", self.predictor)

    def feature(self, index: int) -> str:
        """The description of an active feature, by its index in ``model.ids``."""
        if index not in self._words:
            model = self.model
            words = model.feature_text(index)
            if self.names is not None:
                words = model.family.describe(int(model.ids[index]), self.names)
            self._words[index] = name_text(words)
        return self._words[index]

    @cached_property
    def weights(self) -> Floats:
        """The weights of the features of each output, float64 (k, K)."""
        return self.model.weights_by_output

    @cached_property
    def motifs(self) -> list[Motif | None]:
        """The pattern of each active feature; None for features that are not patterns of letters."""
        return [self.model.family.motif(int(feature)) for feature in self.model.ids]

    @cached_property
    def origin(self) -> int:
        """The position in a window that descriptions of the features call 0."""
        return next((m.origin for m in self.motifs if m is not None and m.start is not None), 0)

    @cached_property
    def outputs(self) -> list[str]:
        """A heading for each output: its name, or its number after the noun."""
        model = self.predictor
        names = [name_text(name) for name in output_names(model)]
        has_names = model.labels is not None or names == [""]
        return names if has_names else [f"{model.noun} {name}" for name in names]

    def heading(self, output: int) -> str:
        """The title of the picture of an output: its name, after the noun if the name is a number."""
        name = self.outputs[output]
        return name if read_number(name) is None else f"{self.predictor.noun} {name}"

    @property
    def nouns(self) -> str:
        """What the outputs are, in the plural."""
        return {"class": "classes"}.get(self.predictor.noun, f"{self.predictor.noun}s")

    @property
    def labels(self) -> tuple[str, str]:
        """The negative and the positive label of a model of one output, as text."""
        labels = self.model.labels or ("smaller", "larger")
        negative, positive = (name_text(label_text(label)) for label in labels)
        return negative, positive

    @property
    def directions(self) -> tuple[str, str]:
        """What negative and positive weights do, in words."""
        if not self.predictor.classifies:
            return "lower the prediction", "raise the prediction"
        if len(self.outputs) > 1:
            return "against it", "for it"
        negative, positive = self.labels
        return f"towards {negative}", f"towards {positive}"


def first_of(n: int, total: int, what: str = "") -> str:
    """A sentence that only the first ones are shown; empty if all are.  what : in the plural."""
    return f" The first {n:,} of {f'{total:,} {what}'.rstrip()}." if total > n else ""


def name_text(text: str) -> str:
    """A name from a file or a user's class as one short line of printable characters."""
    return shortened(text, LONGEST_NAME)


def number(value: Any) -> float:
    """A number among the options of a model, which may come from a stranger; NaN for anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else math.nan
