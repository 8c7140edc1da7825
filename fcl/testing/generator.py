"""Tests of a feature class against the contract, for its author: :func:`check_generator`."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcl.data import DataSet, open_data
from fcl.data.prepared import PreparedRows
from fcl.data.sparse import SparseRows
from fcl.drivers.train import train
from fcl.errors import ConvergenceWarning, FclError, GeneratorError, InputError
from fcl.features.generator import GeneratedFamily, bind
from fcl.features.generator.binding import sample_rows, spread
from fcl.features.generator.checked import (
    SomeRows,
    called,
    checked,
    checked_columns,
    checked_moments,
    checked_nonzeros,
    name_of,
    some_ids,
)
from fcl.features.generator.contract import Generator, overrides
from fcl.features.generator.trial import Trial, made_again, take
from fcl.features.registry import check_home
from fcl.features.spec import family_from_config
from fcl.kernels import matrix
from fcl.types import Floats, Ids

#: Numbers of rows and features that are checked.
ROWS, FEATURES = 300, 40
#: Maximum rows over which columns are scanned once for rare values and exceptions, and maximum rows and
#: bytes of a block of the scan (a block has at least SMALL_BLOCK rows, however wide).
SCANNED, SCANNED_AT_ONCE, SCANNED_BYTES = 100_000, 4096, 16 << 20
#: The smallest number of rows of a block.
SMALL_BLOCK = 64
#: Maximum values, rows times features, of a training run; a larger family is not trained.
TRAINING_VALUES = 4_000_000
TRAINING_TOL = 1e-6


@dataclass(frozen=True)
class Check:
    """The result of one check.

    fault : the error to fix; empty if the check passed.
    left_out : the reason why the check was skipped; empty if it was made.
    told : details of the check.
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
class GeneratorReport:
    """The results of all checks, in order."""

    family: str
    checks: list[Check]

    @property
    def faults(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.fault]

    def failed(self, name: str) -> bool:
        """Whether the check of this name was made and failed."""
        return any(check.name == name for check in self.faults)

    def __str__(self) -> str:
        return "\n".join([self.family, *(f"  {check}" for check in self.checks)])


def check_generator(
    generator: Generator, data: DataSet | Any, training: bool = True
) -> GeneratorReport:
    """Check a feature class against the contract of :class:`Generator`, on rows of a data set.

    Parameters
    ----------
    generator : Generator
        An instance of the class.
    data : DataSet, or an argument of ``open_data`` (a path, an array)
        A target is not needed. Up to 300 rows from the whole range undergo every check; some columns are
        also made once over up to 100,000 rows.
    training : bool
        Whether to train on the rows as well, with both drivers (a few seconds).

    Returns
    -------
    GeneratorReport
        The checks that were made, and those that were skipped.

    Raises
    ------
    GeneratorError
        The class breaks the contract; the message lists all faults.
    InputError
        ``generator`` is not an instance of a Generator, or the rows are not of the kind it expects.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> from fcl.testing import check_generator
    >>> report = check_generator(fcl.Hinges(n=3), X, training=False)
    >>> report.faults, [check.name for check in report.checks][:3]
    ([], ['options', 'home', 'fit'])
    """
    if not isinstance(generator, Generator):
        raise InputError(
            "check_generator: expected an instance of a subclass of fcl.features.Generator, got "
            f"{generator!r:.80}"
        )
    rows = (data if isinstance(data, DataSet) else open_data(data, y=None)).rows
    report = GeneratorReport(name_of(generator), [])
    _try(report, "options", _options, generator)
    _try(report, "home", check_home, generator)
    family = None if report.failed("options") else _try(report, "fit", _fit, generator, rows)
    if family is not None:
        _examine(report, family, rows, training)
    if report.faults:
        lines = "\n".join(f"  - {check}" for check in report.faults)
        raise GeneratorError(
            f"features {report.family} break the contract of fcl.features.Generator:\n{lines}"
        )
    return report


class _LeftOut(Exception):
    """Raised by a check that cannot be made, with the reason."""


def _try(report: GeneratorReport, name: str, check: Callable[..., Any], *arguments: Any) -> Any:
    """Make a check and report its result; returns what it returned."""
    try:
        found = check(*arguments)
    except _LeftOut as reason:
        report.checks.append(Check(name, left_out=str(reason)))
    except GeneratorError as error:
        report.checks.append(Check(name, str(error).removeprefix(f"features {report.family}: ")))
    else:
        report.checks.append(Check(name, told=found if isinstance(found, str) else ""))
        return found


