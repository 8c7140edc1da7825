"""Columns of rows matched to the columns that a model reads.

All rows that a model scores, and all rows beside training rows, go through :func:`match`, which compares
two records of columns (:class:`fcl.data.columns.ColumnRecord`). It turns what can be turned, refuses what
does not fit, and says in one line what it did.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import listed, shortened, shown
from fcl.data import DataSet, open_data
from fcl.data.column_map import ColumnMap, columns_of, mapped_rows
from fcl.data.columns import (
    ColumnRecord,
    KnownVariants,
    Variant,
    kept_name,
    whole_number,
)
from fcl.data.frame import is_frame
from fcl.errors import InputError
from fcl.model.variants import (
    found_by_place,
    orientation,
    refuse_other_scale,
    turned_columns,
    with_means,
)
from fcl.types import Ids
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.features.base import Family

#: commands show its notes, unless they are to be quiet
_log = logging.getLogger("fcl.columns")

#: Maximum number of characters of a feature's description in a model.
MOST_NAME = 1000
#: How PLINK writes the name of a variant that has none.
_NO_NAME = "."


def record_of(family: Family, ids: np.ndarray, record: ColumnRecord) -> ColumnRecord:
    """The part of the record of the training rows that is about columns which some features read."""
    if record.names is None:
        return record.part()
    return record.part(family.columns_read(ids).tolist())


def feature_names(family: Family, ids: Ids, names: Sequence[str] | None) -> list[str] | None:
    """Descriptions of features by the names of the columns; None if the columns have no names."""
    if names is None:
        return None
    return [shortened(family.describe(feature, names), MOST_NAME) for feature in ids.tolist()]


# -- one record against another --------------------------------------------------------------------


def match(wanted: ColumnRecord, given: ColumnRecord, width: int, n_given: int) -> ColumnMap:
    """Match the columns of an input to those that a model reads.

    Columns that have names on both sides are matched by name. A variant without a name, or
    of which the input has no name, is matched by chromosome, position and alleles. Alleles that are
    exchanged are turned. Columns of svmlight rows are matched by id, unless the user stated the first id
    of the input. Other columns are matched by position.

    wanted, given : of the model (or of the training rows), and of the input.
    width, n_given : columns of the rows of the model, and of the input.

    Raises InputError: the input lacks a column, or has other alleles; the message does not name the
        input.
    """
    if wanted.names is not None and given.names is not None:
        return _by_name(wanted, given, width, n_given)
    if wanted.first_id is not None and given.first_id is not None:
        return _by_id(wanted, given, width, n_given)
    note = ""
    if wanted.names and given.names is None:
        note = "columns: matched by position, as the input has no names of columns"
    return _by_position(width, note)


def difference(wanted: ColumnRecord, given: ColumnRecord) -> str:
    """The first column that is another one at the same position, in words; empty if all are the same."""
    names = given.names
    if wanted.names is not None and names is not None:
        for column, name in wanted.named:
            if column < len(names) and kept_name(names[column]) == kept_name(name):
                continue
            found = shown(names[column]) if column < len(names) else "missing"
            place = next((at for at, other in given.named if kept_name(other) == name), None)
            elsewhere = "is missing" if place is None else f"is at position {place}"
            return (
                f"the column at position {column} (from 0) is {found}, but the model reads "
                f"{shown(name)} there, which {elsewhere}"
            )
        columns = sorted(dict(wanted.named))
        ours, theirs = wanted.variants_at(columns), given.variants_at(columns)
        for column in columns if ours and theirs else ():
            assert ours is not None and theirs is not None
            if orientation(ours[column], theirs[column]) is not False:
                a, b = ours[column], theirs[column]
                return (
                    f"the variant at position {column} (from 0), {shown(names[column])}, counts the "
                    f"alleles {b.a1}/{b.a2}, but {a.a1}/{a.a2} in the model"
                )
        return ""
    first, other = wanted.first_id, given.first_id
    if None not in (first, other) and first != other and not given.is_stated:
        return f"the ids of the columns begin at {other}, but at {first} in the model"
    return ""


def _by_position(width: int, note: str) -> ColumnMap:
    # rows of another width are refused, or cut, by those who know their form
    return ColumnMap(width, n_given=width, note=note)


def _by_id(wanted: ColumnRecord, given: ColumnRecord, width: int, n_given: int) -> ColumnMap:
    assert wanted.first_id is not None and given.first_id is not None
    shift = given.first_id - wanted.first_id
    if shift and given.is_stated:
        note = (
            f"columns: matched by position; ids begin at {given.first_id} as stated (--zero-based), at "
            f"{wanted.first_id} in the training data"
        )
        return _by_position(width, note)
    if shift < 0:
        raise InputError(
            f"the ids of the columns begin at {given.first_id}, but at {wanted.first_id} in the training "
            f"data, which have no column {given.first_id}; convert the files with --like TRAIN.zarr, or "
            "state with --zero-based how each counts"
        )
    ignored = max(0, n_given + shift - width)
    note = ""
    if shift or ignored:
        note = (
            f"columns: matched by id, from {given.first_id} here and {wanted.first_id} in the model"
        )
        note += f"; {counted(ignored, 'column')} ignored, which the model does not know" * bool(
            ignored
        )
    return ColumnMap(width, shift=shift, n_given=n_given, ignored=ignored, note=note)


def _by_name(wanted: ColumnRecord, given: ColumnRecord, width: int, n_given: int) -> ColumnMap:
    """Match names, and alleles where columns are variants."""
    columns = sorted(dict(wanted.named))
    ours = wanted.variants_at(columns)
    #: column of the model -> column of the input
    pairs, absent, places = _found_names(wanted, given, ours)
    n_by_name, n_zero = len(pairs), 0
    if absent and ours:
        pairs |= found_by_place(absent, ours, given, n_given, places)
    elif absent:
        found = _by_category(absent, wanted, given, places)
        pairs |= found
        n_zero = len(absent) - len(found)
    theirs = given.variants_at(sorted(set(pairs.values()))) if ours else None
    turned: list[int] = []
    if ours and theirs:
        refuse_other_scale(wanted, given)
        turned = turned_columns(pairs, ours, theirs, wanted)
    n_read = len(pairs)
    source, target = _all_columns(pairs, dict(absent), width, n_given)
    parts = [f"{n_by_name:,} read, by name"]
    by_place = n_read - n_by_name if ours else 0
    parts += [f"{by_place:,} by chromosome, position and alleles"] if by_place else []
    parts += [f"{len(turned):,} with A1 and A2 exchanged, turned"] if turned else []
    parts += [f"{n_zero:,} whose category no row has: filled with 0"] if n_zero else []
    ignored = n_given - n_read
    parts += [f"{ignored:,} more ignored"] if ignored and n_given != width else []
    unknown = _unknown_categories(wanted, given)
    if unknown:
        parts.append(f"not in the training data: {listed(unknown, show=str)}")
    found_map = ColumnMap(
        width,
        source,
        target,
        n_given=n_given,
        turned=np.array(turned, np.int64),
        scale=given.scale,
        ignored=n_given - len(source),
        note=f"columns: {'; '.join(parts)}",
    )
    if ours and theirs:
        found_map = with_means(found_map, pairs, ours, theirs)
    is_same = found_map.changes_nothing and not unknown and not found_map.says_more
    return replace(found_map, note="") if is_same else found_map


def _found_names(
    wanted: ColumnRecord, given: ColumnRecord, variants: Mapping[int, Variant] | None
) -> tuple[dict[int, int], list[tuple[int, str]], dict[str, int]]:
    """Columns of the model and of the input with the same name; columns that were not found.

    Also the position of each name in the input, unless all wanted names are at their positions.

    variants : of the model, by column.
    """
    names = given.names
    assert names is not None

    def is_variant_without_name(column: int, name: str) -> bool:
        return name == _NO_NAME and variants is not None and variants[column].place is not None

    if all(
        column < len(names)
        and kept_name(names[column]) == kept_name(name)
        and not is_variant_without_name(column, name)
        for column, name in wanted.named
    ):
        return {column: column for column, _ in wanted.named}, [], {}
    places: dict[str, int] = {}
    repeated: set[str] = set()
    for column, name in given.named:
        if places.setdefault(kept_name(name), column) != column:
            repeated.add(kept_name(name))
    pairs: dict[int, int] = {}
    absent: list[tuple[int, str]] = []
    for column, name in wanted.named:
        kept = kept_name(name)
        if kept in repeated:
            raise InputError(
                f"several columns are called {shown(name)}; rename them, or store the columns in the "
                "order of the training data"
            )
        if kept not in places or is_variant_without_name(column, name):
            absent.append((column, name))
        else:
            pairs[column] = places[kept]
    return pairs, absent, places


def _all_columns(
    pairs: dict[int, int], absent: Collection[int], width: int, n_given: int
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of a map; columns that the model does not read stay, if widths agree.

    absent : columns of the model that the input lacks under their name; those without a pair are 0.
    """
    if n_given == width:
        zero = set(absent) - pairs.keys()
        if not zero and all(column == place for column, place in pairs.items()):
            return np.arange(width), np.arange(width)
        free = sorted(set(range(width)) - pairs.keys() - zero)
        left = sorted(set(range(width)) - set(pairs.values()))
        pairs = pairs | dict(zip(free, left, strict=False))
    return columns_of([(place, column) for column, place in pairs.items()])


