"""Effects of variants: the weights of genotypes as geneticists read them, and files of scores.

A model over PLINK data counts the allele a1, so that its weights are effects of that allele. Programs
for polygenic scores read them as a scoring file of the PGS Catalog (format 2.0,
pgscatalog.org/downloads) or as a table for ``plink --score``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fcl.data.columns import DIPLOID, Variant
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.model.frames import FeatureRow, OutputFeature
    from fcl.model.model import Model

#: Formats of :func:`score_lines`.
FORMATS = ("pgs", "plink")
#: Losses whose weights have a name in the PGS Catalog.
_WEIGHT_TYPES = {"logistic": "log(OR)", "squared": "beta"}


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


def variants_of(model: Model) -> dict[int, Variant]:
    """The features that are columns of variants, with the variants, by feature id."""
    variants, names = model.variants or {}, model.column_names or {}
    texts = {feature: model.feature_text(i) for i, feature in enumerate(model.ids.tolist())}
    return {
        feature: variants[feature]
        for feature, text in texts.items()
        if feature in variants and names.get(feature) == text
    }


def effects_of(model: Model, rows: Sequence[FeatureRow | OutputFeature]) -> list[Effect]:
    """The effects of weights; empty if no feature is a variant."""
    variants, scale = variants_of(model), model.column_record.scale
    return [Effect.of(variants.get(row.id), row.weight, scale) for row in rows if variants]


def score_lines(model: Model, kind: str) -> Iterator[str]:
    """The lines of a file of scores, with the largest effects first.

    Parameters
    ----------
    model : Model
        Of one output, over PLINK data.
    kind : {"pgs", "plink"}
        A scoring file of the PGS Catalog, or for ``plink --score FILE 1 2 3 header``.

    Raises
    ------
    InputError
        A feature is no variant, or its alleles are not known.
    """
    option = f"--format {kind}"
    model.require_one_output(option, "--tsv without --format writes the weights of each output")
    variants, rows = variants_of(model), list(model.iter_features())
    lacking = next((row for row in rows if row.id not in variants), None)
    if lacking is not None:
        raise InputError(
            f"{option}: expected a model whose features are variants of PLINK data, got the feature "
            f"{lacking.feature}; write the weights without --format"
        )
    scale = model.column_record.scale
    effects = [Effect.of(variants[row.id], row.weight, scale) for row in rows]
    names = [_word(row.feature) for row in rows]
    if kind == "plink":
        yield "ID\tA1\tBETA\n"
        for name, effect in zip(names, effects, strict=True):
            yield f"{name}\t{effect.effect_allele}\t{effect.effect_per_allele:.17g}\n"
        return
    yield "###PGS CATALOG SCORING FILE\n#format_version=2.0\n"
    yield f"#variants_number={len(rows)}\n#genome_build=NR\n"
    yield f"#weight_type={_WEIGHT_TYPES.get(model.loss.partition(':')[0], 'NR')}\n"
    yield "rsID\tchr_name\tchr_position\teffect_allele\tother_allele\teffect_weight\n"
    for name, effect in zip(names, effects, strict=True):
        place = "" if effect.position is None else str(effect.position)
        cells = [name, effect.chromosome, place, effect.effect_allele, effect.other_allele]
        yield "\t".join([*cells, f"{effect.effect_per_allele:.17g}"]) + "\n"


def _word(name: str) -> str:
    """A name as one cell."""
    return "_".join(name.split())
