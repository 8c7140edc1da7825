"""The contract of a family of features that its user writes: :class:`Generator`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl.checks import shown, whole
from fcl.errors import InputError
from fcl.features.prices import Floats, Ids, Pricer

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.features.generator.family import GeneratedFamily

__all__ = ["Generator"]

#: What `columns` gets as its block, by the name in `Generator.rows`.
ROWS = ("sequences", "numbers", "sparse", "any")


class Generator(ABC):
    """A family of features: numbers 0 .. n_features - 1, and how their columns are made.

    The one duty is :meth:`columns`, once :meth:`fit` has set ``n_features``. Everything else has a
    default that works and can be replaced by something faster. Options are arguments of ``__init__``,
    kept under their own names, of types that JSON knows; what :meth:`fit` learns goes into attributes
    whose names end in ``_``. Both are stored in checkpoints and models, from which another process makes
    the same generator again.

    rows : which rows the blocks hold.
        ``"sequences"``: uint8 (n, L), codes 0-3 for A, C, G, T and 4 for an unknown letter.
        ``"numbers"``: float32 or float64 (n, m), finite.
        ``"sparse"``: ``scipy.sparse.csc_array`` (n, m) of float32 or float64.
        ``"any"``: numbers as they are stored, dense or :class:`SparseColumns`.
    binary : whether all values are 0 or 1; the cache then needs a sixth of the room.
    step : 0, or a step of which all values are exact multiples, -127 to 127 times: the cache then needs a
        quarter of the room. float32 has to hold all the multiples, as it does of numbers of at
        most 17 significant bits: 1, 0.25, not 0.1.
    per_pass : None where every pass prices all features. Else how many features each pass draws of a
        family too large for that, a divisor of ``n_features``: pass k those from k * per_pass on. It
        prices them and those with a weight or a cached column, and its certificate is for these alone.
    """

    rows: ClassVar[str] = "numbers"
    name: ClassVar[str] = ""  #: of a family that fcl or an entry point knows; else ``module:Class``
    binary: bool = False
    step: float = 0.0
    per_pass: int | None = None
    #: whether one penalty for columns of very different scales deserves a warning
    warns_of_scales: bool = False
    n_features: int
    stored: np.dtype[Any] | None = (
        None  #: dtype of the rows as they are stored; set before :meth:`fit`
    )

    @abstractmethod
    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        """The columns of some features on a block of rows.

        ids : int64 (k,), increasing.
        block : rows as ``rows`` says, or what :meth:`prepare` made of them; not to be written to.

        Returns (n, k) of any real dtype, all finite. Must depend on the features and the rows alone: not
        on what else is in the block, on the process, or on what was asked before.
        """

    @abstractmethod
    def fit(self, sample: Any) -> None:
        """Take from a sample of the training rows what the options leave open; sets ``n_features``.

        sample : a block of at most 2,000 rows, from all over the data; of the full width.
        """

    def describe(self, feature: int) -> str:
        """The feature in words.

        A class that speaks of columns of its rows may have one more argument, ``names=None``: it gets the
        names of all columns, a sequence of str, where they are known.
        """
        return f"{type(self).__name__} {feature}"

    def penalty_factors(self, ids: Ids) -> Floats:
        """Factors of some features in the penalty: (k,) above 0; an infinite one leaves a feature out."""
        raise NotImplementedError

    # -- faster ways ---------------------------------------------------------------------------

    def prepare(self, block: Any) -> np.ndarray:
        """A compact form of a block, made once: (n, c) of a fixed c and dtype; columns get it instead."""
        raise NotImplementedError

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        """sum_i residuals_i phi_ij over a block for the features ``first`` to ``last``: float64.

        Prices the family; the default makes all columns. A class with a way of its own has to give
        :meth:`largest` too.
        """
        raise NotImplementedError

    def largest(self, block: Any) -> float:
        """An upper bound of |value| over all features on a block; without one nothing is certified."""
        raise NotImplementedError

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        """columns(ids, block) @ weights: float64 (n,)."""
        raise NotImplementedError

    def moments(self, first: int, last: int, block: Any, weights: Floats) -> Floats:
        """Moments over a block of the features ``first`` to ``last``, for their standard deviations.

        weights : float64 (n,), of the rows, above 0.

        Returns float64 (5, last - first): an origin, such as the first value; the weighted mean of the
        differences to that; the weighted sum of the squared deviations from the mean; the least and the
        largest value. The default makes all columns.
        """
        raise NotImplementedError

    def bits(self, ids: Ids, block: Any) -> npt.NDArray[np.uint64]:
        """The columns of a ``binary`` family as bitmaps, as of :class:`fcl.features.base.BitColumns`."""
        raise NotImplementedError

    def check(self, rows: Any, numbers: Ids, name: str) -> None:
        """Raise InputError for rows that the family is not made for; sees every block that is read.

        rows : array (n, m) or ``fcl.data.sparse.SparseRows``, as they were read.
        numbers : of the rows in the data set, int64 (n,).  name : of the data set.
        """
        raise NotImplementedError

    # -- prices of a family that is too large to make every column of ---------------------------

    def pricer(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> Pricer:
        """A pricer instead of one that makes all columns; needs the three that follow."""
        raise NotImplementedError

    def price_parts(self) -> int:
        """Parts of that pricer; known after :meth:`fit`."""
        raise NotImplementedError

    def pricing_bytes(self, block_rows: int, dense: bool) -> int:
        """Bytes that it allocates; of blocks of sparse rows without what depends on their entries."""
        raise NotImplementedError

    def pricing_extra(self, prepared: PreparedRows, dense: bool) -> int:
        """Bytes beyond that, now that the rows are read."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.options() == self.options()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({given})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options, for scikit-learn's searches."""
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
        """What :meth:`fit` has learnt."""
        learnt = {k: v for k, v in vars(self).items() if k.endswith("_") and k[0] != "_"}
        return {"n_features": int(self.n_features), **learnt}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the attributes of a :meth:`state`; InputError for names of methods and private names."""
        for name, value in state.items():
            if name.startswith("_") or callable(getattr(type(self), name, None)):
                raise InputError(f"expected names of attributes that fit sets, got {shown(name)}")
            setattr(self, name, value)

    def check_restored(self, width: int) -> None:  # noqa: B027  (most classes need none)
        """Raise InputError unless :meth:`fit` could have made the state from rows of this width.

        The state may come from a stranger's file. A class checks here that its methods will not hang, or
        take unbounded memory, with a state that its fit never makes.
        """


def overrides(generator: Generator, name: str) -> bool:
    """Whether a class has a way of its own."""
    return getattr(type(generator), name) is not getattr(Generator, name)


def encode(value: Any) -> Any:
    """A value of a state as JSON has it; arrays keep dtype and shape."""
    if isinstance(value, np.ndarray):
        values = value.ravel().tolist()
        if value.dtype.kind == "f":  # JSON knows no others
            values = [x if np.isfinite(x) else str(x) for x in values]
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": values}
    if isinstance(value, np.generic):
        return value.item()
    return value


def decode(value: Any) -> Any:
    """The inverse of :func:`encode`; ValueError for a dtype or shape that does not fit the values."""
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "values"}:
        values, dtype = value["values"], np.dtype(str(value["dtype"])[:20])
        longest = max((len(x) for x in values if isinstance(x, str)), default=0)
        # a text dtype may announce items of any size
        if dtype.kind not in "biufU" or dtype.itemsize > max(16, 4 * longest):
            raise ValueError(f"an array of dtype {shown(value['dtype'])}")
        array: npt.NDArray[Any] = np.array(values, dtype)
        return array.reshape([whole("shape of an array", n, 0) for n in value["shape"]])
    return value


def family_name(generator: Generator) -> str:
    """The name under which a family is stored and found again."""
    cls = type(generator)
    # an inherited name is that of another class
    return vars(cls).get("name") or f"{cls.__module__}:{cls.__qualname__}"
