"""The trained model, which predicts from raw rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, fields
from itertools import count, zip_longest
from typing import Any, ClassVar

import numpy as np

from fcl.data.columns import ColumnRecord
from fcl.data.dataset import DataSet
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.features.generator.family import GeneratedFamily
from fcl.files.bundle import installed_version, now
from fcl.files.columns import record_to_header
from fcl.files.compact import Encoding
from fcl.files.stagewise import FORMAT
from fcl.model.predictor import Predictor
from fcl.model.shapes import public
from fcl.stagewise.blocks import TILE_ROWS
from fcl.stagewise.calibration import calibrated
from fcl.stagewise.certify import JointGap
from fcl.stagewise.describe import stagewise_facts
from fcl.stagewise.learner import RoundWeights, block_count, rounds_of
from fcl.stagewise.links import Link
from fcl.stagewise.settings import Settings
from fcl.stagewise.stored import read_stagewise, write_stagewise
from fcl.stagewise.targets import checked_offset
from fcl.types import Floats

#: Values of features that a prediction makes at a time: at most 32 MiB, however wide blocks are.
MOST_VALUES = 1 << 22


@dataclass(frozen=True)
class StagewiseModel(Predictor):
    """A model over blocks of generated features.

    family : fitted to the training rows.
    weights : of the blocks of the best step.
    noun : {"class", "label", "target"}, what an output is: a class, a label of which a row may have
        several, or a number.
    labels : classes in the order of the margins, or names of labels or numbers; None if they have no
        names.
    history : a row for each block of each visit: number, loss, error, valid_loss, valid_error, seconds.
    best_number : the block, over all visits, after which the weights were taken.
    column_record : what is known about the columns of the training rows.
    certificate : the gap to the joint ridge optimum, if it was requested.
    has_offset : whether the training rows had offsets; rows to predict then need them, too.
    encoding : how the weights of a compact model were rounded; None for full weights.
    created : time of creation in UTC, ISO 8601.
    fcl_version : the version of fcl that trained the model.
    """

    format: ClassVar[str] = FORMAT
    margins_of_one: ClassVar[bool] = False

    family: GeneratedFamily
    weights: RoundWeights
    settings: Settings
    noun: str
    labels: tuple[Any, ...] | None
    history: list[dict[str, Any]]
    best_number: int
    n_rows: int
    fingerprint: str
    column_record: ColumnRecord = field(default_factory=ColumnRecord)
    certificate: JointGap | None = None
    has_offset: bool = False
    encoding: Encoding | None = None
    created: str = field(default_factory=now)
    fcl_version: str = field(default_factory=installed_version)

    def __repr__(self) -> str:
        return (
            f"<StagewiseModel {self.family.name}: {self.n_blocks:,} of {self.all_blocks:,} blocks, "
            f"{self.settings.loss}, {self.n_outputs:,} outputs>"
        )

    @property
    def n_outputs(self) -> int:
        """Number K of margins of a row: classes, labels, or numbers to predict."""
        return self.weights.features.shape[1] // self.n_rounds

    @property
    def all_blocks(self) -> int:
        """Number of blocks of the family's features."""
        return block_count(self.family.n_features, self.settings.block)

    @property
    def n_rounds(self) -> int:
        """Number of rounds whose weights predictions use, 1 except for cls."""
        return max(1, rounds_of(self.best_number, self.all_blocks, self.settings))

    @property
    def n_blocks(self) -> int:
        """Number of blocks, from the first id on, that predictions use."""
        return (
            min(self.best_number, self.all_blocks)
            if self.settings.order == "ids"
            else self.all_blocks
        )

    @property
    def link(self) -> Link:
        """The loss."""
        return self.settings.link

    def facts(self) -> list[Fact]:
        """What is known about the model besides its blocks and weights, as data and in words."""
        return stagewise_facts(self)

    # -- files

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model, completely or not at all.

        Raises InputError if the path exists and ``overwrite`` is false, or cannot be written to.
        """
        certificate, left_out = self.certificate, ("weights", "column_record")
        header = {
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out},
            "classifies": self.noun == "class",
            "family": self.family.to_config(),
            "settings": self.settings.fixed(),
            "n_outputs": self.n_outputs,
            "column_names": None,
            **record_to_header(self.column_record),
            "certificate": None if certificate is None else asdict(certificate),
        }
        if self.encoding is None:
            del header["encoding"]
        write_stagewise(path, header, self.weights, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: Collection[str] = ()) -> StagewiseModel:
        """Read a model file; see :func:`fcl.load_model`."""
        return load_stagewise(path, trusted)

    # -- prediction

    def added_margins(self, data: DataSet) -> Floats | None:
        """The offsets of the rows, float64 (n, 1) or (n, K), or None.

        Raises InputError if the data lack an offset that the training had, or if it has another number of
        columns; or if they have covariates.
        """
        if data.covariates:
            raise InputError(f"{data.name}: stagewise models take no covariates; leave them out")
        if self.has_offset and data.offset is None:
            raise InputError(
                f"{data.name}: expected an offset, since the model was trained with one, got none; name "
                "its array (offset=, --offset), or give zeros"
            )
        return checked_offset(data, self.settings, self.n_outputs)

    def rows_of_block(self, block_rows: int = TILE_ROWS) -> int:
        """Rows of the blocks of :meth:`iter_margins`, at most ``block_rows``."""
        return min(block_rows, TILE_ROWS, self.family.most_block_rows())

    def scorer(self) -> Callable[[Any], Floats]:
        """A function from a block of ``family.read_rows`` to its margins (k, K) without offsets."""
        numbers = count()

        def margins(raw: Any) -> Floats:
            # tiles bound the memory of the features for readers of larger blocks
            parts = [raw[first : first + TILE_ROWS] for first in range(0, len(raw), TILE_ROWS)]
            return np.vstack([self._margins(part, next(numbers), len(part)) for part in parts])

        return margins

    def _margins(self, raw: Any, number: int, n: int) -> Floats:
        block = self.family.block_of(raw)
        weights, width = self.weights, self.settings.block
        margins = np.tile(weights.intercepts[0], (n, 1))
        at_once = max(1, MOST_VALUES // n)
        for k in range(self.n_blocks):
            last = min((k + 1) * width, self.family.n_features)
            added = np.zeros_like(margins)
            for at in range(k * width, last, at_once):
                ids = np.arange(at, min(at + at_once, last))
                columns = self.family.columns(ids, block, number, n)
                own = weights.features[ids[0] : ids[-1] + 1]
                added += columns @ own.astype(np.result_type(columns.dtype, np.float32), copy=False)
            margins += added + weights.intercepts[k + 1]
        first, *rounds = np.hsplit(margins, self.n_rounds)
        return self._after_rounds(first, rounds)

    def _after_rounds(self, margins: Floats, rounds: list[Floats]) -> Floats:
        """The predictions after all rounds: ``margins`` of the first, and what the others add (n, K)."""
        for weights, added in zip_longest(self.weights.calibration, rounds):
            if weights is not None:
                margins = calibrated(margins, weights, self.noun)
            if added is not None:
                margins = margins + added
        return margins

    @property
    def mean_name(self) -> str:
        """What :meth:`mean` computes: "probability" for classes, "" for numbers, whose margins are it."""
        return "probability" if self.classifies else ""

    def mean(self, margins: Floats) -> Floats:
        """Probabilities of classes or labels from margins, float64 (n, K); of numbers the margins.

        They are the link of the margins, divided by their sum for classes. Margins of ls estimate
        probabilities without bounds, and of cls within a round; the result is their nearest point of the
        simplex (for labels of [0, 1]), in which classes may have the probability 0.
        """
        if self.noun == "label":
            return self.link.chances(margins)
        return self.link.probabilities(margins) if self.noun == "class" else margins

    def require_probability(self) -> None:
        """Raise InputError unless this is a model of classes."""
        if not self.classifies:
            raise InputError(
                "probabilities need a model of classes, this one predicts numbers; ask for margins"
            )

    def probabilities_of(self, margins: Floats) -> Floats:
        """The probabilities of ``labels``, as :meth:`mean` computes them."""
        return self.mean(margins)

    def predicted(self, margins: Floats) -> np.ndarray:
        """The class of the largest margin of each row, (n,); or labels as 0 and 1 (n, K); or numbers."""
        if self.noun == "class":
            return np.asarray(self.labels)[margins.argmax(axis=1)]
        if self.noun == "label":
            return (self.mean(margins) > 0.5).astype(np.int64)
        return np.asarray(public(margins))


def load_stagewise(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> StagewiseModel:
    """Read a stagewise model; parameters and errors are as of :func:`fcl.load_model`."""
    return StagewiseModel(**read_stagewise(path, trusted))
