"""Families with their factors, not yet bound to rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import positive
from fcl.errors import InputError
from fcl.features.concat.family import ConcatFamily

if TYPE_CHECKING:
    from fcl.data.base import RowReader


class Concat:
    """Several families over the same rows, not yet bound to them.

    Parameters
    ----------
    families : sequence
        Families (``Kmers(8)``, a generator, or their text), or pairs (family, factor) with the factor
        > 0 of its features in the penalty, by default 1. All take the same kind of rows. Another
        ``Concat`` among them stands for its members, their factors multiplied.
    """

    def __init__(self, families: Sequence[Any]) -> None:
        from fcl.features.registry import is_spec, parse_features

        if isinstance(families, str) or not isinstance(families, Sequence) or not families:
            raise InputError(
                "Concat: expected a list of families, or of pairs (family, factor), such as "
                f"[Kmers(8), (Columns(), 2.0)], got {families!r}"
            )
        self.members: tuple[tuple[Any, float], ...] = ()
        for given in families:
            spec, factor = given if isinstance(given, tuple) and len(given) == 2 else (given, 1.0)
            factor = positive("Concat: factor", factor)
            if isinstance(spec, str):
                spec = parse_features(spec)
            if isinstance(spec, Concat):
                self.members += tuple((s, factor * f) for s, f in spec.members)
            elif is_spec(spec):
                self.members += ((spec, factor),)
            else:
                raise InputError(
                    "Concat: expected a family such as Kmers(d=8), a Generator or their text, got "
                    f"{spec!r}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concat) and other.members == self.members

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Concat({list(self.members)!r})"

    def bind(self, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None) -> ConcatFamily:
        """The families over the rows of a data set, as one; keep : those that are trained on."""
        from fcl.features.registry import bind_features

        bound = [bind_features(spec, rows, keep) for spec, _ in self.members]
        return ConcatFamily(tuple(bound), tuple(factor for _, factor in self.members))
