"""The family that is made of a generator.

Columns are what the generator says, in float64; the cache holds them in float32 (or as bits), and the
trainer's view corrects what that changes. Prices come from the columns themselves, part by part of the
family, all against the same residuals: so the certificate holds for the whole family; for what a pass
draws where the family is sampled (``per_pass``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import Family, Floats, Ids, Pricer
from fcl.features.generator.checked import (
    called,
    checked_columns,
    checked_count,
    checked_factors,
    checked_prepared,
    checked_step,
    checked_vector,
    name_of,
    some_ids,
)
from fcl.features.generator.columns import GeneratedColumns
from fcl.features.generator.contract import Generator, decode, encode, family_name, overrides
from fcl.features.generator.forms import (
    MatrixRecord,
    RowForm,
    SparseColumns,
    form_from_config,
    read_only,
)
from fcl.features.generator.pricing import GeneratedPricer, parts_of, pricing_bytes
from fcl.features.generator.stages import STAGE_BYTES, STAGES, batches

if TYPE_CHECKING:
    from fcl.data.base import RowReader

__all__ = ["GeneratedFamily", "ScalesSeen", "shown"]

#: Bytes of a block of prepared rows, about: wider rows have smaller blocks.
BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class ScalesSeen:
    """The columns of smallest and largest standard deviation on a sample, and these deviations."""

    smallest: int
    low: float
    largest: int
    high: float
    n_rows: int  #: of the sample


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
        """``record``: of what the generator prepares, if it does; ``probe``: sums over a few columns on
        the sample of fit, which tell whether the class has changed since.
        """
        self.generator = generator
        self.form = form
        self.probe = list(probe)
        self.record = record
        #: scales of the columns that features are made of, if :func:`bind` measured them
        self.scales_seen: ScalesSeen | None = None

    # -- what it is ----------------------------------------------------------------------------

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
    def row_kind(self) -> str:
        return self.form.kind

    @property
    def record_key(self) -> object:
        return self.form if self.record is None else None

    def penalty_factors(self, ids: Ids) -> Floats:
        if not overrides(self.generator, "penalty_factors"):
            return super().penalty_factors(ids)
        return checked_factors(self.generator, ids)

    def factors_of(self, first: int, last: int) -> Floats | float:
        """The factors of a range of features, or of all, if they are equal."""
        if not overrides(self.generator, "penalty_factors"):
            return 1.0
        return self.penalty_factors(np.arange(first, last))

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """Describe a feature in words; an error in the class's describe() is tolerated."""
        words: Callable[..., str] = self.generator.describe
        try:
            if names is not None and "names" in inspect.signature(words).parameters:
                return str(words(int(feature), names=names))
            return str(words(int(feature)))
        except Exception as error:
            return f"{self.name} {feature} (describe raised {type(error).__name__}: {error})"

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
        """The family of a :meth:`to_config`, with a new generator that has the options there.

        The configuration may come from a stranger's file: raises InputError unless a fitted generator
        could have given it.
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
        if self.record is not None:
            return self.record.shape(block_rows)
        return self.form.record_shape(block_rows)

    def prepare(
        self, raw: Any, record: npt.NDArray[np.uint8], block_rows: int
    ) -> Sequence[np.ndarray]:
        if self.record is None:
            return self.form.prepare(raw, record)
        self.record.write(self._compact(self.form.block_of(raw), len(raw)), record)
        return ()

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        (self.record or self.form).select(prepared, rows, chosen, number)

    def block(self, prepared: PreparedRows, number: int) -> Any:
        """A prepared block as the generator gets it: not to be written to."""
        if self.record is not None:
            return read_only(self.record.read(prepared, number))
        return self._shown(self.form.block(prepared, number))

    def columns(self, ids: Ids, block: Any, number: int, n: int) -> np.ndarray:
        """The columns (n, k) of some features on a block of n rows, as the cache gets them."""
        return checked_columns(self.generator, ids, block, number, n)

    def block_of(self, raw: Any) -> Any:
        """Raw rows as the generator gets them."""
        block = self.form.block_of(raw)
        if self.record is None:
            return self._shown(block)
        return read_only(self._compact(block, len(raw)))

    def _shown(self, block: Any) -> Any:
        return shown(self.generator, block)

    def _compact(self, block: Any, n: int) -> np.ndarray:
        record = self.record
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
        for some in batches(len(ids), n):
            columns = checked_columns(generator, ids[some], block, number, n)
            total += columns.astype(np.float64, copy=False) @ weights[some]
        return total

    def scorer(self, ids: Ids, weights: Floats) -> GeneratedScorer:
        return GeneratedScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int) -> Pricer:
        if overrides(self.generator, "pricer"):
            return self.generator.pricer(self, prepared, keep)
        return GeneratedPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> GeneratedColumns:
        return GeneratedColumns(self, prepared, buffer_bytes)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        own = pricing_bytes(len(self.features_in_pass(0)), self.n_price_parts)
        if overrides(self.generator, "pricing_bytes"):
            own = self.generator.pricing_bytes(block_rows, self.form.kind != "sparse")
        return STAGES * STAGE_BYTES + 2 * int(np.prod(self.record_shape(block_rows))) + own

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        # asked for one by one: those that other processes made are found only then
        sides = [prepared.sides(number) for number in range(prepared.n_blocks)]
        shown = 0
        if self.generator.rows == "sparse" and self.record is None:
            shown = 4 * max(len(arrays[2]) for arrays in sides) + 28 * self.form.width
        if overrides(self.generator, "pricing_extra"):
            shown += self.generator.pricing_extra(prepared, self.form.kind != "sparse")
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


def shown(generator: Generator, block: Any) -> Any:
    """A block as the class wants it."""
    if isinstance(block, SparseColumns):
        return block.to_scipy() if generator.rows == "sparse" else block
    return read_only(block)