# -- categories ------------------------------------------------------------------------------------


def _by_category(
    absent: Sequence[tuple[int, str]],
    wanted: ColumnRecord,
    given: ColumnRecord,
    places: Mapping[str, int],
) -> dict[int, int]:
    """Categories that are spelled in another way; others, that no row of the input has, are left out.

    Raises InputError for a column that is no category.
    """
    found: dict[int, int] = {}
    missing: list[str] = []
    for column, name in absent:
        place = _category(name, wanted, given)
        if place is None:
            missing.append(name)
        elif place:
            found[column] = places[kept_name(place)]
    if missing:
        raise InputError(
            f"the model reads the columns {listed(missing)}, which the input lacks; add them, or name "
            "the right file"
        )
    return found


def _category(name: str, wanted: ColumnRecord, given: ColumnRecord) -> str | None:
    """The input's name for a category of the model; empty if no row has it, None for other columns."""
    marks = [place for place, letter in enumerate(name) if letter == "="]
    for mark in marks:
        source, value = name[:mark], name[mark + 1 :]
        if source not in given.categories or source not in wanted.categories:
            continue
        number = whole_number(value)
        same = [
            other
            for other in given.categories[source]
            if number is not None and whole_number(other) == number
        ]
        return f"{source}={same[0]}" if len(same) == 1 else ""
    return None


