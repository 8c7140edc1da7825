"""The table of options, and everything derived from it."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import click
import pytest

import fcl
from fcl.cli.options import KEPT, TABLE
from fcl.cli.train import command
from fcl.options import FIXED, GROUPS, JOB_DEFAULTS, TRAINING, Options, Resume

#: Arguments of `fcl.train` that are not options: data, models, functions, and Python-only arguments.
OBJECTS = {
    "data", "valid", "offset", "covariates", "resume", "initial", "progress", "should_stop",
    "should_checkpoint", "command", "warn", "client",
}  # fmt: skip


def arguments() -> dict[str, Parameter]:
    return dict(signature(fcl.train).parameters)


def test_the_signature_of_train_is_that_of_the_table() -> None:
    names = {option.name for option in TRAINING}
    assert names | OBJECTS == arguments().keys() and not names & OBJECTS
    for option in TRAINING:
        if option.name != "features":
            assert arguments()[option.name].default == option.default, option.name


def test_the_docstring_of_train_has_every_argument() -> None:
    text = (fcl.train.__doc__ or "").partition("Parameters\n")[2].partition("Returns\n")[0]
    heads = [line.partition(" : ")[0] for line in text.splitlines() if line.startswith("    ")]
    described = {name.strip() for head in heads for name in head.split(",")}
    assert arguments().keys() <= described


@pytest.mark.parametrize("option", TRAINING, ids=lambda option: option.name)
def test_defaults_pass_their_own_checks(option: Any) -> None:
    assert option.check(option.default) == option.check(option.check(option.default))
    for default in (option.default, option.command_default):
        if default is not None:
            option.kind.read(default)


def test_models_and_checkpoints_keep_the_same_options_as_before() -> None:
    assert JOB_DEFAULTS.keys() == {
        "features", "loss", "group", "C", "alpha", "l1_ratio", "limits", "class_weight", "standardize",
        "intercept", "tol", "memory", "max_time", "max_passes", "seed", "block_rows", "valid_fraction",
        "driver", "writers", "row_view", "offset", "covariates",
    }  # fmt: skip
    assert Options().of_job() == JOB_DEFAULTS
    assert {name for name, option in KEPT.items() if option.resume is Resume.FREE} == {
        "data", "valid", "out", "scratch", "tol", "max_time", "max_passes", "memory", "driver",
        "writers", "checkpoint_every", "row_view",
    }  # fmt: skip
    # the fixed ones of the command are those of the job, and the names of arrays
    assert KEPT.keys() - {"x", "y", "weights"} == {
        *FIXED, *(name for name, option in KEPT.items() if option.resume is Resume.FREE)
    }  # fmt: skip


def test_options_that_later_versions_add_had_their_defaults_before() -> None:
    """Otherwise checkpoints of earlier versions could not be resumed."""
    added = {"l1_ratio": 1.0, "class_weight": None, "standardize": False, "offset": False}
    added["covariates"] = added["limits"] = None
    assert added.items() <= JOB_DEFAULTS.items()


def test_help_is_in_groups() -> None:
    text = command.get_help(click.Context(command, info_name="fcl-train"))
    places = [text.index(f"\n{group.capitalize()}:\n") for group in GROUPS]
    assert places == sorted(places)
    for option in TABLE.values():
        if option.name != "data":
            place = text.find(f"\n  {option.spelled} ")
            assert (place < 0) == option.hidden, option.name
            if not option.hidden:
                assert sum(place > start for start in places) == GROUPS.index(option.group) + 1


def test_every_parameter_of_the_command_is_in_the_table() -> None:
    names = {str(param.name) for param in command.params}
    assert names - TABLE.keys() == {"allowed_hosts", "imports", "version"} and TABLE.keys() <= names
