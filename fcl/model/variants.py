"""Variants matched by place and alleles; exchanged alleles, and means for missing genotypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fcl.checks import shown
from fcl.data.column_map import ColumnMap
from fcl.data.columns import ColumnRecord, Variant
from fcl.errors import InputError
from fcl.units import counted

#: How PLINK writes an allele that no sample has.
_NO_ALLELE = "0"


def orientation(wanted: Variant, given: Variant) -> bool | None:
    """Whether the alleles of a variant are exchanged; None if they are other alleles.

    An allele that is not named (0) fits any; the order in which more alleles are equal is taken. Some
    programs write letters in lower case.
    """
    ours = wanted.a1.upper(), wanted.a2.upper()
    best, exchanged = -1, None
    for order in (False, True):
        theirs = [each.upper() for each in (given.a1, given.a2)]
        theirs = theirs[::-1] if order else theirs
        pairs = list(zip(ours, theirs, strict=True))
        if all(one == other or _NO_ALLELE in (one, other) for one, other in pairs):
            equal = sum(one == other for one, other in pairs)
            if equal > best:
                best, exchanged = equal, order
    return exchanged


def turned_columns(
    pairs: Mapping[int, int],
    ours: Mapping[int, Variant],
    theirs: Mapping[int, Variant],
    wanted: ColumnRecord,
) -> list[int]:
    """The columns whose alleles are exchanged; InputError for other alleles."""
    assert wanted.names is not None
    turned = []
    for column, place in sorted(pairs.items()):
        exchanged = orientation(ours[column], theirs[place])
        if exchanged is None:
            a, b = ours[column], theirs[place]
            raise InputError(
                f"the variant {shown(wanted.names[column])} has the alleles {shown(f'{b.a1}/{b.a2}')}, "
                f"in the training data {shown(f'{a.a1}/{a.a2}')}; is it another variant, or on the "
                "other strand (plink --flip)?"
            )
        if exchanged:
            turned.append(column)
    return turned


def found_by_place(
    absent: Sequence[tuple[int, str]],
    ours: Mapping[int, Variant],
    given: ColumnRecord,
    n_given: int,
    places: Mapping[str, int],
) -> dict[int, int]:
    """Variants found by chromosome, position and alleles; InputError for those that are not there."""
    wanted_places = {ours[column].place for column, _ in absent} - {None}
    candidates: dict[tuple[str, int], list[tuple[int, Variant]]] = {}
    if wanted_places:
        every = given.variants_at(range(n_given)) or {}
        for at, variant in every.items():
            if variant.place in wanted_places and variant.place is not None:
                candidates.setdefault(variant.place, []).append((at, variant))
    pairs: dict[int, int] = {}
    lacking: list[str] = []
    for column, name in absent:
        own = ours[column]
        fits = [
            at
            for at, variant in (candidates.get(own.place, []) if own.place else [])
            if orientation(own, variant) is not None
        ]
        if len(fits) > 1:
            raise InputError(
                f"{len(fits):,} variants could be {shown(name)} of the training data: chromosome "
                f"{own.chromosome}, position {own.position}, alleles {own.a1}/{own.a2}; keep one of them "
                "(plink --exclude)"
            )
        if not fits and not own.place and name in places:
            fits = [places[name]]
        if fits:
            pairs[column] = fits[0]
        else:
            lacking.append(name)
    if lacking:
        some = ", ".join(map(shown, lacking[:3]))
        raise InputError(
            f"lacks {len(lacking):,} of the {counted(len(ours), 'variant')} of the training data, such "
            f"as {some}; add them (plink --bmerge), or train on the variants that both have (plink "
            "--extract)"
        )
    return pairs


def refuse_other_scale(wanted: ColumnRecord, given: ColumnRecord) -> None:
    """Raise InputError if the input counts genotypes in another unit than the model."""
    if wanted.scale != given.scale:
        raise InputError(
            f"the genotypes go up to {given.scale:g}, in the training data to {wanted.scale:g}; convert "
            "the files again"
        )


def with_means(
    columns: ColumnMap,
    pairs: Mapping[int, int],
    ours: Mapping[int, Variant],
    theirs: Mapping[int, Variant],
) -> ColumnMap:
    """The map that puts the means of the training data in place of the input's own."""
    turned = set(columns.turned.tolist())
    filled: list[int] = []
    old: list[np.float32] = []
    new: list[np.float32] = []
    unclear = 0  #: missing genotypes that look like the other rows of their variant
    for column, variant in sorted(ours.items()):
        # X holds means as float32; of earlier versions of fcl some are whole numbers, like genotypes
        mean = np.float32(theirs[pairs[column]].mean)
        wanted = np.float32(variant.mean)
        if column in turned:  # turned afterwards
            wanted = np.float32(columns.scale) - wanted
        missing = theirs[pairs[column]].missing
        if not (np.isfinite(mean) and np.isfinite(wanted)) or mean == wanted or not missing:
            continue
        if mean % 1 == 0:
            unclear += max(0, missing)
            continue
        filled.append(column)
        old.append(mean)
        new.append(wanted)
    note = columns.note
    note += "; missing genotypes take the means of the training data" * bool(filled)
    if unclear:
        what = counted(unclear, "missing genotype")
        note += (
            f"; {what} of variants with one genotype in these rows keep it (--like replaces them)"
        )
    return replace(
        columns,
        filled=np.array(filled, np.int64),
        old=np.array(old, np.float32),
        new=np.array(new, np.float32),
        note=note,
        says_more=bool(unclear),
    )
