"""The options of ``fcl stagewise``, each declared once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fcl import checks
from fcl.cli.options import TABLE as TRAIN_TABLE
from fcl.options import (
    DURATION,
    FLAG,
    FROM_0,
    FROM_1,
    PATH,
    SIZE,
    TEXT,
    Option,
    one_of,
    real,
)

GROUPS = ("data", "model", "stopping", "running", "checkpoints", "output")


_data = partial(Option, group="data", from_file=True)
_model = partial(Option, group="model", from_file=True)
_running = partial(Option, group="running")
_flag = partial(Option, FLAG, default=False, from_file=True)

_OPTIONS = {
    "data": _data(PATH),
    "x": _data(TEXT, help="Array of the rows in DATA.", default="X"),
    "y": _data(
        TEXT,
        help="Array of the target in DATA; of several labels (0 and 1) or numbers, an array of several "
        "columns, or names separated by commas.",
        default="y",
    ),
    "weights": TRAIN_TABLE["weights"],
    "offset": _data(
        TEXT,
        help="Array in DATA and DATA2 that is added to the margins; a column for each class or number.",
        metavar="NAME",
    ),
    "valid": _data(PATH, help="Data to validate on after each block.", metavar="DATA2"),
    "valid_fraction": _data(
        real(checks.share_or_0),
        help="Or validate on this share of the rows of each class; 0: do not validate.",
        default=0.05,
    ),
    "regression": _flag(group="data", help="The target is a number, not a class."),
    "features": _model(
        TEXT,
        help="Family with a number of features that makes its columns: fourier:n=24576, columns, or your "
        "own module:Class:option=1.",
        metavar="SPEC",
    ),
    "class_weight": TRAIN_TABLE["class_weight"],
    "update": _model(
        one_of("ls", "gls", "cls"),
        help="Least squares; generalised (the loss of a link); or calibrated, in rounds (default: as "
        "--loss says, else ls).",
    ),
    "loss": _model(
        TEXT,
        help="Loss: squared; of gls softmax (default), logistic (default for several labels), probit or "
        "power:p=2.",
    ),
    "block": _model(FROM_1, help="Features of a block.", default=1024),
    "order": _model(
        one_of("ids", "random", "gradient"),
        help="Order of the features, of which blocks are parts; gradient: the largest gradients first, "
        "again before each visit.",
        default="ids",
    ),
    "visits": _model(FROM_1, help="Visits of each block (default: 3 for ls, else 1)."),
    "rounds": _model(
        FROM_1, help="Rounds of cls: fits of the residuals, and calibrations (default: 20)."
    ),
    "inner": _model(FROM_1, help="Steps of a visit of gls.", default=5),
    "alpha": _model(
        real(checks.at_least_0), help="Weight of the ridge alpha / 2 |W|^2.", default=1.0
    ),
    "calibration": _model(
        one_of("linear", "quadratic", "cubic"),
        help="Up to which power of the predictions cls fits the classes.",
        default="cubic",
    ),
    "seed": _model(
        FROM_0, help="Seeds the choice of the validation rows, and the random order.", default=0
    ),
    "patience": Option(
        FROM_1,
        "stopping",
        "Stop after this many blocks, or rounds of cls, without a lower validation loss (default: 10, or "
        "3 of cls).",
        from_file=True,
    ),
    "max_time": Option(
        DURATION,
        "stopping",
        "Begin no block after this time, from the first block on and without compilation.",
        from_file=True,
    ),
    "memory": _running(SIZE, help="Memory budget.", default="4GiB", from_file=True),
    "cores": _running(FROM_1, help="Threads; default: all cores.", metavar="N", from_file=True),
    "scratch": _running(
        PATH, help="Folder for rows that do not fit in memory.", metavar="DIR", from_file=False
    ),
    "config": TRAIN_TABLE["config"],
    "plan": _flag(group="running", help="Print the memory plan and exit.", from_file=False),
    "certify": _flag(
        group="running", help="Compute the gap to the joint optimum over all blocks at the end."
    ),
    "checkpoint": Option(
        PATH,
        "checkpoints",
        "Folder of checkpoints; default: the name of the model + .checkpoint.",
        metavar="DIR",
        from_file=False,
    ),
    "checkpoint_every": Option(
        DURATION, "checkpoints", "Time between checkpoints.", "5m", from_file=True
    ),
    "no_checkpoint": _flag(group="checkpoints", help="Save no checkpoints."),
    "resume": Option(
        PATH,
        "checkpoints",
        "Continue from the checkpoint in DIR, with its options; only --visits (cls: --rounds), "
        "--patience, --max-time and the running options may change.",
        metavar="DIR",
        from_file=False,
    ),
    "out": Option(PATH, "output", "Write the model to FILE.", metavar="FILE", from_file=False),
    "log_json": TRAIN_TABLE["log_json"],
    "overwrite": TRAIN_TABLE["overwrite"],
    "quiet": _flag(group="output", help="Show only warnings and errors."),
}

TABLE = {name: replace(option, name=name) for name, option in _OPTIONS.items()}
#: The options that are fields of ``Settings``.
SETTINGS = (
    "update",
    "loss",
    "block",
    "order",
    "visits",
    "rounds",
    "inner",
    "alpha",
    "calibration",
    "class_weight",
    "valid_fraction",
    "patience",
    "seed",
    "memory",
)
