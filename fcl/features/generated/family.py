"""The family that is made of a generator.

Columns are what the generator says, in float64; the cache holds them in float32 (or as bits), and the
trainer's view corrects what that changes. Prices come from the columns themselves, part by part of the
family, all against the same residuals: so the certificate holds for the whole family; for what a pass
draws where the family is sampled (``per_pass``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import BitColumns, Columns, DenseColumns, Floats, Ids, Prices, merge_prices
from fcl.features.generated.checked import checked_columns, checked_vector, name_of
from fcl.features.generated.forms import MatrixRecord, RowForm, form_for
from fcl.features.generator import ROWS, Generator, encode, family_name, overrides

if TYPE_CHECKING:
    from fcl.data.base import RowReader

__all__ = ["GeneratedFamily", "bind"]

#: Parts of a family for pricing: at most, and features of one at least (as many are reported of it).
MOST_PARTS = 128
LEAST_PART = 64
#: Bytes of columns in float64 that are made at a time, beside their block.
STAGE_BYTES = 32 << 20
#: Bytes of a block of prepared rows, about: wider rows have smaller blocks.
BLOCK_BYTES = 64 << 20
#: Rows of the sample that :meth:`Generator.fit` sees.
FIT_ROWS = 2000
#: Parts of the data from which they come.
FIT_PARTS = 20


class GeneratedFamily:
    """A generator bound to the rows of a data set; see :class:`fcl.features.base.Family`."""

    def __init__(self, generator: Generator, form: RowForm) -> None:
        self.generator = generator
        self.form = form
        self._record: MatrixRecord | None = None
        if overrides(generator, "prepare"):
            self._record = MatrixRecord(
                int(generator.prepared_width_),  # type: ignore[attr-defined]
                str(generator.prepared_dtype_),  # type: ignore[attr-defined]
            )

    # -- what it is ----------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        return self.generator.n_features

    def drawn(self, number: int) -> range:
        size = self.generator.per_pass
        if size is None:
            return range(self.n_features)
        first = number * size % self.n_features
        return range(first, first + size)

    @property
    def n_price_parts(self) -> int:
        return max(1, min(MOST_PARTS, -(-len(self.drawn(0)) // LEAST_PART)))

    @property
    def max_abs(self) -> float:
        return 0.0  # the pricer adds what balancing may change by itself

    @property
    def binary(self) -> bool:
        return self.generator.binary

    def describe(self, feature: int) -> str:
        return self.generator.describe(int(feature))

    def to_config(self) -> dict[str, Any]:
        return {
            "family": family_name(self.generator),
            "options": self.generator.options(),
            "state": {name: encode(value) for name, value in self.generator.state().items()},
            "form": self.form.to_config(),
        }

    def most_block_rows(self) -> int:
        """Rows of a block of prepared rows of a convenient size; a multiple of 64."""
        record = 64 * int(np.prod(self.record_shape(64))) // 64
        return max(64, min(65536, BLOCK_BYTES // max(1, record // 64) // 64 * 64))

    # -- rows ----------------------------------------------------------------------------------

    def read_rows(
        self,
        rows: RowReader[Any],
        block_rows: int,
        keep: npt.NDArray[np.bool_] | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        return self.form.read(rows, block_rows, keep, first, last)

    def check_rows(self, rows: RowReader[Any]) -> None:
        self.form.check(rows)

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        if self._record is not None:
            return self._record.shape(block_rows)
        return self.form.record_shape(block_rows)

    def prepare(self, raw: Any, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        if self._record is None:
            return self.form.prepare(raw, record)
        self._record.write(self._compact(self.form.block_of(raw)), record)
        return ()

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        (self._record or self.form).select(prepared, rows, chosen, number)

    def block(self, prepared: PreparedRows, number: int) -> Any:
        """A prepared block as the generator gets it."""
        if self._record is not None:
            return self._record.read(prepared, number)
        return self._shown(self.form.block(prepared, number))

    def _block_of(self, raw: Any) -> Any:
        block = self.form.block_of(raw)
        return self._shown(block) if self._record is None else self._compact(block)

    def _shown(self, block: Any) -> Any:
        return block.to_scipy() if self.generator.rows == "sparse" else block

    def _compact(self, block: Any) -> np.ndarray:
        made = self.generator.prepare(self._shown(block))
        record = self._record
        assert record is not None
        if made.ndim != 2 or made.shape[1] != record.width or made.dtype != np.dtype(record.dtype):
            raise InputError(
                f"features {name_of(self.generator)}: prepare gave {made.dtype} {made.shape}, expected "
                f"{np.dtype(record.dtype)} (n, {record.width}) as it did on the sample"
            )
        return made

    # -- margins -------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        for number in range(prepared.n_blocks) if blocks is None else blocks:
            rows = prepared.rows_of(number)
            block = self.block(prepared, number)
            out[rows] = self._margins(ids, weights, block, number, rows.stop - rows.start)

    def _margins(self, ids: Ids, weights: Floats, block: Any, number: int, n: int) -> Floats:
        if not len(ids):
            return np.zeros(n)
        if overrides(self.generator, "margins"):
            found = self.generator.margins(ids, weights, block)
            return checked_vector(self.generator, "margins", found, n, number)
        total = np.zeros(n)
        for some in _batches(len(ids), n):
            columns = checked_columns(self.generator, ids[some], block, number, n)
            total += columns.astype(np.float64, copy=False) @ weights[some]
        return total

    def scorer(self, ids: Ids, weights: Floats) -> GeneratedScorer:
        return GeneratedScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int) -> GeneratedPricer:
        return GeneratedPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> GeneratedColumns:
        return GeneratedColumns(self, prepared, buffer_bytes)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        return 3 * STAGE_BYTES + 2 * int(np.prod(self.record_shape(block_rows)))

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        return prepared.side_bytes()


class GeneratedScorer:
    """A model in a generator's features, for raw rows."""

    def __init__(self, family: GeneratedFamily, ids: Ids, weights: Floats) -> None:
        self._family, self._ids, self._weights = family, ids, weights
        self._seen = 0

    def margins(self, rows: Any) -> Floats:
        """The margins, without the intercept."""
        self._seen += 1
        block = self._family._block_of(rows)
        return self._family._margins(self._ids, self._weights, block, self._seen - 1, len(rows))


