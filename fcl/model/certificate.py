"""The certificate: what is proved of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from fcl.checks import shown
from fcl.errors import InputError
from fcl.plain import plain

__all__ = ["Certificate", "Scope"]


class Scope(Enum):
    """The features that a bound and a violation cover."""

    FAMILY = "all features of the family"
    SAMPLE = "{:,} sampled features priced at this point, not over all"
    SAMPLE_BEFORE = "{:,} sampled features priced at the point before, not over all"
    NOTHING = "no features: the point is newer than the last pricing"

    def text(self, n_priced: int) -> str:
        """The scope in words.  n_priced : how many features were priced."""
        return self.value.format(n_priced)

    @classmethod
    def from_text(cls, text: str, n_priced: int) -> Scope:
        """The inverse of :meth:`text`; InputError for any other text."""
        for scope in cls:
            if scope.text(n_priced) == text:
                return scope
        raise InputError(
            f"certificate: expected a scope such as {cls.FAMILY.value!r}, for {n_priced:,} priced "
            f"features, got {shown(text)}"
        )


@dataclass(frozen=True)
class Certificate:
    """Objective, lower bound and optimality of a point, over all features that were priced.

    Of a sampled family these are not all features, and the certificate is of the problem with
    these alone; ``scope`` says so.

    objective      P(w, b) = sum_j f_j (rho |w_j| + (1 - rho) w_j^2 / 2) + C sum_i s_i loss(y_i, m_i)
                   of the model; rho is l1_ratio, f_j the penalty factors (1 but for some families).
    bound          a dual value: no (w, b) has an objective below it; -inf if none is known.
    gap            max(0, objective - bound) / objective, 0 if the objective is 0.
    max_violation  largest |C g_j + (1 - rho) f_j w_j| / (rho f_j) over the priced features: the slope
                   of all that is smooth, over the weight of |w_j|. At most 1 at the optimum, and 1 for
                   each weight that is not 0; without squares and factors it is |C g_j|.
    n_priced       number of features that bound and violation cover.
    scope          which features those are.
    passes         streamed passes made until then.
    """

    objective: float
    bound: float
    gap: float
    max_violation: float
    n_priced: int
    scope: Scope = Scope.FAMILY
    passes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON; a number that is not finite is None."""
        fields = {**asdict(self), "scope": self.scope_text}
        return {name: plain(value) for name, value in fields.items()}

    @property
    def scope_text(self) -> str:
        """The scope in words."""
        return self.scope.text(self.n_priced)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """The inverse of :meth:`to_dict`: None reads as "nothing is known".

        Raises KeyError, TypeError or ValueError (InputError is one) for anything else.
        """

        def number(name: str, unknown: float) -> float:
            return unknown if values[name] is None else float(values[name])

        return cls(
            objective=number("objective", math.inf),
            bound=number("bound", -math.inf),
            gap=number("gap", math.inf),
            max_violation=number("max_violation", math.inf),
            n_priced=int(values["n_priced"]),
            scope=Scope.from_text(str(values["scope"]), int(values["n_priced"])),
            passes=int(values["passes"]),
        )
