"""The table of all options, and the options of each command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from fcl.options.choices import DRIVER, PENALTY, PENALTY_OPTION, Choice
from fcl.options.commands import COMMON, DATA, READERS, RUNS, SCORES
from fcl.options.convert import READING, ROUNDING
from fcl.options.online import METHOD, ONLINE_OPTIONS
from fcl.options.option import (
    CERTIFY,
    CONVERT,
    INSPECT,
    NEW_FEATURES,
    ONLINE,
    PREDICT,
    REPORT,
    STAGEWISE,
    TRAIN,
    Option,
)
from fcl.options.path import FOLD_OPTIONS, PATH_OPTIONS
from fcl.options.stagewise import SETTINGS, STAGEWISE_RUN_OPTIONS
from fcl.options.training import TRAINING

_INPUT_GROUPS = ("input", "columns", "tables", "sequences", "genome")
#: The groups of options in the help of each command, in order; none: one list.
GROUPS = {
    TRAIN: (
        "data",
        "model",
        "path",
        "stopping",
        "running",
        "checkpoints",
        "output",
        *_INPUT_GROUPS,
    ),
    ONLINE: ("data", "model", "learning", "stopping", "running", "output"),
    STAGEWISE: ("data", "model", "stopping", "running", "checkpoints", "output", *_INPUT_GROUPS),
    CONVERT: (*_INPUT_GROUPS, "running", "output", "models"),
    PREDICT: ("scores", *_INPUT_GROUPS, "variants", "model", "running", "output"),
    CERTIFY: (),
    REPORT: ("input", "data", "output", "model", *_INPUT_GROUPS[1:]),
    INSPECT: (),
    NEW_FEATURES: (),
}


def _unique(options: Iterator[Option]) -> tuple[Option, ...]:
    found: list[Option] = []
    for option in options:
        if option not in found:  # learners share options
            found.append(option)
    return tuple(found)


#: All options; those of equal names are of different commands.
OPTIONS = _unique(
    option
    for part in (
        DATA,
        READERS,
        (PENALTY_OPTION,),
        TRAINING.values(),
        ONLINE_OPTIONS.values(),
        STAGEWISE_RUN_OPTIONS,
        SETTINGS.values(),
        PATH_OPTIONS.values(),
        FOLD_OPTIONS,
        RUNS,
        SCORES,
        READING.values(),
        ROUNDING.values(),
        COMMON,
    )
    for option in part
)


@cache
def choices_of_command(command: str) -> tuple[Choice, ...]:
    """The options of a command whose values have options of their own."""
    kinds = [option.kind for option in OPTIONS if command in option.commands]
    return tuple(c for c in (DRIVER, PENALTY, METHOD) if any(c.kind is kind for kind in kinds))


@cache
def options_of_command(command: str) -> dict[str, Option]:
    """The options of a command by the names of their values, in the order of its help."""
    own = [option.of(command) for option in OPTIONS if command in option.commands]
    parts = {part for choice in choices_of_command(command) for part in choice.parts()}
    own = [replace(option, old=True) if option.name in parts else option for option in own]
    if groups := GROUPS[command]:
        own.sort(key=lambda option: groups.index(option.group))
    return {option.parameter: option for option in own}
