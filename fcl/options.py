"""The options of training, each declared once.

The fields of :class:`Options` determine the checks of :func:`fcl.train` and of the estimators, the
options and help of ``fcl-train``, the keys of its TOML files, what models and checkpoints store, and what
a resumed job may change. ``fcl/cli/options.py`` adds the options that only the command has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from fcl import checks
from fcl.errors import InputError
from fcl.numerals import read_number, read_whole
from fcl.parallel import SERIAL, Team
from fcl.units import parse_duration, parse_size

if TYPE_CHECKING:
    from fcl.types import Floats


INF = math.inf
#: Characters of a table of limits.
MOST_LIMITS = 1 << 22

#: The groups of options in ``--help``, in order.
GROUPS = ("data", "model", "path", "stopping", "running", "checkpoints", "output")


class Resume(Enum):
    """What ``--resume`` does with an option."""

    FIXED = "the resumed job keeps the value of the checkpoint"
    FREE = "the resumed job may change it; the default is the value of the checkpoint"
    NOT_KEPT = "the checkpoint of a command does not store it"


# -- values ----------------------------------------------------------------------------------------

#: (name of the option, value) -> the validated value; raises InputError
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Kind:
    """The values that an option takes."""

    name: str  #: in the help
    check: Check  #: validates values from Python
    in_file: str  #: what a TOML file may hold, in words
    types: tuple[type, ...]  #: ... and as Python types
    parse: Check | None = None  #: validates values from the command line or TOML; None: ``check``
    words: tuple[str, ...] = ()  #: all values, if there are few; for completion by the shell

    def read(self, value: Any) -> Any:
        """Validate a value from the command line or TOML; its InputError does not name the option."""
        try:
            return (self.parse or self.check)("value", value)
        except InputError as error:
            text = str(error).removeprefix("value: ").replace("value must be", "expected", 1)
            raise InputError(text) from None


def _parsed(read: Callable[[str], float | None], check: Check) -> Check:
    """Extend a check to the text of a number; other text goes to the check, which rejects it."""

    def parse(name: str, value: Any) -> Any:
        number = read(value) if isinstance(value, str) else None
        return check(name, value if number is None else number)

    return parse


def real(check: Check) -> Kind:
    """Numbers that pass a check."""
    return Kind("number", check, "a number", (int, float), _parsed(read_number, check))


def _whole(check: Check) -> Kind:
    return Kind("integer", check, "a whole number", (int,), _parsed(read_whole, check))


def one_of(*words: str) -> Kind:
    """The kind of an option that takes one of these words."""
    name = f"[{'|'.join(words)}]"
    return Kind(
        name,
        lambda name, value: checks.choice(name, value, words),
        "a string",
        (str,),
        words=words,
    )


def _block_rows(name: str, value: Any) -> int:
    if not checks.is_whole(value) or not 64 <= value <= 65536 or value % 64:
        raise InputError(
            f"{name} must be a multiple of 64 from 64 to 65536, got {checks.shown(value)}"
        )
    return int(value)


def _l1_ratio(name: str, value: Any) -> float:
    try:
        return checks.up_to_one(name, value)
    except InputError as error:
        if value != 0:
            raise
        raise InputError(
            f"{error}: without |w| all features have weights; take a small number such as 0.01, or train "
            "a ridge model with fcl stagewise"
        ) from error


def _loss(name: str, value: Any) -> str:
    from fcl.objective import find_loss  # late: it imports NumPy

    return find_loss(value).text


def _weights_of_labels(name: str, value: Any) -> str | dict[str, float]:
    """Parse ``balanced``, or weights by label: ``LABEL=W,LABEL=W``, or a table in TOML."""
    if value == "balanced":
        return str(value)
    pairs = value.items() if isinstance(value, Mapping) else map(_pair, str(value).split(","))
    weights: dict[str, float] = {}
    for label, weight in pairs:
        if not label and isinstance(value, str):
            raise InputError(
                f"{name}: expected balanced or LABEL=W,LABEL=W, got {checks.shown(value)}"
            )
        if label in weights:
            raise InputError(f"{name}: two weights for the label {label!r}")
        weights[label] = _parsed(read_number, checks.positive)(name, weight)
    return weights


def _pair(text: str) -> tuple[str, str]:
    label, _, weight = text.rpartition("=")  # a label may contain =, a weight cannot
    return label.strip(), weight.strip()


def limits_of(name: str, value: Any) -> Any:
    """Limits of weights: ``LOW:HIGH`` or a pair for all features, or limits by name or id of a feature.

    In a mapping the key ``*`` stands for all other features.

    Returns
    -------
    tuple
        Low and high of all features, None for infinite, and (name or id, low, high) of others.
    """
    if isinstance(value, str):
        return (*_range(name, value.split(":")), ())
    if isinstance(value, Mapping):
        rows = {key: _range_of(f"{name} of {checks.shown(key)}", v) for key, v in value.items()}
        low, high = rows.pop("*", (None, None))
        return (*_with_room(name, low, high), tuple((_key(name, k), *v) for k, v in rows.items()))
    stored = isinstance(value, tuple | list) and len(value) == 3
    if stored and isinstance(value[2], tuple | list):  # as models and checkpoints have them
        low, high, named = value
        own = tuple((_key(name, k), *_range(name, ends)) for k, *ends in named)
        return (*_with_room(name, *_range(name, (low, high))), own)
    return (*_with_room(name, *_range_of(name, value)), ())


def _key(name: str, key: Any) -> str | int:
    if isinstance(key, str):
        return key
    return checks.whole(f"{name}: id of a feature", key, 0)


def _range_of(name: str, value: Any) -> tuple[float | None, float | None]:
    return _range(name, value.split(":") if isinstance(value, str) else value)


def _range(name: str, ends: Any) -> tuple[float | None, float | None]:
    """A pair of limits; None for infinite ones."""
    wanted = f"{name}: expected LOW:HIGH or a pair, with LOW <= 0 <= HIGH, such as 0: or (-1, 2)"
    try:
        low, high = (_end(end, infinite) for end, infinite in zip(ends, (-INF, INF), strict=True))
    except (TypeError, ValueError):
        raise InputError(f"{wanted}; got {checks.shown(ends)}") from None
    if not low <= 0.0 <= high:
        raise InputError(f"{wanted}, so that a weight may be 0; got {low:g} and {high:g}")
    return None if low == -INF else low, None if high == INF else high


def _end(end: Any, infinite: float) -> float:
    if end is None or (isinstance(end, str) and not end.strip()):
        return infinite
    number = read_number(end) if isinstance(end, str) else float(end)
    if number is None or math.isnan(number) or isinstance(end, bool):
        raise ValueError
    return number + 0.0  # not -0.0


def _with_room(
    name: str, low: float | None, high: float | None
) -> tuple[float | None, float | None]:
    if low == high == 0.0:
        raise InputError(f"{name}: expected room for the weights, got 0 and 0 for all features")
    return low, high


def _limits_in(name: str, value: Any) -> Any:
    """The text of limits, or ``LOW:HIGH`` by feature from the path of a table; checked.

    The lines of a table are name, low and high between tabs.
    """
    if not isinstance(value, str) or not value.strip("0123456789.eE+-:inf "):
        limits_of(name, value)
        return value
    try:
        with open(value, encoding="utf-8") as file:
            lines = file.read(MOST_LIMITS + 1)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(
            f"{name}: expected LOW:HIGH, such as 0:, or a table of name, low and high between tabs; got "
            f"{checks.shown(value)} ({error})"
        ) from None
    if len(lines) > MOST_LIMITS:
        raise InputError(f"{name}: {value}: expected a table of at most {MOST_LIMITS >> 20} MiB")
    rows: dict[str, str] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != 3 or cells[0] in rows:
            raise InputError(
                f"{name}: {value}: line {number}: expected name, low and high between tabs, each name "
                f"once, got {checks.shown(line)}"
            )
        rows[cells[0]] = ":".join(cells[1:])
    limits_of(name, rows)
    return rows


TEXT = Kind("text", lambda name, value: value, "a string", (str,))
#: A file, a folder, or part of one; the checkpoint of a command stores its absolute path.
PATH = replace(TEXT, name="path")
FLAG = Kind("flag", checks.flag, "true or false", (bool,))
POSITIVE = real(checks.positive)
FROM_0 = _whole(lambda name, value: checks.whole(name, value, 0))
FROM_1 = _whole(lambda name, value: checks.whole(name, value, 1))
LOSS = Kind("loss", _loss, "a string", (str,))
SIZE = Kind("size", lambda n, v: parse_size(v, n), 'a size such as "4GiB"', (str, int))
DURATION = Kind(
    name="duration",
    check=checks.positive,
    in_file='a duration such as "2h", or seconds',
    types=(str, int, float),
    parse=lambda name, value: parse_duration(value, name),
)
ROW_VIEW = Kind(
    name="all|auto|N",
    check=checks.view_of_rows,
    in_file='"all", "auto" or a number of rows',
    types=(str, int),
    parse=_parsed(read_whole, checks.view_of_rows),
)
LIMITS = Kind(
    name="LOW:HIGH|FILE",
    check=limits_of,
    in_file='"LOW:HIGH", or a table of pairs by feature',
    types=(str, dict),
    parse=_limits_in,
)
CLASS_WEIGHT = Kind(
    name="balanced|LABEL=W,...",
    check=lambda name, value: value,  # validated by `check_class_weight`, once the labels are known
    in_file='"balanced" or a table of weights by label',
    types=(str, dict),
    parse=_weights_of_labels,
)


# -- options ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    kind: Kind
    group: str
    help: str = ""
    default: Any = None  #: None also means that the option may be omitted
    name: str = ""  #: argument of `fcl.train`; the command line and TOML use dashes
    metavar: str | None = None  #: in the help; None: the name of the kind
    resume: Resume = Resume.FIXED
    planned: bool = True  #: part of the plan, and stored in models and checkpoints
    command_default: Any = None  #: default of ``fcl-train``; None: ``default``
    hidden: bool = False  #: for tests and benchmarks: not in the help, not in TOML
    #: whether the TOML file of --config, which may come from a stranger, may set the option: what is
    #: learnt and how long it takes, but not where to connect, what to write or which code to load. URLs
    #: are refused in any case. None: not decided, which a test rejects for commands with --config.
    from_file: bool | None = None

    @property
    def spelled(self) -> str:
        """The option as it is written on the command line."""
        return f"--{self.name.replace('_', '-')}"

    def check(self, value: Any, name: str | None = None) -> Any:
        """Validate a value from Python; raises InputError that names the option."""
        if value is None and self.default is None:
            return None
        return self.kind.check(name or self.name, value)


def _option(kind: Kind, help: str, default: Any = None, **more: Any) -> Any:
    option = Option(kind, help=help, default=default, **more)
    return field(default=default, metadata={"option": option})


_model = partial(_option, group="model", from_file=True)
_stopping = partial(_option, group="stopping", resume=Resume.FREE, from_file=True)
_running = partial(_option, group="running", resume=Resume.FREE)
_saving = partial(_option, group="checkpoints", planned=False)
_unseen = partial(_running, resume=Resume.NOT_KEPT, planned=False, hidden=True, from_file=False)


@dataclass(frozen=True)
class Options:
    """The options of a training run; times in seconds, sizes in bytes.

    :meth:`checked` builds them from the user's arguments. A job then fills in the effective values: both
    C and alpha, the weights of both labels, a block size of at most the number of rows, and the number of
    writers that the budget allows.
    """

    valid_fraction: float | None = _option(
        real(checks.share),
        "Or validate on this share of the rows of DATA.",
        group="data",
        from_file=True,
    )

    features: str = _model(
        TEXT,
        "Family of features: kmers:d=8,origin=70, columns, products:degree=2, or your own "
        "module:Class:option=1; join several with +: 'kmers:d=6 + bag:d=8 * 2'.",
        metavar="SPEC",
    )
    C: float = _model(POSITIVE, "Weight of the losses; or give --alpha.")
    alpha: float = _model(POSITIVE, "Weight of the penalty: C = 1 / (alpha sum s_i).")
    l1_ratio: float = _model(
        real(_l1_ratio),
        "Share rho of |w| in the penalty; the rest goes to w^2 / 2 (elastic net).",
        1.0,
    )
    #: in a job: low and high of all features, and (id, low, high) of others; None is infinite
    limits: tuple[Any, ...] | None = _model(
        LIMITS,
        "Limits of the weights, LOW <= 0 <= HIGH: for all features (0: for weights of at least 0), or a "
        "table of name, LOW and HIGH between tabs, with * for the others.",
    )
    standardize: bool = _model(
        FLAG,
        "Penalise each weight in units of its feature's standard deviation, as glmnet does.",
        False,
    )
    loss: str = _model(
        LOSS,
        "For labels: logistic, squared_hinge; softmax for more than two. For numbers: squared, "
        "huber:delta=1 (outliers beyond delta count linearly), poisson (counts, log link), "
        "pinball:tau=0.5,width=0.1 (the tau-quantile; smoothed over width, in the target's units).",
        "logistic",
    )
    group: bool = _model(
        FLAG,
        "With several classes or targets: a feature has a weight in all of them or in none (penalty "
        "f_j |W_j|_2).",
        False,
    )
    #: in a job: balanced, or (label, weight) for both labels
    class_weight: str | tuple[tuple[Any, float], ...] | None = _model(
        CLASS_WEIGHT,
        "Factors on the row weights of each class; balanced: equal total weights.",
    )
    intercept: bool = _model(FLAG, "Fit an unpenalised constant (default).", True)
    offset: bool = False  #: whether the data have offsets; users name or pass an array
    #: names of the unpenalised columns; users name or pass arrays
    covariates: tuple[str, ...] | None = None

    tol: float = _stopping(POSITIVE, "Stop at this relative gap.", 1e-3)
    max_time: float | None = _stopping(
        DURATION, "Stop after this time, from the first pass on and without compilation."
    )
    max_passes: int | None = _stopping(
        FROM_1, "Stop after this many passes, not counting the first, of the null model."
    )

    memory: int = _running(SIZE, "Memory budget of all processes together.", "4GiB", from_file=True)
    driver: str = _running(
        one_of("auto", "inline", "processes", "dask"),
        "One process with threads (inline), with the same bits each time; many (processes); a cluster "
        "(dask). auto: processes for feature classes in Python from a million rows on, else inline.",
        "inline",
        command_default="auto",
        from_file=True,
    )
    writers: int = _running(  #: 0: inline
        FROM_1, "Number of writer processes; default: the cores.", from_file=True
    )
    threads: int = _running(
        FROM_1,
        "Number of threads of one process (inline); default: the cores. The model is the same, bit for "
        "bit, with any number.",
        resume=Resume.NOT_KEPT,
        planned=False,
        from_file=True,
    )
    dask: str | None = _running(
        TEXT,
        "Make the passes on a Dask cluster: tcp://HOST:8786, a scheduler file, or local:N workers.",
        metavar="ADDRESS",
        planned=False,
        resume=Resume.NOT_KEPT,
        from_file=False,
    )
    dask_tls: str | None = _running(
        TEXT,
        "Encrypt the connection to the cluster, with these files.",
        metavar="CA,CERT,KEY",
        planned=False,
        resume=Resume.NOT_KEPT,
        from_file=False,
    )
    row_view: str | int = _running(
        ROW_VIEW,
        "Rows that the trainer uses: all, about N, or a sample where that pays (auto). Affects speed and "
        "memory only.",
        "auto",
        from_file=True,
    )
    seed: int = _running(FROM_0, "Seeds all sampling.", 0, resume=Resume.FIXED, from_file=True)
    block_rows: int = _running(
        _whole(_block_rows),
        "Rows per block, a multiple of 64.",
        65_536,
        resume=Resume.FIXED,
        from_file=True,
    )
    scratch: str | None = _running(
        PATH,
        "Folder for prepared rows that do not fit in memory.",
        metavar="DIR",
        planned=False,
        from_file=False,
    )
    share_cores: bool = _unseen(FLAG, "Let writers and trainer share cores.", True)
    shared_files: str | None = _unseen(
        PATH, "Folder of files to use as shared memory.", metavar="DIR"
    )

    checkpoint: str | None = _saving(
        PATH,
        "Folder of checkpoints; default: the name of the model + .checkpoint.",
        metavar="DIR",
        resume=Resume.NOT_KEPT,
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
    def checked(cls, **given: Any) -> Options:
        """Validate options given from Python and fill in defaults; InputError names a wrong one."""
        options = cls(**given)
        found = {option.name: option.check(getattr(options, option.name)) for option in TRAINING}
        return replace(options, **found)

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
            GroupPenalty,
            Limits,
            Penalty,
            find_loss,
            make_objective,
        )

        z, intercept = None, self.intercept
        if covariates is not None:  # the intercept is the coefficient of their first column
            z, intercept = Covariates(covariates, intercept, self.covariates or ()), False
        loss = find_loss(self.loss)
        limits = Limits.from_stored(self.limits)
        penalty = (GroupPenalty if self.group else Penalty)(self.l1_ratio, limits)
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


#: The options of `fcl.train`.
TRAINING = tuple(
    replace(declared.metadata["option"], name=declared.name)
    for declared in fields(Options)
    if declared.metadata
)
#: Options that models and checkpoints store, with their defaults.
JOB_DEFAULTS = {
    declared.name: declared.default
    for declared in fields(Options)
    if not declared.metadata or declared.metadata["option"].planned
}
#: Options that a resumed job may not change: they move the optimum, or decide which rows are used.
FIXED = (
    "offset",
    "covariates",
    *(option.name for option in TRAINING if option.resume is Resume.FIXED),
)
