"""The family that is made of a generator.

Columns are what the generator says, in float64; the cache holds them in float32 (or as bits), and the
trainer's view corrects what that changes. Prices come from the columns themselves, part by part of the
family, all against the same residuals: so the certificate holds for the whole family; for what a pass
draws where the family is sampled (``per_pass``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import GeneratorError
from fcl.features.base import (
    BitColumns,
    Columns,
    DenseColumns,
    Floats,
    Ids,
    Pricer,
    Prices,
    merge_prices,
)
from fcl.features.generated.checked import (
    called,
    checked_columns,
    checked_count,
    checked_factors,
    checked_largest,
    checked_prepared,
    checked_vector,
    name_of,
    some_ids,
)
from fcl.features.generated.forms import MatrixRecord, RowForm, SparseColumns, form_for, read_only
from fcl.features.generator import ROWS, Generator, decode, encode, family_name, overrides

if TYPE_CHECKING:
    from fcl.data.base import RowReader

__all__ = ["GeneratedFamily", "bind"]

#: Parts of a family for pricing: at most, and features of one at least (as many are reported of it).
MOST_PARTS = 128
LEAST_PART = 64
#: Features of a part at most, unless there would be more parts than that.
PART_FEATURES, PARTS_LIMIT = 1 << 20, 1 << 16
#: Bytes of columns in float64 that are made at a time, beside their block; what there is of them at once:
#: as they came, in float64, their squares, and three steps on the generator's way to them.
STAGE_BYTES = 16 << 20
STAGES = 6
#: Bytes of a block of prepared rows, about: wider rows have smaller blocks.
BLOCK_BYTES = 64 << 20
#: Rows of the sample that :meth:`Generator.fit` sees, fewer if they would take more bytes than that.
FIT_ROWS = 2000
FIT_BYTES = 64 << 20
#: Parts of the data from which they come.
FIT_PARTS = 20


class GeneratedFamily:
    """A generator bound to the rows of a data set; see :class:`fcl.features.base.Family`."""

    def __init__(
        self, generator: Generator, form: RowForm, record: MatrixRecord | None = None
    ) -> None:
        """``record``: of what the generator prepares, if it does."""
        self.generator = generator
        self.form = form
        self._record = record
        self._max_abs = 0.0

    # -- what it is ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return name_of(self.generator)

    @property
    def n_features(self) -> int:
        return int(self.generator.n_features)

    def drawn(self, number: int) -> range:
        size = self.generator.per_pass
        if size is None:
            return range(self.n_features)
        first = number * size % self.n_features
        return range(first, first + size)

    @property
    def n_price_parts(self) -> int:
        if overrides(self.generator, "price_parts"):
            return self.generator.price_parts()
        n = len(self.drawn(0))
        few = min(MOST_PARTS, -(-n // LEAST_PART))
        return max(few, min(PARTS_LIMIT, -(-n // PART_FEATURES)))

    @property
    def max_abs(self) -> float:
        return self._max_abs  # 0 where the pricer adds what balancing may change by itself

    @property
    def least_factor(self) -> float:
        return 1.0

    @property
    def binary(self) -> bool:
        return bool(self.generator.binary)

    @property
    def compared(self) -> bool:
        return True

    @property
    def row_kind(self) -> str:
        return str(self.form.to_config()["rows"])

    @property
    def record_key(self) -> object:
        return self.form if self._record is None else None

    def penalty_factors(self, ids: Ids) -> Floats:
        if not overrides(self.generator, "penalty_factors"):
            return np.ones(len(ids))
        return checked_factors(self.generator, ids)

    def factors_of(self, first: int, last: int, others: Ids) -> Floats | float:
        """Those of a range of features and of some others, in one array; or of all, if they are equal."""
        if not overrides(self.generator, "penalty_factors"):
            return 1.0
        return self.penalty_factors(np.concatenate([np.arange(first, last), others]))

    def describe(self, feature: int) -> str:
        """The feature in words; a fault there spoils no model."""
        try:
            return str(self.generator.describe(int(feature)))
        except Exception as error:
            return f"{self.name} {feature} (describe raised {type(error).__name__}: {error})"

    def to_config(self) -> dict[str, Any]:
        record = {} if self._record is None else {"record": self._record.to_config()}
        return {
            "family": family_name(self.generator),
            "options": self.generator.options(),
            "state": {name: encode(value) for name, value in self.generator.state().items()},
            "form": self.form.to_config(),
            **record,
        }

    @classmethod
    def from_config(cls, generator: Generator, config: dict[str, Any]) -> GeneratedFamily:
        """The family of :meth:`to_config`, of a generator made anew with the options there."""
        from fcl.features.generated.forms import form_from_config

        generator.restore({name: decode(value) for name, value in config["state"].items()})
        record = MatrixRecord(**config["record"]) if "record" in config else None
        return cls(generator, form_from_config(config["form"]), record)

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
        blocks = self.form.read(rows, block_rows, keep, first, last)
        return self._checked(blocks, rows.name, keep) if self._checks else blocks

    @property
    def _checks(self) -> bool:
        return overrides(self.generator, "check")

    def _checked(
        self,
        blocks: Iterator[tuple[int, int, Any]],
        name: str,
        keep: npt.NDArray[np.bool_] | None,
    ) -> Iterator[tuple[int, int, Any]]:
        kept = None if keep is None else np.flatnonzero(keep)
        for start, stop, raw in blocks:
            numbers = np.arange(start, stop) if kept is None else kept[start:stop]
            self.generator.check(raw, numbers, name)
            yield start, stop, raw

    def check_rows(self, rows: RowReader[Any]) -> None:
        self.form.check(rows)

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        if self._record is not None:
            return self._record.shape(block_rows)
        return self.form.record_shape(block_rows)

    def prepare(self, raw: Any, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        if self._record is None:
            return self.form.prepare(raw, record)
        self._record.write(self._compact(self.form.block_of(raw), len(raw)), record)
        return ()

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        (self._record or self.form).select(prepared, rows, chosen, number)

    def block(self, prepared: PreparedRows, number: int) -> Any:
        """A prepared block as the generator gets it: not to be written to."""
        if self._record is not None:
            return read_only(self._record.read(prepared, number))
        return self._shown(self.form.block(prepared, number))

    def block_of(self, raw: Any) -> Any:
        """Raw rows as the generator gets them."""
        block = self.form.block_of(raw)
        if self._record is None:
            return self._shown(block)
        return read_only(self._compact(block, len(raw)))

    def _shown(self, block: Any) -> Any:
        return _shown(self.generator, block)

    def _compact(self, block: Any, n: int) -> np.ndarray:
        record = self._record
        assert record is not None
        like = (record.width, np.dtype(record.dtype))
        return checked_prepared(self.generator, self._shown(block), n, like)

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
        generator = self.generator
        if overrides(generator, "margins"):
            what = f"margins({some_ids(ids)}) on row block {number}"
            return checked_vector(generator, what, generator.margins, ids, weights, block, n=n)
        total = np.zeros(n)
        for some in _batches(len(ids), n):
            columns = checked_columns(generator, ids[some], block, number, n)
            total += columns.astype(np.float64, copy=False) @ weights[some]
        return total

    def scorer(self, ids: Ids, weights: Floats) -> GeneratedScorer:
        return GeneratedScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int) -> Pricer:
        if overrides(self.generator, "pricer"):
            own: Any = self.generator.pricer(self, prepared, keep)
            self._max_abs = float(own.max_abs)
            priced: Pricer = own
            return priced
        return GeneratedPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> GeneratedColumns:
        return GeneratedColumns(self, prepared, buffer_bytes)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        # gradients of a group of parts, their sizes, and which are large
        priced = len(self.drawn(0))
        part = -(-priced // self.n_price_parts)
        own = 25 * min(priced, max(part, PART_FEATURES))
        if overrides(self.generator, "pricing_bytes"):
            own = self.generator.pricing_bytes(block_rows, self._dense)
        return STAGES * STAGE_BYTES + 2 * int(np.prod(self.record_shape(block_rows))) + own

    @property
    def _dense(self) -> bool:
        return self.form.to_config()["rows"] != "sparse"

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        # asked for one by one: those that other processes made are found only then
        sides = [prepared.sides(number) for number in range(prepared.n_blocks)]
        shown = 0
        if self.generator.rows == "sparse" and self._record is None:
            shown = 4 * max(len(arrays[2]) for arrays in sides) + 28 * self.form.width
        if overrides(self.generator, "pricing_extra"):
            shown += self.generator.pricing_extra(prepared, self._dense)
        return sum(a.nbytes for arrays in sides for a in arrays) + pricers * shown


class GeneratedScorer:
    """A model in a generator's features, for raw rows."""

    def __init__(self, family: GeneratedFamily, ids: Ids, weights: Floats) -> None:
        self._family, self._ids, self._weights = family, ids, weights
        self._seen = 0

    def margins(self, rows: Any) -> Floats:
        """The margins, without the intercept."""
        self._seen += 1
        block = self._family.block_of(rows)
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
            direct = family.binary and overrides(family.generator, "bits")
            for some in _batches(len(ids), n):
                if direct:
                    values[some] = family.generator.bits(ids[some], block)
                    continue
                columns = checked_columns(family.generator, ids[some], block, number, n).T
                if family.binary:
                    values[some] = _bits(columns)
                    continue
                with np.errstate(over="ignore"):
                    values[some] = columns
                if columns.dtype.itemsize > 4 and not np.isfinite(values[some]).all():
                    self._refuse_large(ids[some], columns, number)
            made.append(BitColumns(values, n) if family.binary else DenseColumns(values, n))
        return made

    def _refuse_large(self, ids: Ids, columns: np.ndarray, number: int) -> None:
        most = np.abs(columns).max(axis=1)
        k = int(np.argmax(most))
        raise GeneratorError(
            f"features {self._family.name}: feature {ids[k]} is as large as {most[k]:.3g} on row block "
            f"{number}; columns are cached in float32, which ends at 3.4e38: scale the feature"
        )


