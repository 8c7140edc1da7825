"""The record of the columns of X: what must hold wherever rows of the same columns come in.

``fcl convert`` writes the record beside X, :func:`fcl.open_data` reads it, and models and checkpoints
keep it. :func:`fcl.model.columns.match` compares the records of two data sets, or of a model and data.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fcl.checks import shown
from fcl.data.base import RowReader
from fcl.errors import InputError

#: Longest name that a model keeps unchanged.
MOST_NAME = 1000
#: Models do not keep longer alleles.
MOST_LETTERS = 1000
#: Models keep at most so many categories, of all columns together.
MOST_CATEGORIES = 100_000
#: Options of ``fcl convert`` that decide which numbers the texts of a table are.
READ_BY = ("missing", "na", "decimal", "thousands", "date_order")
#: Copies of an allele in a genotype of two chromosomes.
DIPLOID = 2.0

#: Columns of the table ``var`` of PLINK data, in the order of the fields of :class:`Variant`.
VARIANT_COLUMNS = ("a1", "a2", "mean", "chromosome", "position", "missing")

#: Opens columns of a table in a data set; see :func:`fcl.data.open.open_columns`.
OpenColumns = Callable[[Mapping[str, Any], Mapping[str, str], int], Mapping[str, RowReader[Any]]]

_WHOLE = re.compile(r"([+-]?[0-9]{1,300})(\.0*)?")


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of PLINK data, which is a column of X.

    a1 : the allele that X counts.
    a2 : the other allele.
    mean : mean of the genotypes, which stands for missing genotypes; NaN if it is not known.
    chromosome : as in the .bim file; empty if it is not known.
    position : of the base, from 1; 0 if it is not known.
    missing : number of rows in which the mean stands for the genotype, -1 if it is not known; models do
        not keep it.
    """

    a1: str
    a2: str
    mean: float = float("nan")
    chromosome: str = ""
    position: int = 0
    missing: int = field(default=-1, compare=False)

    @property
    def place(self) -> tuple[str, int] | None:
        """Chromosome, without the prefix chr, and position; None if they are not known."""
        name = self.chromosome.lower().removeprefix("chr")
        return (name, self.position) if self.position > 0 and name not in ("", "0") else None


class Variants(Protocol):
    """The variants of some columns, which may be read when they are needed."""

    def some(self, columns: Sequence[int]) -> dict[int, Variant] | None:
        """The variants of columns in ascending order; None if the columns are no variants."""


@dataclass(frozen=True)
class KnownVariants:
    """Variants in memory, by position in X."""

    by_column: Mapping[int, Variant]

    def some(self, columns: Sequence[int]) -> dict[int, Variant] | None:
        """See :class:`Variants`; columns that are no variants are left out."""
        return {column: self.by_column[column] for column in columns if column in self.by_column}


@dataclass(frozen=True)
class StoredVariants:
    """Variants in the table ``var`` of a data set.

    source : the arguments of :func:`fcl.open_data`, as ``DataSet.source`` has them.
    n_columns : columns of X.
    open_columns : :func:`fcl.data.open.open_columns`.
    """

    source: Mapping[str, Any]
    n_columns: int
    open_columns: OpenColumns

    def some(self, columns: Sequence[int]) -> dict[int, Variant] | None:
        """See :class:`Variants`; also None if an array cannot be read, or an allele is very long."""
        paths = {name: f"var/{name}" for name in VARIANT_COLUMNS}
        try:
            readers = self.open_columns(self.source, paths, self.n_columns)
            if any(name not in readers for name in VARIANT_COLUMNS[:3]):
                return None
            found = {name: _values(reader, columns) for name, reader in readers.items()}
        except (InputError, OSError):  # training must not fail because of these arrays
            return None
        if any(len(text) > MOST_LETTERS for text in (*found["a1"], *found["a2"])):
            return None
        if not np.isfinite(np.asarray(found["mean"], np.float64)).all():
            return None
        for name, value in (("chromosome", ""), ("position", 0), ("missing", -1)):
            found.setdefault(name, [value] * len(columns))
        rows = zip(columns, *(found[name] for name in VARIANT_COLUMNS), strict=True)
        return {
            column: Variant(str(a1), str(a2), float(mean), str(place), int(position), int(missing))
            for column, a1, a2, mean, place, position, missing in rows
        }


