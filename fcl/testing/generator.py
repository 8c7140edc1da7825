"""Tests a class of features against the contract, for its author: :func:`check_generator`."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fcl.data import DataSet, open_data
from fcl.data.prepared import PreparedRows
from fcl.data.sparse import SparseRows
from fcl.drivers.train import train
from fcl.errors import ConvergenceWarning, FclError, GeneratorError, InputError
from fcl.features.base import Floats, Ids
from fcl.features.generator import GeneratedFamily, bind
from fcl.features.generator.binding import sample_rows, spread
from fcl.features.generator.checked import (
    SomeRows,
    called,
    checked_columns,
    checked_largest,
    checked_moments,
    checked_vector,
    name_of,
    some_ids,
)
from fcl.features.generator.contract import Generator, encode, overrides
from fcl.features.registry import check_home
from fcl.features.spec import family_from_config
from fcl.kernels import matrix

__all__ = ["Check", "Report", "check_generator"]

#: Rows and features that are looked at.
ROWS, FEATURES = 300, 40
#: Rows over which columns are scanned once for values and exceptions that few rows give, and of a block
#: of them, which holds no more bytes than that unless rows are very wide.
SCANNED, SCANNED_AT_ONCE, SCANNED_BYTES = 100_000, 4096, 16 << 20
#: The least rows of a block.
SMALL_BLOCK = 64
#: What rounding may change of a value, in shares of the largest of its column. Products of matrices round
#: otherwise for other numbers of rows; the trainer tells columns apart from 1e-5 on.
SAME_FLOAT64, SAME_FLOAT32 = 1e-9, 1e-5
#: ... and of a sum in float64, in shares of the sum of the sizes of its terms: some 1e-16 times the root
#: of their number. A sum in float32 is off by 1e-8 and more.
SAME_SUM = 1e-11
#: Values of all features on the rows of the training runs, beyond which there are none.
TRAINING_VALUES = 4_000_000
TRAINING_TOL = 1e-6


@dataclass(frozen=True)
class Check:
    """One of the checks.

    fault : what has to be mended.  left_out : why it was not made.  told : what was looked at.
    """

    name: str
    fault: str = ""
    left_out: str = ""
    told: str = ""

    def __str__(self) -> str:
        how = self.fault or (f"left out: {self.left_out}" if self.left_out else "good")
        how += f" ({self.told})" if self.told and not self.left_out else ""
        return f"{self.name}: {how}"


@dataclass(frozen=True)
class Report:
    """What was checked, in order."""

    family: str
    checks: list[Check]

    @property
    def faults(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.fault]

    def __str__(self) -> str:
        return "\n".join([self.family, *(f"  {check}" for check in self.checks)])


def check_generator(generator: Generator, data: DataSet | Any, training: bool = True) -> Report:
    """Check a class of features against the contract of :class:`Generator`, on rows of a data set.

    data : a DataSet, or what ``open_data`` takes (a path, an array); a target is not needed. 300 rows
        from all over are looked at in every way; some columns are made once of all rows, up to 100,000.
    training : whether to train on them as well, with both drivers (a few seconds).

    Returns the report of what was checked, and what was left out. Raises GeneratorError that lists all
    faults; InputError for rows that are not of the kind that the class wants.
    """
    if not isinstance(generator, Generator):
        raise InputError(
            "check_generator: expected an instance of a subclass of fcl.features.Generator, got "
            f"{generator!r:.80}"
        )
    rows = (data if isinstance(data, DataSet) else open_data(data, y=None)).rows
    report = Report(name_of(generator), [])
    _try(report, "options", lambda: _options(generator))
    _try(report, "home", lambda: check_home(generator))
    made: list[GeneratedFamily] = []
    if not report.checks[0].fault:
        _try(report, "fit", lambda: made.extend(_fit(generator, rows)))
    if made:
        family = made[0]
        subject: list[_Subject] = []
        own = overrides(family.generator, "prepare")
        _try(
            report,
            "prepare" if own else "rows kept as they are",
            lambda: subject.append(_Subject.of(family, rows)),
        )
        for one in subject:
            _try(report, "columns", one.columns_right)
            if report.checks[-1].fault:
                break  # nothing that follows could be told apart from that
            _try(report, "columns again", one.columns_again)
            _try(report, "columns of single features", one.columns_alone)
            _try(report, "columns of other blocks", one.columns_cut)
            _try(report, "columns over the data", partial(one.columns_scanned, rows))
            if own:
                _try(report, "prepare of other blocks", one.prepared_cut)
            if overrides(family.generator, "gradients"):
                _try(report, "gradients", one.gradients_right)
            if overrides(family.generator, "largest"):
                _try(report, "largest", one.largest_right)
            if overrides(family.generator, "moments"):
                _try(report, "moments", one.moments_right)
            if overrides(family.generator, "margins"):
                _try(report, "margins", one.margins_right)
            _try(report, "describe", one.describe_right)
            _try(report, "stored", one.stored)
            at_home = not next(c.fault for c in report.checks if c.name == "home")
            if at_home:
                _try(report, "another process", one.elsewhere)
            if training and at_home and not report.faults:
                _try(report, "training", one.trained)
    if report.faults:
        lines = "\n".join(f"  - {check}" for check in report.faults)
        raise GeneratorError(
            f"features {report.family} break the contract of fcl.features.Generator:\n{lines}"
        )
    return report


class _LeftOut(Exception):
    """A check cannot be made; says why."""


def _try(report: Report, name: str, check: Callable[[], str | None]) -> None:
    try:
        told = check() or ""
    except _LeftOut as reason:
        report.checks.append(Check(name, left_out=str(reason)))
    except GeneratorError as error:
        report.checks.append(Check(name, str(error).removeprefix(f"features {report.family}: ")))
    else:
        report.checks.append(Check(name, told=told))


def _options(generator: Generator) -> None:
    """Arguments of __init__ under their own names, as JSON has them."""
    for name, parameter in inspect.signature(type(generator)).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise GeneratorError(
                f"__init__ takes *{name}, which cannot be stored; name each option as an argument"
            )
        if not hasattr(generator, name):
            raise GeneratorError(
                f"__init__ takes {name}, but there is no attribute of that name; write "
                f"self.{name} = {name}"
            )
        value = getattr(generator, name)
        try:
            same = json.loads(json.dumps(value)) == value or isinstance(value, tuple)
        except (TypeError, ValueError):
            same = False
        if not same:
            raise GeneratorError(
                f"the option {name} is {value!r:.80}, which JSON cannot hold; take numbers, text or "
                "lists of them, and make of them what you need in fit() or columns()"
            )


def _fit(generator: Generator, rows: Any) -> list[GeneratedFamily]:
    """Bind twice: what fit learns must follow from its sample."""
    first, second = (bind(generator, rows, probe=False) for _ in range(2))
    states = [
        json.dumps({k: encode(v) for k, v in family.generator.state().items()})
        for family in (first, second)
    ]
    if states[0] != states[1]:
        raise GeneratorError(
            "fit() learns something else from the same sample when it is called again: seed your "
            f"random numbers by an option; {states[0]:.200} and {states[1]:.200}"
        )
    return [first]


@dataclass
class _Subject:
    """A family on some rows, with its columns there."""

    family: GeneratedFamily
    raw: Any  #: of all rows that are looked at
    ids: Ids
    place: SomeRows  #: the rows, for messages
    blocks: list[Any] = field(default_factory=list)  #: one large block, as drivers hand it over
    expected: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, family: GeneratedFamily, rows: Any) -> _Subject:
        raw, numbers = sample_rows(family.form, rows, None)
        some = np.linspace(0, len(raw) - 1, min(ROWS, len(raw))).astype(np.int64)
        raw = _take(raw, some)
        place = SomeRows(f"{len(raw)} rows from all over {rows.name}", rows.name, numbers[some])
        n = family.n_features
        random = np.random.default_rng(0)
        ids = np.unique(np.r_[0, n - 1, random.integers(0, n, FEATURES)])
        subject = cls(family, raw, ids, place)
        subject.blocks = [block for block, _ in subject._cut(-(-len(raw) // 64) * 64)]
        return subject

    @property
    def generator(self) -> Generator:
        return self.family.generator

    @property
    def n(self) -> int:
        return len(self.raw)

    def _cut(self, block_rows: int) -> Iterator[tuple[Any, slice]]:
        """Blocks as the drivers hand them over, with their rows."""
        family = self.family
        prepared = PreparedRows(self.n, block_rows, family.record_shape(block_rows))
        for number, rows in prepared.blocks():
            part = _take(self.raw, np.arange(rows.start, rows.stop))
            sides = family.prepare(part, prepared.writable(number), block_rows)
            prepared.commit(number, sides)
        for number, rows in prepared.blocks():
            yield family.block(prepared, number), rows

    def _columns(self, ids: Ids, block: Any, n: int) -> np.ndarray:
        return checked_columns(self.generator, ids, block, 0, n)

    # -- columns -------------------------------------------------------------------------------

    def columns_right(self) -> None:
        """Shape, dtype, finite values, 0 and 1 where that is claimed."""
        found = checked_columns(self.generator, self.ids, self.blocks[0], self.place, self.n)
        self.expected = found.copy()

    def columns_again(self) -> None:
        """The same after other features were asked for."""
        block = self.blocks[0]
        self._columns(self.ids[::2], block, self.n)
        found = self._columns(self.ids, block, self.n)
        self._compare(found, self.expected, self.ids, "when it is called a second time")

    def columns_alone(self) -> None:
        """The same whatever else is asked for at once; none of none."""
        block = self.blocks[0]
        for k in range(len(self.ids)):
            some = slice(k, k + 1)
            found = self._columns(self.ids[some], block, self.n)
            words = "when it is the only one asked for"
            self._compare(found, self.expected[:, some], self.ids[some], words)
        self._columns(self.ids[:0], block, self.n)

    def columns_cut(self) -> None:
        """The same in small blocks, for single rows, and for rows in another order."""
        for block, rows in self._cut(SMALL_BLOCK):
            found = self._columns(self.ids, block, rows.stop - rows.start)
            words = f"in a block of rows {rows.start} to {rows.stop - 1} alone"
            self._compare(found, self.expected[rows], self.ids, words)
        for row in range(0, self.n, max(1, self.n // 8)):
            block = self.family.block_of(_take(self.raw, np.array([row])))
            found = self._columns(self.ids, block, 1)
            words = f"in a block of row {row} alone"
            self._compare(found, self.expected[row : row + 1], self.ids, words)
        order = np.random.default_rng(1).permutation(self.n)
        block = self.family.block_of(_take(self.raw, order))
        found = self._columns(self.ids, block, self.n)
        self._compare(found, self.expected[order], self.ids, "when the rows come in another order")

    def columns_scanned(self, rows: Any) -> str:
        """Finite, and whatever else columns have to be, on rows that the others do not meet."""
        family, n_rows = self.family, int(rows.shape[0])
        numbers = spread(n_rows, SCANNED)
        keep = np.zeros(n_rows, bool)
        keep[numbers] = True
        size = SCANNED_AT_ONCE
        if not isinstance(self.raw, SparseRows):
            row_bytes = max(1, self.raw.nbytes // len(self.raw))
            size = max(SMALL_BLOCK, min(size, SCANNED_BYTES // row_bytes))
        for start, stop, raw in family.read_rows(rows, size, keep):
            own = numbers[start:stop]
            place = SomeRows(f"rows {own[0]} to {own[-1]}", rows.name, own)
            try:
                block = family.block_of(raw)
            except GeneratorError as error:
                raise GeneratorError(f"{error} (on {place} of {rows.name})") from error
            checked_columns(self.generator, self.ids, block, place, len(own))
        of = "" if len(numbers) == n_rows else f" of {n_rows:,}"
        return f"{some_ids(self.ids)}; {len(numbers):,}{of} rows"

    def prepared_cut(self) -> None:
        """What is prepared of a row is the same whatever rows are prepared with it."""
        whole = self.family.block_of(self.raw)
        for row in range(0, self.n, max(1, self.n // 8)):
            alone = self.family.block_of(_take(self.raw, np.array([row])))
            if not np.array_equal(alone[0], whole[row]):
                raise GeneratorError(
                    f"prepare() makes something else of row {row} alone than of the row among {self.n}; "
                    "it must depend on the row, the options and what fit() has learnt, on nothing else"
                )

    def _compare(self, found: np.ndarray, expected: np.ndarray, ids: Ids, when: str) -> None:
        rounding = SAME_FLOAT64 if found.dtype.itemsize > 4 else SAME_FLOAT32
        most = np.abs(self.expected.astype(np.float64)).max(axis=0, initial=0.0)
        limit = rounding * most[np.isin(self.ids, ids)] if found.dtype.kind == "f" else 0.0
        wrong = np.abs(found.astype(np.float64) - expected.astype(np.float64)) > limit
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            raise GeneratorError(
                f"columns() gives another column of feature {ids[k]} {when}: {found[row, k]} instead of "
                f"{expected[row, k]}; it must depend on the feature and the row alone (statistics of "
                "the data belong into fit(), random numbers need a seed that follows from the id)"
            )

    # -- the faster ways -----------------------------------------------------------------------

    def gradients_right(self) -> None:
        """The products of the columns with residuals; of ranges of features."""
        generator, block, n_features = self.generator, self.blocks[0], self.family.n_features
        residuals = np.random.default_rng(2).normal(size=self.n)
        for center in self.ids[:: max(1, len(self.ids) // 5)]:
            first, last = max(0, int(center) - 3), min(n_features, int(center) + 4)
            ids = np.arange(first, last)
            columns = self._columns(ids, block, self.n).astype(np.float64)
            what = f"gradients(features {first} to {last - 1})"
            arguments = (first, last, block, residuals)
            found = checked_vector(generator, what, generator.gradients, *arguments, n=len(ids))
            sizes = np.abs(residuals) @ np.abs(columns)
            self._compare_sums(found, residuals @ columns, sizes, ids, "gradients()")

    def largest_right(self) -> None:
        """At least the largest value."""
        found = checked_largest(self.generator, self.blocks[0], 0)
        most = np.abs(self.expected.astype(np.float64))
        row, k = (int(i) for i in np.unravel_index(np.argmax(most), most.shape))
        if found < most[row, k]:
            raise GeneratorError(
                f"largest() says that no value is beyond {found}, but feature {self.ids[k]} is "
                f"{self.expected[row, k]} at row {row}; it has to bound all features on the block, or "
                "certificates would be wrong"
            )

    def moments_right(self) -> None:
        """moments() agrees with the columns, whatever origin the class chooses."""
        generator, block, n_features = self.generator, self.blocks[0], self.family.n_features
        weights = np.random.default_rng(4).uniform(0.5, 2.0, self.n)
        for center in self.ids[:: max(1, len(self.ids) // 5)]:
            first, last = max(0, int(center) - 3), min(n_features, int(center) + 4)
            found = checked_moments(generator, first, last, block, 0, weights)
            columns = self._columns(np.arange(first, last), block, self.n)
            expected = np.empty((5, last - first))
            matrix.dense_moments(np.ascontiguousarray(columns.T, np.float64), weights, expected)
            shift = expected[0] - found[0]
            sizes = np.abs(expected[3:]).max(axis=0)
            pairs = (
                ("mean", found[1], shift + expected[1], sizes),
                ("squared deviations", found[2], expected[2], sizes**2 * weights.sum()),
                ("least value", found[3], expected[3], sizes),
                ("largest value", found[4], expected[4], sizes),
            )
            for what, given, right, scale in pairs:
                wrong = np.flatnonzero(np.abs(given - right) > SAME_SUM * scale)
                if len(wrong):
                    k = int(wrong[0])
                    raise GeneratorError(
                        f"moments() gives {given[k]!r} for the {what} of feature {first + k}, where the "
                        f"columns give {right[k]!r}"
                    )

    def margins_right(self) -> None:
        """The products of the columns with weights."""
        generator, block = self.generator, self.blocks[0]
        for ids in (self.ids, self.ids[:1]):
            weights = np.random.default_rng(3).normal(size=len(ids))
            columns = self._columns(ids, block, self.n).astype(np.float64)
            what = f"margins({some_ids(ids)})"
            found = checked_vector(
                generator, what, generator.margins, ids, weights, block, n=self.n
            )
            sizes = np.abs(columns) @ np.abs(weights)
            self._compare_sums(found, columns @ weights, sizes, np.arange(self.n), "margins()")

    @staticmethod
    def _compare_sums(found: Floats, expected: Floats, sizes: Floats, at: Ids, what: str) -> None:
        wrong = np.flatnonzero(np.abs(found - expected) > SAME_SUM * sizes)
        if len(wrong):
            k = int(wrong[0])
            item = "feature" if what == "gradients()" else "row"
            raise GeneratorError(
                f"{what} gives {found[k]!r} for {item} {at[k]}, where the columns give {expected[k]!r}; "
                "it has to be the same sum, added up in float64"
            )

    # -- what is told and stored ---------------------------------------------------------------

    def describe_right(self) -> None:
        """A text for each feature, different ones for different features."""
        seen: dict[str, int] = {}
        for feature in self.ids.tolist():
            words = called("describe()", self.generator.describe, feature)
            if not isinstance(words, str) or not words.strip():
                raise GeneratorError(
                    f"describe({feature}) gives {words!r:.80}; expected a text that names the feature"
                )
            if words in seen:
                raise GeneratorError(
                    f"describe() says {words!r:.80} of both feature {seen[words]} and feature {feature}"
                )
            seen[words] = feature

    def stored(self) -> None:
        """Made again from what a model keeps: the same options, state, columns and words."""
        text = json.dumps(self.family.to_config())
        config = json.loads(text)
        made = type(self.generator)(**config["options"])
        again = GeneratedFamily.from_config(made, config)
        if again.n_features != self.family.n_features:
            raise GeneratorError(
                f"made again from options and state it has {again.n_features} features instead of "
                f"{self.family.n_features}; restore() has to set n_features"
            )
        found = called(
            "columns() of a generator made again from options() and state()",
            checked_columns,
            *(again.generator, self.ids, again.block_of(self.raw), 0, self.n),
        )
        words = "of a generator made again from options() and state()"
        self._compare(found, self.expected, self.ids, words)
        for feature in self.ids[:5].tolist():
            if again.describe(feature) != self.family.describe(feature):
                raise GeneratorError(
                    f"describe({feature}) of a generator made again from options() and state() is "
                    f"{again.describe(feature)!r:.80} instead of {self.family.describe(feature)!r:.80}; "
                    "what fit() learns belongs into attributes whose names end in _"
                )

    def elsewhere(self) -> None:
        """A fresh process, which has the stored description alone, makes the same columns."""
        with tempfile.TemporaryDirectory(prefix="fcl-check-") as folder:
            place = Path(folder)
            (place / "config.json").write_text(json.dumps(self.family.to_config()))
            np.save(place / "ids.npy", self.ids)
            if isinstance(self.raw, SparseRows):
                parts = {name: getattr(self.raw, name) for name in ("indptr", "indices", "data")}
                np.savez(place / "sparse.npz", n_columns=self.raw.n_columns, **parts)
            else:
                np.save(place / "rows.npy", self.raw)
            code = (
                "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
                "from fcl.testing.generator import _make_columns; _make_columns(sys.argv[2])"
            )
            path = json.dumps([p for p in sys.path if isinstance(p, str)])
            done = subprocess.run(
                [sys.executable, "-P", "-c", code, path, folder],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PYTHONHASHSEED": "4711"},
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise GeneratorError(
                    f"another process cannot make the columns from options() and state(): {last}"
                )
            found = np.load(place / "columns.npy")
        self._compare(found, self.expected, self.ids, "in another process")

    # -- training ------------------------------------------------------------------------------

    def trained(self) -> None:
        """Both drivers, on the rows at hand, against the matrix of all columns."""
        unknown = open_data(self.raw, y=None)
        # these rows may teach it something else
        family = bind(self.generator, unknown.rows, probe=False)
        n_features = family.n_features
        if n_features * self.n > TRAINING_VALUES:
            raise _LeftOut(f"{n_features:,} features are too many to train on {self.n} rows here")
        ids = np.arange(n_features)
        block = family.block_of(self.raw)
        phi = checked_columns(family.generator, ids, block, 0, self.n).astype(np.float64)
        random = np.random.default_rng(4)
        spread = phi.std(axis=0)
        signal = np.zeros(self.n)
        for k in np.argsort(-spread, kind="stable")[:3]:
            signal += (phi[:, k] - phi[:, k].mean()) / max(spread[k], 1e-300)
        y = np.where(signal + random.normal(size=self.n) > np.median(signal), 1.0, -1.0)
        if not spread.any() or abs(y.sum()) == self.n:
            raise _LeftOut("all columns are constant on the rows looked at")
        share = (y > 0).mean()
        steepest = float(np.abs((share - (y > 0)) @ phi).max())
        if not steepest > 0.0:
            raise _LeftOut("no column goes with a target on the rows looked at")
        C = 3.0 / steepest
        data = open_data(self.raw, y=y)
        ends = []
        for driver in ("inline", "processes"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    result = train(
                        data,
                        type(self.generator)(**self.generator.options()),
                        C=C,
                        tol=TRAINING_TOL,
                        memory="2GiB",
                        driver=driver,
                        writers=1 if driver == "processes" else None,
                        max_passes=200,
                    )
            except GeneratorError as error:
                raise GeneratorError(f"the driver {driver}: {error}") from error
            except FclError as error:
                raise GeneratorError(f"the driver {driver} failed: {error}") from error
            self._confirm(result, phi, y, C, driver)
            ends.append(result.certificate)
        slack = 1e-9 * ends[0].objective
        if ends[0].bound > ends[1].objective + slack or ends[1].bound > ends[0].objective + slack:
            raise GeneratorError(
                f"the drivers end at different optima, {ends[0].objective} and {ends[1].objective}"
            )

    @staticmethod
    def _confirm(result: Any, phi: np.ndarray, y: Floats, C: float, driver: str) -> None:
        """The objective and the largest gradient, from the matrix."""
        model, claimed = result.model, result.certificate
        m = phi[:, model.ids] @ model.weights + model.intercept
        value = float(np.abs(model.weights).sum() + C * np.logaddexp(0.0, -y * m).sum())
        if abs(value - claimed.objective) > 1e-9 * value:
            raise GeneratorError(
                f"the driver {driver} reports the objective {claimed.objective!r}, where the columns "
                f"give {value!r}: margins and columns() disagree"
            )
        r = -y / (1.0 + np.exp(y * m))
        largest = C * float(np.abs(r @ phi).max())
        if largest > claimed.max_violation * (1.0 + 1e-9):
            raise GeneratorError(
                f"the driver {driver} has priced no feature above {claimed.max_violation!r}, where the "
                f"columns give {largest!r}: gradients and columns() disagree"
            )


def _take(raw: Any, rows: Ids) -> Any:
    """Some rows, in this order."""
    return raw.take(rows) if isinstance(raw, SparseRows) else np.ascontiguousarray(raw[rows])


def _make_columns(folder: str) -> None:
    """In the other process: the columns from what lies in the folder."""
    place = Path(folder)
    family = family_from_config(json.loads((place / "config.json").read_text()))
    assert isinstance(family, GeneratedFamily)
    raw: Any
    if (place / "sparse.npz").exists():
        parts = np.load(place / "sparse.npz")
        raw = SparseRows(parts["indptr"], parts["indices"], parts["data"], int(parts["n_columns"]))
    else:
        raw = np.load(place / "rows.npy")
    ids = np.load(place / "ids.npy")
    columns = checked_columns(family.generator, ids, family.block_of(raw), 0, len(raw))
    np.save(place / "columns.npy", columns)
