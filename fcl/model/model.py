"""The model: active features, their weights, and the training that gave them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fcl.data.columns import ColumnRecord, Variant
from fcl.errors import InputError, ModelFileError
from fcl.features import family_from_config
from fcl.files.bundle import HEADER, installed_version, now
from fcl.files.columns import record_from_header, record_to_header
from fcl.files.compact import Encoding
from fcl.files.model import ARRAYS, FORMAT, read_model, write_model
from fcl.model.arrays import checked_arrays
from fcl.model.centres import folded
from fcl.model.certificate import Certificate
from fcl.model.columns import feature_names, record_of
from fcl.model.covariates import CovariateTerm
from fcl.model.description import DescribedModel
from fcl.model.history import History
from fcl.model.prediction import PredictingModel
from fcl.model.shapes import public
from fcl.plain import plain
from fcl.store import locate
from fcl.types import Floats, Ids
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.features.base import Family


@dataclass(frozen=True, eq=False)
class Model(PredictingModel, DescribedModel):
    """A trained sparse linear model. Margins are ``sum_j weights[j] phi_ids[j](x) + intercept``.

    A model of K > 1 outputs has K margins for each row: classes (``softmax`` loss), numbers (``squared``)
    or labels (``logistic``).

    Attributes
    ----------
    family : Family
        The family of the features, bound to the training rows.
    ids : int64 (k,)
        Ids of the features in the family, strictly increasing.
    weights : float64 (k,), or (k, K)
        Weights of these features, finite.
    support : int64 (k,)
        Number of training rows where each feature is not 0.
    intercept : float, or float64 (K,)
    loss : str
        As :func:`fcl.objective.find_loss` reads it.
    C, alpha : float
        The weight of the losses, given in two ways: C = 1 / (alpha * sum_weights).
    labels : tuple or None
        The (negative, positive) label as in the data; None for regression. For K outputs, the K classes
        of softmax, or the names of numbers or labels, if they have names.
    n_rows : int
        Number of training rows.
    sum_weights : float
        Sum of their sample weights.
    fingerprint : str
        Hash of the training data, see :meth:`fcl.DataSet.fingerprint`.
    certificate : Certificate
    options : mapping
        The options of the training.
    history : History
        A list with one mapping for each pass; ``history.to_dataframe()`` is a table of the passes.
    feature_names : sequence of str (k,), or None
        Descriptions of the features by the names of the columns of X; None if the columns have no names.
    column_record : ColumnRecord
        What is known about the columns of X that the features read: names, alleles, means and the like.
        Rows to predict are matched by it.
    covariates : sequence of CovariateTerm
        Unpenalised covariates with their coefficients; they are not among the features.
    encoding : Encoding or None
        How the weights of a compact model were rounded; None for full weights.
    centres : mapping of int to float
        Centres of features with a large mean and a small spread, by id. Margins are computed from the
        values minus the centres, since the plain sum would lose digits.
    intercept_rest : float, or float64 (K,)
        What float64 leaves out of ``intercept``.
    created : str
        Time of creation in UTC, ISO 8601.
    fcl_version : str
        The version of fcl that trained the model.

    Raises
    ------
    InputError
        The arrays or the loss break these rules.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> model = fcl.train(data, "columns", C=1.0, tol=1e-9).model
    >>> model.ids, model.weights.round(1)
    (array([0, 2, 3]), array([ 6.4,  0.2, -6.5]))
    >>> model.predict(X[1:4])
    array([ True, False, False])
    >>> model.predict_proba(X[1:3]).round(3)
    array([[0.001, 0.999],
           [0.955, 0.045]])
    """

    family: Family
    ids: Ids
    weights: Floats
    support: Ids
    intercept: Any
    loss: str
    C: float
    alpha: float
    labels: tuple[Any, ...] | None
    n_rows: int
    sum_weights: float
    fingerprint: str
    certificate: Certificate
    options: Mapping[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    feature_names: Sequence[str] | None = None
    column_record: ColumnRecord = field(default_factory=ColumnRecord)
    covariates: Sequence[CovariateTerm] = ()
    encoding: Encoding | None = None
    centres: Mapping[int, float] = field(default_factory=dict)
    intercept_rest: Any = 0.0
    created: str = field(default_factory=now)
    fcl_version: str = field(default_factory=installed_version)

    def __repr__(self) -> str:
        gap = f"{self.certificate.gap:.2g}"
        return f"<Model {self.family.name}: {len(self.ids):,} active, {self.loss}, gap {gap}>"

    def __post_init__(self) -> None:
        object.__setattr__(self, "history", History(self.history))
        for name, array in checked_arrays(self.ids, self.weights, self.support).items():
            object.__setattr__(self, name, array)
        if self.ids.size and (self.ids[0] < 0 or self.ids[-1] >= self.family.n_features):
            raise InputError(
                f"ids must be in [0, {self.family.n_features}), the features of the family, got "
                f"{self.ids[0]} to {self.ids[-1]}"
            )
        if not np.isfinite(self.intercept).all():
            raise InputError("weights and intercept must be finite")
        self._check_outputs()
        if self.feature_names is not None and len(self.feature_names) != len(self.ids):
            raise InputError(
                f"feature_names: expected {len(self.ids)}, one for each id, got {len(self.feature_names)}"
            )
        self.column_record.check(self.family.row_width)
        self._check_centres()

    def _check_centres(self) -> None:
        if np.shape(self.intercept_rest) not in ((), np.shape(self.intercept)):
            raise InputError("intercept_rest: expected a number for each output")
        for feature, centre in self.centres.items():
            if not (0 <= feature < self.family.n_features and np.isfinite(centre)):
                raise InputError(
                    f"centres: expected finite numbers for features of the family, got {centre} for "
                    f"feature {feature}"
                )
        if self.centres:
            from fcl.features.centred import with_centres_at  # imports the families

            with_centres_at(self.family, self.centres)  # raises InputError for another family

    def _check_outputs(self) -> None:
        K = self.n_outputs
        for term in self.covariates:
            term.check(self.weights.shape[1:])
        if np.shape(self.intercept) != self.weights.shape[1:]:
            raise InputError(
                f"intercept: expected {counted(K, 'number')}, one for each output, got shape "
                f"{np.shape(self.intercept)}"
            )
        object.__setattr__(self, "intercept", public(self.intercepts))
        self.task.check_labels(self.labels, K)

    @property
    def variants(self) -> dict[int, Variant] | None:
        """The PLINK variants that the features read, by position in X; None for other data."""
        return self.column_record.variants_at(sorted(self.column_names or {}))

    def with_weights(self, weights: Floats, **changed: Any) -> Model:
        """The model with other weights (of the features ``changed["ids"]``) at the same centres."""
        if self.centres:
            ids = changed.get("ids", self.ids)
            at = np.array([self.centres.get(feature, 0.0) for feature in ids.tolist()])
            columns = weights.reshape(len(ids), self.n_outputs).T
            pairs = zip(self.constants.tolist(), columns, strict=True)
            found = np.array([folded(b, w, at) for b, w in pairs])
            changed["intercept"], changed["intercept_rest"] = (
                public(found[:, 0]),
                public(found[:, 1]),
            )
            kept = set(ids.tolist())
            changed["centres"] = {j: c for j, c in self.centres.items() if j in kept}
        return replace(self, weights=weights, **changed)

    def with_column_names(self, names: Sequence[str]) -> Model:
        """The model with names of the columns of X, for data that had none, as inside a pipeline.

        Its descriptions, tables and reports then have these names instead of x0, x1, ...; rows to predict
        that have names are matched by them.

        Parameters
        ----------
        names : sequence of str
            One for each column, such as ``pipeline[:-1].get_feature_names_out()``.

        Examples
        --------
        >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])
        >>> model = fcl.train(fcl.open_data(X, y=X[:, 0]), "columns", C=1.0, loss="squared").model
        >>> model.with_column_names(["age", "smokes"]).describe(1)[0].feature
        'age'
        """
        names, width = [str(name) for name in names], self.family.row_width
        if len(names) != width or self.family.row_kind == "sequences":
            raise InputError(
                f"names: expected {width:,}, one for each column of X, got {len(names):,}"
                if self.family.row_kind != "sequences"
                else "names: expected a model of columns, got one of sequences"
            )
        return replace(
            self,
            feature_names=feature_names(self.family, self.ids, names),
            column_record=record_of(
                self.family, self.ids, replace(self.column_record, names=names)
            ),
        )

    # -- files

    #: Of the model file.
    format: ClassVar[str] = FORMAT

    def save(
        self,
        path: str | os.PathLike[str],
        overwrite: bool = False,
        more: Mapping[str, bytes | np.ndarray] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the model file, completely or not at all.

        path : of the file, or its URL in an object store.
        more : further members of the file, which :func:`fcl.load_model` ignores.
        storage_options : of the object store, as for :func:`fcl.locate`.

        Raises
        ------
        InputError
            `path` exists and `overwrite` is false, or no file can be written there.
        StoreError
            An object store failed, or cannot be reached.
        """
        path = locate(path, storage_options)
        write_model(path, self.header(), {n: getattr(self, n) for n in ARRAYS}, overwrite, more)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: Collection[str] = ()) -> Model:
        """Read a model file; see :func:`fcl.load_model`."""
        return load_model(path, trusted)

    def header(self) -> dict[str, Any]:
        """The header of the model file, which holds everything except the arrays."""
        optional = {
            "feature_names": self.feature_names is None,
            "covariates": not self.covariates,
            "encoding": self.encoding is None,
            "intercept_rest": not self.centres,
        }
        left_out = {"family", "column_record", "centres", *ARRAYS}
        left_out |= {name for name, missing in optional.items() if missing}
        named = {"centres": plain(sorted(self.centres.items()))} if self.centres else {}
        return {
            "family": plain(self.family.to_config()),
            "n_active": self.n_active,
            **{
                f.name: plain(getattr(self, f.name)) for f in fields(self) if f.name not in left_out
            },
            **record_to_header(self.column_record),
            **named,
        }


