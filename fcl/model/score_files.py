"""Files of scores for other programs: scoring files of the PGS Catalog, tables for ``plink --score``.

The format of the PGS Catalog is version 2.0 of pgscatalog.org/downloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fcl.errors import InputError
from fcl.model.effects import effects_of, variants_of

if TYPE_CHECKING:
    from fcl.model.model import Model

#: Formats of :func:`score_lines`.
FORMATS = ("pgs", "plink")
#: Losses whose weights have a name in the PGS Catalog.
_WEIGHT_TYPES = {"logistic": "log(OR)", "squared": "beta"}


def score_lines(model: Model, kind: str) -> Iterator[str]:
    """The lines of a file of scores, with the largest effects first.

    model : of one output, over PLINK data.
    kind : {"pgs", "plink"}, a scoring file of the PGS Catalog, or for ``plink --score FILE 1 2 3
        header``.

    Raises InputError: a feature is no variant, or its alleles are not known.
    """
    option = f"--format {kind}"
    model.require_one_output(option, "--tsv without --format writes the weights of each output")
    rows = list(model.iter_features())
    variants = variants_of(rows, model.column_record)
    lacking = next((row for row, own in zip(rows, variants, strict=True) if own is None), None)
    if lacking is not None:
        raise InputError(
            f"{option}: expected a model whose features are variants of PLINK data, got the feature "
            f"{lacking.feature}; write the weights without --format"
        )
    effects = effects_of(rows, model.column_record)
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
