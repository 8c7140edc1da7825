"""The stages of a run, and what may follow each."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BETWEEN_PASSES", "STAGES", "Stage"]


class Stage(StrEnum):
    """What the writers are at; OFF, VALIDATE and SCORE belong to the validation beside the passes."""

    PREPARE = "prepare"
    MEASURE = "measure"  #: standard deviations of the features
    # a pass
    MARGINS = "margins"
    SEARCH = "search"
    BLEND = "blend"  #: margins of a point between anchor and proposal
    ACCEPT = "accept"
    RESIDUALS = "residuals"
    PRICE = "price"
    CERTIFY = "certify"
    # between passes
    DECIDE = "decide"
    DROP = "drop"  #: the trainer drops all columns, before the rows under them change
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

#: The stages of a run and what may follow each; FINISHED may follow all.
STAGES: dict[Stage, tuple[Stage, ...]] = {
    Stage.PREPARE: (Stage.MEASURE, Stage.RESIDUALS, Stage.MARGINS),
    Stage.MEASURE: (Stage.RESIDUALS, Stage.MARGINS),
    # accept at once: the first pass of a resumed run
    Stage.MARGINS: (Stage.SEARCH, Stage.ACCEPT),
    Stage.SEARCH: _AFTER_A_SEARCH,
    Stage.BLEND: (Stage.ACCEPT,),
    Stage.ACCEPT: _AFTER_A_SEARCH,  # blend: back to the anchor of a checkpoint
    Stage.RESIDUALS: (Stage.PRICE,),
    Stage.PRICE: (Stage.CERTIFY,),
    Stage.CERTIFY: (Stage.DECIDE,),
    # margins: of a point to begin with
    Stage.DECIDE: (Stage.DROP, Stage.DRAW, Stage.COLUMNS, Stage.SCORING, Stage.MARGINS),
    Stage.DROP: (Stage.DRAW,),
    Stage.DRAW: (Stage.SAMPLE,),
    Stage.SAMPLE: (Stage.COLUMNS,),
    Stage.COLUMNS: (Stage.WAIT,),
    Stage.WAIT: (Stage.MARGINS, Stage.DECIDE),
    Stage.SCORING: (),
    Stage.FINISHED: (),
}

#: Stages in which what the passes write belongs to the anchor that was sent, so that a new trainer can
#: be given it.
BETWEEN_PASSES = (Stage.COLUMNS, Stage.WAIT)
