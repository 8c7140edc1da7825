"""Validation of anchors, alongside the passes."""

from __future__ import annotations

from collections.abc import Callable

from fcl.drivers.processes.logic.protocol import Instruction, Scored, Validate
from fcl.drivers.processes.logic.stages import Stage
from fcl.drivers.processes.logic.state import Lane


class Validation:
    """Validates as many certified anchors as time allows, and always the last one.

    Parameters
    ----------
    n_parts : int
        Parts of the stage; 0 without validation rows.
    passes : Lane
        The lane whose anchors are validated.
    say : callable
        Receives the instructions.
    """

    def __init__(self, n_parts: int, passes: Lane, say: Callable[[Instruction], None]) -> None:
        self.n_parts = n_parts
        self.lane = Lane(Stage.OFF, -1)
        self.wanted = True  #: False while validation takes too much time, by the supervisor
        self.scored = -1  #: the last pass with a score
        self._passes = passes
        self._say = say

    def begin(self) -> None:
        """Validate the anchor just certified, unless the validation of an earlier one has started.

        A validation that has started continues, and the new anchor is skipped: if each new anchor ended
        the validation of the one before, a slow validation would never give a score. Only the last
        anchor must be validated.
        """
        lane, number = self.lane, self._passes.pass_number
        is_last = self._passes.stage == Stage.SCORING
        if not self.n_parts or lane.pass_number == number or not (self.wanted or is_last):
            return
        if lane.stage == Stage.VALIDATE and not lane.parts.started:
            lane.parts.drop_waiting()
            lane.stage = Stage.OFF
        if lane.stage == Stage.OFF:
            lane.pass_number = number
            lane.begin(Stage.VALIDATE, self.n_parts)
            self._say(Validate())
        elif is_last:
            lane.parts.drop_waiting()

    def advance(self) -> bool:
        """Move from a complete stage to the next; returns whether that was possible."""
        lane = self.lane
        if lane.stage == Stage.OFF or not lane.parts.complete:
            return False
        if self._passes.stage == Stage.SCORING and lane.pass_number != self._passes.pass_number:
            lane.begin(Stage.OFF)
            self.begin()
        elif lane.stage == Stage.VALIDATE:
            lane.begin(Stage.SCORE, 1)
        else:
            lane.begin(Stage.OFF)
            self.scored = lane.pass_number
            self._say(Scored(lane.pass_number))
        return True