def _examine(report: GeneratorReport, family: GeneratedFamily, rows: Any, training: bool) -> None:
    """Check a fitted family."""
    own = overrides(family.generator, "prepare")
    name = "prepare" if own else "rows kept as they are"
    one = _try(report, name, _Examination.of, family, rows)
    if one is None:
        return
    _try(report, "columns", one.columns_right)
    if report.failed("columns"):
        return  # later checks would only repeat this fault
    _try(report, "columns again", one.again)
    _try(report, "columns of single features", one.columns_alone)
    _try(report, "columns of other blocks", one.columns_cut)
    _try(report, "columns over the data", one.columns_scanned, rows)
    if own:
        _try(report, "prepare of other blocks", one.prepared_cut)
    for faster in (
        "gradients",
        "gradients_of_several",
        "largest",
        "moments",
        "margins",
        "nonzeros",
    ):
        if overrides(family.generator, faster):
            _try(report, faster, getattr(one, faster))
    _try(report, "describe", one.describe_right)
    _try(report, "stored", one.stored)
    if not report.failed("home"):
        _try(report, "another process", one.elsewhere)
    if training and not report.faults:
        _try(report, "training", one.trained)


def _options(generator: Generator) -> None:
    """Arguments of __init__ are attributes of the same names that JSON can store."""
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
                "lists of them, and convert them in fit() or columns()"
            )


def _fit(generator: Generator, rows: Any) -> GeneratedFamily:
    """Bind twice: what fit() learns must be determined by its sample."""
    first, second = (bind(generator, rows, probe=False) for _ in range(2))
    states = [json.dumps(family.to_config()["state"]) for family in (first, second)]
    if states[0] != states[1]:
        raise GeneratorError(
            "fit() learns something else from the same sample when it is called again; seed "
            f"random numbers with an option; got {states[0]:.200} and {states[1]:.200}"
        )
    return first


