"""Effects of variants: the weights of genotypes as geneticists read them.

A model over PLINK data counts the allele a1, so that its weights are effects of that allele.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fcl.data.columns import DIPLOID, ColumnRecord, Variant


class WeightRow(Protocol):
    """A weight of a feature; see :class:`fcl.model.frames.FeatureRow`."""

    @property
    def id(self) -> int:
        """Of the feature."""

    @property
    def feature(self) -> str:
        """Its description."""

    @property
    def weight(self) -> float:
        """Its weight."""


class Effect(NamedTuple):
    """What a feature that is one variant does to the margin; empty cells if it is no variant."""

    chromosome: str = ""
    position: int | None = None
    effect_allele: str = ""
    other_allele: str = ""
    effect_per_allele: float = math.nan

    @classmethod
    def of(cls, variant: Variant | None, weight: float, scale: float) -> Effect:
        """The effect of a weight of genotypes, of which ``scale`` stands for two copies of a1."""
        if variant is None:
            return cls()
        position = variant.position or None
        effect = weight * scale / DIPLOID
        return cls(variant.chromosome, position, variant.a1, variant.a2, effect)

    def cells(self) -> list[str]:
        """The fields as cells of a table."""
        position = "" if self.position is None else str(self.position)
        effect = "" if math.isnan(self.effect_per_allele) else f"{self.effect_per_allele:.17g}"
        return [self.chromosome, position, self.effect_allele, self.other_allele, effect]


def variants_of(rows: Sequence[WeightRow], record: ColumnRecord) -> list[Variant | None]:
    """The variant that each feature is; None for other features, such as products of two."""
    names = dict(record.named)
    ids = sorted({row.id for row in rows if names.get(row.id) == row.feature})
    variants = record.variants_at(ids) or {}
    return [variants.get(row.id) if names.get(row.id) == row.feature else None for row in rows]


def effects_of(rows: Sequence[WeightRow], record: ColumnRecord) -> list[Effect]:
    """The effects of weights; empty if no feature is a variant."""
    variants = variants_of(rows, record)
    if not any(variants):
        return []
    pairs = zip(variants, rows, strict=True)
    return [Effect.of(variant, row.weight, record.scale) for variant, row in pairs]
