"""The methods of online learning by name."""

from __future__ import annotations

from fcl.checks import choice
from fcl.online.ball import BallLearner
from fcl.online.base import Learner
from fcl.online.ftrl import Ftrl
from fcl.online.nonzero import NonzeroTruncatedGradient
from fcl.online.ogd import Ogd
from fcl.online.truncated import TruncatedGradient
from fcl.options import OnlineOptions
from fcl.types import Floats

#: The first is the default.
METHODS: dict[str, type[Learner]] = {
    kind.name: kind for kind in (Ftrl, TruncatedGradient, BallLearner, Ogd)
}


def kind_of(method: str, options: OnlineOptions) -> type[Learner]:
    """The class of the learners of a method; InputError for an unknown name, or another's weights."""
    kind = METHODS[choice("method", method, tuple(METHODS))].kind_for(options)
    if options.most_nonzero is not None and kind.drops_zeros(options):
        kind = NonzeroTruncatedGradient
    kind.check_weights(options)
    return kind


def make_learner(
    method: str, n_features: int, options: OnlineOptions, factors: Floats | None = None
) -> Learner:
    """A learner by the name of its method; see :class:`fcl.online.base.Learner`."""
    return kind_of(method, options)(n_features, options, factors)