class GeneratedColumns:
    """Columns of a generator's features, as bits or float32."""

    def __init__(self, family: GeneratedFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        self._family, self._prepared = family, prepared
        column = prepared.n_rows / 8 if family.binary else 4 * prepared.n_rows
        self.batch = max(1, min(1024, int(buffer_bytes // max(1, column))))

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """By id."""
        return np.argsort(ids, kind="stable")

    def make(self, ids: Ids) -> Sequence[Columns]:
        """The columns of at most ``batch`` features, in increasing order of their ids."""
        family, made = self._family, []
        for number, rows in self._prepared.blocks():
            n = rows.stop - rows.start
            block = family.block(self._prepared, number)
            values: np.ndarray
            if family.binary:
                values = np.zeros((len(ids), -(-n // 64)), np.uint64)
            else:
                values = np.empty((len(ids), n), np.float32)
            for some in _batches(len(ids), n):
                columns = checked_columns(family.generator, ids[some], block, number, n).T
                values[some] = _bits(columns) if family.binary else columns
            made.append(BitColumns(values, n) if family.binary else DenseColumns(values, n))
        return made


class GeneratedPricer:
    """Prices from the columns themselves, or by the generator's own way."""

    def __init__(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        generator = family.generator
        self._drawn = family.drawn(0)
        self._fast = overrides(generator, "gradients")
        if self._fast and not overrides(generator, "largest"):
            raise InputError(
                f"features {name_of(generator)}: a class with gradients of its own has to give "
                "largest(), an upper bound of its values; without one nothing could be certified"
            )

    @property
    def n_parts(self) -> int:
        return self._family.n_price_parts

    def draw(self, number: int) -> None:
        """Pass ``number`` is priced next: a sampled family draws its features by that."""
        self._drawn = self._family.drawn(number)

    def _features(self, part: int) -> tuple[int, int]:
        """The features of a part, as places in what is drawn."""
        n, parts = len(self._drawn), self.n_parts
        return part * n // parts, (part + 1) * n // parts

    def _home(self, ids: Ids, first: int, last: int) -> npt.NDArray[np.bool_]:
        """Which features belong to these places, whichever pass draws them."""
        place = ids % len(self._drawn)
        found: npt.NDArray[np.bool_] = (place >= first) & (place < last)
        return found

    def price(
        self, residuals: Floats, watch: Ids, threshold: float, parts: range | None = None
    ) -> Prices:
        total = abs(float(residuals.sum()))
        prices = []
        for part in range(self.n_parts) if parts is None else parts:
            first, last = self._features(part)
            own = self._home(watch, first, last)
            first, last = first + self._drawn.start, last + self._drawn.start
            g, most = self._gradients(first, last, residuals)
            size = np.abs(g)
            largest = float(size.max(initial=0.0))
            watched = np.zeros(len(watch))
            fresh = own & (watch >= first) & (watch < last)
            watched[fresh] = g[watch[fresh] - first]
            size[watch[fresh] - first] = 0.0
            other = np.flatnonzero(own & ~fresh)  # of passes before, where the family is sampled
            if len(other):
                other = other[np.argsort(watch[other], kind="stable")]
                watched[other], value = self._from_columns(watch[other], residuals)
                largest = max(largest, float(np.abs(watched[other]).max()))
                most = max(most, value)
            found = np.flatnonzero(size > threshold)
            if len(found) > self._keep:
                found = found[np.argsort(-size[found], kind="stable")[: self._keep]]
                found.sort()
            # balancing the residuals to a sum of 0 changes g_j by no more than |sum r| max |phi_j|
            largest += total * most
            n_priced = last - first + len(other)
            prices.append(Prices(found + first, g[found], largest, watched, n_priced))
        return merge_prices(prices)

    def _gradients(self, first: int, last: int, residuals: Floats) -> tuple[Floats, float]:
        """g_j of features, and the largest |value| met."""
        if not self._fast:
            return self._from_columns(np.arange(first, last), residuals)
        generator = self._family.generator
        g, most = np.zeros(last - first), 0.0
        for number, rows in self._prepared.blocks():
            block = self._family.block(self._prepared, number)
            found = generator.gradients(first, last, block, residuals[rows])
            g += checked_vector(generator, "gradients", found, last - first, number)
            most = max(most, float(generator.largest(block)))
        return g, most

    def _from_columns(self, ids: Ids, residuals: Floats) -> tuple[Floats, float]:
        """As :meth:`_gradients`, of any features (increasing), from their columns."""
        g, most = np.zeros(len(ids)), 0.0
        for number, rows in self._prepared.blocks():
            n, r = rows.stop - rows.start, residuals[rows]
            block = self._family.block(self._prepared, number)
            for some in _batches(len(ids), n):
                columns = checked_columns(self._family.generator, ids[some], block, number, n)
                columns = columns.astype(np.float64, copy=False)
                most = max(most, float(np.abs(columns).max(initial=0.0)))
                g[some] += r @ columns
        return g, most

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        own = np.ones(len(ids), bool)
        if parts is not None:
            first, last = self._features(parts.start)[0], self._features(parts.stop - 1)[1]
            own = self._home(ids, first, last)
        out = np.zeros(len(ids))
        out[own] = self._sums(ids[own], lambda columns, rows: values[rows] @ columns**2)
        return out

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        found = self._sums(ids, lambda columns, rows: np.count_nonzero(columns, axis=0))
        return found.astype(np.int64)

    def _sums(self, ids: Ids, of: Callable[[Floats, slice], npt.NDArray[Any]]) -> Floats:
        """Sums over blocks of what ``of`` makes of the columns (n, k) and their rows."""
        chosen, where = np.unique(ids, return_inverse=True)
        total = np.zeros(len(chosen))
        for number, rows in self._prepared.blocks() if len(chosen) else ():
            n = rows.stop - rows.start
            block = self._family.block(self._prepared, number)
            for some in _batches(len(chosen), n):
                columns = checked_columns(self._family.generator, chosen[some], block, number, n)
                total[some] += of(columns.astype(np.float64, copy=False), rows)
        return total[where]


def bind(generator: Generator, rows: RowReader[Any]) -> GeneratedFamily:
    """A copy of the generator, fitted to the rows of a data set.

    Raises InputError for rows of another kind, a class that breaks the contract, or one that could not be
    made again from what is stored.
    """
    name = name_of(generator)
    if generator.rows not in ROWS:
        raise InputError(
            f"features {name}: rows must be one of {', '.join(ROWS)}, got {generator.rows!r}"
        )
    form = form_for(generator.rows, rows)
    fitted = type(generator)(**generator.options())
    sample = form.block_of(_sample(form, rows))
    if generator.rows == "sparse":
        sample = sample.to_scipy()
    fitted.fit(sample)
    n = getattr(fitted, "n_features", None)
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or not 0 < n < 2**62:
        raise InputError(
            f"features {name}: n_features must be a whole number from 1 to 2^62 after fit, got {n!r}"
        )
    size = fitted.per_pass
    if size is not None and (not 0 < size <= n or n % size):
        raise InputError(
            f"features {name}: per_pass must divide n_features = {n} (or be None), got {size!r}"
        )
    if overrides(fitted, "prepare"):
        made = fitted.prepare(sample)
        if not isinstance(made, np.ndarray) or made.ndim != 2 or len(made) != sample.shape[0]:
            raise InputError(
                f"features {name}: prepare must return an array (n, c), got {made!r:.80}"
            )
        fitted.prepared_width_ = made.shape[1]  # type: ignore[attr-defined]
        fitted.prepared_dtype_ = made.dtype.str  # type: ignore[attr-defined]
    return GeneratedFamily(fitted, form)


def _sample(form: RowForm, rows: RowReader[Any]) -> Any:
    """Raw rows from all over the data."""
    n = rows.shape[0]
    keep = np.zeros(n, bool)
    part = FIT_ROWS // FIT_PARTS
    if n <= FIT_ROWS:
        keep[:] = True
    else:
        for start in np.linspace(0, n - part, FIT_PARTS).astype(np.int64):
            keep[start : start + part] = True
    _, _, raw = next(form.read(rows, FIT_ROWS, keep, 0, None))
    return raw


def _batches(k: int, n: int) -> Iterator[slice]:
    """Cut k columns of n rows so that in float64 they take no more than the stage."""
    size = max(1, STAGE_BYTES // (8 * max(1, n)))
    for at in range(0, k, size):
        yield slice(at, min(at + size, k))


def _bits(columns: np.ndarray) -> npt.NDArray[np.uint64]:
    """Columns (k, n) of zeros and ones as bitmaps (k, words)."""
    k, n = columns.shape
    packed = np.packbits(columns != 0, axis=1, bitorder="little")
    out = np.zeros((k, 8 * -(-n // 64)), np.uint8)
    out[:, : packed.shape[1]] = packed
    return out.view(np.uint64)
