"""Which column of a table is what: features, target, weights, groups, names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fcl.checks import listed, shown
from fcl.convert.reference import Reference
from fcl.convert.tables.contract import TableFile, shown_columns
from fcl.errors import InputError
from fcl.numerals import read_whole


@dataclass(frozen=True)
class ColumnOptions:
    """The options of ``fcl convert`` that all formats of tables take."""

    x: str | None = None
    y: str | None = None
    weights: str | None = None
    groups: str | None = None
    name: str | None = None
    categorical: str | None = None
    dates: str = "days"
    max_categories: int = 1000
    missing: str = "error"
    missing_target: str = "error"
    layout: str = "auto"
    dtype: str = "auto"
    like: str | Reference | None = None


@dataclass(frozen=True)
class Roles:
    """Indices of the columns by what they are; ``left_out`` have no name, or number the rows."""

    x: list[int]
    y: int | None
    weights: int | None
    groups: int | None
    name: int | None
    left_out: list[int]

    @classmethod
    def of(cls, table: TableFile, options: ColumnOptions) -> Roles:
        """Find the columns that the options name."""
        singles: dict[str, int] = {}
        for role in ("y", "weights", "groups", "name"):
            if (name := getattr(options, role)) is not None:
                singles[role] = _index(table, f"--{role}", name)
        if len(set(singles.values())) < len(singles):
            pairs = ", ".join(f"--{role} {table.columns[at]}" for role, at in singles.items())
            raise InputError(f"{table.name}: a column can have one role, got {pairs}")
        taken = set(singles.values())
        free = [at for at in range(table.width) if at not in taken]
        named = [at for at in free if table.columns[at]]
        usual = [at for at in named if at not in table.index_columns]
        used = set(usual)  # a table may have 100,000 columns
        x = usual if options.x is None else matching(table, "--x", options.x, named)
        x = with_dates(table, x, options)
        if not x:
            raise InputError(
                f"{table.name}: no column is left for X; the columns are "
                f"{shown_columns(table.columns)}: choose with --x"
            )
        return cls(
            x,
            singles.get("y"),
            singles.get("weights"),
            singles.get("groups"),
            singles.get("name"),
            [at for at in free if at not in used] if options.x is None else [],
        )

    @classmethod
    def like(
        cls, reference: Reference, table: TableFile, options: ColumnOptions
    ) -> tuple[Roles, list[int]]:
        """The roles of the columns by the names of others, and which columns are one-hot there."""
        if options.x is not None:
            raise InputError(f"{reference.words} names the columns of X; leave out --x")
        found = find_columns(reference, table)
        one_hot = [at for _, at, value in found if value is not None]
        x = sorted({at for _, at, _ in found})
        return replace(cls.of(table, options), x=x, left_out=[]), one_hot


def with_dates(table: TableFile, x: list[int], options: ColumnOptions) -> list[int]:
    """Columns of X with the parts of their dates, and without dates that are not wanted as days."""
    categorical, used = set(categories_of(table, options)), set(x)
    parts = [at for at, (source, _) in table.date_parts.items() if source in used - categorical]
    if "days" not in options.dates:
        x = [at for at in x if at in categorical or not table.looks_like_date[at]]
    return x + parts


def categories_of(table: TableFile, options: ColumnOptions) -> list[int]:
    """The columns that are categories whatever they hold."""
    if not options.categorical:
        return []
    return matching(table, "--categorical", options.categorical, range(table.width))


def find_columns(reference: Reference, table: TableFile) -> list[tuple[str, int, str | None]]:
    """For each name of a reference: the column of the table, and the category if it is one-hot."""
    index = {name: at for at, name in enumerate(table.columns)}
    found: list[tuple[str, int, str | None]] = []
    missing: list[str] = []
    for _, name in reference.record.named:
        marks = [place for place, letter in enumerate(name) if letter == "="]
        cuts = [place for place in marks if name[:place] in index]
        if name in index:
            found.append((name, index[name], None))
        elif cuts:
            found.append((name, index[name[: cuts[0]]], name[cuts[0] + 1 :]))
        else:
            missing.append(name)
    if missing:
        raise InputError(f"{reference.words}: {table.name} has no column for {listed(missing)}")
    return found


def matching(table: TableFile, option: str, text: str, among: Sequence[int]) -> list[int]:
    """Columns that fit patterns, separated by commas, in the order of the table.

    ``*`` stands for any text, and ``!`` before a pattern excludes what fits. Raises InputError for a
    pattern that fits no column.
    """
    patterns = [pattern.strip() for pattern in text.split(",") if pattern.strip()]
    negative = {pattern for pattern in patterns if pattern.startswith("!")}
    found: set[int] = set(among) if len(negative) == len(patterns) else set()
    for pattern in sorted(patterns, key=negative.__contains__):
        parts = map(re.escape, pattern.removeprefix("!").split("*"))
        expression = re.compile(".*".join(parts), re.DOTALL)
        fits = {at for at in among if expression.fullmatch(table.columns[at])}
        if not fits:
            raise _unknown(table, option, pattern.removeprefix("!"), among)
        found = found - fits if pattern in negative else found | fits
    return sorted(found)


def _index(table: TableFile, option: str, name: str) -> int:
    if name in table.columns:
        return table.columns.index(name)
    number = read_whole(name)
    if number is not None and 1 <= number <= len(table.columns):
        return number - 1
    raise _unknown(table, option, name, range(len(table.columns)))


def _unknown(table: TableFile, option: str, name: str, among: Sequence[int]) -> InputError:
    names = [table.columns[at] for at in among]
    close = difflib.get_close_matches(name, names[:10_000], 1)
    hint = f"did you mean {shown(close[0])}?" if close else f"it has {shown_columns(names)}"
    if name in table.columns:
        return InputError(
            f"{option}: the column {shown(name)} of {table.name} has a role already (--y, --weights, "
            f"--groups or --name), so it cannot be a column of X; leave it out"
        )
    return InputError(f"{option}: {table.name} has no column {shown(name)}; {hint}")
