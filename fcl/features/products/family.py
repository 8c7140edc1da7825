"""The family of all products of a few columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.checks import flag, shown, whole
from fcl.errors import InputError
from fcl.features.base import FEATURES_LIMIT, Family
from fcl.features.generator.contract import Generator
from fcl.features.generator.forms import SparseColumns
from fcl.features.generator.pricing import LEAST_PART, MOST_PARTS
from fcl.features.generator.scales import are_numbers, centres_of
from fcl.features.plain import columns_named, less
from fcl.features.products.numbering import Numbering, count_products
from fcl.features.products.pricing import (
    ProductPricer,
    buffers,
    kernel_block,
    pricing_bytes,
    pricing_extra,
)
from fcl.features.products.rows import MOST_LISTED, ProductRows
from fcl.features.products.scales import measured
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.features.generator.family import GeneratedFamily
    from fcl.features.rows import RowLister
    from fcl.kernels.products import Buffers

#: Largest number of rows on which columns are measured.
MEASURED_ROWS = 1 << 16
#: Largest number of factors of a product.
MOST_DEGREE = 64
#: Attributes with the units of the columns, which a resumed job keeps: divisors, and what is subtracted.
UNITS = ("scales_", "shifts_")

_numbering = lru_cache(maxsize=2)(Numbering)


@lru_cache(maxsize=2)
def _cuts(numbering: Numbering) -> Ids:
    n_features = numbering.n_features
    wanted = max(1, min(MOST_PARTS, numbering.n_columns, n_features // LEAST_PART))
    shares = [n_features * t // wanted for t in range(wanted + 1)]
    return np.unique(np.searchsorted(numbering.below(), np.array(shares, np.int64)))


def _factors(text: str, known: Mapping[str, int]) -> list[str]:
    """The names of the factors of a product that :meth:`Products.describe` describes."""
    factors: list[str] = []
    for word in map(str.strip, text.split(" * ")):
        name, _, power = word.rpartition("^")
        if word not in known and power.isascii() and power.isdecimal() and len(power) < 3:
            factors += [name] * int(power)
        else:
            factors.append(word)
    return factors


def _names_in(texts: Sequence[str]) -> set[str]:
    """The names of columns that descriptions of products may have."""
    words = {word.strip() for text in texts for word in text.split(" * ")}
    words |= {word.rpartition("^")[0] for word in words}
    inner = {word[1:-1] for word in words if word[:1] == "(" and word[-1:] == ")"}
    return words | {word.rpartition(sign)[0] for word in inner for sign in (" - ", " + ")}


def _flag_or_auto(name: str, value: Any) -> bool | None:
    if value is None or value == "auto":
        return None
    if not isinstance(value, bool):
        raise InputError(f"products: {name} must be auto, true or false, got {shown(value)}")
    return value


class Products(Generator):
    """All products of 1 to ``degree`` columns of dense or sparse numbers.

    Products include powers, such as x3^2 * x5, unless the data are ``binary`` (all values 0 or 1), since
    powers would then be duplicates. :class:`fcl.features.products.numbering.Numbering` defines the ids.
    Values are in float64.

    Parameters
    ----------
    degree : int
        Largest number of factors of a product; for binary data at most the number of columns.
    binary : bool
        Whether all values are 0 or 1, which is checked for every block. Data that are stored as booleans
        are always binary.
    scale : bool or "auto"
        Whether columns are divided by their standard deviations before they are multiplied, so that the
        penalty sees columns in different units alike. They are measured on up to 65,536 training rows,
        and kept in the model. ``"auto"``: if they differ by more than a factor of 100; a column of 0 and
        1 counts 0.5, however rare the 1. Binary data are never divided.
    centre : bool or "auto"
        Whether a constant is subtracted from columns of large mean and small spread, such as years and
        dates, before they are multiplied: a year hardly changes in percent, so that its product with x0
        would be nearly a number times x0. It is done for columns of dense data whose mean is more than
        16 times their standard deviation; descriptions show the constants, such as
        ``x0 * (x3 - 2000)``, and the model keeps them. False: no constant is subtracted.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] * X[:, 3])
    >>> model = fcl.train(data, fcl.Products(degree=2), alpha=0.1, loss="squared").model
    >>> model.family.n_features, model.describe(1)[0].feature
    (20, 'x0 * x3')
    """

    rows = "any"
    name = "products"

    def __init__(
        self,
        degree: int = 2,
        binary: bool = False,
        scale: bool | str | None = None,
        centre: bool | str | None = None,
    ) -> None:
        self.degree = whole("products: degree", degree, 1)
        self.binary = flag("products: binary", binary)
        # without values the text of the family is the one of version 0.1, whose jobs can be resumed
        self.scale = _flag_or_auto("scale", scale)
        self.centre = _flag_or_auto("centre", centre) and None
        if self.binary and self.scale:
            raise InputError(
                "products: scale and binary were both given; expected one of them, since columns of 0 "
                "and 1 have no unit"
            )
        if self.degree > MOST_DEGREE:
            raise InputError(f"products: degree must be at most {MOST_DEGREE}, got {degree}")

    # -- properties ----------------------------------------------------------------------------

    def fit(self, sample: Any) -> None:
        self.columns_ = (
            sample.n_columns if isinstance(sample, SparseColumns) else int(sample.shape[1])
        )
        if self.stored is not None and self.stored.kind == "b":
            self.binary = True
        self.n_features = self._count()
        for name in UNITS:
            vars(self).pop(name, None)
            if self.kept is not None and name in self.kept:
                setattr(self, name, self.kept[name])
        self.check_restored(self.columns_)

    @property
    def measured_rows(self) -> int:
        asks = self.scale is not False or self.centre is not False
        return MEASURED_ROWS if asks and self.kept is None and not self.binary else 0

    def measure(self, sample: Any) -> None:
        if self.scale is not False:
            found = measured(sample, only_uneven=self.scale is None)
            if found is not None:
                self.scales_ = found
        if self.centre is not False and not isinstance(sample, SparseColumns):
            centres = centres_of(sample)
            if centres.any():
                self.shifts_ = centres

    @property
    def divisors(self) -> Floats | None:
        return vars(self).get("scales_")

    @property
    def shifts(self) -> Floats | None:
        return vars(self).get("shifts_")

    @property
    def warns_of_scales(self) -> bool:  # type: ignore[override]
        return self.divisors is None

    def scales_of(self, ids: Ids) -> Floats:
        """What the products of the plain columns are divided by, float64 (k,)."""
        if self.divisors is None:
            return np.ones(len(ids))
        columns = self.numbering.tuples(ids)
        out: Floats = np.where(columns >= 0, self.divisors[columns], 1.0).prod(axis=1)
        return out

    def check_restored(self, width: int) -> None:
        if self.columns_ != width or self.n_features != self._count():
            raise InputError(
                f"products: expected the products of {width} columns, got {shown(self.n_features)} of "
                f"{shown(self.columns_)}"
            )
        for name, found, least, words in (
            ("scales_", self.divisors, 0.0, "numbers above 0"),
            ("shifts_", self.shifts, -np.inf, "numbers"),
        ):
            if found is not None and (self.binary or not are_numbers(found, (width,), least)):
                raise InputError(
                    f"products: expected {name} of {width} {words}, got {shown(found)}"
                )

    def _count(self) -> int:
        m, degree = self.columns_, self.degree
        if not m:
            raise InputError("products: the data have no columns")
        if degree > m and self.binary:  # other columns have powers
            raise InputError(
                f"products: degree is {degree}, larger than the number of binary columns, {m}; lower "
                f"degree to {m} or less"
            )
        n_features = count_products(m, degree, not self.binary)
        if n_features >= FEATURES_LIMIT:
            raise InputError(
                f"products: expected fewer than 2^62 products, got {n_features:,} up to degree {degree} "
                f"of {m} columns; lower degree, or select columns"
            )
        return n_features

    @property
    def numbering(self) -> Numbering:
        """Converts between ids and columns of the products; available after :meth:`fit`."""
        return _numbering(self.columns_, self.degree, not self.binary)

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        columns = self.numbering.tuples(np.array([feature], np.int64))[0]
        words = []
        for column, power in zip(
            *np.unique(columns[columns >= 0], return_counts=True), strict=True
        ):
            word = self._word(column, f"x{column}" if names is None else names[column])
            words.append(word + (f"^{power}" if power > 1 else ""))
        return " * ".join(words)

    def _word(self, column: int, name: str) -> str:
        """The text of a factor: the name of its column, and what is subtracted from it."""
        shift = 0.0 if self.shifts is None else float(self.shifts[column])
        return f"({less(name, shift)})" if shift else name

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        named = columns_named(_names_in(texts), self.columns_, names)
        found = {self._word(column, name): column for name, column in named.items()}
        parts = [_factors(text, found) for text in texts]
        tuples = np.full((len(texts), self.degree), -1, np.int64)
        known = np.zeros(len(texts), bool)
        for at, part in enumerate(parts):
            columns = sorted((found.get(name, -1) for name in part), reverse=True)
            distinct = len(set(columns)) == len(columns) or not self.binary
            known[at] = 0 < len(columns) <= self.degree and columns[-1] >= 0 and distinct
            if known[at]:
                tuples[at, : len(columns)] = columns
        out = np.full(len(texts), -1, np.int64)
        out[known] = self.numbering.ids(tuples[known])
        return out

    def columns_read(self, ids: Ids) -> Ids | None:
        # a class derived from this one may compute other features
        columns = self.numbering.tuples(ids)
        return columns[columns >= 0] if type(self) is Products else None

    def check(self, rows: Any, numbers: Ids, name: str) -> None:
        """Raise InputError if the data are declared binary and a value is neither 0 nor 1."""
        if not self.binary:
            return
        values = rows if isinstance(rows, np.ndarray) else rows.data
        wrong = (values != 0) & (values != 1)
        if not wrong.any():
            return
        at = int(wrong.argmax())
        if isinstance(rows, np.ndarray):
            row, column = divmod(at, rows.shape[1])
            value = rows[row, column]
        else:
            row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
            column, value = int(rows.indices[at]), rows.data[at]
        raise InputError(
            f"{name}: row {numbers[row]}, column {column} is {value}, but with binary=True products need "
            "columns of 0 and 1; omit binary=True, or correct the value"
        )

    # -- columns and margins -------------------------------------------------------------------

    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        parts, n = kernel_block(block)
        out = np.zeros((len(ids), n))
        kernels.products.product_columns(parts, *self._made(ids, n), out)
        return out.T

    def bits(self, ids: Ids, block: Any) -> npt.NDArray[np.uint64]:
        parts, n = kernel_block(block)
        out = np.zeros((len(ids), -(-n // 64)), np.uint64)
        kernels.products.product_bits(parts, *self._made(ids, n), out)
        return out

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        parts, n = kernel_block(block)
        out = np.zeros(n)
        kernels.products.product_margins(parts, *self._made(ids, n), weights, out)
        return out

    def row_view(self, family: GeneratedFamily) -> RowLister:
        # a class derived from this one may compute other features
        if type(self) is not Products:
            return Family.row_view(family)
        if self.degree > MOST_LISTED:
            raise InputError(
                f"products: online learners list products of at most {MOST_LISTED} columns, got degree "
                f"{self.degree}; lower degree"
            )
        return ProductRows(self)

    def _made(self, ids: Ids, n: int) -> tuple[Ids, Buffers]:
        return self.numbering.tuples(ids), buffers(self.degree, n)

    # -- prices --------------------------------------------------------------------------------

    def cuts(self) -> Ids:
        """The first value of the largest column of the products in each part: int64 (parts + 1,)."""
        return _cuts(self.numbering)

    def price_parts(self) -> int:
        return len(self.cuts()) - 1

    def pricer(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> ProductPricer:
        return ProductPricer(self, family, prepared, keep)

    def pricing_bytes(self, block_rows: int, dense: bool) -> int:
        return pricing_bytes(self.columns_, self.degree, block_rows, dense)

    def pricing_extra(self, prepared: PreparedRows, dense: bool) -> int:
        return 0 if dense else pricing_extra(prepared)
