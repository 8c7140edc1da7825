"""The options of stagewise training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from fcl.options.kinds import (
    AT_LEAST_0,
    DURATION,
    FLAG,
    FROM_1,
    PATH,
    SEED_32,
    SHARE_OR_0,
    TEXT,
    one_of,
)
from fcl.options.option import (
    STAGEWISE,
    Option,
    Resume,
    declare,
    document_options,
    options_of,
    same_as,
)
from fcl.options.training import TrainOptions

#: Updates, with the loss that each of them lowers by default.
UPDATES = {"ls": "squared", "gls": "softmax", "cls": "squared"}
#: Calibrations of cls, with the highest power of the predictions to which the targets are fitted.
CALIBRATIONS = {"linear": 1, "quadratic": 2, "cubic": 3}
#: Orders in which features are put into blocks.
ORDERS = ("ids", "random", "gradient")
_model = partial(declare, commands=(STAGEWISE,), group="model", resume=Resume.FIXED, from_file=True)


@document_options
@dataclass(frozen=True)
class StagewiseOptions:
    """The options of a stagewise training."""

    update: str = _model(
        one_of(*UPDATES),
        "Least squares; generalised (the loss of a link); or calibrated, in rounds (default: as --loss "
        "says, else ls).",
        "ls",
        command_default=None,
    )
    loss: str | None = _model(
        TEXT,
        "Loss: squared; of gls softmax (default), logistic (default for several labels), probit or "
        "power:p=2.",
    )
    block: int = _model(FROM_1, "Features of a block.", 1024)
    order: str = _model(
        one_of(*ORDERS),
        "Order in which features are put into blocks; gradient: the largest gradients first, computed "
        "again before each visit.",
        "ids",
    )
    visits: int | None = _model(FROM_1, "Visits of each block (default: 3 for ls, else 1).")
    rounds: int | None = _model(
        FROM_1, "Rounds of cls: fits of the residuals, and calibrations (default: 20)."
    )
    inner: int = _model(FROM_1, "Steps of a visit of gls.", 5)
    alpha: float = _model(AT_LEAST_0, "Weight of the ridge alpha / 2 |W|^2.", 1.0)
    calibration: str = _model(
        one_of(*CALIBRATIONS), "Up to which power of the predictions cls fits the classes.", "cubic"
    )
    class_weight: Any = same_as(TrainOptions, "class_weight")
    valid_fraction: float = _model(
        SHARE_OR_0,
        "Or validate on this share of the rows of each class; 0: do not validate.",
        0.05,
        group="data",
    )
    patience: int | None = _model(
        FROM_1,
        "Stop after this many blocks, or rounds of cls, without a lower validation loss (default: 10, or "
        "3 of cls).",
        group="stopping",
    )
    seed: int = _model(SEED_32, "Seeds the choice of the validation rows, and the random order.", 0)
    memory: Any = same_as(TrainOptions, "memory")


#: The options of a stagewise training, by name.
SETTINGS = options_of(StagewiseOptions)
_run = partial(Option, commands=(STAGEWISE,))
#: Options that are not of the problem.
STAGEWISE_RUN_OPTIONS = (
    _run(
        "regression",
        FLAG,
        "The target is a number, not a class.",
        group="data",
        default=False,
        resume=Resume.FIXED,
        from_file=True,
    ),
    _run(
        "features",
        TEXT,
        "Family with a number of features that makes its columns: fourier:n=24576, columns, or your own "
        "module:Class:option=1.",
        group="model",
        metavar="SPEC",
        resume=Resume.FIXED,
        from_file=True,
    ),
    _run(
        "max_time",
        DURATION,
        "Begin no block after this time, from the first block on and without compilation.",
        group="stopping",
        resume=Resume.FREE,
        from_file=True,
    ),
    _run(
        "cores",
        FROM_1,
        "Threads; default: all cores.",
        group="running",
        metavar="N",
        resume=Resume.FREE,
        from_file=True,
    ),
    _run(
        "certify",
        FLAG,
        "Compute the gap to the joint optimum over all blocks at the end.",
        group="running",
        default=False,
        from_file=True,
    ),
    _run(
        "resume",
        PATH,
        "Continue from the checkpoint in DIR, with its options; only --visits (cls: --rounds), "
        "--patience, --max-time and the running options may change.",
        group="checkpoints",
        metavar="DIR",
        from_file=False,
    ),
)
