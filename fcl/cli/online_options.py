"""The options of ``fcl online``, each declared once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fcl import checks
from fcl.cli.options import TABLE as TRAIN_TABLE
from fcl.errors import InputError
from fcl.numerals import read_number
from fcl.options import DURATION, FLAG, FROM_0, FROM_1, PATH, SIZE, Kind, Option, one_of, real

GROUPS = ("data", "model", "learning", "running", "output")


def _rate(name: str, value: Any) -> float | str:
    """A finite number above 0, or auto."""
    if value == "auto":
        return "auto"
    number = read_number(value) if isinstance(value, str) else value
    try:
        return checks.positive(name, number)
    except InputError:
        raise InputError(f"{name} must be auto or a finite number above 0, got {value!r}") from None


def _theta(name: str, value: Any) -> float:
    """A number of at least 0, or inf."""
    number = read_number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0.0:
        raise InputError(f"{name} must be a number of at least 0, or inf, got {value!r}")
    return float(number)


def _table(name: str, value: Any) -> str:
    """A dtype, q, or a grid such as q2.13."""
    from fcl.online.options import checked_weights  # late: it imports NumPy

    return checked_weights(value)


_NUMBER: Kind = replace(real(checks.positive), name="number")
_data = partial(Option, group="data", from_file=True)
_model = partial(Option, group="model", from_file=True)
_learning = partial(Option, group="learning", from_file=True)
_running = partial(Option, group="running")
_flag = partial(Option, FLAG, default=False, from_file=True)

_OPTIONS = {
    "data": _data(PATH),
    **{name: TRAIN_TABLE[name] for name in ("x", "y", "weights", "offset")},
    "columns": _data(FROM_1, help="Number of columns of the rows of standard input."),
    "zero_based": _flag(group="data", help="The ids of standard input begin at 0, not at 1."),
    "valid": _data(PATH, help="Data to validate on with each line of progress.", metavar="DATA2"),
    "valid_fraction": TRAIN_TABLE["valid_fraction"],
    "features": TRAIN_TABLE["features"],
    "hash_bits": _model(
        FROM_1,
        help="Hash the features into 2^B weights: features of equal hashes share a weight, and names are "
        "lost. By default each feature has its own weight.",
        metavar="B",
    ),
    "alpha": _model(_NUMBER, help="Weight of the penalty; or give --C."),
    "C": _model(_NUMBER, help="Weight of the losses: C = 1 / (alpha sum s_i)."),
    "l1_ratio": TRAIN_TABLE["l1_ratio"],
    "loss": _model(
        one_of("logistic", "squared", "squared_hinge", "hinge"), help="Loss.", default="logistic"
    ),
    "class_weight": TRAIN_TABLE["class_weight"],
    "no_intercept": _flag(group="model", help="Learn no intercept."),
    "method": _learning(
        one_of("ftrl", "truncated-gradient", "ball", "ogd"),
        help="Follow the regularised leader, truncated gradient, projections onto the L1 ball, or "
        "gradient descent with a rate for each feature.",
        default="ftrl",
    ),
    "passes": _learning(FROM_1, help="Passes over the rows (default 1, or those of --resume)."),
    "rate": _learning(
        Kind("number|auto", _rate, 'a number or "auto"', (int, float, str)),
        help="Rate of the first row; auto: the best in short trials.",
        default="auto",
    ),
    "power": _learning(
        real(lambda name, value: 0.0 if value == 0 else checks.up_to_one(name, value)),
        help="Truncated gradient, ball: the rate of row t is rate / t^power.",
        default=0.5,
    ),
    "decay": _learning(
        real(checks.up_to_one), help="Factor of the rate after each pass.", default=1.0
    ),
    "step": _learning(
        one_of("implicit", "explicit", "adagrad"),
        help="Truncated gradient, ball: implicit steps cannot overshoot; truncated gradient: adagrad has "
        "a rate for each feature.",
        default="implicit",
    ),
    "period": _learning(FROM_1, help="Truncated gradient: rows between truncations.", default=100),
    "theta": _learning(
        Kind("number|inf", _theta, "a number", (int, float, str)),
        help="Truncated gradient: truncate only weights up to this size.",
        default="inf",
    ),
    "truncation": _learning(
        one_of("soft", "round", "subgradient"),
        help="Truncated gradient: shrink small weights, set them to 0, or subtract a sub-gradient of the "
        "penalty from all weights; the model then has 0 in place of weights up to --theta.",
        default="soft",
    ),
    "average": _flag(
        group="learning",
        help="Truncated gradient: the model is the mean of the weights over all rows.",
    ),
    "batch": _learning(
        FROM_1,
        help="Ball: rows of a step along their mean gradient; above 1 with --step explicit.",
        default=1,
    ),
    "radius": _learning(
        _NUMBER,
        help="Ball: largest L1 norm of the weights. --alpha or --C then sets only the problem whose "
        "optimum the model is compared with.",
    ),
    "gamma": _learning(
        _NUMBER,
        help="ogd: round a weight of a table qN.M to steps of gamma times its rate, but not to finer "
        "steps than the table has.",
    ),
    "max_weight": _learning(_NUMBER, help="ogd: largest size of a weight.", metavar="R"),
    "rates": _learning(
        one_of("feature", "global"),
        help="ogd: a rate for each feature, or one for all, which takes no counts and no penalty.",
        default="feature",
    ),
    "no_shuffle": _flag(
        group="learning", help="Read the rows in their order, not blocks and rows at random."
    ),
    "seed": _learning(FROM_0, help="Seeds the order of the rows, and rounding.", default=0),
    "table": _running(
        Kind("float64|float32|q|qN.M", _table, "a string", (str,)),
        help="Numbers in the table of weights; not of ball. qN.M: 1 + N + M bits, 4 to 32, rounded "
        "at random, such as q2.13: with ogd 24 bits for a weight and its count. q: 16 bits, with an N "
        "that suits the features.",
        default="float64",
        from_file=True,
    ),
    "memory": _running(SIZE, help="Memory budget.", default="4GiB", from_file=True),
    "block_rows": TRAIN_TABLE["block_rows"],
    "max_time": _running(
        DURATION,
        help="Stop after this time, from the first pass on and without compilation.",
        from_file=True,
    ),
    "config": TRAIN_TABLE["config"],
    "plan": _flag(group="running", help="Print the memory plan and exit.", from_file=False),
    "no_certify": _flag(group="running", help="Leave out the pass that certifies the model."),
    "resume": _running(
        PATH,
        help="Continue from the state in FILE, the model of an earlier run with the same data, or of a "
        "stream that continues; with the options of FILE, but --passes may be larger.",
        metavar="FILE",
        from_file=False,
    ),
    "initial": _running(
        PATH,
        help="Start from the weights of MODEL, a model of the same features; not of method ball.",
        metavar="MODEL",
        from_file=True,
    ),
    "out": Option(PATH, "output", "Write the model to FILE.", metavar="FILE", from_file=False),
    "bare": _flag(group="output", help="Leave out the learner's state, which --resume needs."),
    "log_json": TRAIN_TABLE["log_json"],
    "overwrite": TRAIN_TABLE["overwrite"],
    "quiet": _flag(group="output", help="Show only warnings and errors."),
}

TABLE = {name: replace(option, name=name) for name, option in _OPTIONS.items()}
#: Options that are arguments of ``fcl.train_online`` of the same names.
ARGUMENTS = (
    "alpha",
    "C",
    "method",
    "loss",
    "rate",
    "passes",
    "power",
    "decay",
    "step",
    "period",
    "theta",
    "truncation",
    "average",
    "gamma",
    "max_weight",
    "rates",
    "batch",
    "radius",
    "l1_ratio",
    "class_weight",
    "hash_bits",
    "valid_fraction",
    "seed",
    "block_rows",
    "memory",
)
#: Options that a resumed run takes from its file.
FIXED = (
    *(name for name in ARGUMENTS if name not in ("passes", "memory")),
    "features",
    "initial",
    "no_intercept",
    "no_shuffle",
    "table",
)
