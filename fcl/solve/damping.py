"""How far the trainer trusts the models of its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: A step cut to less than this share had a model whose curvatures were too small.
CUT = 0.3
#: Share of a majoriser's curvatures to which curvatures are raised after a cut step. Each further cut
#: step multiplies the share by ten, and each whole step divides it by ten, down to none.
LEAST_RAISED = 1e-3


@dataclass(frozen=True)
class Damping:
    """The state of the damping between steps.

    raised : share of a majoriser's curvatures that bounds the model's from below.
    careful : whether coordinate descent on a sample of the rows has proved insufficient.
    most : the largest share.
    careful_from : the share from which a failed search shows that sampled rows are insufficient.
    """

    raised: float = 0.0
    careful: bool = False
    most: float = 1.0
    careful_from: float = 1.0

    @property
    def exhausted(self) -> bool:
        """Whether no better model is left to try."""
        return self.raised >= self.most and self.careful

    def more(self) -> Damping:
        """The next larger share, after a model that promised too much."""
        return replace(self, raised=min(max(10.0 * self.raised, LEAST_RAISED), self.most))

    def after(self, beta: float) -> Damping:
        """The damping after a step of which the search took the share ``beta``."""
        if beta < CUT:
            return self.more()
        if beta == 1.0:
            return replace(self, raised=0.1 * self.raised if self.raised > LEAST_RAISED else 0.0)
        return self

    def after_failure(self) -> Damping:
        """The damping after a search that found no share of the step downhill."""
        careful = self.careful or self.raised >= self.careful_from
        return replace(self.more(), careful=careful)

    def with_care(self, careful: bool = True) -> Damping:
        """The same share; the next models are exact if they can be, or from samples again."""
        return replace(self, careful=careful)
