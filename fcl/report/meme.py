"""The strongest patterns of a model as motifs in MEME's minimal format, for Tomtom and FIMO.

https://meme-suite.org/meme/doc/meme-format.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fcl.errors import InputError
from fcl.features.motif import Motif

if TYPE_CHECKING:
    from fcl.model import Model

_HEAD = """MEME version 4

ALPHABET= ACGT

strands: {strands}

Background letter frequencies
A 0.25 C 0.25 G 0.25 T 0.25
"""


def meme_text(model: Model, top: int) -> str:
    """The strongest patterns as position-weight matrices: fixed letters have probability 1.

    A pattern that has weights at several positions is one motif, at the position of its largest |weight|.
    Its second name has the position and the weight. Raises InputError for a model without patterns of
    letters, or if ``top`` is 0.
    """
    if top < 1:
        raise InputError("motifs in MEME format: expected at least one motif (--top), got 0")
    motifs = dict(_strongest(model, top))
    if not motifs:
        raise InputError(
            "motifs in MEME format: expected a model with patterns of letters (kmers, bag), got "
            f"{model.family.name} with {model.n_active:,} active features"
        )
    both = any(motif.both_strands for motif, _, _ in motifs.values())
    head = _HEAD.format(strands="+ -" if both else "+")
    return head + "".join(_motif_text(*found) for found in motifs.values())


def _strongest(model: Model, top: int) -> Iterator[tuple[str, tuple[Motif, float, int]]]:
    seen: set[str] = set()
    for row in model.iter_features():
        motif = model.family.motif(row.id)
        if motif is not None and motif.pattern not in seen:
            if len(seen) == top:
                return
            seen.add(motif.pattern)
            yield motif.pattern, (motif, row.weight, row.support)


def _motif_text(motif: Motif, weight: float, support: int) -> str:
    place = "anywhere" if motif.position is None else f"at_{motif.position:+d}"
    lines = [
        f"\nMOTIF {motif.pattern} {place}_weight_{weight:+.4g}",
        f"letter-probability matrix: alength= 4 w= {len(motif.pattern)} nsites= {max(1, support)} E= 0",
    ]
    return "\n".join([*lines, *map(_probabilities, motif.pattern)]) + "\n"


def _probabilities(letter: str) -> str:
    if letter == ".":
        return " 0.25 0.25 0.25 0.25"
    return "".join(f" {float(letter == own):.2f}" for own in "ACGT")
