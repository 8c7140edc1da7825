"""The model: the active features with their weights, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.model.certificate import Certificate
from fcl.objective.losses import Loss, find_loss

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.features.base import Family

__all__ = ["FeatureRow", "Model"]

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Offset = str | npt.ArrayLike


class FeatureRow(NamedTuple):
    """One active feature: id, words, weight, and the training rows where it is not zero."""

    id: int
    feature: str
    weight: float
    support: int


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _fcl_version() -> str:
    import fcl

    return str(fcl.__version__)


@dataclass(frozen=True, eq=False)
class Model:
    """A trained sparse linear model. Margins are ``sum_j weights[j] phi_ids[j](x) + intercept``.

    family      the bound family of the features.
    ids         int64 (k,), strictly increasing; weights float64 (k,), finite; support int64 (k,),
                the training rows where the feature is not zero.
    loss        the text of a loss, as :func:`fcl.objective.find_loss` reads it.
    C, alpha    both spellings of the same penalty: C = 1 / (alpha * sum_weights).
    labels      (negative, positive) as they stood in the data; None for regression.
    n_rows      training rows; sum_weights the sum of their sample weights.
    fingerprint of the training data. options and history are what the trainer wants to keep.

    Raises InputError if the arrays or the loss break these rules.
    """

    family: Family
    ids: Ids
    weights: Floats
    support: Ids
    intercept: float
    loss: str
    C: float
    alpha: float
    labels: tuple[Any, Any] | None
    n_rows: int
    sum_weights: float
    fingerprint: str
    certificate: Certificate
    options: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
    created: str = field(default_factory=_now)
    fcl_version: str = field(default_factory=_fcl_version)

    def __repr__(self) -> str:
        gap = f"{self.certificate.gap:.2g}"
        return f"<Model {self.family.name}: {len(self.ids):,} active, {self.loss}, gap {gap}>"

    def __post_init__(self) -> None:
        for name, dtype in (("ids", np.int64), ("weights", np.float64), ("support", np.int64)):
            array = np.array(getattr(self, name), dtype=dtype, order="C")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.ids.ndim != 1 or not self.ids.shape == self.weights.shape == self.support.shape:
            raise InputError(
                "ids, weights and support must be three vectors of one length, got shapes "
                f"{self.ids.shape}, {self.weights.shape} and {self.support.shape}"
            )
        wrong = np.flatnonzero(self.ids[1:] <= self.ids[:-1])
        if wrong.size:
            at = int(wrong[0]) + 1
            raise InputError(
                f"ids must increase strictly, got {self.ids[at]} after {self.ids[at - 1]} "
                f"at position {at}"
            )
        if self.ids.size and (self.ids[0] < 0 or self.ids[-1] >= self.family.n_features):
            raise InputError(
                f"ids must be in [0, {self.family.n_features}), the features of the family, got "
                f"{self.ids[0]} to {self.ids[-1]}"
            )
        if not (np.isfinite(self.weights).all() and np.isfinite(self.intercept)):
            raise InputError("weights and intercept must be finite")
        if (self.support < 0).any():
            raise InputError("support counts rows and cannot be negative")
        find_loss(self.loss)

    @property
    def n_active(self) -> int:
        """Number of features with a nonzero weight."""
        return int(np.count_nonzero(self.weights))

    @property
    def loss_object(self) -> Loss:
        """The loss with its formula, link and metric."""
        return find_loss(self.loss)

    @property
    def has_offset(self) -> bool:
        """Whether the training rows had an offset, so that rows to predict need one."""
        return bool(self.options.get("offset"))

    # -- files

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model file, all at once or not at all.

        Raises InputError if `path` exists and `overwrite` is false, or cannot be a file.
        """
        from fcl.model.file import save_model

        save_model(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: Collection[str] = ()) -> Model:
        """Read a model file; see :func:`fcl.load_model`."""
        from fcl.model.file import load_model

        return load_model(path, trusted)

    # -- prediction

    def margins(
        self, data: DataSet | Any, block_rows: int = 65_536, offset: Offset | None = None
    ) -> Floats:
        """float64 (n,): the margins, intercept and offset included.

        data : a DataSet, or what ``open_data`` takes (a path, an array). Rows of another length
            than the training rows raise an InputError that names both.
        offset : added to the margins: as ``open_data`` takes it, or an array for a DataSet. A model that
            was trained with one needs one.
        """
        from fcl.model.predict import margins

        return margins(self, data, block_rows, offset)

    def predict_proba(
        self, data: DataSet | Any, block_rows: int = 65_536, offset: Offset | None = None
    ) -> Floats:
        """float64 (n, 2): the probabilities of ``labels[0]`` and ``labels[1]``.

        Raises InputError unless the loss gives probabilities, as logistic loss does.
        """
        from fcl.model.predict import require_probability

        require_probability(self)
        margins, loss = self.margins(data, block_rows, offset), self.loss_object
        return np.column_stack([loss.mean(-margins), loss.mean(margins)])

    def predict(
        self, data: DataSet | Any, block_rows: int = 65_536, offset: Offset | None = None
    ) -> np.ndarray:
        """(n,): the label of each row (the positive one where the margin is > 0), as the labels
        stood in the training data; for regression the expected targets, float64."""
        margins = self.margins(data, block_rows, offset)
        if self.labels is None:
            return self.loss_object.mean(margins)
        return np.asarray(self.labels)[(margins > 0).astype(np.intp)]

    # -- words

    def describe(self, top: int | None = None) -> list[FeatureRow]:
        """The active features by falling |weight| (equal ones by id), at most `top` of them."""
        return list(self.iter_features(top))

    def iter_features(self, top: int | None = None) -> Iterator[FeatureRow]:
        """As `describe`, one at a time."""
        active = np.flatnonzero(self.weights)
        order = active[np.argsort(-np.abs(self.weights[active]), kind="stable")]
        for i in order[:top]:
            feature = int(self.ids[i])
            yield FeatureRow(
                feature,
                self.family.describe(feature),
                float(self.weights[i]),
                int(self.support[i]),
            )