def load_model(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> Model:
    """Read a model of ``fcl train``; parameters and errors are as of :func:`fcl.load_model`."""
    shown_path = os.fspath(path)
    if isinstance(trusted, str):
        trusted = (trusted,)
    header, arrays = read_model(path)
    n_active, labels = header.pop("n_active"), header["labels"]
    try:
        header["family"] = family_from_config(header["family"], trusted)
        header["labels"] = None if labels is None else tuple(labels)
        if "centres" in header:
            header["centres"] = dict(header["centres"])
            header["intercept_rest"] = np.array(header["intercept_rest"])[()]
        header["certificate"] = Certificate.from_dict(header["certificate"])
        terms = header.get("covariates", ())
        header["covariates"] = tuple(CovariateTerm.from_dict(term) for term in terms)
        names = tuple(term.name for term in header["covariates"])
        header["column_record"] = record_from_header(header, names)
        if "encoding" in header:
            header["encoding"] = Encoding(**header["encoding"])
        model = Model(**header | arrays)
    except InputError as error:
        raise ModelFileError(f"{shown_path}: {error}") from error
    if n_active != model.n_active:
        raise ModelFileError(
            f"{shown_path}: {HEADER} says {n_active} active features, "
            f"weights.npy has {model.n_active}"
        )
    return model
