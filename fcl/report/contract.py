"""What a section of the report gets, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fcl.checks import shortened

if TYPE_CHECKING:
    from fcl.model import Model
    from fcl.model.predictor import Predictor
    from fcl.report.measured import Measured
    from fcl.report.outputs import MeasuredOutputs
    from fcl.store import Location

#: Characters of a feature's description that the page shows.
LONGEST_NAME = 120
#: Words for several outputs.
PLURALS = {"class": "classes", "target": "targets", "label": "labels"}


@dataclass(frozen=True)
class Table:
    """Rows of a table; numbers are float, int or None, everything else is text.

    Attributes
    ----------
    name : str
        Name of the CSV file of ``--save-data``.
    head : sequence of str
        Names of the columns.
    rows : sequence of sequences
    caption : str
    shown : bool
        Whether the page shows the table; otherwise only the CSV file has it.
    sortable : bool
        Whether the page sorts and filters the table. Its last column is folded: the page shows the text
        before the first colon, and the rest on a click.
    """

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    shown: bool = True
    sortable: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture, with the numbers that it shows.

    Attributes
    ----------
    name : str
        Name of the SVG file of ``--save-plots``, and of the CSV file of ``--save-data``.
    svg : str
        Made by :mod:`fcl.report.figures`.
    caption : str
    data : Table or None
        The plotted numbers.
    """

    name: str
    svg: str
    caption: str = ""
    data: Table | None = None


@dataclass(frozen=True)
class Section:
    """A section of the page. All text is plain text, which the page escapes.

    Attributes
    ----------
    key : str
        Identifier in the page, such as ``scores``.
    title : str
    lead : str
        Sentences below the title.
    facts : sequence of (name, text)
    blocks : sequence of Figure or Table
        In the order of the page.
    notes : sequence of str
        Paragraphs at the end.
    """

    key: str
    title: str
    lead: str = ""
    facts: Sequence[tuple[str, str]] = ()
    blocks: Sequence[Figure | Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Context:
    """What the sections of one report share.

    Attributes
    ----------
    model : Model
    path : Path
        The model file; a section may look for folders beside it, such as checkpoints.
    checksum : str
        SHA-256 of the model file, hex.
    names : sequence of str or None
        Names of the columns of the rows, if the user gave them.
    measured : Measured or None
        Measured on rows of data; None without data, and for a model of several outputs.
    outputs : MeasuredOutputs or None
        Measured on rows of data for a model of several outputs.
    """

    model: Model
    path: Location
    checksum: str
    names: Sequence[str] | None = None
    measured: Measured | None = None
    outputs: MeasuredOutputs | None = None
    _words: dict[int, str] = field(default_factory=dict)

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
    def origin(self) -> int:
        """The position in a window that descriptions of the features call 0."""
        motifs = (self.model.family.motif(int(feature)) for feature in self.model.ids)
        return next((m.origin for m in motifs if m is not None and m.start is not None), 0)

    @property
    def of_outputs(self) -> OutputsContext:
        """What sections about several outputs of any model share."""
        return OutputsContext(self.model, self.path, self.checksum, self.outputs)

    @property
    def labels(self) -> tuple[str, str]:
        """The negative and the positive label of a model of one output, as text."""
        labels = self.model.labels or ("smaller", "larger")
        negative, positive = (_label_text(label) for label in labels)
        return negative, positive


@dataclass(frozen=True)
class OutputsContext:
    """What the sections about a model of several outputs, or of another format, share.

    Attributes
    ----------
    model : Predictor
    path : Path
        The model file.
    checksum : str
        SHA-256 of the model file, hex.
    measured : MeasuredOutputs or None
        Measured on rows of data; None without data.
    """

    model: Predictor
    path: Location
    checksum: str
    measured: MeasuredOutputs | None = None


def output_title(noun: str, name: str, named: bool) -> str:
    """The heading of an output: its name, or its number after the noun."""
    return name if named else f"{noun} {name}"


def _label_text(label: Any) -> str:
    """A label; a whole number without a decimal point, however the data store it."""
    whole = isinstance(label, float) and label.is_integer()
    return name_text(f"{label:.0f}" if whole else str(label))


def name_text(text: str) -> str:
    """A name from a file or a user's class as one short line of printable characters."""
    return shortened(text, LONGEST_NAME)
