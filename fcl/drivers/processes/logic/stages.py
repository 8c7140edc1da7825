"""The stages of a run, and the stages that may follow each."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BETWEEN_PASSES", "STAGES", "Stage"]


class Stage(StrEnum):
    """A stage of the passes; OFF, VALIDATE and SCORE belong to the validation beside them."""

    PREPARE = "prepare"
    MEASURE = "measure"  #: standard deviations of the features
    # a pass
    MARGINS = "margins"
    SEARCH = "search"
    BLEND = "blend"  #: margins of a point on the segment from anchor to proposal
    ACCEPT = "accept"
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
    # beside the passes
    OFF = "off"
    VALIDATE = "validate"
    SCORE = "score"


_AFTER_A_SEARCH = (Stage.RESIDUALS, Stage.BLEND, Stage.WAIT, Stage.DECIDE)

#: Stage -> the stages that may follow it; FINISHED may follow any stage.
STAGES: dict[Stage, tuple[Stage, ...]] = {
    Stage.PREPARE: (Stage.MEASURE, Stage.RESIDUALS, Stage.MARGINS),
    Stage.MEASURE: (Stage.RESIDUALS, Stage.MARGINS),
    # ACCEPT without SEARCH: the first pass of a resumed run
    Stage.MARGINS: (Stage.SEARCH, Stage.ACCEPT),
    Stage.SEARCH: _AFTER_A_SEARCH,
    Stage.BLEND: (Stage.ACCEPT,),
    Stage.ACCEPT: _AFTER_A_SEARCH,  # BLEND: back to the anchor of a checkpoint
    Stage.RESIDUALS: (Stage.PRICE,),
    Stage.PRICE: (Stage.CERTIFY,),
    Stage.CERTIFY: (Stage.DECIDE,),
    # MARGINS: of an initial point
    Stage.DECIDE: (Stage.DROP, Stage.DRAW, Stage.COLUMNS, Stage.SCORING, Stage.MARGINS),
    Stage.DROP: (Stage.DRAW,),
    Stage.DRAW: (Stage.SAMPLE,),
    Stage.SAMPLE: (Stage.COLUMNS,),
    Stage.COLUMNS: (Stage.WAIT,),
    Stage.WAIT: (Stage.MARGINS, Stage.DECIDE),
    Stage.SCORING: (),
    Stage.FINISHED: (),
}

#: Stages in which the shared vectors belong to the anchor that was sent, which a new trainer can take.
BETWEEN_PASSES = (Stage.COLUMNS, Stage.WAIT)
