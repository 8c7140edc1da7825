"""The base class of the families that users write: :class:`Generator`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl.checks import shown, whole
from fcl.errors import InputError
from fcl.features.prices import Pricer
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.features.base import ListedColumns
    from fcl.features.generator.family import GeneratedFamily
    from fcl.features.rows import RowLister

#: Values of `Generator.rows`: the kinds of block that `columns` can get.
ROWS = ("sequences", "numbers", "sparse", "any")


class Generator(ABC):
    """A family of features 0 .. n_features - 1, defined by a method that computes their columns.

    A subclass must define :meth:`fit`, which sets ``n_features``, and :meth:`columns`. All other methods
    have working defaults that it can replace with something faster. Options are arguments of
    ``__init__``, stored in attributes of the same names, of types that JSON can represent; :meth:`fit`
    stores what it learns in attributes whose names end in ``_``. Checkpoints and models contain both, so
    that another process can restore the same generator.

    Attributes
    ----------
    rows : {"numbers", "sequences", "sparse", "any"}
        Kind of the blocks.
        ``"sequences"``: uint8 (n, L), codes 0-3 for A, C, G, T and 4 for an unknown letter.
        ``"numbers"``: float32 or float64 (n, m), finite.
        ``"sparse"``: ``scipy.sparse.csc_array`` (n, m) of float32 or float64.
        ``"any"``: numbers as they are stored, dense or :class:`SparseColumns`.
    binary : bool
        Whether all values are 0 or 1; the cache then needs a sixth of the memory.
    step : float
        0, or a step: all values are its exact multiples, from -127 to 127 times; the cache then
        needs a quarter of the memory. float32 must represent all these multiples exactly, as it does for
        steps with at most 17 significant bits, such as 1 or 0.25, but not 0.1.
    per_pass : int or None
        None: every pass prices all features. Otherwise the number of features that each pass draws from
        a family too large for that, a divisor of ``n_features``: pass k draws ``per_pass`` features from
        k * per_pass on. It prices these and the features with a weight or a cached column, and its
        certificate covers only the priced features.
    n_features : int
        Number of features; set by :meth:`fit`.

    Examples
    --------
    In a module of its own:

    >>> class Positive(fcl.Generator):
    ...     def fit(self, sample):
    ...         self.n_features = sample.shape[1]
    ...     def columns(self, ids, block):
    ...         return block[:, ids] > 0.0
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 3] > 0.0)
    >>> [row.feature for row in fcl.train(data, Positive(), C=1.0).model.describe(1)]
    ['Positive 3']
    """

    rows: ClassVar[str] = "numbers"
    #: short name of a built-in or registered family; empty: ``module:Class``
    name: ClassVar[str] = ""
    binary: bool = False
    step: float = 0.0
    per_pass: int | None = None
    #: whether the sum that ``gradients`` gives for a feature has the same bits in any range of features
    separate: bool = False
    #: whether to warn if the columns of the rows have very different scales
    warns_of_scales: bool = False
    #: whether columns of dense rows may be centred, as :class:`fcl.features.Columns` knows how to
    may_be_centred: bool = False
    n_features: int
    #: largest number of rows of the sample for :meth:`fit`; fewer if they would take more than 64 MiB
    fit_rows: int = 2000
    #: dtype of the stored rows; set before :meth:`fit`
    stored: np.dtype[Any] | None = None
    #: what :meth:`fit` learnt in the job that is resumed; None for a new job
    kept: Mapping[str, Any] | None = None

    @abstractmethod
    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        """The columns of some features on a block of rows.

        Values must depend only on the feature and the row: not on other rows of the block, the process,
        or earlier calls.

        Parameters
        ----------
        ids : int64 (k,)
            Features, increasing.
        block : array
            Rows of the kind ``rows``, or the result of :meth:`prepare`; read-only.

        Returns
        -------
        array (n, k)
            Finite values of any real dtype.
        """

    @abstractmethod
    def fit(self, sample: Any) -> None:
        """Set ``n_features``, and learn from a sample of the training rows whatever else is needed.

        Parameters
        ----------
        sample : array
            A block of at most ``fit_rows`` rows from all parts of the data, of the kind ``rows``.
        """

    def describe(self, feature: int) -> str:
        """A readable description of a feature.

        A class whose features refer to columns of the rows may add an argument ``names=None``; it then
        gets the names of all columns, a sequence of str, if they are known.
        """
        return f"{type(self).__name__} {feature}"

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        """The inverse of :meth:`describe`, int64 (k,); -1 for a text that describes no feature.

        It serves to read the weights of other programs. The default describes all features, if there
        are at most 131,072.
        """
        raise NotImplementedError

    def penalty_factors(self, ids: Ids) -> Floats:
        """Penalty factors of some features: float64 (k,) above 0; infinity excludes a feature."""
        raise NotImplementedError

    # -- what families of fcl learn beside -----------------------------------------------------

    @property
    def measured_rows(self) -> int:
        """Largest number of rows of the sample for :meth:`measure`; 0: it is not called."""
        return 0

    def measure(self, sample: Any) -> None:
        """Learn more after :meth:`fit`, from a larger sample of rows of the kind ``rows``."""
        raise NotImplementedError

    @property
    def divisors(self) -> Floats | None:
        """Numbers above 0 by which the columns of the rows are divided, float64 (m,), or None.

        All other methods get the divided rows; :meth:`fit`, :meth:`measure` and :meth:`check` do not.
        """
        return None

    @property
    def shifts(self) -> Floats | None:
        """Numbers that are subtracted from the columns of dense rows before, float64 (m,), or None."""
        return None

    # -- faster ways ---------------------------------------------------------------------------

    def prepare(self, block: Any) -> np.ndarray:
        """A compact form of a block, made once: array (n, c), with c and dtype the same for all blocks.

        All other methods get this form instead of the block.
        """
        raise NotImplementedError

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        """sum_i residuals_i phi_ij over a block, for the features ``first`` to ``last`` - 1.

        The default computes all columns. A class that overrides this method must also define
        :meth:`largest`.

        Parameters
        ----------
        first, last : int
            Range of features; ``last`` is excluded.
        block : array
            As in :meth:`columns`.
        residuals : float64 (n,)

        Returns
        -------
        float64 (last - first,)
        """
        raise NotImplementedError

    def gradients_of_several(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        """:meth:`gradients` of several outputs, which share the work on the features.

        The default calls :meth:`gradients` for one output after another. A class that overrides this
        method must also define :meth:`gradients`.

        Parameters
        ----------
        first, last : int
            Range of features; ``last`` is excluded.
        block : array
            As in :meth:`columns`.
        residuals : float64 (K, n)
            C-contiguous.

        Returns
        -------
        float64 (K, last - first)
        """
        raise NotImplementedError

    def largest(self, block: Any) -> float:
        """An upper bound on |value| over all features on a block; the certificate relies on it."""
        raise NotImplementedError

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        """``columns(ids, block) @ weights``: float64 (n,)."""
        raise NotImplementedError

    def moments(self, first: int, last: int, block: Any, weights: Floats) -> Floats:
        """Moments over a block of the features ``first`` to ``last`` - 1, for standard deviations.

        The default computes all columns.

        Parameters
        ----------
        first, last : int
            Range of features; ``last`` is excluded.
        block : array
            As in :meth:`columns`.
        weights : float64 (n,)
            Weights of the rows, above 0.

        Returns
        -------
        float64 (5, last - first)
            An origin, such as the first value; the weighted mean of the differences from the origin; the
            weighted sum of squared deviations from the mean; the smallest and the largest value.
        """
        raise NotImplementedError

    def bits(self, ids: Ids, block: Any) -> npt.NDArray[np.uint64]:
        """The columns of a ``binary`` family as bitmaps; see :class:`fcl.features.base.BitColumns`."""
        raise NotImplementedError

    def nonzeros(self, block: Any) -> tuple[Ids, Ids, np.ndarray]:
        """The features of each row that are not 0, for online learners.

        Parameters
        ----------
        block : array
            As in :meth:`columns`.

        Returns
        -------
        indptr : int64 (n + 1,)
            From 0; row i has the entries ``indptr[i]`` to ``indptr[i + 1]`` - 1.
        ids : int64 (entries,)
            Features, distinct within a row.
        values : (entries,) of any real dtype
            Finite values, as :meth:`columns` gives them. Features that are not listed are 0.
        """
        raise NotImplementedError

    def row_view(self, family: GeneratedFamily) -> RowLister:
        """A view of rows that replaces the default, which calls :meth:`nonzeros`."""
        raise NotImplementedError

    def listed_columns(self, ids: Ids, block: Any, dtype: Any) -> ListedColumns | None:
        """The columns of some features (increasing) as lists of nonzeros of the given dtype.

        None, the default: make the columns by :meth:`columns`.
        """
        return None

    def power_sums(self, ids: Ids, block: Any, power: int, v: Floats) -> Floats | None:
        """sum_i v_ki phi_ij^power of some features (increasing), float64 (K, len(ids)).

        None, the default: compute them from the columns.

        Parameters
        ----------
        ids, block
            As in :meth:`columns`.
        power : int
            0, 1 or 2; 0 to the power of 0 is 0.
        v : float64 (K, n)
            Numbers of the rows.
        """
        return None

    def check(self, rows: Any, numbers: Ids, name: str) -> None:
        """Raise InputError for rows that the family cannot use; called for every block that is read.

        Parameters
        ----------
        rows : array (n, m) or ``fcl.data.sparse.SparseRows``
            The rows as they were read.
        numbers : int64 (n,)
            Numbers of the rows in the data set.
        name : str
            Name of the data set.
        """
        raise NotImplementedError

    def columns_read(self, ids: Ids) -> Ids | None:
        """The columns of the rows that some features read, int64; None: all of them.

        A model keeps the names of these columns, and requires the same names of the rows to predict.
        """
        return None

    # -- prices of a family that is too large to compute every column ---------------------------

    def pricer(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> Pricer:
        """A pricer that replaces the default, which computes all columns.

        A class that overrides this method must also define the next three methods.
        """
        raise NotImplementedError

    def price_parts(self) -> int:
        """Number of parts of the pricer; known after :meth:`fit`."""
        raise NotImplementedError

    def pricing_bytes(self, block_rows: int, dense: bool) -> int:
        """Bytes that the pricer allocates, except those that depend on the entries of sparse rows."""
        raise NotImplementedError

    def pricing_extra(self, prepared: PreparedRows, dense: bool) -> int:
        """Further bytes that the pricer allocates, which depend on the contents of the rows."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.options() == self.options()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({given})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options, for scikit-learn's parameter searches."""
        return self.options()

    def set_params(self, **options: Any) -> Generator:
        """Change options; returns the generator."""
        unknown = sorted(options.keys() - self.options().keys())
        if unknown:
            raise InputError(
                f"{type(self).__name__}: there is no option {', '.join(unknown)}; it has "
                f"{', '.join(self.options()) or 'none'}"
            )
        for name, value in options.items():
            setattr(self, name, value)
        return self

    # -- what is stored ------------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        """The arguments of ``__init__``."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def state(self) -> dict[str, Any]:
        """``n_features`` and the other attributes that :meth:`fit` has set."""
        learnt = {k: v for k, v in vars(self).items() if k.endswith("_") and k[0] != "_"}
        return {"n_features": int(self.n_features), **learnt}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the attributes from :meth:`state`; InputError for names of methods and private names."""
        for name, value in state.items():
            if name.startswith("_") or callable(getattr(type(self), name, None)):
                raise InputError(f"expected names of attributes that fit sets, got {shown(name)}")
            setattr(self, name, value)

    def check_restored(self, width: int) -> None:  # noqa: B027  (most classes need none)
        """Raise InputError unless :meth:`fit` could have produced the state from rows of this width.

        The state may come from an untrusted file. A class should check here that no such state can make
        its methods hang or allocate unbounded memory.
        """


def overrides(generator: Generator, name: str) -> bool:
    """Whether the class of a generator overrides a method of :class:`Generator`."""
    return getattr(type(generator), name) is not getattr(Generator, name)


def encode(value: Any) -> Any:
    """Convert a value of a state to JSON types; arrays keep their dtype and shape."""
    if isinstance(value, np.ndarray):
        values = value.ravel().tolist()
        if value.dtype.kind == "f":  # JSON has no infinity or NaN
            values = [x if np.isfinite(x) else str(x) for x in values]
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": values}
    if isinstance(value, np.generic):
        return value.item()
    return value


def decode(value: Any) -> Any:
    """The inverse of :func:`encode`; ValueError for a dtype or shape that does not match the values."""
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "values"}:
        values, dtype = value["values"], np.dtype(str(value["dtype"])[:20])
        longest = max((len(x) for x in values if isinstance(x, str)), default=0)
        # a text dtype from a file may claim items of any size
        if dtype.kind not in "biufU" or dtype.itemsize > max(16, 4 * longest):
            raise ValueError(f"an array of dtype {shown(value['dtype'])}")
        array: npt.NDArray[Any] = np.array(values, dtype)
        return array.reshape([whole("shape of an array", n, 0) for n in value["shape"]])
    return value


def family_name(generator: Generator) -> str:
    """The name under which a family is stored and looked up."""
    cls = type(generator)
    # an inherited name belongs to another class
    return vars(cls).get("name") or f"{cls.__module__}:{cls.__qualname__}"
