"""The columns that X must have: the columns of an earlier output, or the columns that a model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fcl.checks import shown
from fcl.convert.reference import Reference
from fcl.convert.tables.contract import TableFile
from fcl.errors import InputError

__all__ = ["ReferenceColumns"]


@dataclass(frozen=True)
class ReferenceColumns:
    """Columns of X by name.

    Attributes
    ----------
    names : sequence of str
    means : mapping of str to float
        Means of columns of numbers over the training rows, where they are known.
    words : str
        Where the names come from, for messages.
    advice : str
        What to do if a mean is not known, for messages.
    is_complete : bool
        True for all columns of the training data; False for only the columns that a model reads.
    """

    names: Sequence[str]
    means: Mapping[str, float] = field(default_factory=dict)
    words: str = "--like"
    advice: str = "convert the training data again"
    is_complete: bool = True

    @classmethod
    def read(cls, path: str) -> ReferenceColumns:
        """Read the columns of a data set; raises InputError if they have no names."""
        found = Reference.open(path)
        names = found.data.column_names
        if names is None:
            raise InputError(
                f"--like: {path} has no names of columns; expected an output of fcl convert"
            )
        means = found.attributes.get("means", {})
        return cls(list(names), {name: float(mean) for name, mean in means.items()})

    @classmethod
    def of_model(cls, names: Sequence[str], like: str | None) -> ReferenceColumns:
        """The columns that a model reads, with the means of ``--like`` if it is given."""
        found = cls(
            names,
            words="the model",
            advice="give --like TRAIN.zarr, the output of fcl convert for the training data",
            is_complete=False,
        )
        if like is None:
            return found
        return replace(found, means=cls.read(like).means, advice=f"{like} does not have it")

    def find(self, table: TableFile) -> list[tuple[str, int, str | None]]:
        """For each name: the column of the table, and the category if it is one-hot.

        Raises InputError if the table lacks a column.
        """
        index = {name: at for at, name in enumerate(table.columns)}
        found: list[tuple[str, int, str | None]] = []
        missing: list[str] = []
        for name in self.names:
            marks = [place for place, letter in enumerate(name) if letter == "="]
            cuts = [place for place in marks if name[:place] in index]
            if name in index:
                found.append((name, index[name], None))
            elif cuts:
                found.append((name, index[name[: cuts[0]]], name[cuts[0] + 1 :]))
            else:
                missing.append(name)
        if missing:
            more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
            raise InputError(
                f"{self.words}: {table.name} has no column for {', '.join(map(shown, missing[:5]))}{more}"
            )
        return found
