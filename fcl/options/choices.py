"""Choices that have options of their own: drivers, penalties, and methods of online learners.

A user writes a choice as text, ``processes:writers=3``, in the grammar of :mod:`fcl.kinds`, or gives an
object with the same fields, ``fcl.Processes(writers=3)``. Jobs, models and checkpoints have all options
by name, ``driver`` and ``writers``; so had the functions and commands of earlier versions.
:meth:`Choice.read` and :class:`Arguments` translate, and :func:`new_spellings` names the new spelling of
an old one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple

from fcl import checks
from fcl.checks import refuse_unknown, shown
from fcl.errors import InputError
from fcl.kinds import split_options
from fcl.options.kinds import Kind, one_of
from fcl.options.option import CERTIFY, ONLINE, TRAIN, Option


class Value(NamedTuple):
    """One of the values of a choice."""

    help: str
    sets: Mapping[str, Any]  #: options of a job -> what the value sets them to
    options: Mapping[str, str] = {}  #: its own options -> options of a job
    type: type | None = None  #: of the objects with these fields

    def is_of(self, options: Collection[str]) -> bool:
        """Whether jobs with these options can have the value; an option that they lack is off."""
        return all(name in options or not fixed for name, fixed in self.sets.items())


@dataclass(frozen=True)
class Choice:
    """An option whose values have options of their own."""

    name: str
    values: Mapping[str, Value]
    kind: Kind = field(init=False)  #: of the option: a job has the name alone

    def __post_init__(self) -> None:
        kind = replace(one_of(*self.values), parse=self._check_name)
        object.__setattr__(self, "kind", kind)

    def _check_name(self, name: str, text: Any) -> str:
        if not isinstance(text, str) or text.partition(":")[0] not in self.values:
            checks.choice(name, text, [*self.values])
        return str(text)

    def parts(self) -> set[str]:
        """The options of a job that are parts of this choice."""
        sets = {name for value in self.values.values() for name in value.sets}
        own = {name for value in self.values.values() for name in value.options.values()}
        return (sets | own) - {self.name}

    def read(self, given: Any, table: Mapping[str, Option]) -> tuple[dict[str, Any], set[str]]:
        """The options of a job that a text or an object sets, and which of them it names.

        table : the options that the job has; InputError for others.
        """
        for value in self.values.values():
            if value.type is not None and isinstance(given, value.type):
                named = {
                    value.options[each.name]: getattr(given, each.name)
                    for each in fields(given)  # type: ignore[arg-type]
                    if getattr(given, each.name) != each.default
                }
                break
        else:
            name, _, rest = self._check_name(self.name, given).partition(":")
            value, named = self.values[name], {}
            for part, option, text in split_options(rest):
                found = table.get(value.options.get(option, ""))
                where = f"{self.name} {shown(given)}"
                if found is None or text is None or found.name in named:
                    known = [o for o, name in value.options.items() if name in table]
                    expected = ", ".join(f"{o}=VALUE" for o in known) or "no options"
                    raise InputError(f"{where}: expected {expected}, got {shown(part)}")
                try:
                    named[found.name] = found.kind.read(_value(text))
                except InputError as error:
                    raise InputError(f"{where}: {option}: {error}") from None
        own = (*table, self.name)
        if not value.is_of(own):
            here = " or ".join(name for name, other in self.values.items() if other.is_of(own))
            raise InputError(f"{self.name}: expected {here} here, got {shown(given)}")
        sets = {name: fixed for name, fixed in value.sets.items() if name in own}
        return sets | named, set(named)

    def spell(self, options: Mapping[str, Any], old: Collection[str]) -> str:
        """The new spelling of old options: a text, or the code of an object.

        options : of the job, by name.  old : those to spell.
        """

        def fits(value: Value) -> bool:
            own = value.options.values()
            return all(o in own or (o in value.sets and options[o] == value.sets[o]) for o in old)

        name, value = min(
            ((name, value) for name, value in self.values.items() if fits(value)),
            key=lambda item: item[1].sets.get(self.name) != options.get(self.name),
            default=(f"one of {', '.join(self.values)}", Value("", {})),
        )
        own = {
            key: options[option]
            for key, option in value.options.items()
            if option in old and options[option] is not None
        }
        if value.type is not None and not all(isinstance(v, str | Real) for v in own.values()):
            return f"fcl.{value.type.__name__}({', '.join(f'{key}=...' for key in own)})"
        return name + (":" * bool(own)) + ",".join(f"{key}={_text(v)}" for key, v in own.items())


def _value(text: str) -> Any:
    """A value in the text of a choice: of a list its content."""
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{value}]" if "," in str(value) else str(value)


# -- objects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Processes:
    """The driver ``processes``: a trainer and writers, each in a process of its own.

    Parameters
    ----------
    writers : int, optional
        Number of writers; by default the number of cores.
    share_cores : bool
        Whether trainer and writers lend each other idle cores.
    shared_files : path, optional
        Folder of unlinked files to use instead of anonymous shared memory.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> plan = fcl.plan_training(data, "columns", C=1.0, driver=fcl.Processes(writers=3))
    >>> plan == fcl.plan_training(data, "columns", C=1.0, driver="processes:writers=3")
    True
    """

    writers: int | None = None
    share_cores: bool = True
    shared_files: Any = None


@dataclass(frozen=True, kw_only=True)
class Dask:
    """The driver ``dask``: passes on a Dask cluster, with the same numbers as in one process.

    Parameters
    ----------
    address : str
        ``tcp://HOST:8786``, the path of a scheduler file, or ``local:N`` for N workers on this machine.
    tls : str, optional
        Files ``CA,CERT,KEY`` of an encrypted connection.
    client : distributed.Client
        A client of the cluster instead, which stays open.

    Examples
    --------
    >>> fcl.Dask(address="tcp://scheduler:8786")
    Dask(address='tcp://scheduler:8786', tls=None, client=None)
    """

    address: str | None = None
    tls: str | None = None
    client: Any = None


@dataclass(frozen=True, kw_only=True)
class ElasticNet:
    """The penalty ``elastic``: sum_j f_j [rho |w_j| + (1 - rho) w_j^2 / 2].

    Parameters
    ----------
    l1_ratio : float
        rho, in (0, 1].

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> model = fcl.train(data, "columns", C=1.0, penalty=fcl.ElasticNet(l1_ratio=0.9)).model
    >>> model.options["l1_ratio"]
    0.9
    """

    l1_ratio: float = 0.5


@dataclass(frozen=True, kw_only=True)
class GroupNorm:
    """The penalty ``group``: the Euclidean norm of a feature's weights in all outputs.

    A feature has a weight in all classes or targets, or in none.

    Parameters
    ----------
    l1_ratio : float
        Share of the norm in the penalty, in (0, 1]; the rest goes to half its square.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, :3].argmax(axis=1))
    >>> model = fcl.train(data, "columns", C=1.0, loss="softmax", penalty="group").model
    >>> model.weights.shape
    (5, 3)
    """

    l1_ratio: float = 1.0


# -- the choices -----------------------------------------------------------------------------------


def own_options(*names: str) -> dict[str, str]:
    """Options of a value that have the same names in a job."""
    return dict(zip(names, names, strict=True))


DRIVER = Choice(
    "driver",
    {
        "auto": Value(
            "processes for feature classes in Python from a million rows on, else inline",
            {"driver": "auto"},
        ),
        "inline": Value(
            "one process with threads, with the same bits each time", {"driver": "inline"}
        ),
        "processes": Value(
            "a trainer and writers, each in a process",
            {"driver": "processes"},
            own_options("writers", "share_cores", "shared_files"),
            Processes,
        ),
        "dask": Value(
            "passes on a Dask cluster",
            {"driver": "dask"},
            {"address": "dask", "tls": "dask_tls", "client": "client"},
            Dask,
        ),
    },
)
PENALTY = Choice(
    "penalty",
    {
        "l1": Value("the sum of |w_j|", {"l1_ratio": 1.0, "group": False}),
        "elastic": Value(
            "elastic net: rho |w_j| + (1 - rho) w_j^2 / 2, with rho = l1_ratio (default: 0.5)",
            {"l1_ratio": 0.5, "group": False},
            own_options("l1_ratio"),
            ElasticNet,
        ),
        "group": Value(
            "a feature has a weight in all classes or targets, or in none (|W_j|_2)",
            {"l1_ratio": 1.0, "group": True},
            own_options("l1_ratio"),
            GroupNorm,
        ),
    },
)
#: The option ``penalty`` of commands and functions, which jobs have as its parts.
PENALTY_OPTION = Option(
    "penalty",
    PENALTY.kind,
    "Penalty on the weights: l1; elastic:l1_ratio=0.5, rho |w| + (1 - rho) w^2 / 2; or group, the norm "
    "of a feature's weights in all classes or targets (default: l1).",
    (TRAIN, ONLINE, CERTIFY),
    "model",
    metavar="NAME",
    from_file=True,
    variants={
        ONLINE: "Penalty on the weights: l1, or elastic:l1_ratio=0.5, rho |w| + (1 - rho) w^2 / 2 "
        "(default: l1).",
        CERTIFY: "Penalty on the weights: l1, or elastic:l1_ratio=0.5 (default: l1).",
    },
)


# -- old and new spellings -------------------------------------------------------------------------

#: Arguments of earlier versions that are no parts of a choice -> what to write in their place.
_MOVED = {
    "valid_fraction": "valid={}",
    "offset": "fcl.open_data(..., offset=...)",
    "covariates": "fcl.open_data(..., covariates=...)",
    "warn": 'warnings.simplefilter("ignore", fcl.ConvergenceWarning)',
    "should_checkpoint": "checkpoint_every=SECONDS",
    "command": "nothing: only commands store their options",
}


def new_spellings(
    choices: Iterable[Choice], options: Mapping[str, Any], old: Collection[str]
) -> dict[str, tuple[Choice, str]]:
    """Old names of options -> the choice that they are parts of, and its new spelling.

    options : of the job, by name.  old : names that the user gave.
    """
    found: dict[str, tuple[Choice, str]] = {}
    for choice in choices:
        if parts := choice.parts() & set(old):
            found |= dict.fromkeys(parts, (choice, choice.spell(options, parts)))
    return found


class Arguments:
    """The arguments of a public function, and of the one behind it, which has all options by name.

    function : that users call.  options : of its job.  choices : of the public function.
    more : further arguments of the function behind it, with their defaults.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Option],
        *choices: Choice,
        **more: Any,
    ) -> None:
        self._function, self._options, self._choices = function.__name__, options, choices
        parameters = [*signature(function).parameters.values()]
        own = {each.name: each.default for each in parameters if each.kind is not each.VAR_KEYWORD}
        (self._more,) = (each.name for each in parameters if each.kind is each.VAR_KEYWORD)
        names = [*options, *(choice.name for choice in choices)]
        self._others = {name: own[name] for name in own if name not in names} | more
        old = _MOVED.keys() | {part for choice in choices for part in choice.parts()}
        self._old = old & (options.keys() | self._others.keys()) - own.keys()
        self._public = dict.fromkeys([*own, *(name for name in names if name not in old)])

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, with defaults except of options; TypeError names an unknown one."""
        refuse_unknown(self._function, given, [*self._others, *self._options])
        return {**self._others, **given}

    def by_name(self, given: Mapping[str, Any], function: str = "") -> dict[str, Any]:
        """The arguments of the public function, with all options by name.

        It warns of old spellings (DeprecationWarning, as if from the caller of the function). Raises
        InputError if a choice is wrong or has an option that an old argument gives, too, and TypeError
        for an unknown argument.

        given : the arguments, with those that are not in the signature as one of them.
        function : that messages name, if it is another one.
        """
        function, arguments = function or self._function, dict(given)
        more = arguments.pop(self._more)
        old = {name: more[name] for name in more if name in self._old}
        refuse_unknown(function, (name for name in more if name not in old), self._public)
        arguments |= more
        if isinstance(valid := arguments.get("valid"), Real):
            arguments |= {"valid": None, "valid_fraction": checks.share("valid", valid)}
        for choice in self._choices:
            if (value := arguments.pop(choice.name, None)) is not None:
                found, named = choice.read(value, self._options)
                if both := sorted(named & old.keys()):
                    raise InputError(f"{both[0]}: expected it once, got it in {choice.name}, too")
                arguments |= found
        arguments |= old
        new = new_spellings(self._choices, arguments, old)
        for name, value in old.items():
            if name in new:
                choice, text = new[name]
                text = f"{choice.name}={text if text.startswith('fcl.') else repr(text)}"
            else:
                text = _MOVED[name].format(value)
            warnings.warn(
                f"{function}: {name}= is an old spelling, which the next version will not accept; "
                f"write {text}",
                DeprecationWarning,
                stacklevel=3,
            )
        return arguments
