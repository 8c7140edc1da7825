"""The options of :func:`fcl.train`, most of which other commands and learners share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fcl.options.choices import DRIVER
from fcl.options.kinds import (
    BLOCK_ROWS,
    CLASS_WEIGHT,
    DURATION,
    FLAG,
    FROM_0,
    FROM_1,
    L1_RATIO,
    LIMITS,
    LOSS,
    PATH,
    POSITIVE,
    ROW_VIEW,
    SHARE,
    SIZE,
    TEXT,
)
from fcl.options.option import (
    CERTIFY,
    ONLINE,
    PREDICT,
    STAGEWISE,
    TRAIN,
    Resume,
    declare,
    document_options,
    options_of,
    validate_options,
)
from fcl.parallel import SERIAL, Team

if TYPE_CHECKING:
    from fcl.types import Floats

_here = partial(declare, commands=(TRAIN,))
_model = partial(_here, group="model", resume=Resume.FIXED, stored=True, from_file=True)
_problem = partial(_model, commands=(TRAIN, ONLINE, CERTIFY))
_stopping = partial(_here, group="stopping", resume=Resume.FREE, stored=True, from_file=True)
_running = partial(_here, group="running", resume=Resume.FREE)
_rows = partial(
    _running, commands=(TRAIN, ONLINE), resume=Resume.FIXED, stored=True, from_file=True
)
_unseen = partial(_running, resume=Resume.NOT_KEPT, hidden=True, from_file=False)
_saving = partial(_here, group="checkpoints", commands=(TRAIN, STAGEWISE))
#: A model of fcl has the option in its file.
_OF_MODEL = {CERTIFY: {"default": None}}


@document_options
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of a training run; times in seconds, sizes in bytes.

    :meth:`checked` builds them from the user's arguments. A job then fills in the effective values: both
    C and alpha, the weights of both labels, a block size of at most the number of rows, and the number of
    writers that the budget allows.
    """

    valid_fraction: float | None = _rows(
        SHARE, "Or validate on this share of the rows of DATA.", group="data"
    )

    features: Any = _problem(
        TEXT,
        "Family of features: kmers:d=8,origin=70, columns, products:degree=2, or your own "
        "module:Class:option=1; join several with +: 'kmers:d=6 + bag:d=8 * 2'.",
        metavar="SPEC",
        variants={CERTIFY: "Family of features (default: columns)."},
    )
    C: float = _problem(
        POSITIVE,
        "Weight of the losses: C = 1 / (alpha sum s_i); or give --alpha.",
        commands=(TRAIN, ONLINE),
    )
    alpha: float = _problem(POSITIVE, "Weight of the penalty: C = 1 / (alpha sum s_i).")
    l1_ratio: float = _problem(
        L1_RATIO,
        "Share rho of |w| in the penalty; the rest goes to w^2 / 2 (elastic net).",
        1.0,
        variants=_OF_MODEL,
        methods=("ftrl", "truncated-gradient", "ogd"),
    )
    #: in a job: low and high of all features, and (id, low, high) of others; None is infinite
    limits: Any = _problem(
        LIMITS,
        "Limits of the weights, LOW <= 0 <= HIGH: for all features (0: for weights of at least 0), or a "
        "table of name, LOW and HIGH between tabs, with * for the others.",
        commands=(TRAIN, CERTIFY),
    )
    standardize: bool = _model(
        FLAG,
        "Penalise each weight in units of its feature's standard deviation, as glmnet does.",
        False,
        negates=True,
    )
    loss: str = _problem(
        LOSS,
        "For labels: logistic, squared_hinge; softmax for more than two. For numbers: squared, "
        "huber:delta=1 (outliers beyond delta count linearly), poisson (counts, log link), "
        "pinball:tau=0.5,width=0.1 (the tau-quantile; smoothed over width, in the target's units).",
        "logistic",
        commands=(TRAIN, CERTIFY),
        variants={CERTIFY: {"default": None, "help": "Loss (default: logistic)."}},
    )
    group: bool = _model(
        FLAG,
        "With several classes or targets: a feature has a weight in all of them or in none (penalty "
        "f_j |W_j|_2).",
        False,
        negates=True,
    )
    #: in a job: balanced, or (label, weight) for both labels
    class_weight: Any = _problem(
        CLASS_WEIGHT,
        "Factors on the row weights of each class; balanced: equal total weights.",
        commands=(TRAIN, ONLINE, STAGEWISE, CERTIFY),
    )
    intercept: bool = _problem(
        FLAG, "Fit an unpenalised constant (default).", True, commands=(TRAIN, ONLINE), negates=True
    )
    offset: bool = False  #: whether the data have offsets; users name or pass an array
    #: names of the unpenalised columns; users name or pass arrays
    covariates: tuple[str, ...] | None = None

    tol: float = _stopping(POSITIVE, "Stop at this relative gap.", 1e-3)
    max_time: float | None = _stopping(
        DURATION,
        "Stop after this time, from the first pass on and without compilation.",
        commands=(TRAIN, ONLINE),
    )
    max_passes: int | None = _stopping(
        FROM_1, "Stop after this many passes, not counting the first, of the null model."
    )
    patience: int | None = _stopping(
        FROM_1,
        "Stop after this many passes without a lower held-out loss, with its model; of a path, "
        "after this many points without a better score (default there: 3).",
    )

    memory: Any = _running(  #: in a job: bytes
        SIZE,
        "Memory budget of all processes together.",
        "4GiB",
        commands=(TRAIN, ONLINE, STAGEWISE, CERTIFY),
        stored=True,
        from_file=True,
    )
    driver: str = _running(
        DRIVER.kind,
        "One process with threads (inline), with the same bits each time; many (processes:writers=N); a "
        "Dask cluster (dask:address=tcp://HOST:8786, a scheduler file, or local:N workers; for "
        "encryption tls=[CA,CERT,KEY]). auto: processes for feature classes in Python from a million "
        "rows on, else inline.",
        "inline",
        metavar="NAME",
        command_default="auto",
        stored=True,
        from_file=True,
    )
    writers: int = _running(  #: in a job with the driver inline: 0
        FROM_1, "Number of writer processes; default: the cores.", stored=True, from_file=True
    )
    threads: int = _running(
        FROM_1,
        "Number of threads of one process (inline); default: the cores. The model is the same, bit for "
        "bit, with any number.",
        resume=Resume.NOT_KEPT,
        from_file=True,
    )
    dask: str | None = _running(
        TEXT,
        "Make the passes on a Dask cluster: tcp://HOST:8786, a scheduler file, or local:N workers.",
        metavar="ADDRESS",
        commands=(TRAIN, PREDICT),
        resume=Resume.NOT_KEPT,
        from_file=False,
        variants={
            PREDICT: {
                "help": "Score on a Dask cluster: tcp://HOST:8786, a scheduler file, or local:N workers; "
                "DATA only.",
                "group": "scores",
            }
        },
    )
    dask_tls: str | None = _running(
        TEXT,
        "Encrypt the connection to the cluster, with these files.",
        metavar="CA,CERT,KEY",
        commands=(TRAIN, PREDICT),
        resume=Resume.NOT_KEPT,
        from_file=False,
        variants={PREDICT: {"group": "scores"}},
    )
    row_view: str | int = _running(
        ROW_VIEW,
        "Rows that the trainer uses: all, about N, or a sample where that pays (auto). Affects speed and "
        "memory only.",
        "auto",
        stored=True,
        from_file=True,
    )
    seed: int = _rows(FROM_0, "Seeds all sampling.", 0)
    block_rows: int = _rows(BLOCK_ROWS, "Rows per block, a multiple of 64.", 65_536)
    scratch: Any = _running(
        PATH,
        "Folder for prepared rows that do not fit in memory.",
        metavar="DIR",
        commands=(TRAIN, STAGEWISE, CERTIFY),
        from_file=False,
    )
    share_cores: bool = _unseen(FLAG, "Let writers and trainer share cores.", True, negates=True)
    shared_files: Any = _unseen(PATH, "Folder of files to use as shared memory.", metavar="DIR")

    checkpoint: Any = _saving(
        PATH,
        "Folder of checkpoints; default: the name of the model + .checkpoint.",
        metavar="DIR",
        from_file=False,
    )
    checkpoint_every: float = _saving(
        DURATION,
        "Time between checkpoints; another one is saved at the end.",
        300.0,
        command_default="5m",
        resume=Resume.FREE,
        from_file=True,
    )

    @classmethod
    def checked(cls, given: Mapping[str, Any] = {}, /, **more: Any) -> TrainOptions:
        """Validate options given from Python and fill in defaults; InputError names a wrong one."""
        return validate_options(cls(**{**given, **more}))

    def objective(
        self,
        y: Floats,
        s: Floats,
        team: Team = SERIAL,
        offset: Floats | None = None,
        covariates: Floats | None = None,
        n_outputs: int = 1,
    ) -> Any:
        """The Objective of a job over rows with these targets, weights, offsets and covariates.

        n_outputs : number K of classes or targets. With more than one, y and offsets are (K, n), but y of
            softmax is (n,).
        """
        from fcl.objective import (  # late: NumPy
            Covariates,
            Limits,
            find_loss,
            make_objective,
            stored_penalty,
        )

        z, intercept = None, self.intercept
        if covariates is not None:  # the intercept is the coefficient of their first column
            z, intercept = Covariates(covariates, intercept, self.covariates or ()), False
        loss = find_loss(self.loss)
        limits = Limits.from_stored(self.limits)
        penalty = replace(stored_penalty(vars(self)), limits=limits)
        return make_objective(
            loss,
            y,
            s,
            self.C,
            n_outputs,
            intercept=intercept,
            block_rows=self.block_rows,
            team=team,
            penalty=penalty,
            offset=offset,
            covariates=z,
        )

    def of_job(self) -> dict[str, Any]:
        """The options that models and checkpoints store."""
        return {name: getattr(self, name) for name in JOB_DEFAULTS}


#: The options of `fcl.train`, by name.
TRAINING = options_of(TrainOptions)
#: Options that models and checkpoints store, with their defaults.
JOB_DEFAULTS = {
    each.name: each.default
    for each in fields(TrainOptions)
    if each.name not in TRAINING or TRAINING[each.name].stored
}
#: Options that a resumed job may not change: they move the optimum, or decide which rows are used.
FIXED = (
    "offset",
    "covariates",
    *(option.name for option in TRAINING.values() if option.resume is Resume.FIXED),
)
#: Options that decide which problem is solved, with their defaults.
PROBLEM = {name: option.default for name, option in TRAINING.items() if option.group == "model"}