class GeneratedPricer:
    """Prices from the columns themselves, or by the generator's own way."""

    def __init__(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        self.balances = True
        generator = family.generator
        self._drawn = family.drawn(0)
        self._fast = overrides(generator, "gradients")
        self._largest = np.full(prepared.n_blocks, -1.0)  # of each block, once asked for

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
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        total = abs(float(residuals.sum())) if self.balances else 0.0
        prices = []
        for group in self._groups(range(self.n_parts) if parts is None else parts):
            for part, g, most in self._gradients(group, residuals):
                first, last = self._features(part)
                own = self._home(watch, first, last)
                first, last = first + self._drawn.start, last + self._drawn.start
                watched, reach = np.zeros(len(watch)), most
                fresh = own & (watch >= first) & (watch < last)
                watched[fresh] = g[watch[fresh] - first]
                other = np.flatnonzero(
                    own & ~fresh
                )  # of passes before, where the family is sampled
                if len(other):
                    other = other[np.argsort(watch[other], kind="stable")]
                    watched[other], value = self._from_columns(watch[other], residuals)
                    reach = max(most, value)
                size = np.concatenate([np.abs(g), np.abs(watched[other])])
                f = self._family.factors_of(first, last, watch[other])
                # balancing the residuals to a sum of 0 changes g_j by no more than |sum r| max |phi_j|
                change = total * reach
                largest = float(((size + change) / f).max(initial=0.0))
                excess = np.zeros(1)
                if level is not None:
                    above = np.maximum((size + (slack + change)) / f - level, 0.0)
                    excess[0] = np.sum(
                        above**2 * np.where(above > 0.0, f, 0.0)
                    )  # f may be infinite
                size = (size / f)[: last - first]
                size[watch[fresh] - first] = 0.0
                found = np.flatnonzero(size > threshold)
                if len(found) > self._keep:
                    found = found[np.argsort(-size[found], kind="stable")[: self._keep]]
                    found.sort()
                n_priced = last - first + len(other)
                prices.append(Prices(found + first, g[found], largest, watched, n_priced, excess))
        return merge_prices(prices)

    def _groups(self, parts: range) -> Iterator[range]:
        """Parts whose gradients are made together: each block is read once for all of them."""
        size = -(-len(self._drawn) // self.n_parts)
        at_once = max(1, PART_FEATURES // size)
        for at in range(parts.start, parts.stop, at_once):
            yield range(at, min(at + at_once, parts.stop))

    def _gradients(self, group: range, residuals: Floats) -> list[tuple[int, Floats, float]]:
        """Parts, g_j of their features, and the largest |value| of them."""
        places = [self._features(part) for part in group]
        g = [np.zeros(last - first) for first, last in places]
        most = np.zeros(len(places))
        start = self._drawn.start
        for number, rows in self._prepared.blocks():
            r = residuals[rows]
            block = self._family.block(self._prepared, number)
            for i, (first, last) in enumerate(places):
                features = first + start, last + start
                found, largest = self._block_gradients(*features, block, number, r)
                g[i] += found
                most[i] = max(most[i], largest)
        return list(zip(group, g, most.tolist(), strict=True))

    def _block_gradients(
        self, first: int, last: int, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        """sum_i r_i phi_ij over a block, and the largest |value| there."""
        generator = self._family.generator
        if not self._fast:
            return self._block_from_columns(np.arange(first, last), block, number, r)
        if self._largest[number] < 0.0:
            self._largest[number] = checked_largest(generator, block, number)
        what = f"gradients(features {first} to {last - 1}) on row block {number}"
        arguments = (first, last, block, r)
        found = checked_vector(generator, what, generator.gradients, *arguments, n=last - first)
        return found, float(self._largest[number])

    def _from_columns(self, ids: Ids, residuals: Floats) -> tuple[Floats, float]:
        """g_j of any features (increasing) from their columns, and the largest |value| met."""
        g, most = np.zeros(len(ids)), 0.0
        for number, rows in self._prepared.blocks():
            block = self._family.block(self._prepared, number)
            found, largest = self._block_from_columns(ids, block, number, residuals[rows])
            g += found
            most = max(most, largest)
        return g, most

    def _block_from_columns(
        self, ids: Ids, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        g, most, n = np.empty(len(ids)), 0.0, len(r)
        for some in _batches(len(ids), n):
            columns = checked_columns(self._family.generator, ids[some], block, number, n)
            if columns.dtype == np.bool_:
                most = max(most, 1.0)
            else:
                most = max(most, float(columns.max()), -float(columns.min()))
            g[some] = r @ columns.astype(np.float64, copy=False)
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


def bind(
    generator: Generator, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None
) -> GeneratedFamily:
    """A copy of the generator, fitted to the rows of a data set.

    keep : the rows that are trained on; None for all.

    Raises InputError for rows of another kind; GeneratorError for a class that breaks the contract, or
    one that could not be made again from what is stored.
    """
    name = name_of(generator)
    if generator.rows not in ROWS:
        raise GeneratorError(
            f"features {name}: rows must be one of {', '.join(ROWS)}, got {generator.rows!r}"
        )
    if overrides(generator, "gradients") and not overrides(generator, "largest"):
        raise GeneratorError(
            f"features {name}: a class with gradients of its own has to give largest(), an upper bound "
            "of its values; without one nothing could be certified"
        )
    form = form_for(generator.rows, rows)
    options = called(
        f"features {name}: options(), the arguments of __init__ under their own names,",
        generator.options,
    )
    fitted = called(
        f"features {name}: {name}(**options) with options {options}", type(generator), **options
    )
    fitted.stored = rows.dtype
    raw = _sample(form, rows, keep)
    sample = _shown(fitted, form.block_of(raw))
    called(f"features {name}: fit on a sample of {len(raw)} rows", fitted.fit, sample)
    checked_count(fitted)
    size, n = fitted.per_pass, fitted.n_features
    if size is not None and (not 0 < size <= n or n % size):
        raise GeneratorError(
            f"features {name}: per_pass must divide n_features = {n} (or be None), got {size!r}"
        )
    record = None
    if overrides(fitted, "prepare"):
        made = checked_prepared(fitted, sample, len(raw), None)
        record = MatrixRecord(made.shape[1], made.dtype.str)
    family = GeneratedFamily(fitted, form, record)
    _check_stored(family)
    return family


def _check_stored(family: GeneratedFamily) -> None:
    """Raise GeneratorError unless what is stored makes the same generator again."""
    generator, name = family.generator, family.name
    config = called(f"features {name}: options() or state()", family.to_config)
    try:
        text = json.dumps(config)
    except (TypeError, ValueError) as error:
        raise GeneratorError(
            f"features {name}: options and what fit has learnt (attributes whose names end in _) must be "
            f"numbers, text, lists or arrays of numbers, which JSON can hold: {error}"
        ) from None

    def again() -> str:
        stored = json.loads(text)
        new = type(generator)(**stored["options"])
        return json.dumps(GeneratedFamily.from_config(new, stored).to_config())

    found = called(f"features {name}: making it again from its options and state", again)
    if found != text:
        raise GeneratorError(
            f"features {name}: expected the same options and state after making it again from them, "
            f"{text:.200}, got {found:.200}; keep the arguments of __init__ unchanged under their "
            "names, and let restore() take up all that state() gives"
        )


def _shown(generator: Generator, block: Any) -> Any:
    """A block as the class wants it."""
    if isinstance(block, SparseColumns):
        return block.to_scipy() if generator.rows == "sparse" else block
    return read_only(block)


def _sample(form: RowForm, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None) -> Any:
    """Raw rows from all over those that are kept."""
    row_bytes = form.width * rows.dtype.itemsize
    most = max(FIT_PARTS, min(FIT_ROWS, FIT_BYTES // max(1, row_bytes)))
    kept = np.arange(rows.shape[0]) if keep is None else np.flatnonzero(keep)
    if len(kept) > most:
        part = most // FIT_PARTS
        starts = np.linspace(0, len(kept) - part, FIT_PARTS).astype(np.int64)
        kept = kept[np.unique((starts[:, None] + np.arange(part)).ravel())]
    chosen = np.zeros(rows.shape[0], bool)
    chosen[kept] = True
    _, _, raw = next(form.read(rows, len(kept), chosen, 0, None))
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