@dataclass(frozen=True)
class ColumnRecord:
    """What is known about the columns of X, or about those that a model reads.

    names : sequence of str, mapping of int to str, or None, names of all columns, or of some by position
        in X; None if the columns have no names.
    first_id : of svmlight rows, the id of the first column: 0 or 1; None for other rows.
    is_stated : whether the user stated the first id of these rows (``--zero-based``); otherwise it was
        found in the rows, or it is that of other rows.
    variants : alleles and places of columns that are PLINK variants.
    scale : the value of X that stands for two copies of the allele a1.
    means : mapping of str to float, values that stand for missing numbers of a table, by the names of the
        columns.
    filled : mapping of str to int, numbers of missing values that were filled in with these means.
    categories : mapping of str to sequence of str, columns of a table that are one-hot, and their
        categories as they are spelled in ``names``, whose form is ``COLUMN=CATEGORY``.
    reading : options of ``fcl convert`` by which the table was read, such as ``date_order`` and ``y``.
    numbers : {"float32", "float64"} or None, the dtype as which ``fcl convert`` stored numbers that it
        read as text, or from Parquet; test rows are rounded in the same way.
    offset : name of the array of offsets; None without offsets, or if they have no name.
    covariates : names of the arrays of covariates.
    """

    names: Mapping[int, str] | Sequence[str] | None = None
    first_id: int | None = None
    is_stated: bool = False
    variants: Variants | None = None
    scale: float = DIPLOID
    means: Mapping[str, float] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reading: Mapping[str, str] = field(default_factory=dict)
    numbers: str | None = None
    offset: str | None = None
    covariates: Sequence[str] = ()

    @property
    def named(self) -> Iterable[tuple[int, str]]:
        """Positions and names; nothing without names."""
        if isinstance(self.names, Mapping):
            return self.names.items()
        return enumerate(self.names or ())

    @property
    def column_names(self) -> dict[int, str] | None:
        """Names by position; None without names."""
        return None if self.names is None else dict(self.named)

    def variants_at(self, columns: Sequence[int]) -> dict[int, Variant] | None:
        """The variants of columns in ascending order; None if the columns are no variants."""
        if self.variants is None or not len(columns):
            return None
        return self.variants.some(columns) or None

    def part(self, columns: Iterable[int] | None = None) -> ColumnRecord:
        """What a model keeps of some columns, or of all: texts and numbers, read from the data."""
        if self.names is None:
            return replace(self, is_stated=False, variants=None, filled={})
        every = dict(self.named)
        kept = sorted(every) if columns is None else sorted(set(columns) & every.keys())
        names = {column: kept_name(every[column]) for column in kept}
        variants, own = self.variants_at(kept), set(names.values())
        return replace(
            self,
            names=names,
            is_stated=False,
            variants=None if variants is None else KnownVariants(variants),
            means={name: mean for name, mean in self.means.items() if kept_name(name) in own},
            filled={},
            categories=_kept_categories(self.categories, own),
        )

    def check(self, width: int) -> None:
        """Raise InputError unless all positions are columns of rows of this width."""
        columns = list(self.names) if isinstance(self.names, Mapping) else []
        if columns and not 0 <= min(columns) <= max(columns) < width:
            raise InputError(
                f"column_names: expected columns in [0, {width}), got {min(columns)} to {max(columns)}"
            )
        variants = self.variants
        if isinstance(variants, KnownVariants) and variants.by_column.keys() != set(columns):
            raise InputError("variants: expected the same columns as in column_names")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What a checkpoint keeps of all columns: the first id, and a hash of the texts and numbers."""
        whole = self.part()
        found = whole.variants_at([column for column, _ in whole.named]) or {}
        texts = [
            list(whole.named),
            [[at, v.a1, v.a2, v.chromosome, v.position, repr(v.mean)] for at, v in found.items()],
            sorted((name, repr(float(mean))) for name, mean in whole.means.items()),
            sorted((name, list(values)) for name, values in whole.categories.items()),
            repr(float(self.scale)),
        ]
        digest = hashlib.sha256(json.dumps(texts).encode("utf-8", "surrogatepass")).hexdigest()
        return {"first_id": self.first_id, "sha256": digest}


def joined(records: Sequence[ColumnRecord]) -> ColumnRecord:
    """The record of all columns that some models of the same rows read."""
    first, *others = records
    if first.names is None or not others:
        return first
    names: dict[int, str] = {}
    variants: dict[int, Variant] = {}
    means: dict[str, float] = {}
    categories: dict[str, Sequence[str]] = {}
    for record in records:
        names |= dict(record.named)
        variants |= record.variants_at(sorted(dict(record.named))) or {}
        means |= record.means
        categories |= record.categories
    return replace(
        first,
        names=dict(sorted(names.items())),
        variants=KnownVariants(variants) if variants else None,
        means=means,
        categories=categories,
    )


def kept_name(name: str) -> str:
    """A name as models keep it: a hash stands for the end of a very long one."""
    if len(name) <= MOST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: MOST_NAME - 100]}... (SHA-256 {digest})"


def whole_number(text: str) -> int | None:
    """The whole number that a text spells, such as 2 for ``2``, ``2.0`` and ``02``; None for others."""
    found = _WHOLE.fullmatch(text)
    return None if found is None else int(found[1])


def spellings(values: Iterable[str]) -> dict[str, str]:
    """Each category of a column, and the spelling of it that is kept.

    Whole numbers that differ only in spelling are one category: pandas writes 2 as 2.0 beside missing
    values. Numbers with zeros before them, such as ZIP codes, stay as they are.
    """
    kept: dict[int, str] = {}
    found: dict[str, str] = {}
    for value in sorted(values, key=lambda text: (len(text), text)):
        number, digits = whole_number(value), value.lstrip("+-")
        is_padded = len(digits) > 1 and digits[0] == "0" and digits[1] != "."
        found[value] = value if number is None or is_padded else kept.setdefault(number, value)
    return found


def by_whole_number(columns: Mapping[str, int]) -> dict[int, int]:
    """Whole number -> what it stands for, for those that one category alone spells."""
    found: dict[int, set[int]] = {}
    for value, column in columns.items():
        if (number := whole_number(value)) is not None:
            found.setdefault(number, set()).add(column)
    return {number: next(iter(own)) for number, own in found.items() if len(own) == 1}


def _kept_categories(
    categories: Mapping[str, Sequence[str]], names: set[str]
) -> dict[str, list[str]]:
    """The columns with a category among the names of X; very many categories are left out."""
    kept: dict[str, list[str]] = {}
    left = MOST_CATEGORIES
    for column, values in categories.items():
        if len(values) <= left and any(kept_name(f"{column}={v}") in names for v in values):
            kept[column] = list(values)
            left -= len(values)
    return kept


def _values(reader: RowReader[Any], columns: Sequence[int]) -> list[Any]:
    """Some of the values of an array, which is read chunk by chunk."""
    places, step = np.asarray(columns, np.int64), reader.chunk_rows
    values: list[Any] = []
    for chunk in np.unique(places // step).tolist():
        block = reader.read(chunk * step, min((chunk + 1) * step, reader.shape[0])).reshape(-1)
        values += block[places[places // step == chunk] - chunk * step].tolist()
    return values


# -- as fcl convert stores it ----------------------------------------------------------------------


def read_record(
    stored: Any,
    names: Sequence[str] | None,
    rows: RowReader[Any],
    source: Mapping[str, Any] | None,
    open_columns: OpenColumns,
) -> ColumnRecord:
    """The record of the columns of a data set, with what ``fcl convert`` stored beside X.

    stored : the attribute ``fcl`` of the data set.
    source : as ``DataSet.source``.
    open_columns : :func:`fcl.data.open.open_columns`.

    Raises InputError: the attribute is not one that fcl writes.
    """
    variants = None
    if names is not None and source is not None:
        variants = StoredVariants(source, rows.shape[1], open_columns)
    if not isinstance(stored, Mapping):
        return ColumnRecord(names, variants=variants)

    def table(key: str, kind: type | tuple[type, ...]) -> dict[str, Any]:
        found = stored.get(key, {})
        if not isinstance(found, Mapping) or not all(
            isinstance(value, kind) and not isinstance(value, bool) for value in found.values()
        ):
            raise InputError(
                f"{rows.name}: expected {key} in the attribute fcl as fcl convert writes them, got "
                f"{shown(found)}; convert the data again"
            )
        return dict(found)

    first_id, scale = stored.get("first_id"), stored.get("scale")
    numbers = stored.get("numbers")
    options = stored.get("options")
    options = options if isinstance(options, Mapping) else {}
    return ColumnRecord(
        names,
        first_id=first_id if type(first_id) is int and first_id in (0, 1) else None,
        is_stated=options.get("zero_based") in ("yes", "no"),
        variants=variants,
        scale=float(scale) if isinstance(scale, int | float) and scale > 0.0 else DIPLOID,
        means={name: float(mean) for name, mean in table("means", (int, float)).items()},
        filled=table("filled", int),
        categories={
            column: [str(value) for value in values]
            for column, values in table("categories", list).items()
        },
        reading={
            name: value
            for name, value in options.items()
            if isinstance(value, str)
            and (name != "missing" or value == "mean")
            and (name in READ_BY or (name == "y" and stored.get("format") != "plink"))
        },
        numbers=numbers if numbers in ("float32", "float64") else None,
    )
