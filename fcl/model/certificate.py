"""The certificate: the proven bounds on the optimality of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from fcl.checks import shown
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.plain import plain
from fcl.units import format_gap


class Scope(Enum):
    """The features that the bound and the violation of a certificate cover."""

    FAMILY = "all features of the family"
    SAMPLE = "{:,} sampled features priced at this point, not over all"
    SAMPLE_BEFORE = "{:,} sampled features priced at the point before, not over all"
    NOTHING = "no features: the point is newer than the last pricing"
    UNKNOWN = "not certified: the data were read by an online learner alone"
    SUPPORT = "the {:,} features of the support alone, not over the family"

    def text(self, n_priced: int) -> str:
        """The scope in words, for this number of priced features."""
        return self.value.format(n_priced)

    @classmethod
    def from_text(cls, text: str, n_priced: int) -> Scope:
        """The scope of a text from :meth:`text`; raises InputError for any other text."""
        for scope in cls:
            if scope.text(n_priced) == text:
                return scope
        raise InputError(
            f"certificate: expected a scope such as {cls.FAMILY.value!r}, for {n_priced:,} priced "
            f"features, got {shown(text)}"
        )


@dataclass(frozen=True)
class Certificate:
    """Objective, lower bound and optimality of a model, over the features that were priced.

    For a sampled family, a pass does not price all features; the certificate then holds for the problem
    restricted to the priced features, as ``scope`` says. The certificate of a refit holds for the
    features of the model that was refitted.

    Attributes
    ----------
    objective : float
        P(w, b) = sum_j f_j (rho |w_j| + (1 - rho) w_j^2 / 2) + C sum_i s_i loss(y_i, m_i), where rho is
        the share of |w_j| in the penalty, and f_j are the penalty factors, 1 except for some families.
    bound : float
        A dual value, below which no (w, b) has an objective; -inf if none is known.
    gap : float
        max(0, objective - bound) / objective, or 0 if the objective is 0.
    max_violation : float
        Largest |C g_j + (1 - rho) f_j w_j| / (rho f_j) over the priced features: the derivative of the
        smooth part divided by the factor of |w_j|. At the optimum it is at most 1, and 1 for each nonzero
        weight. With rho = 1 and f_j = 1 it is |C g_j|.
    n_priced : int
        Number of features that the bound and the violation cover.
    scope : Scope
        Which features these are.
    passes : int
        Streamed passes made so far, including pass 0 of the null model.
    violation_resolved : bool
        Whether float64 margins resolve ``max_violation``. If False, their rounding may change it in
        either direction; the bound and the gap do not depend on it.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> certificate = fcl.train(data, "columns", C=1.0).certificate
    >>> certificate.gap <= 1e-3, certificate.bound <= certificate.objective
    (True, True)
    >>> certificate.scope_text
    'all features of the family'
    """

    objective: float
    bound: float
    gap: float
    max_violation: float
    n_priced: int
    scope: Scope = Scope.FAMILY
    passes: int = 0
    violation_resolved: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; numbers that are not finite become None."""
        fields = {**asdict(self), "scope": self.scope_text}
        return {name: plain(value) for name, value in fields.items()}

    def facts(self) -> list[Fact]:
        """Objective, bound, gap with its scope, and violation."""
        if self.scope is Scope.UNKNOWN:
            return [Fact("certificate", self.scope_text)]
        bound = f"{self.bound:.10g}" if math.isfinite(self.bound) else "unknown"
        if math.isinf(self.objective):
            words = "unknown: the model was rounded, and these are not its training data"
            return [Fact("objective", words), Fact("bound", bound, self.bound)]
        facts = [
            Fact("objective", f"{self.objective:.10g}", self.objective),
            Fact("bound", bound, plain(self.bound)),
            Fact("gap", f"{self.gap_text} relative, over {self.scope_text}", plain(self.gap)),
        ]
        # a slope is in units of the L1 norm, of which a refit has next to nothing
        if self.scope is not Scope.SUPPORT:
            facts.append(Fact("violation", self.violation_text, plain(self.max_violation)))
        return facts

    @property
    def has_gap(self) -> bool:
        """Whether a lower bound of the objective is known."""
        return math.isfinite(self.gap)

    @property
    def gap_text(self) -> str:
        """The relative gap with three digits."""
        return format_gap(self.gap)

    @property
    def scope_text(self) -> str:
        """The scope in words."""
        return self.scope.text(self.n_priced)

    @property
    def violation_text(self) -> str:
        """The largest violation in words."""
        if math.isinf(self.max_violation):
            return "unknown: the family was not priced at this point"
        if not self.violation_resolved:
            return "not resolved: smaller than what rounding of the margins may add or hide"
        return f"{self.max_violation:.6g} largest |slope| (1 at the optimum)"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """The inverse of :meth:`to_dict`; None stands for an unknown number.

        Raises KeyError, TypeError or ValueError (such as InputError) for anything else.
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
            violation_resolved=bool(values.get("violation_resolved", True)),
        )