class _Examination(Trial):
    """A family on some rows, with its columns, made in one large block as drivers pass it."""

    @classmethod
    def of(cls, family: GeneratedFamily, rows: Any) -> _Examination:
        raw, numbers = sample_rows(family.form, rows, None)
        some = np.linspace(0, len(raw) - 1, min(ROWS, len(raw))).astype(np.int64)
        raw = take(raw, some)
        place = SomeRows(f"{len(raw)} rows from all over {rows.name}", rows.name, numbers[some])
        n = family.n_features
        random = np.random.default_rng(0)
        ids = np.unique(np.r_[0, n - 1, random.integers(0, n, FEATURES)])
        made = cls(family, raw, place, ids, None, np.empty(0))
        ((made.block, _),) = made._cut(-(-len(raw) // 64) * 64)
        return made

    def _cut(self, block_rows: int) -> Iterator[tuple[Any, slice]]:
        """Blocks as the drivers pass them, with their rows."""
        family = self.family
        prepared = PreparedRows(self.n, block_rows, family.record_shape(block_rows))
        for number, rows in prepared.blocks():
            part = take(self.raw, np.arange(rows.start, rows.stop))
            sides = family.prepare(part, prepared.writable(number), block_rows)
            prepared.commit(number, sides)
        for number, rows in prepared.blocks():
            yield family.block(prepared, number), rows

    def _columns(self, ids: Ids, block: Any, n: int) -> np.ndarray:
        return checked_columns(self.generator, ids, block, 0, n)

    # -- columns -------------------------------------------------------------------------------

    def columns_right(self) -> None:
        """Columns have the right shape and dtype, finite values, and only 0 and 1 if so declared."""
        found = checked_columns(self.generator, self.ids, self.block, self.place, self.n)
        self.columns = found.copy()

    def columns_alone(self) -> None:
        """Columns do not depend on what else is requested; no ids give an empty array."""
        for k in range(len(self.ids)):
            some = slice(k, k + 1)
            found = self._columns(self.ids[some], self.block, self.n)
            self.compare(found, slice(None), "when it is the only one asked for", some)
        self._columns(self.ids[:0], self.block, self.n)

    def columns_cut(self) -> None:
        """Columns are the same in small blocks, for single rows, and for rows in another order."""
        for block, rows in self._cut(SMALL_BLOCK):
            found = self._columns(self.ids, block, rows.stop - rows.start)
            self.compare(found, rows, f"in a block of rows {rows.start} to {rows.stop - 1} alone")
        for row in range(0, self.n, max(1, self.n // 8)):
            block = self.family.block_of(take(self.raw, np.array([row])))
            found = self._columns(self.ids, block, 1)
            self.compare(found, slice(row, row + 1), f"in a block of row {row} alone")
        order = np.random.default_rng(1).permutation(self.n)
        found = self._columns(self.ids, self.family.block_of(take(self.raw, order)), self.n)
        self.compare(found, order, "when the rows come in another order")

    def columns_scanned(self, rows: Any) -> str:
        """Columns are valid on rows that the other checks do not see."""
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
        """prepare() gives the same for a row, whichever rows are prepared with it."""
        whole = self.family.block_of(self.raw)
        for row in range(0, self.n, max(1, self.n // 8)):
            alone = self.family.block_of(take(self.raw, np.array([row])))
            if not np.array_equal(alone[0], whole[row]):
                raise GeneratorError(
                    f"prepare() makes something else of row {row} alone than of the row among {self.n}; "
                    "it must depend only on the row, the options and what fit() has learnt"
                )

    # -- optional methods ----------------------------------------------------------------------

    def gradients(self) -> None:
        """gradients() agrees with products of columns and residuals, over ranges of features."""
        generator, block = self.generator, self.block
        residuals = np.random.default_rng(2).normal(size=self.n)
        for first, last in self._ranges():
            columns = self._columns(np.arange(first, last), block, self.n).astype(np.float64)
            what = f"gradients(features {first} to {last - 1}) on {self.place}"
            arguments = (first, last, block, residuals)
            found = checked(generator, what, generator.gradients, *arguments, shape=(last - first,))
            sizes = np.abs(residuals) @ np.abs(columns)
            name = [f"feature {k}" for k in range(first, last)].__getitem__
            self.compare_sums(what, found, residuals @ columns, sizes, name)

    def gradients_of_several(self) -> None:
        """gradients_of_several() agrees with gradients() of each output, over ranges of features."""
        generator, block = self.generator, self.block
        residuals = np.random.default_rng(5).normal(size=(3, self.n))
        for first, last in self._ranges():
            columns = self._columns(np.arange(first, last), block, self.n).astype(np.float64)
            what = f"gradients_of_several(features {first} to {last - 1}) on {self.place}"
            place, shape = (first, last, block), (3, last - first)
            function = generator.gradients_of_several
            found = checked(generator, what, function, *place, residuals, shape=shape)
            for k, own in enumerate(residuals):
                sizes = np.abs(own) @ np.abs(columns)
                name = [f"feature {j} of output {k}" for j in range(first, last)].__getitem__
                self.compare_sums(what, found[k], own @ columns, sizes, name)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges (first, last) of features around some of the checked ones."""
        for center in self.ids[:: max(1, len(self.ids) // 5)].tolist():
            yield max(0, center - 3), min(self.family.n_features, center + 4)

    def moments(self) -> None:
        """moments() agrees with the columns, whatever origin the class chooses."""
        generator, block = self.generator, self.block
        weights = np.random.default_rng(4).uniform(0.5, 2.0, self.n)
        for first, last in self._ranges():
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
            call = f"moments(features {first} to {last - 1}) on {self.place}"
            for what, given, right, scale in pairs:
                name = [f"the {what} of feature {k}" for k in range(first, last)].__getitem__
                self.compare_sums(call, given, right, scale, name)

    def nonzeros(self) -> None:
        """nonzeros() lists the values of the columns that are not 0, whichever rows are in the block."""
        order = np.random.default_rng(6).permutation(self.n)
        block = self.family.block_of(take(self.raw, order))
        found = checked_nonzeros(self.generator, block, self.n, self.place)
        rows = order[np.repeat(np.arange(self.n), np.diff(found.indptr))]
        place = np.searchsorted(self.ids, found.ids)
        own = self.ids[np.minimum(place, len(self.ids) - 1)] == found.ids
        values = np.zeros((self.n, len(self.ids)))
        values[rows[own], place[own]] = found.values[own]
        expected = self.columns.astype(np.float64)
        wrong = ~np.isclose(values, expected, rtol=1e-6, atol=0.0)
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            raise GeneratorError(
                f"nonzeros: expected the values of columns(), {expected[row, k]} for feature "
                f"{self.ids[k]} at {self.place.row(row)}, got {values[row, k]}"
            )

    # -- descriptions and storage --------------------------------------------------------------

    def describe_right(self) -> None:
        """describe() gives each feature a text, and different features different texts."""
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
        """A generator made again from a stored model has equal options, state, columns and texts."""
        self.restored()
        again, _ = made_again(self.family)
        for feature in self.ids[:5].tolist():
            if again.describe(feature) != self.family.describe(feature):
                raise GeneratorError(
                    f"describe({feature}) of a generator made again from options() and state() is "
                    f"{again.describe(feature)!r:.80} instead of {self.family.describe(feature)!r:.80}; "
                    "what fit() learns belongs in attributes whose names end in _"
                )

    def elsewhere(self) -> None:
        """A new process makes the same columns from the stored description alone."""
        with tempfile.TemporaryDirectory(prefix="fcl-check-") as folder:
            place = Path(folder)
            (place / "config.json").write_text(json.dumps(self.family.to_config()))
            parts = {"rows": self.raw}
            if isinstance(self.raw, SparseRows):
                names = ("indptr", "indices", "data", "n_columns")
                parts = {name: getattr(self.raw, name) for name in names}
            np.savez(place / "rows.npz", ids=self.ids, **parts)
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
        self.compare(found, slice(None), "in another process")

    # -- training ------------------------------------------------------------------------------

    def trained(self) -> None:
        """Both drivers train on the rows; their results agree with the matrix of all columns."""
        unknown = open_data(self.raw, y=None)
        # fit again: these rows may give another state
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
            raise _LeftOut("all columns are constant on the rows checked")
        share = (y > 0).mean()
        steepest = float(np.abs((share - (y > 0)) @ phi).max())
        if not steepest > 0.0:
            raise _LeftOut("no column correlates with a target on the rows checked")
        C = 3.0 / steepest
        data = open_data(self.raw, y=y)
        ends = []
        options = self.generator.options()
        for driver in ("inline", "processes:writers=1"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    result = train(
                        data,
                        type(self.generator)(**options),
                        C=C,
                        tol=TRAINING_TOL,
                        memory="2GiB",
                        driver=driver,
                        max_passes=200,
                    )
            except FclError as error:
                failed = "" if isinstance(error, GeneratorError) else " failed"
                raise GeneratorError(f"the driver {driver}{failed}: {error}") from error
            self._confirm(result, phi, y, C, driver)
            ends.append(result.certificate)
        slack = 1e-9 * ends[0].objective
        if ends[0].bound > ends[1].objective + slack or ends[1].bound > ends[0].objective + slack:
            raise GeneratorError(
                f"the drivers end at different optima, {ends[0].objective} and {ends[1].objective}"
            )

    @staticmethod
    def _confirm(result: Any, phi: np.ndarray, y: Floats, C: float, driver: str) -> None:
        """Check the objective and the largest gradient against the matrix."""
        model, claimed = result.model, result.certificate
        m = phi[:, model.ids] @ model.weights + model.intercept
        value = float(np.abs(model.weights).sum() + C * np.logaddexp(0.0, -y * m).sum())
        if abs(value - claimed.objective) > 1e-9 * value:
            raise GeneratorError(
                f"the driver {driver} reports the objective {claimed.objective!r}, but the columns "
                f"give {value!r}: margins() and columns() disagree"
            )
        r = -y / (1.0 + np.exp(y * m))
        largest = C * float(np.abs(r @ phi).max())
        if largest > claimed.max_violation * (1.0 + 1e-9):
            raise GeneratorError(
                f"the driver {driver} found no violation above {claimed.max_violation!r}, but the "
                f"columns give {largest!r}: gradients() and columns() disagree"
            )


def _make_columns(folder: str) -> None:
    """Make the columns from the files in the folder; runs in the other process."""
    place = Path(folder)
    family = family_from_config(json.loads((place / "config.json").read_text()))
    assert isinstance(family, GeneratedFamily)
    with np.load(place / "rows.npz") as file:
        parts = dict(file)
    ids = parts.pop("ids")
    raw: Any = parts.get("rows")
    if raw is None:
        raw = SparseRows(**{**parts, "n_columns": int(parts["n_columns"])})
    columns = checked_columns(family.generator, ids, family.block_of(raw), 0, len(raw))
    np.save(place / "columns.npy", columns)
