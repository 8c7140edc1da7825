"""What prediction needs of a model, whichever training made it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fcl.types import Floats

if TYPE_CHECKING:
    from fcl.data.columns import ColumnRecord
    from fcl.data.dataset import DataSet
    from fcl.facts import Fact
    from fcl.features.base import Family


class Predictor(Protocol):
    """A model that predicts from raw rows. Margins are float64 (n,), or (n, K) for K > 1 outputs."""

    @property
    def format(self) -> str:
        """The format of the model file."""

    @property
    def family(self) -> Family:
        """The features, bound to the training rows."""

    @property
    def n_outputs(self) -> int:
        """Number K of margins of a row."""

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """The label or name of each output; None if they have no names.

        For K = 1, the negative and the positive label; None for numbers.
        """

    @property
    def noun(self) -> str:
        """What an output is: "class", one of K; "target", a number; or "label", that a row may have."""

    @property
    def classifies(self) -> bool:
        """Whether the targets are classes or labels; False for numbers."""

    @property
    def mean_name(self) -> str:
        """What :meth:`mean` computes: "probability", "mean"; "" if margins are it, or for none."""

    @property
    def column_record(self) -> ColumnRecord:
        """What the model knows about the columns that it reads."""

    @property
    def column_names(self) -> Mapping[int, str] | None:
        """Names of the columns that the model reads, by position; None if they have no names."""

    @property
    def has_offset(self) -> bool:
        """Whether rows to predict need an offset."""

    @property
    def covariate_names(self) -> Sequence[str]:
        """Arrays of covariates that rows to predict need."""

    @property
    def fingerprint(self) -> str:
        """Hash of the training data."""

    @property
    def created(self) -> str:
        """Time of creation in UTC, ISO 8601."""

    @property
    def fcl_version(self) -> str:
        """The version of fcl that trained the model."""

    def facts(self) -> list[Fact]:
        """What is known about the model, as data and in words."""

    def require_probability(self) -> None:
        """Raise InputError unless :meth:`mean` gives probabilities."""

    def mean(self, margins: Floats) -> Floats:
        """The expected targets, in the shape of the margins: for labels, probabilities.

        Raises InputError if the loss has no link from margins to a mean.
        """

    def opened(self, data: DataSet | Any, offset: Any = ..., covariates: Any = ...) -> DataSet:
        """Open rows, with each column at its position in the training rows."""

    def added_margins(self, data: DataSet) -> Floats | None:
        """What offset and covariates add to the margins, float64 (n, K); None for zeros.

        Raises InputError if they are missing.
        """

    def iter_margins(
        self,
        data: DataSet | Any,
        block_rows: int = ...,
        offset: Any = ...,
        covariates: Any = ...,
        first: int = ...,
        last: int | None = ...,
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, last row + 1, margins) for blocks of rows, in their order.

        first, last : the rows to read; ``first`` must be the beginning of a block.
        """

    def rows_of_block(self, block_rows: int = ...) -> int:
        """Rows of the blocks of :meth:`iter_margins`, at most ``block_rows``."""

    def margins(
        self,
        data: DataSet | Any,
        block_rows: int = ...,
        offset: Any = ...,
        covariates: Any = ...,
    ) -> Floats:
        """Margins of all rows, float64 (n,) or (n, K)."""

    def predict(
        self,
        data: DataSet | Any,
        block_rows: int = ...,
        offset: Any = ...,
        covariates: Any = ...,
    ) -> np.ndarray:
        """Labels of all rows, (n,); or expected numbers, float64 (n,) or (n, K)."""

    def predict_proba(
        self,
        data: DataSet | Any,
        block_rows: int = ...,
        offset: Any = ...,
        covariates: Any = ...,
    ) -> Floats:
        """Probabilities of the labels for all rows, float64 (n, labels)."""

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model file."""

    def scorer(self) -> Callable[[Any], Floats]:
        """A function from a block of ``family.read_rows`` to its margins (n, K) without added ones."""
