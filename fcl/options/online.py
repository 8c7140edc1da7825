"""The options of online learners."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from fcl import checks
from fcl.errors import InputError
from fcl.options.choices import PENALTY, Choice, Value, own_options
from fcl.options.kinds import (
    AT_LEAST_0,
    FLAG,
    FROM_0,
    FROM_0_TO_1,
    FROM_1,
    INF,
    POSITIVE,
    RATE,
    SIZE_OR_INF,
    TABLE_OF_WEIGHTS,
    UP_TO_1,
    Kind,
    one_of,
)
from fcl.options.option import (
    ONLINE,
    Resume,
    declare,
    document_options,
    options_of,
    same_as,
    validate_options,
)
from fcl.options.training import TrainOptions

METHODS = ("ftrl", "truncated-gradient", "ball", "ogd")
LOSSES = ("logistic", "squared", "squared_hinge", "hinge")


def _loss(name: str, value: Any) -> str:
    named = value.replace("-", "_") if isinstance(value, str) else value
    return checks.choice("loss of an online learner", named, LOSSES)


_LOSS = Kind(f"[{'|'.join(LOSSES)}]", _loss, "a string", (str,), words=LOSSES)
_here = partial(declare, commands=(ONLINE,), resume=Resume.FIXED, from_file=True)
_learning = partial(_here, group="learning")
_truncated = partial(_learning, methods=("truncated-gradient",))
_stepping = partial(_learning, methods=("truncated-gradient", "ball"))
_ogd = partial(_learning, methods=("ogd",))
_ball = partial(_learning, methods=("ball",))


@document_options
@dataclass(frozen=True)
class OnlineOptions:
    """How an online learner learns, apart from its method.

    The problem is (1/S) sum_i s_i loss(y_i, m_i) + alpha sum_j f_j (rho |w_j| + (1 - rho) w_j^2 / 2),
    with S the sum of the sample weights: fcl's problem at C = 1 / (alpha S), divided by C S.
    """

    #: coefficient of the penalty; of truncated gradient the gravity
    alpha: float
    loss: str = _here(_LOSS, "Loss.", "logistic", group="model")
    rate: float = 0.1  #: of the first row
    power: float = _stepping(
        FROM_0_TO_1, "Truncated gradient, ball: the rate of row t is rate / t^power.", 0.5
    )
    decay: float = _learning(
        UP_TO_1,
        "Factor of the rate after each pass.",
        1.0,
        methods=("truncated-gradient", "ball", "ogd"),
    )
    step: str = _stepping(
        one_of("implicit", "explicit", "adagrad"),
        "Truncated gradient, ball: implicit steps cannot overshoot; truncated gradient: adagrad has a "
        "rate for each feature.",
        "implicit",
    )
    period: int = _truncated(FROM_1, "Truncated gradient: rows between truncations.", 100)
    theta: float = _truncated(
        SIZE_OR_INF, "Truncated gradient: truncate only weights up to this size.", INF
    )
    truncation: str = _truncated(
        one_of("soft", "round", "subgradient"),
        "Truncated gradient: shrink small weights, set them to 0, or subtract a sub-gradient of the "
        "penalty from all weights; the model then has 0 in place of weights up to theta.",
        "soft",
    )
    average: bool = _truncated(
        FLAG, "Truncated gradient: the model is the mean of the weights over all rows.", False
    )
    l1_ratio: float = same_as(TrainOptions, "l1_ratio")
    intercept: bool = same_as(TrainOptions, "intercept")
    weights: str = _learning(
        TABLE_OF_WEIGHTS,
        "Numbers in the table of weights; not of ball. qN.M: 1 + N + M bits, 4 to 32, rounded at "
        "random, such as q2.13: with ogd 24 bits for a weight and its count. q: 16 bits, with an N that "
        "suits the features.",
        "float64",
        group="running",
        key="table",
    )
    gamma: float | None = _ogd(
        POSITIVE,
        "ogd: round a weight of a table qN.M to steps of gamma times its rate, but not to finer steps "
        "than the table has.",
    )
    max_weight: float | None = _ogd(POSITIVE, "ogd: largest size of a weight.", metavar="R")
    rates: str = _ogd(
        one_of("feature", "global"),
        "ogd: a rate for each feature, or one for all, which takes no counts and no penalty.",
        "feature",
    )
    #: truncated gradient: room for so many weights that are not 0; a job sets it where the weights of
    #: all features do not fit in the memory
    most_nonzero: int | None = None
    seed: int = 0  #: of the random rounding of weights
    batch: int = _ball(
        FROM_1, "Ball: rows of a step along their mean gradient; above 1 with step explicit.", 1
    )
    radius: float | None = _ball(
        POSITIVE,
        "Ball: largest L1 norm of the weights. --alpha or --C then sets only the problem whose optimum "
        "the model is compared with.",
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                kind = _SET_BY_JOBS.get(each.name) or LEARNING[each.name].kind
                object.__setattr__(self, each.name, kind.check(each.name, value))

    @property
    def rho(self) -> float:
        """Share of |w| in the penalty."""
        return self.l1_ratio

    @property
    def kernel_loss(self) -> tuple[int, float, float]:
        """Code and parameter of the loss, for the kernels."""
        from fcl.objective import find_loss  # late: it imports NumPy

        code, first, second = find_loss(self.loss).kernel
        return code, first, second  # a plain tuple: learners are compiled for all losses

    def check_method(self, method: str) -> None:
        """Raise InputError for an option that a method does not use, unless it has its default."""
        for name, option in LEARNING.items():
            methods = option.methods or METHODS
            if method not in methods and getattr(self, name) != option.default:
                raise InputError(
                    f"{name}: method {method} has no such option; leave it out, or choose method "
                    + " or ".join(methods)
                )


#: The options of a learner, by name.
LEARNING = options_of(OnlineOptions)
#: Fields that the user gives in another form, or not at all.
_SET_BY_JOBS = {"alpha": AT_LEAST_0, "rate": POSITIVE, "seed": FROM_0, "most_nonzero": FROM_1}


_METHOD_HELP = {
    "ftrl": "follow the regularised leader",
    "truncated-gradient": "gradient descent that truncates small weights",
    "ball": "projections onto the L1 ball",
    "ogd": "gradient descent with a rate for each feature",
}
METHOD = Choice(
    "method",
    {
        method: Value(
            help,
            {"method": method},
            own_options(
                *(
                    name
                    for name, option in LEARNING.items()
                    if method in option.methods and name not in PENALTY.parts()
                )
            ),
        )
        for method, help in _METHOD_HELP.items()
    },
)


@document_options
@dataclass(frozen=True)
class OnlineRunOptions:
    """The problem of a job of online learning, and how the job reads the rows."""

    method: str = _learning(
        METHOD.kind,
        "Follow the regularised leader (ftrl), truncated-gradient:period=100,theta=inf, projections onto "
        "the L1 ball (ball:radius=Z), or gradient descent with a rate for each feature (ogd); fcl list "
        "methods has their options.",
        "ftrl",
        metavar="NAME",
    )
    rate: float | str = _learning(
        RATE, "Rate of the first row; auto: the best in short trials.", "auto"
    )
    passes: int = _learning(
        FROM_1,
        "Passes over the rows (default 1, or those of --resume).",
        1,
        command_default=None,
        resume=Resume.FREE,
    )
    shuffle: bool = _learning(
        FLAG, "Read blocks and rows at random (default), or in their order.", True, negates=True
    )
    alpha: float | None = same_as(TrainOptions, "alpha")
    C: float | None = same_as(TrainOptions, "C")
    class_weight: Any = same_as(TrainOptions, "class_weight")
    hash_bits: int | None = _here(
        FROM_1,
        "Hash the features into 2^B weights: features of equal hashes share a weight, and names are "
        "lost. By default each feature has its own weight.",
        group="model",
        metavar="B",
    )
    seed: int = same_as(TrainOptions, "seed")
    valid_fraction: float | None = same_as(TrainOptions, "valid_fraction")
    block_rows: int = same_as(TrainOptions, "block_rows")
    memory: Any = same_as(TrainOptions, "memory")

    def checked(self) -> OnlineRunOptions:
        """The same with checked values; InputError names a wrong one.

        Blocks may have any number of rows from 64 on, of which a multiple of 64 is used.
        """
        rows = min(checks.whole("block_rows", self.block_rows, 64), 65_536)
        return validate_options(replace(self, block_rows=rows - rows % 64))


#: The options of a job, apart from its learner, by name.
RUNNING = options_of(OnlineRunOptions)
#: The options of :func:`fcl.train_online`, by name, without the features.
ONLINE_OPTIONS = RUNNING | LEARNING
