"""The variants of training data, found in other PLINK files."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.plink.trio import PlinkVariants
from fcl.convert.reference import Reference
from fcl.data.columns import ColumnRecord, KnownVariants
from fcl.errors import InputError
from fcl.model.columns import match
from fcl.units import counted

_TEXT = np.dtypes.StringDType()


def training_variants(like: str | Reference | None, name: str) -> Reference | None:
    """The variants of training data; None for all variants of the files.

    like : path of an output of ``fcl convert``, or the columns of a model.
    name : of the .bed file, for messages.
    """
    if like is None:
        return None
    found = Reference.read(like) if isinstance(like, str) else like
    record = found.record
    if record.names is not None and not len(record.names):  # the model reads no column
        return None
    columns = [column for column, _ in record.named]
    if record.variants_at(columns[:1]) is not None:
        return found
    if found.is_complete:
        raise InputError(
            "--like: expected an output of fcl convert from PLINK files, with the alleles of its "
            f"variants, got {found.name}; convert the training data again"
        )
    raise InputError(
        f"{name}: the model does not know which alleles its columns count, nor their means; give the "
        f"output of fcl convert for the training data: {found.command}"
    )


@dataclass(frozen=True)
class PlinkColumns:
    """The columns of X, k of them, as variants of a .bim file.

    variants : with the alleles that X counts.
    order : int64 (k,), their places in the .bim file.
    swapped : bool (k,), whether the .bim file counts the other allele.
    means : float32 (k,) or None, values for missing genotypes; None if the file decides.
    """

    variants: PlinkVariants
    order: np.ndarray
    swapped: np.ndarray
    means: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, variants: PlinkVariants) -> PlinkColumns:
        """All variants of the file, in its order."""
        order = np.arange(len(variants))
        return cls(variants, order, np.zeros(len(order), np.bool_))

    @classmethod
    def like(
        cls, training: Reference, variants: PlinkVariants, bim_name: str, budget: Budget
    ) -> PlinkColumns:
        """The variants of training data, in their order."""
        record = training.record
        columns = sorted(column for column, _ in record.named)
        budget.check(
            f"the names of {counted(len(columns), 'variant')} of --like",
            4 * TEXT_BYTES * len(columns),
            1,
        )
        wanted = record.variants_at(columns)
        assert wanted is not None and record.names is not None
        # the position of a variant among those that are read
        names = dict(enumerate(record.names[column] for column in columns))
        known = dict(enumerate(wanted[column] for column in columns))
        own = ColumnRecord(names, variants=KnownVariants(known))
        given = ColumnRecord(variants.names, variants=variants)
        try:
            found = match(own, given, len(columns), len(variants))
        except InputError as error:
            raise InputError(f"{training.words}: {bim_name}: {error}") from None
        assert found.source is not None  # the map is by name
        swapped = np.zeros(len(columns), np.bool_)
        swapped[found.turned] = True
        found_variants = PlinkVariants(
            list(names.values()),
            [variant.a1 for variant in known.values()],
            [variant.a2 for variant in known.values()],
            [variant.chromosome for variant in known.values()],
            array("q", (variant.position for variant in known.values())),
        )
        means = np.array([variant.mean for variant in known.values()], np.float32)
        return cls(found_variants, found.source, swapped, means)

    def var(self, means: np.ndarray, missing: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays that an output stores beside the names of its variants: see :class:`Variant`."""
        variants = self.variants
        return {
            "a1": np.array(variants.a1, _TEXT),
            "a2": np.array(variants.a2, _TEXT),
            "mean": means,
            "chromosome": np.array(variants.chromosome, _TEXT),
            "position": np.array(variants.position, np.int64),
            "missing": missing,
        }