def _unknown_categories(wanted: ColumnRecord, given: ColumnRecord) -> list[str]:
    """Categories of the input that the training data did not have."""
    unknown = []
    for column, known in wanted.categories.items():
        numbers = {whole_number(value) for value in known} - {None}
        unknown += [
            f"{shortened(column, 40)}={shown(value)}"
            for value in given.categories.get(column, ())
            if value not in known and whole_number(value) not in numbers
        ]
    return unknown


# -- data sets -------------------------------------------------------------------------------------


def matched(data: DataSet, wanted: ColumnRecord, width: int) -> DataSet:
    """The data set with each wanted column at its position; logs in one line what was done.

    wanted : of the model, or of the training rows.
    width : columns of the rows of the model.

    Returns `data` itself if its columns are the wanted ones at their positions. Otherwise a data set
        whose rows are turned as they are read, with (n, width) columns.
    Raises InputError: a column is missing, or has other alleles than in the training data.
    """
    if data.matched_to is wanted or len(data.rows.shape) != 2:
        return data
    try:
        columns = match(wanted, data.column_record, width, data.rows.shape[1])
    except InputError as error:
        raise InputError(f"{data.name}: {error}") from None
    warnings = [
        warning
        for warning in (
            _other_means(wanted, data.column_record),
            _fewer_digits(wanted, data.column_record),
        )
        if warning
    ]
    if columns.changes_nothing and not columns.note and not warnings:
        return data
    if columns.note:
        _log.info("%s: %s", data.name, columns.note)
    for warning in warnings:
        _log.warning("%s: %s", data.name, warning)
    found = copy.copy(data)
    found.matched_to = wanted
    if columns.changes_nothing:
        return found
    found.rows = mapped_rows(data.rows, columns)
    found.source = None  # another process could read the rows, but not turn them
    found.ignored_columns = columns.ignored
    found.column_record = _aligned(wanted, data.column_record, columns)
    return found.with_target(data.target, data.weights, data.target_name)


