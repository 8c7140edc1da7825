"""The stages of a run."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """A stage of the passes; OFF, VALIDATE and SCORE belong to the validation alongside."""

    PREPARE = "prepare"
    MEASURE = "measure"  #: standard deviations of the features
    # a pass
    MARGINS = "margins"
    SEARCH = "search"
    BLEND = "blend"  #: margins of a point on the segment from anchor to proposal
    ACCEPT = "accept"  #: of one point: after BLEND, or of a checkpoint
    RESIDUALS = "residuals"
    PRICE = "price"
    CERTIFY = "certify"
    # between passes
    DECIDE = "decide"
    DROP = "drop"  #: the trainer drops all columns, before the sample of rows changes
    DRAW = "draw"
    SAMPLE = "sample"
    COLUMNS = "columns"
    WAIT = "wait"
    SCORING = "scoring"
    FINISHED = "finished"
    # alongside the passes
    OFF = "off"
    VALIDATE = "validate"
    SCORE = "score"


_WITHOUT_TASKS = (
    Stage.BLEND,
    Stage.DECIDE,
    Stage.DROP,
    Stage.WAIT,
    Stage.SCORING,
    Stage.FINISHED,
    Stage.OFF,
)
#: Stages that are also kinds of tasks; the parts of BLEND are dealt as MARGINS tasks.
TASKS = tuple(stage for stage in Stage if stage not in _WITHOUT_TASKS)

#: Stages in which margins and prices still belong to the certified anchor, so that a new trainer can
#: take it.
BETWEEN_PASSES = (Stage.COLUMNS, Stage.WAIT)
