"""The declaration of an option: all that commands, learners, files and pages need to know of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeVar

from fcl.checks import refusing_unknown
from fcl.options.kinds import Kind

Owner = TypeVar("Owner")
#: An option in a help.
_SPELLED = re.compile(r"--([A-Za-z][A-Za-z0-9-]*)")
#: Options of the command line have the default of the declaration.
AS_IN_PYTHON: Any = object()

#: The commands, and the learner that ``fcl train --path`` runs.
TRAIN, PATHS, ONLINE, STAGEWISE = "train", "path", "online", "stagewise"
CERTIFY, CONVERT, PREDICT, REPORT, INSPECT = "certify", "convert", "predict", "report", "inspect"
NEW_FEATURES = "new-features"
#: The commands whose options a TOML file may give.
WITH_CONFIG = (TRAIN, ONLINE, STAGEWISE)


class Resume(Enum):
    """What ``--resume`` does with an option."""

    FIXED = "the resumed job keeps the value of the checkpoint"
    FREE = "the resumed job may change it; the default is the value of the checkpoint"
    NOT_KEPT = "the checkpoint of a command does not store it"


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    name: str  #: argument of Python functions
    kind: Kind
    help: str
    commands: tuple[str, ...]  #: that take it
    group: str = ""  #: in ``--help``
    default: Any = None  #: None also means that the option may be omitted
    command_default: Any = AS_IN_PYTHON  #: default of the commands
    metavar: str | None = None  #: in the help; None: the name of the kind
    resume: Resume = Resume.NOT_KEPT
    stored: bool = False  #: part of the plan of fcl train, and stored in models and checkpoints
    hidden: bool = False  #: for tests and benchmarks: not in the help, not in TOML
    old: bool = False  #: an earlier spelling of a part of a choice: accepted, but not in the help
    #: whether the TOML file of --config, which may come from a stranger, may set the option: what is
    #: learnt and how long it takes, but not where to connect, what to write or which code to load. URLs
    #: are refused in any case. None: not decided, which a test rejects for commands with --config.
    from_file: bool | None = None
    key: str = ""  #: the name of its value among those of a command, if it is another one
    spelling: str = ""  #: the name on the command line, if it is another one
    negates: bool = False  #: whether a flag has ``--no-NAME``, too
    required: bool = False  #: whether the command line must have it
    multiple: bool = False  #: whether the command line may have it more than once
    #: of a flag: the parameter of a command that it sets, to which value, and its default
    sets: tuple[str, str, str] | None = None
    methods: tuple[str, ...] = ()  #: the methods of online learners that use it; empty: all
    #: what differs in some commands: command -> its help, or fields of this class
    variants: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)

    @property
    def spelled(self) -> str:
        """The option as it is written on the command line."""
        return f"--{(self.spelling or self.key or self.name).replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """The name of its value among those of a command."""
        return self.key or self.name

    @property
    def default_of_command(self) -> Any:
        """The default on the command line."""
        return self.default if self.command_default is AS_IN_PYTHON else self.command_default

    def of(self, command: str) -> Option:
        """The option as a command has it."""
        own = self.variants.get(command, {})
        return replace(self, **({"help": own} if isinstance(own, str) else own), variants={})

    def check(self, value: Any, name: str | None = None) -> Any:
        """Validate a value from Python; raises InputError that names the option."""
        if value is None and self.default is None:
            return None
        return self.kind.check(name or self.name, value)


def declare(
    kind: Kind, help: str, default: Any = None, *, commands: tuple[str, ...], **more: Any
) -> Any:
    """Declare an option as the field of a dataclass, which has its name and its type."""
    option = Option("", kind, help, commands, default=default, **more)
    return field(default=default, metadata={"option": option})


def same_as(owner: type, name: str) -> Any:
    """The option that another dataclass declares, as a field of the same name."""
    (found,) = (each for each in fields(owner) if each.name == name)
    return field(default=found.default, metadata=found.metadata)


def document_options(owner: type[Owner]) -> type[Owner]:
    """Add the options of a dataclass to its docstring, as the section Attributes of numpydoc.

    The class refuses other arguments.
    """
    lines = [(owner.__doc__ or "").rstrip(), "", "    Attributes", "    ----------"]
    for name, option in options_of(owner).items():
        values = ", ".join(map(repr, option.kind.words)) if option.kind.words else option.kind.name
        text = _SPELLED.sub(lambda found: f"``{found[1].replace('-', '_')}``", option.help)
        lines += [f"    {name} : {values}", f"        {text}"]
    owner.__doc__ = "\n".join([*lines, "    "])
    return refusing_unknown(owner)


def options_of(owner: type) -> dict[str, Option]:
    """The options that a dataclass declares or shares, by name."""
    return {
        each.name: replace(each.metadata["option"], name=each.name)
        for each in fields(owner)
        if "option" in each.metadata
    }


def validate_options(options: Owner, names: Iterable[str] | None = None) -> Owner:
    """A copy of a dataclass of options with validated values; InputError names a wrong one."""
    table = options_of(type(options))
    values = {name: table[name].check(getattr(options, name)) for name in names or table}
    return replace(options, **values)  # type: ignore[type-var]
