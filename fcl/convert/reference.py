"""The columns that X must have, from an earlier output of ``fcl convert`` or from a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fcl.data.columns import ColumnRecord
from fcl.data.numeric import float_dtype
from fcl.data.open import open_data
from fcl.errors import InputError
from fcl.model.predictor import Predictor


@dataclass(frozen=True)
class Reference:
    """Columns that are known before the files are read.

    width : columns of the training rows.
    words, name : where the columns come from, for messages: in words, and the path of the output.
    advice : what to do if a fact is not known, for messages.
    command : the command to give instead if alleles are not known, for messages.
    numbers : {"float32", "float64"} or None, dtype of the training rows; None for letters.
    is_complete : True for all columns of the training data; False for only the columns that a model
        reads.
    """

    record: ColumnRecord
    width: int
    words: str
    name: str = ""
    advice: str = "convert the training data again"
    command: str = ""
    numbers: str | None = None
    is_complete: bool = True

    @classmethod
    def read(cls, path: str) -> Reference:
        """The columns of an output of ``fcl convert``; raises InputError for anything else."""
        import zarr

        data = open_data(path, y=None)
        try:
            zarr.open_group(path, mode="r")
        except (OSError, ValueError) as error:
            raise InputError(
                f"--like: expected an output of fcl convert, which ends in .zarr, got {path}"
            ) from error
        width = data.rows.shape[1] if len(data.rows.shape) == 2 else 1
        numbers = str(float_dtype(data.rows.dtype)) if data.rows.dtype.kind in "fiub" else None
        return cls(data.column_record, width, "--like", path, numbers=numbers)

    @classmethod
    def of_model(cls, model: Predictor, like: str | None, command: str = "") -> Reference:
        """The columns that a model reads, with what ``--like`` knows of them if it is given.

        A model that knows no names, or no alleles of PLINK data, needs all columns of ``--like``.
        """
        record, width = model.column_record, model.family.row_width
        if like is None:
            advice = "give --like TRAIN.zarr, the output of fcl convert for the training data"
            numbers = record.numbers or "float64"  # without rounding, if the type is not known
            return cls(record, width, "the model", "", advice, command, numbers, is_complete=False)
        found = cls.read(like)
        more = found.record
        first_id = more.first_id if record.first_id is None else record.first_id
        if record.names is None or (record.variants is None and more.variants_at([0])):
            return replace(found, record=replace(more, first_id=first_id))
        record = replace(
            record,
            first_id=first_id,
            means={**more.means, **record.means},
            categories={**more.categories, **record.categories},
        )
        advice = f"{like} does not have it"
        known = record.numbers or found.numbers
        return cls(record, width, "the model", "", advice, command, known, is_complete=False)
