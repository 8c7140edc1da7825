"""The columns of svmlight files, whose lines hold ids: their number, names, and first id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fcl.checks import shown
from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.files import InputFile
from fcl.convert.reference import Reference
from fcl.errors import InputError
from fcl.units import counted

__all__ = ["IdColumns"]


@dataclass(frozen=True)
class IdColumns:
    """What is known about the columns before the files are read.

    Attributes
    ----------
    width : int or None
        Number of columns; None if the largest id decides.
    words : str
        Where the number comes from, for messages.
    names : sequence of str, or None
        One for each column.
    first_id : int or None
        Id of the first column; None if the files decide.
    ignores_others : bool
        Whether entries with ids beyond the last column are left out, instead of refused.
    """

    width: int | None = None
    words: str = ""
    names: Sequence[str] | None = None
    first_id: int | None = None
    ignores_others: bool = False

    @classmethod
    def of(
        cls, columns: int | None, names: InputFile | None, like: str | None, budget: Budget
    ) -> IdColumns:
        """The columns that one of the options decides; raises InputError if two of them are given."""
        given = {"--columns": columns, "--names": names, "--like": like}
        found = [option for option, value in given.items() if value is not None]
        if len(found) > 1:
            raise InputError(
                f"{' and '.join(found)} each decide the number of columns; give one of them"
            )
        if like is not None:
            return cls._like(like)
        if names is not None:
            texts = _read_names(names, budget)
            return cls(len(texts), f"the {counted(len(texts), 'name')} of {names.name}", texts)
        return cls(columns, f"--columns {columns}")

    @classmethod
    def _like(cls, path: str) -> IdColumns:
        """The columns of an output of fcl convert."""
        found = Reference.open(path)
        first_id = found.attributes.get("first_id")
        if first_id not in (0, 1):
            raise InputError(
                f"--like: expected an output of fcl convert from svmlight files, got {path}"
            )
        data = found.data
        return cls(data.rows.shape[1], f"--like {path}", data.column_names, first_id, True)


def _read_names(file: InputFile, budget: Budget) -> list[str]:
    """The lines of a file: the name of a column in each."""
    text = file.read_text()
    n_names = text.count("\n") + 1
    budget.check(
        f"{file.name}: {counted(n_names, 'name')} of columns",
        TEXT_BYTES * n_names + 2 * len(text),
        part=1,
    )
    names = text.splitlines()
    lines: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InputError(f"{file.name}: line {number}: expected the name of a column, got none")
        if name in lines:
            raise InputError(
                f"{file.name}: line {number}: the name {shown(name)} is in line {lines[name]}, too; "
                "expected a different name for each column"
            )
        lines[name] = number
    if not names:
        raise InputError(f"{file.name}: expected the name of a column in each line, found no line")
    return names
