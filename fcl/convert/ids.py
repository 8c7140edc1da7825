"""The columns of svmlight files, whose lines hold ids: their number, names, and first id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.files import InputFile, named_twice
from fcl.convert.reference import Reference
from fcl.errors import InputError
from fcl.units import counted


@dataclass(frozen=True)
class IdColumns:
    """What is known about the columns before the files are read.

    width : number of columns; None if the largest id decides.
    words : where the number comes from, for messages.
    names : one for each column.
    first_id : id of the first column; None if the files decide.
    ignores_others : whether entries with ids beyond the last column are left out, instead of refused.
    asks : whether the first id must be stated, unless an id is 0: the rows are for a model that does not
        know the first id of its training rows.
    numbers : {"float32", "float64"} or None, dtype of the training rows; None without any.
    """

    width: int | None = None
    words: str = ""
    names: Sequence[str] | None = None
    first_id: int | None = None
    ignores_others: bool = False
    asks: bool = False
    numbers: str | None = None

    @classmethod
    def of(
        cls,
        columns: int | None,
        names: InputFile | None,
        like: str | Reference | None,
        budget: Budget,
    ) -> IdColumns:
        """The columns that one of the options decides; raises InputError if two of them are given."""
        reference = Reference.read(like) if isinstance(like, str) else like
        model = None if reference is None or reference.is_complete else reference
        given = {"--columns": columns, "--names": names, "--like": None if model else reference}
        found = [option for option, value in given.items() if value is not None]
        if len(found) > 1:
            raise InputError(
                f"{' and '.join(found)} each decide the number of columns; give one of them"
            )
        if reference is not None and reference.is_complete:
            return cls._like(reference)
        first_id = None if model is None else model.record.first_id
        asks = model is not None and first_id is None
        numbers = None if model is None else model.numbers
        if names is not None:
            texts = _read_names(names, budget)
            words = f"the {counted(len(texts), 'name')} of {names.name}"
            return cls(len(texts), words, texts, first_id, asks=asks, numbers=numbers)
        words = f"--columns {columns}"
        return cls(columns, words, None, first_id, asks=asks, numbers=numbers)

    @classmethod
    def _like(cls, found: Reference) -> IdColumns:
        """The columns of an output of fcl convert."""
        record = found.record
        if record.first_id is None:
            raise InputError(
                f"--like: expected an output of fcl convert from svmlight files, got {found.name}"
            )
        names = None if record.names is None else [name for _, name in record.named]
        words = f"--like {found.name}"
        return cls(found.width, words, names, record.first_id, True, numbers=found.numbers)


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
            raise named_twice(file.name, "name", name, lines[name], number)
        lines[name] = number
    if not names:
        raise InputError(f"{file.name}: expected the name of a column in each line, found no line")
    return names
