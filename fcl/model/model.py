"""The model: active features, their weights, and the training that gave them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet, open_data
from fcl.data.columns import ColumnRecord, Variant
from fcl.data.frame import is_frame
from fcl.errors import InputError, ModelFileError
from fcl.facts import Fact, chosen, rows_html, table_html
from fcl.features import family_from_config
from fcl.files.bundle import HEADER, installed_version, now
from fcl.files.columns import record_from_header, record_to_header
from fcl.files.compact import Encoding
from fcl.files.model import ARRAYS, FORMAT, read_model, write_model
from fcl.model.arrays import checked_arrays
from fcl.model.centres import folded, unfolded
from fcl.model.certificate import Certificate
from fcl.model.columns import matched, select_columns
from fcl.model.covariates import CovariateTerm, covariate_margins
from fcl.model.effects import effects_of
from fcl.model.explain import Explanation, LinearModel, iter_explanations, iter_values
from fcl.model.facts import model_facts
from fcl.model.frames import FeatureRow, OutputFeature, features_frame
from fcl.model.history import History
from fcl.model.multi_output import (
    OneOutput,
    OutputScorer,
    iter_output_features,
    output_texts,
)
from fcl.model.tasks import Task, find_task
from fcl.objective.losses import Loss, find_loss
from fcl.parallel import one_blas_thread
from fcl.plain import plain
from fcl.store import locate
from fcl.types import Floats, Ids
from fcl.units import counted

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

    from fcl.data import DataSet
    from fcl.features.base import Family
    from fcl.model.explain import Explanation

Offset = str | npt.ArrayLike

#: the default block size of training; a block of windows takes a few MB
BLOCK_ROWS = 65_536
#: Features that a notebook shows.
TOP = 10
#: Margins of several outputs in a block of rows: 32 MiB.
BLOCK_MARGINS = 1 << 22


@dataclass(frozen=True, eq=False)
class Model:
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

    def _repr_html_(self) -> str:
        return self.to_html()

    def facts(self) -> list[Fact]:
        """What is known about the model: its problem, certificate and origin, as data and in words.

        Returns
        -------
        list of Fact
            Each with a ``name``, a ``text``, and a JSON ``value``.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> facts = fcl.train(data, "columns", C=1.0).model.facts()
        >>> {fact.name: fact.text for fact in facts}["active"]
        '3 of 5 priced features'
        """
        return model_facts(self)

    def to_html(self, facts: Iterable[Fact] = ()) -> str:
        """Tables of the certificate, of more facts, and of the strongest features."""
        names = ("features", "loss", "C", "labels", "objective", "bound", "gap", "active")
        lines = [*chosen(self.facts(), *names, "certificate"), *facts]
        head = ["feature", *["output"] * (self.n_outputs > 1), "weight", "rows"]
        features = [row.cells() for row in self.describe(TOP)]
        covariates = [
            [name if output is None else f"{name}, {output}", f"{value:+.5g}"]
            for name, output, value in self.covariate_rows
        ]
        return (
            table_html("fcl model", lines)
            + rows_html("strongest features", head, features)
            + rows_html("covariates, not penalised", ["covariate", "coefficient"], covariates)
        )

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
        if K == 1:
            find_loss(self.loss)
            return
        object.__setattr__(self, "intercept", np.array(self.intercept, np.float64))
        find_task(self.loss, K).check_labels(self.labels, K)

    @property
    def column_names(self) -> dict[int, str] | None:
        """Names of the columns of X that the features read, by position; None without names."""
        return self.column_record.column_names

    @property
    def variants(self) -> dict[int, Variant] | None:
        """The PLINK variants that the features read, by position in X; None for other data."""
        return self.column_record.variants_at(sorted(self.column_names or {}))

    @property
    def n_outputs(self) -> int:
        """Number K of margins of a row."""
        return 1 if self.weights.ndim == 1 else self.weights.shape[1]

    @property
    def task(self) -> Task | None:
        """What the outputs of a model of several outputs are; None for one output."""
        return None if self.n_outputs == 1 else find_task(self.loss, self.n_outputs)

    @property
    def intercepts(self) -> Floats:
        """The intercept of each output, float64 (K,)."""
        return np.atleast_1d(np.asarray(self.intercept, np.float64))

    @property
    def constants(self) -> Floats:
        """The intercept of each output for values minus :attr:`centres`, float64 (K,)."""
        if not self.centres:
            return self.intercepts
        K = self.n_outputs
        at = np.array([self.centres.get(feature, 0.0) for feature in self.ids.tolist()])
        rests = np.broadcast_to(self.intercept_rest, K).tolist()
        weights = self.weights.reshape(-1, K).T
        own = zip(self.intercepts.tolist(), rests, weights, strict=True)
        return np.array([unfolded(b, rest, w, at) for b, rest, w in own])

    def with_weights(self, weights: Floats, **changed: Any) -> Model:
        """The model with other weights (of the features ``changed["ids"]``) at the same centres."""
        if self.centres:
            ids = changed.get("ids", self.ids)
            at = np.array([self.centres.get(feature, 0.0) for feature in ids.tolist()])
            own = zip(self.constants.tolist(), weights.reshape(-1, self.n_outputs).T, strict=True)
            found = np.array([folded(b, w, at) for b, w in own])
            one = self.n_outputs == 1
            changed["intercept"] = float(found[0, 0]) if one else found[:, 0]
            changed["intercept_rest"] = float(found[0, 1]) if one else found[:, 1]
            kept = set(ids.tolist())
            changed["centres"] = {j: c for j, c in self.centres.items() if j in kept}
        return replace(self, weights=weights, **changed)

    @property
    def group(self) -> bool:
        """Whether the penalty lets a feature in or out of all outputs together."""
        return bool(self.options.get("group"))

    @property
    def n_active(self) -> int:
        """Number of features with a nonzero weight, in any output."""
        nonzero = self.weights != 0.0
        return int(np.count_nonzero(nonzero if nonzero.ndim == 1 else nonzero.any(axis=1)))

    def require_one_output(self, what: str, instead: str) -> None:
        """Raise InputError for a model of several outputs.

        what : what needs one output, such as ``--meme``.
        instead : what the user can do.
        """
        if self.n_outputs > 1:
            raise InputError(
                f"{what} needs a model of one output, this one has {self.n_outputs:,}; {instead}"
            )

    @property
    def loss_object(self) -> Loss:
        """The loss with its formula, link and metric."""
        return find_loss(self.loss)

    #: Of the model file.
    format: ClassVar[str] = FORMAT

    @property
    def noun(self) -> str:
        """What an output is: "class", "target" or "label"."""
        if self.task is not None:
            return self.task.noun
        return "target" if self.labels is None else "class"

    @property
    def classifies(self) -> bool:
        """Whether the targets are classes or labels; False for numbers."""
        if self.task is not None:
            return self.task.noun != "target"
        return self.loss_object.classifies

    @property
    def mean_name(self) -> str:
        """What :meth:`mean` is called; see :attr:`fcl.objective.losses.Loss.mean_name`."""
        return (self.task or self.loss_object).mean_name

    def mean(self, margins: Floats) -> Floats:
        """The expected targets, float64 (n,) or (n, K); for labels, probabilities.

        For one output of two labels this is the probability of ``labels[1]``. Raises InputError if the
        loss has no link from margins to a mean.
        """
        return (self.task or self.loss_object).mean(margins)

    @property
    def has_offset(self) -> bool:
        """Whether the training rows had an offset; rows to predict then need one, too."""
        return bool(self.options.get("offset"))

    # -- files

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

    # -- prediction

    def opened(self, data: DataSet | Any, offset: Any = None, covariates: Any = None) -> DataSet:
        """Open rows, with each column that the features read at its position in the training rows.

        Columns of data frames, and of data sets with names, are matched by name, and may be more columns
        in any order; alleles of variants that are exchanged are turned. Columns of svmlight rows are
        matched by id, and other columns without names by position
        (:func:`fcl.model.columns.match`). Arguments are as in :meth:`iter_margins`; raises InputError for
        a column that is missing.
        """
        if covariates is None and isinstance(data, str | os.PathLike):
            covariates = self.covariate_names or None
        if not isinstance(data, DataSet):
            if self.column_record.names is not None and is_frame(data):
                data = select_columns(data, self.column_record, (offset, covariates))
            data = open_data(data, y=None, offset=offset, covariates=covariates)
        else:
            data = data.with_added(offset, covariates)
        return matched(data, self.column_record, self.family.row_width)

    def margins(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> Floats:
        """Margins of all rows, float64 (n,) or (n, K); arguments, errors as in :meth:`iter_margins`."""
        data = self.opened(data, offset, covariates)
        out = np.empty((data.n_rows, *self.weights.shape[1:]))
        for start, stop, block in self.iter_margins(data, block_rows):
            out[start:stop] = block
        return out

    def iter_margins(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, Floats]]:
        """Iterate over the margins in row order, one block of rows at a time.

        Parameters
        ----------
        data : DataSet, path or array
            A data set, or a source for :func:`fcl.open_data`; no target is needed. Columns are matched as
            :meth:`opened` says.
        block_rows : int
            Largest number of rows per block.
        offset : array-like (n,), or (n, K) for K outputs, or str
            Added to the margins; with a path also the name of an array. Required if the model was trained
            with an offset.
        covariates : array-like (n, columns), data frame or names
            Required if the model was trained with covariates, of the same names and order; with a path,
            the arrays that the model names are read by default.
        first, last : int
            Only the rows ``first`` to ``last`` (exclusive; None: all); ``first`` must be the beginning of
            a block (:meth:`rows_of_block`).

        Yields
        ------
        start, stop, margins : int, int, float64 (stop - start,) or (stop - start, K)
            The rows of a block, and their margins with intercept and offset.

        Raises
        ------
        InputError
            The rows are not like the training rows (another length, for instance), cannot be read, lack
            a column, or lack an offset or a covariate.
        """
        data = self.opened(data, offset, covariates)
        added = self.added_margins(data)
        margins_of = self.scorer()
        size = self.rows_of_block(block_rows)
        for start, stop, block in self.family.read_rows(data.rows, size, None, first, last):
            margins = margins_of(block)
            yield start, stop, margins if added is None else margins + added[start:stop]

    def rows_of_block(self, block_rows: int = BLOCK_ROWS) -> int:
        """Rows of the blocks of :meth:`iter_margins`, at most ``block_rows``: fewer if rows are wide."""
        block_rows = min(block_rows, self.family.most_block_rows())
        if self.n_outputs == 1:
            return block_rows
        return min(block_rows, max(64, BLOCK_MARGINS // self.n_outputs // 64 * 64))

    def scorer(self) -> Callable[[Any], Floats]:
        """A function from a block of ``family.read_rows`` to its margins without added ones."""
        family, constants = self.family, self.constants
        if self.centres:
            from fcl.features.centred import with_centres_at  # imports the families

            family = with_centres_at(family, self.centres)
        if self.n_outputs > 1:
            return OutputScorer(family, self.ids, self.weights, constants)
        scorer, constant = family.scorer(self.ids, self.weights), float(constants[0])

        def margins(block: Any) -> Floats:
            with one_blas_thread():
                return scorer.margins(block) + constant

        return margins

    @property
    def covariate_names(self) -> list[str]:
        """Names of the arrays of unpenalised covariates, which rows to predict need, too."""
        return [term.name for term in self.covariates]

    def added_margins(self, data: DataSet) -> Floats | None:
        """Offsets plus what covariates add to the margins, float64 (n,) or (n, K); None for zeros.

        Raises InputError if the data lack an offset or a covariate of the training.
        """
        self.require_offset(data)
        added = self.covariate_margins(data)
        if added is None or data.offset is None:
            return data.offset if added is None else added
        return added + data.offset

    def covariate_margins(self, data: DataSet) -> Floats | None:
        """What covariates add to the margins, float64 (n,) or (n, K); None without covariates."""
        if not self.covariates:
            return None
        shape = self.weights.shape[1:]
        return covariate_margins(self.covariates, data.covariates, data.n_rows, shape, data.name)

    @property
    def covariate_rows(self) -> list[tuple[str, Any, float]]:
        """Name, output and coefficient of each column of the covariates; one output is None."""
        outputs = [None] if self.n_outputs == 1 else output_texts(self.labels, self.n_outputs)
        return [row for term in self.covariates for row in term.listed(outputs)]

    @property
    def unpenalised_rows(self) -> list[tuple[str, Any, float]]:
        """Those of the covariates and of the intercepts."""
        outputs = [None] if self.n_outputs == 1 else output_texts(self.labels, self.n_outputs)
        values = np.atleast_1d(self.intercepts).tolist()
        intercepts = zip(outputs, values, strict=True)
        return [*self.covariate_rows, *(("(intercept)", name, value) for name, value in intercepts)]

    def require_offset(self, data: DataSet) -> None:
        """Raise InputError if the model was trained with an offset and the data have none."""
        if self.has_offset and data.offset is None:
            name = self.column_record.offset
            raise InputError(
                f"{data.name}: expected an offset, since the model was trained with one"
                f"{f' ({name})' if name else ''}, got none; name its array (offset=, --offset), or give "
                "zeros"
            )
        if data.offset is not None and data.offset.shape[1:] != self.weights.shape[1:]:
            expected = (data.n_rows, *self.weights.shape[1:])
            raise InputError(
                f"{data.name}: expected an offset of shape {expected}, one number for each row and "
                f"output of the model, got shape {data.offset.shape}"
            )

    def require_probability(self) -> None:
        """Raise InputError unless the loss gives probabilities."""
        task = self.task
        if task is not None:
            has_probability = task.mean_name == "probability"
        else:
            loss = self.loss_object
            has_probability = loss.classifies and loss.has_mean
        if not has_probability:
            raise InputError(
                f"probabilities need a model of logistic or softmax loss, this one has {self.loss} loss; "
                "ask for margins instead"
            )

    def predict_proba(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> Floats:
        """Probabilities of ``labels[0]`` and ``labels[1]``, float64 (n, 2); only for logistic loss.

        For K classes (``softmax``), their probabilities (n, K), which sum to 1 in each row; for K labels,
        the probability of each label by itself, (n, K). Arguments and errors are as in
        :meth:`iter_margins`; InputError also for any other loss.
        """
        self.require_probability()
        margins, task = self.margins(data, block_rows, offset, covariates), self.task
        if task is not None:
            return task.mean(margins)
        loss = self.loss_object
        return np.column_stack([loss.mean(-margins), loss.mean(margins)])

    def predict(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> np.ndarray:
        """Labels of the rows, (n,), as in the training data; for regression expected targets, float64.

        The label is the positive one if the margin is above 0. For several outputs, the class of the
        largest margin (n,), the numbers (n, K), or 0 and 1 for each label, int64 (n, K). Arguments and
        errors are as in :meth:`iter_margins`.
        """
        margins, task = self.margins(data, block_rows, offset, covariates), self.task
        if task is not None:
            return task.predicted(margins, self.labels)
        if self.labels is None:
            return self.loss_object.mean(margins)
        return np.asarray(self.labels)[(margins > 0).astype(np.intp)]

    def explain(
        self,
        data: DataSet | Any,
        top: int | None = None,
        offset: Offset | None = None,
        covariates: Any = None,
        output: Any = None,
    ) -> Explanation:
        """How features add up to the margins of rows.

        Parameters
        ----------
        data : DataSet, path or array
            A data set, or a source for :func:`fcl.open_data`; no target is needed.
        top : int, optional
            Number of contributions to keep for each row, the largest |w_j phi_j(x)|; None: all of them,
            which takes 16 bytes for each row and active feature.
        offset, covariates
            As in :meth:`iter_margins`.
        output : optional
            For a model of several outputs, the label of the output whose margins are explained, or its
            number from 0 if outputs have no labels.

        Returns
        -------
        Explanation
            ``margins = intercept + offset + contributions.sum(axis=1) + others``, up to rounding.

        Raises
        ------
        InputError
            As from :meth:`iter_margins`; `top` is not a whole number above 0; or `output` is unknown.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> model = fcl.train(data, "columns", C=1.0).model
        >>> found = model.explain(X)
        >>> np.allclose(found.intercept + found.contributions.sum(axis=1), model.margins(X))
        True
        """
        if output is None:
            self.require_one_output("explain", "name one of them: explain(..., output=label)")
        explained: LinearModel = self if output is None else OneOutput.of(self, output)
        parts = list(iter_explanations(explained, self.opened(data, offset, covariates), top))
        return Explanation.concatenate(parts)

    def columns(self, data: DataSet | Any) -> csr_array:
        """The values of the active features in all rows, a sparse matrix of float64 (n, k).

        Column t belongs to ``ids[t]``: ``columns @ weights + intercept`` are the margins, up to rounding
        and without offsets.

        data : a data set, or a source for :func:`fcl.open_data`; no target is needed.  Raises InputError
        as :meth:`iter_margins` does.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> model = fcl.train(data, "columns", C=1.0).model
        >>> np.allclose(model.columns(X) @ model.weights + model.intercept, model.margins(X))
        True
        """
        from scipy.sparse import csr_array, vstack

        values = iter_values(self.family, self.ids, self.opened(data).rows)
        return vstack([csr_array(block) for _, _, block in values], format="csr")

    # -- descriptions

    def feature_text(self, index: int) -> str:
        """The description of a feature, by its index in ``ids``."""
        if self.feature_names is not None:
            return self.feature_names[index]
        return self.family.describe(int(self.ids[index]))

    def describe(
        self, top: int | None = None, output: Any = None
    ) -> list[FeatureRow | OutputFeature]:
        """The active features by decreasing |weight|, ties by id; at most `top` features.

        For several outputs, an :class:`OutputFeature` for each nonzero weight: of all outputs together,
        or of the one whose label (its number from 0, if outputs have no labels) is ``output``.

        Examples
        --------
        >>> data = fcl.open_data(["ACG", "ACT", "TCG", "TCT"], y=np.array([1, 1, 0, 0]))
        >>> for row in fcl.train(data, "kmers:d=1", C=10.0, tol=1e-9).model.describe():
        ...     print(row.id, row.feature, round(row.weight, 2), row.support)
        0 A at 0 3.0 2
        3 T at 0 -2.89 2
        """
        if self.n_outputs > 1:
            return list(iter_output_features(self, top, output))
        return list(self.iter_features(top))

    def iter_features(self, top: int | None = None) -> Iterator[FeatureRow]:
        """Iterate over the features that :meth:`describe` returns for a model of one output."""
        self.require_one_output("iter_features", "use describe")
        active = np.flatnonzero(self.weights)
        order = active[np.argsort(-np.abs(self.weights[active]), kind="stable")]
        for i in order[:top]:
            yield FeatureRow(
                int(self.ids[i]),
                self.feature_text(i),
                float(self.weights[i]),
                int(self.support[i]),
            )

    def to_dataframe(self, unpenalised: bool = False) -> pd.DataFrame:
        """The active features by decreasing |weight|: id, feature, weight, support.

        If features are patterns of letters, the columns motif, position (relative to the origin of the
        family, missing if the pattern matches anywhere) and strand (``.`` for either) follow; if they
        are variants of PLINK data, chromosome, position, effect_allele, other_allele and
        effect_per_allele, which is the weight of one more copy of the effect allele.

        Parameters
        ----------
        unpenalised : bool
            Whether rows for the covariates and the intercept, without id and support, follow.

        Raises
        ------
        InputError
            pandas is not installed.

        Examples
        --------
        >>> data = fcl.open_data(["ACG", "ACT", "TCG", "TCT"], y=np.array([1, 1, 0, 0]))
        >>> frame = fcl.train(data, "kmers:d=1,origin=1", C=10.0, tol=1e-9).model.to_dataframe()
        >>> frame[["feature", "support", "motif", "position"]]
           feature  support motif  position
        0  A at -1        2     A        -1
        1  T at -1        2     T        -1
        """
        rows = self.describe()
        motifs = [self.family.motif(row.id) for row in rows]
        added = self.unpenalised_rows if unpenalised else []
        return features_frame(rows, motifs, effects_of(rows, self.column_record), added)


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
        if isinstance(header["intercept"], list):
            header["intercept"] = np.array(header["intercept"])
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