def _aligned(wanted: ColumnRecord, given: ColumnRecord, columns: ColumnMap) -> ColumnRecord:
    """The record of rows that were matched: names of all columns, of which some are empty."""
    names = None
    if wanted.names is not None and given.names is not None:
        assert columns.source is not None and columns.target is not None
        sources = zip(columns.source.tolist(), columns.target.tolist(), strict=True)
        own = {target: given.names[source] for source, target in sources}
        own |= dict(wanted.named)
        names = [own.get(column, "") for column in range(columns.width)]
    variants = wanted.variants_at(sorted(dict(wanted.named)))
    return replace(
        given,
        names=names,
        first_id=wanted.first_id,
        is_stated=False,
        variants=None if variants is None else KnownVariants(variants),
    )


def _other_means(wanted: ColumnRecord, given: ColumnRecord) -> str:
    """A warning if missing numbers of a table have other means in their place; empty without them."""
    columns = {
        name: given.filled[name]
        for name, mean in wanted.means.items()
        if given.filled.get(name) and given.means.get(name) not in (None, mean)
    }
    if not columns:
        return ""
    name = next(iter(columns))
    return (
        f"missing values ({sum(columns.values()):,}) were replaced by the means of these rows "
        f"({shown(name)}: {given.means[name]:g}), not of the training data ({wanted.means[name]:g}); "
        "convert the files with --like TRAIN.zarr"
    )


def _fewer_digits(wanted: ColumnRecord, given: ColumnRecord) -> str:
    """A warning if the numbers lost digits that the training data have; empty otherwise."""
    if (wanted.numbers, given.numbers) != ("float64", "float32"):
        return ""
    return (
        "the numbers were stored as float32, and the training data as float64, since they need more "
        "digits; convert the files with --like TRAIN.zarr"
    )


def open_matched(
    data: DataSet | Any, wanted: ColumnRecord, width: int, offset: Any, covariates: Any
) -> DataSet:
    """Open rows with offset and covariates, and match their columns as :func:`matched` does.

    data : a data set, or a source for :func:`fcl.open_data`.
    """
    if isinstance(data, DataSet):
        return matched(data.with_added(offset, covariates), wanted, width)
    if wanted.names is not None and is_frame(data):
        data = select_columns(data, wanted, (offset, covariates))
    return matched(open_data(data, y=None, offset=offset, covariates=covariates), wanted, width)


def select_columns(frame: Any, wanted: ColumnRecord, more: Iterable[Any]) -> Any:
    """The columns of a data frame that are wanted by name, or named in `more`; without any, all columns.

    more : names, lists of names, or text with commas between names; anything else names no column.
    """
    names = {name for _, name in wanted.named}
    for given in more:
        if isinstance(given, str):
            names.update(name.strip() for name in given.split(","))
        elif isinstance(given, list | tuple):
            names.update(map(str, given))
    kept = [key for key in frame.columns if kept_name(str(key)) in names]
    return frame[kept] if kept else frame
