"""Adapts a generator to :class:`fcl.features.base.Family`.

The generator's columns define the features, in float64. The cache holds them in float32 (or as bits or
steps), and the trainer corrects for the rounding. Prices are computed from the unrounded columns, part by
part, against the same residuals. The certificate therefore holds for the whole family or, if the family
is sampled (``per_pass``), for the features that the pass draws.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import Family, is_sampled
from fcl.features.generator.checked import (
    called,
    checked,
    checked_columns,
    checked_count,
    checked_factors,
    checked_nonzeros,
    checked_prepared,
    checked_step,
    is_built_in,
    name_of,
    some_ids,
)
from fcl.features.generator.columns import STAGE_BYTES, STAGES, GeneratedColumns, batches
from fcl.features.generator.contract import Generator, decode, encode, family_name, overrides
from fcl.features.generator.forms import (
    MatrixRecord,
    RowForm,
    SparseColumns,
    SparseForm,
    form_from_config,
    read_only,
)
from fcl.features.generator.pricing import GeneratedPricer, parts_of, pricing_bytes
from fcl.features.generator.scales import ScalesSeen
from fcl.features.prices import Pricer
from fcl.features.rows import BatchedView, RowChunk, RowLister
from fcl.features.threaded import PartsPricer, on_threads
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.features.base import ListedColumns

#: Approximate largest size of a block of prepared rows, in bytes; wider rows have fewer rows per block.
BLOCK_BYTES = 64 << 20
#: Largest number of features that are all described to find some of them by name.
MOST_DESCRIBED = 1 << 17


class GeneratedFamily(Family):
    """A generator bound to the rows of a data set."""

    verifies_columns = True

    def __init__(
        self,
        generator: Generator,
        form: RowForm,
        record: MatrixRecord | None = None,
        probe: Sequence[float] = (),
    ) -> None:
        """Use a fitted generator with rows of a given form.

        record : layout of what the generator's ``prepare`` returns; None without ``prepare``.
        probe : sums over a few columns on the sample of fit, which reveal later changes of the class.
        """
        self.generator = generator
        self.form = form
        self.probe = list(probe)
        self.record = record
        self._divisors = generator.divisors
        self._shifts = generator.shifts if form.kind == "numbers" else None
        self._changed = self._divisors is not None or self._shifts is not None
        if self._changed:  # quotients have more digits than float32 keeps
            form = replace(form, dtype="<f8")  # type: ignore[type-var]
        self._stored = record or form
        #: scales of the rows' columns, if :func:`bind` measured them
        self.scales_seen: ScalesSeen | None = None
        #: centres of columns of dense rows, float64 (columns,), 0 for none; if :func:`bind` measured them
        self.centres_seen: Floats | None = None

    # -- properties ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return name_of(self.generator)

    @property
    def n_features(self) -> int:
        return int(self.generator.n_features)

    def features_in_pass(self, number: int) -> range:
        size = self.generator.per_pass
        if size is None:
            return super().features_in_pass(number)
        first = number * size % self.n_features
        return range(first, first + size)

    @property
    def n_price_parts(self) -> int:
        if overrides(self.generator, "price_parts"):
            return self.generator.price_parts()
        return parts_of(len(self.features_in_pass(0)))

    @property
    def binary(self) -> bool:
        return bool(self.generator.binary)

    @property
    def step(self) -> float:
        return float(self.generator.step)

    @property
    def visits_all(self) -> bool:
        return self.generator.per_pass is None and not overrides(self.generator, "pricer")

    @property
    def lists_columns(self) -> bool:
        return self.form.kind == "sparse" and overrides(self.generator, "listed_columns")

    @property
    def row_kind(self) -> str:
        return self.form.kind

    @property
    def row_width(self) -> int:
        return self.form.width

    @property
    def record_key(self) -> object:
        return self.form if self.record is None and not self._changed else None

    def penalty_factors(self, ids: Ids) -> Floats:
        if not overrides(self.generator, "penalty_factors"):
            return super().penalty_factors(ids)
        return checked_factors(self.generator, ids)

    def factors_of(self, first: int, last: int) -> Floats | float:
        """The penalty factors of a range of features, or one number if all are equal."""
        if not overrides(self.generator, "penalty_factors"):
            return 1.0
        return self.penalty_factors(np.arange(first, last))

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """A readable description of a feature; an error in the class's describe() is tolerated."""
        words: Callable[..., str] = self.generator.describe
        try:
            if names is not None and "names" in inspect.signature(words).parameters:
                return str(words(int(feature), names=names))
            return str(words(int(feature)))
        except Exception as error:
            return f"{self.name} {feature} (describe raised {type(error).__name__}: {error})"

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        if overrides(self.generator, "find"):
            return np.asarray(self.generator.find(texts, names), np.int64)
        if self.n_features > MOST_DESCRIBED:
            return super().find(texts, names)
        every = {self.describe(j, names): j for j in range(self.n_features)}
        return np.array([every.get(text, -1) for text in texts], np.int64)

    def columns_read(self, ids: Ids) -> Ids:
        every = super().columns_read(ids)
        found = self.generator.columns_read(ids)
        return every if found is None else np.intersect1d(every, found)

    def to_config(self) -> dict[str, Any]:
        record = {} if self.record is None else {"record": asdict(self.record)}
        return {
            "family": family_name(self.generator),
            "options": self.generator.options(),
            "state": {name: encode(value) for name, value in self.generator.state().items()},
            "form": self.form.to_config(),
            "probe": self.probe,
            **record,
        }

    @classmethod
    def from_config(cls, generator: Generator, config: dict[str, Any]) -> GeneratedFamily:
        """Restore a family from :meth:`to_config` and a new generator with the options given there.

        The configuration may come from an untrusted file. Raises InputError or GeneratorError if it is
        not valid for the generator.
        """
        form = form_from_config(config["form"])
        record = MatrixRecord(**config["record"]) if "record" in config else None
        state = {name: decode(value) for name, value in config["state"].items()}
        where = f"features {name_of(generator)}"
        called(f"{where}: restore() of the stored state", generator.restore, state)
        checked_count(generator)
        checked_step(generator)
        called(
            f"{where}: check_restored() of the stored state", generator.check_restored, form.width
        )
        probe = [float(x) for x in config.get("probe", ())]
        return cls(generator, form, record, probe)

    def most_block_rows(self) -> int:
        """The largest practical number of rows in a block: a multiple of 64, at most 65,536."""
        row_bytes = max(1, int(np.prod(self.record_shape(64))) // 64)
        return max(64, min(65536, BLOCK_BYTES // row_bytes // 64 * 64))

    def user_class(self, feature: int) -> str:
        return "" if is_built_in(self.generator) else self.name

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
        if not overrides(self.generator, "check"):
            return blocks
        return self._checked(blocks, rows.name, keep)

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
        return self._stored.record_shape(block_rows)

    def prepare(
        self, raw: Any, record: npt.NDArray[np.uint8], block_rows: int
    ) -> Sequence[np.ndarray]:
        if self.record is not None:
            raw = self._compact(self.form.block_of(raw), len(raw))
        return self._stored.prepare(self._in_units(raw), record)

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        self._stored.select(prepared, rows, chosen, number)

    def block(self, prepared: PreparedRows, number: int) -> Any:
        """A prepared block in the form that the generator gets, read-only."""
        return block_for(self.generator, self._stored.block(prepared, number))

    def columns(self, ids: Ids, block: Any, number: int, n: int) -> np.ndarray:
        """The columns (n, k) of some features on a block of n rows, in the units of the solver."""
        return checked_columns(self.generator, ids, block, number, n)

    def listed_columns(self, ids: Ids, block: Any, dtype: Any) -> ListedColumns | None:
        """The same as lists of nonzeros of a dtype; None if they have to be made by :meth:`columns`."""
        return self.generator.listed_columns(ids, block, dtype)

    def block_of(self, raw: Any) -> Any:
        """Convert raw rows to a block in the form that the generator gets."""
        if self.record is not None:
            return read_only(self._compact(self.form.block_of(raw), len(raw)))
        form = self._stored
        assert isinstance(form, RowForm)
        return block_for(self.generator, form.block_of(self._in_units(raw)))

    def _in_units(self, raw: Any) -> Any:
        """Raw rows whose columns are shifted and divided as the generator says."""
        if self._shifts is not None:
            moved = raw - self._shifts
            return moved if self._divisors is None else np.divide(moved, self._divisors, out=moved)
        if self._divisors is None:
            return raw
        if isinstance(raw, np.ndarray):
            return raw / self._divisors
        return replace(raw, data=raw.data / self._divisors[raw.indices])

    def _compact(self, block: Any, n: int) -> np.ndarray:
        record = self.record
        assert record is not None
        like = (record.width, np.dtype(record.dtype))
        return checked_prepared(self.generator, block_for(self.generator, block), n, like)

    # -- margins -------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        for number in prepared.numbers(blocks):
            rows = prepared.rows_of(number)
            block = self.block(prepared, number)
            out[rows] = self._margins(ids, weights, block, number, rows.stop - rows.start)

    def _margins(self, ids: Ids, weights: Floats, block: Any, number: int, n: int) -> Floats:
        if not len(ids):
            return np.zeros(n)
        generator = self.generator
        if overrides(generator, "margins"):
            what = f"margins({some_ids(ids)}) on row block {number}"
            return checked(generator, what, generator.margins, ids, weights, block, shape=(n,))
        total = np.zeros(n)
        for some in batches(len(ids), n):
            columns = checked_columns(generator, ids[some], block, number, n)
            total += columns.astype(np.float64, copy=False) @ weights[some]
        return total

    def scorer(self, ids: Ids, weights: Floats) -> GeneratedScorer:
        return GeneratedScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    @property
    def thread_safe(self) -> bool:
        return is_built_in(self.generator)

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> Pricer:
        team = team if self.thread_safe else SERIAL
        if not overrides(self.generator, "pricer"):
            return GeneratedPricer(self, prepared, keep, team)
        make = self.generator.pricer
        return on_threads(PartsPricer, lambda rows: make(self, rows, keep), prepared, team)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> GeneratedColumns:
        return GeneratedColumns(self, prepared, buffer_bytes)

    def row_view(self) -> RowLister:
        if overrides(self.generator, "nonzeros") and not is_sampled(self):
            return GeneratedRows(self)
        if overrides(self.generator, "row_view"):
            return self.generator.row_view(self)
        return super().row_view()

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        own = pricing_bytes(len(self.features_in_pass(0)), self.n_price_parts)
        if overrides(self.generator, "pricing_bytes"):
            own = self.generator.pricing_bytes(block_rows, self.form.kind != "sparse")
        return STAGES * STAGE_BYTES + 2 * int(np.prod(self.record_shape(block_rows))) + own

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        extra = 0
        if self.generator.rows == "sparse" and self.record is None:  # for SparseColumns.to_scipy
            most = max(len(prepared.sides(b)[2]) for b in range(prepared.n_blocks))
            extra = 4 * most + 28 * self.form.width
        if overrides(self.generator, "pricing_extra"):
            extra += self.generator.pricing_extra(prepared, self.form.kind != "sparse")
        return pricers * extra

    def most_side_bytes(self, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not isinstance(self._stored, SparseForm):
            return super().most_side_bytes(entries)
        return self._stored.most_side_bytes(entries)


class GeneratedRows(BatchedView):
    """Lists the features of rows by a generator's ``nonzeros``."""

    def __init__(self, family: GeneratedFamily) -> None:
        self._family = family

    def listed(self, raw: Any, rows: Ids) -> RowChunk:
        block = self._family.block_of(raw[rows])
        return checked_nonzeros(self._family.generator, block, len(rows), 0)


class GeneratedScorer:
    """Computes the margins of a model in a generator's features on raw rows."""

    def __init__(self, family: GeneratedFamily, ids: Ids, weights: Floats) -> None:
        self._family, self._ids, self._weights = family, ids, weights
        self._seen = 0

    def margins(self, rows: Any) -> Floats:
        """The margins of a block of raw rows, without the intercept: float64 (len(rows),)."""
        self._seen += 1
        block = self._family.block_of(rows)
        return self._family._margins(self._ids, self._weights, block, self._seen - 1, len(rows))


def block_for(generator: Generator, block: Any) -> Any:
    """Convert a block to the kind that the generator asks for in ``rows``, read-only if dense."""
    if isinstance(block, SparseColumns):
        return block.to_scipy() if generator.rows == "sparse" else block
    return read_only(block)
