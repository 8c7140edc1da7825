"""The variants of training data, found in other PLINK files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.plink.trio import Variants
from fcl.convert.reference import Reference
from fcl.errors import InputError
from fcl.units import counted

__all__ = ["Columns", "TrainingVariants", "var_columns"]

_TEXT = np.dtypes.StringDType()
#: How PLINK writes an allele that no sample has.
_NO_ALLELE = "0"


def var_columns(variants: Variants, means: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that an output stores beside the names of its variants, for ``--like``."""
    return {
        "a1": np.array(variants.a1, _TEXT),
        "a2": np.array(variants.a2, _TEXT),
        "mean": means,
    }


@dataclass(frozen=True)
class TrainingVariants:
    """The variants of training data, as an output of ``fcl convert`` or a model knows them.

    Attributes
    ----------
    variants : Variants
        With the alleles that X counts.
    means : float32 (k,)
        Values for missing genotypes.
    words : str
        Where the variants come from, for messages.
    """

    variants: Variants
    means: np.ndarray
    words: str

    @classmethod
    def read(cls, path: str) -> TrainingVariants:
        """Read the variants of an output of ``fcl convert``; raises InputError if it has none."""
        group = Reference.open(path).group
        if any(f"var/{name}" not in group for name in ("_index", "a1", "a2", "mean")):
            raise InputError(
                "--like: expected an output of fcl convert from PLINK files, with the alleles of its "
                f"variants, got {path}; convert the training data again"
            )
        names, first, second = (group[f"var/{name}"][:].tolist() for name in ("_index", "a1", "a2"))
        return cls(Variants(names, first, second), group["var/mean"][:], f"--like {path}")


@dataclass(frozen=True)
class Columns:
    """The columns of X, k of them, as variants of a .bim file.

    Attributes
    ----------
    variants : Variants
        With the alleles that X counts.
    order : int64 (k,)
        Their places in the .bim file.
    swapped : bool (k,)
        Whether the .bim file counts the other allele.
    means : float32 (k,) or None
        Values for missing genotypes; None if the file decides.
    """

    variants: Variants
    order: np.ndarray
    swapped: np.ndarray
    means: np.ndarray | None = None

    @classmethod
    def of(cls, variants: Variants) -> Columns:
        """All variants of the file, in its order."""
        return cls(variants, np.arange(len(variants)), np.zeros(len(variants), np.bool_))

    @classmethod
    def like(
        cls, training: TrainingVariants, variants: Variants, bim_name: str, budget: Budget
    ) -> Columns:
        """The variants of training data, in their order.

        Raises
        ------
        InputError
            The .bim file lacks a variant, or has it with other alleles.
        """
        wanted, means = training.variants, training.means
        budget.check(
            f"the names of {counted(len(wanted), 'variant')} of --like",
            2 * TEXT_BYTES * len(wanted),
            1,
        )
        places = {name: at for at, name in enumerate(variants.names)}
        order = np.array([places.get(name, -1) for name in wanted.names], np.int64)
        if (order < 0).any():
            lacking = np.flatnonzero(order < 0).tolist()
            some = ", ".join(shown(wanted.names[column]) for column in lacking[:3])
            raise InputError(
                f"{training.words}: {bim_name} lacks {len(lacking):,} of the "
                f"{counted(len(wanted), 'variant')} of the training data, "
                f"such as {some}; add them (plink --bmerge), or train on the variants that both have "
                "(plink --extract)"
            )
        found = cls(wanted, order, np.zeros(len(wanted), np.bool_), means)
        for column, at in enumerate(order.tolist()):
            found.swapped[column] = _is_swapped(training, column, variants, at, bim_name)
        return found


def _is_swapped(
    training: TrainingVariants, column: int, variants: Variants, at: int, bim_name: str
) -> bool:
    """Whether the alleles of a variant are in the other order."""
    wanted = training.variants
    train = wanted.a1[column], wanted.a2[column]
    here = variants.a1[at], variants.a2[at]
    for found in (here, here[::-1]):
        pairs = zip(train, found, strict=True)
        if all(one == other or _NO_ALLELE in (one, other) for one, other in pairs):
            return found is not here
    raise InputError(
        f"{training.words}: {bim_name}: the variant {shown(wanted.names[column])} has the alleles "
        f"{shown('/'.join(here))}, in the training data {shown('/'.join(train))}; is it another variant, "
        "or on the other strand (plink --flip)?"
    )
