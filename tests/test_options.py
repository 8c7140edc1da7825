"""The table of options, and everything derived from it."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import click
import numpy as np
import pytest

import fcl
from fcl.cli import COMMANDS
from fcl.cli.options import KEPT, TableCommand
from fcl.drivers.certify import run_certify
from fcl.drivers.online.train import run_online, train_online
from fcl.drivers.train import run_training, train
from fcl.options import (
    FIXED,
    GROUPS,
    JOB_DEFAULTS,
    OPTIONS,
    TRAINING,
    OnlineOptions,
    Resume,
    StagewiseOptions,
    TrainOptions,
    kinds,
    options_of_command,
)
from fcl.options.choices import DRIVER, PENALTY, Dask, ElasticNet, GroupNorm, Processes
from fcl.options.convert import FILE_OPTIONS
from fcl.options.kinds import FLAG
from fcl.options.online import METHOD, ONLINE_OPTIONS
from fcl.options.option import CERTIFY, ONLINE, WITH_CONFIG, Option
from fcl.options.path import PATH_OPTIONS
from fcl.options.reference import options_as_markdown
from fcl.path.train import run_path, train_path

#: The functions, with their options, and their other arguments: data, models, functions.
DOORS: dict[Any, tuple[dict[str, Option], set[str]]] = {
    train: (
        TRAINING,
        {
            "data", "penalty", "valid", "resume", "initial", "progress", "should_stop", "old",
        },
    ),
    train_path: (
        PATH_OPTIONS,
        {
            "data", "features", "alphas", "valid", "cv", "groups", "outer", "folder", "trusted",
            "progress", "should_stop", "training",
        },
    ),
    train_online: (
        ONLINE_OPTIONS | {"features": TRAINING["features"]},
        {
            "data", "penalty", "valid", "certify", "resume", "initial", "save", "progress", "should_stop",
            "old",
        },
    ),
    fcl.certify: (
        {
            name: option.of(CERTIFY)
            for name, option in TRAINING.items()
            if CERTIFY in option.commands or name in ("C", "intercept")
        },
        {
            "model", "data", "penalty", "bound", "radius", "namespace", "top", "keep_model", "trusted",
            "progress", "old",
        },
    ),
}  # fmt: skip
#: Options that the signatures have as parts of others: of choices, and of ``valid``.
PARTS = {"valid_fraction"}.union(*(choice.parts() for choice in (DRIVER, PENALTY, METHOD)))
#: Defaults that differ: of a model, of a run that is resumed.
OTHER_DEFAULTS = {(fcl.certify, "intercept"): None, (train_online, "passes"): None}


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_signatures_are_those_of_the_table(door: Any) -> None:
    options, others = DOORS[door]
    options = {name: option for name, option in options.items() if name not in PARTS}
    found = dict(signature(door).parameters)
    assert found.keys() == options.keys() | others and not options.keys() & others
    for name, option in options.items():
        default = OTHER_DEFAULTS.get((door, name), option.default)
        if found[name].default is not Parameter.empty:
            assert found[name].default == default, name


def test_defaults_pass_their_own_checks() -> None:
    for option in (each.of(command) for each in OPTIONS for command in each.commands):
        checked = option.check(option.default)
        assert option.default is None or option.kind.check(option.name, checked) == checked
        for default in (option.default, option.default_of_command):
            if default is not None:
                option.kind.read(default)


NAN, INF = float("nan"), float("inf")
ABOVE_0 = "a finite number above 0", (0.0, -2, NAN, INF, "1", True)
#: What the message of each kind of values expects, and values that it refuses.
WRONG: dict[str, tuple[str, tuple[Any, ...]]] = {
    "FLAG": ("True or False", ("no", 1)),
    "NUMBER": ("a finite number", (NAN, INF, "1", True)),
    "POSITIVE": ABOVE_0,
    "DURATION": ABOVE_0,
    "AT_LEAST_0": ("a finite number of at least 0", (-1.0, NAN, INF, "1", False)),
    "SIZE_OR_INF": ("a finite number of at least 0 or inf", (-1.0, NAN, "x")),
    "RATE": ("auto or a finite number above 0", (0.0, NAN, "x")),
    "SHARE": ("strictly between 0 and 1", (0.0, 1.0, -0.5, 2, NAN, "0.1")),
    "SHARE_OR_0": ("at least 0 and below 1", (1.0, -0.5, NAN, "0")),
    "UP_TO_1": ("above 0 and at most 1", (0.0, 1.1, NAN, "0.5", True)),
    "FROM_0_TO_1": ("from 0 to 1", (-0.1, 1.1, NAN, "0")),
    "L1_RATIO": ("above 0 and at most 1", (0.0, 0, -0.5, 1.1, NAN, "0.5", True)),
    "WHOLE": ("a whole number", (1.5, "3", True)),
    "FROM_0": ("a whole number of at least 0", (-1, 0.5, "a", True)),
    "FROM_1": ("a whole number of at least 1", (0, -1, 1.5, "3", True)),
    "BLOCK_ROWS": ("a multiple of 64 from 64 to 65536", (0, 63, 100, 65600, 64.0, "64", True)),
    "SEED_32": ("a whole number from 0 to 2^32 - 1", (-1, 1 << 32, "a", True)),
    "ROW_VIEW": ("all, auto, or a whole number of rows of at least 64",
                 (0, 63, -1, 2.5, 100.0, "x", "100", "", None, True)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_values_that_are_refused(name: str) -> None:
    words, values = WRONG[name]
    for value in values:
        with pytest.raises(fcl.InputError) as caught:
            getattr(kinds, name).check("that", value)
        assert str(caught.value).startswith(f"that must be {words}, got {value!r}")


def test_whole_numbers_are_below_2_to_the_62() -> None:
    for kind in (kinds.FROM_0, kinds.FROM_1):
        with pytest.raises(fcl.InputError, match=r"and at most 2\^62, got"):
            kind.check("that", 1 << 63)


#: Kinds whose values are not looked at before they are used.
FREE = (kinds.TEXT, kinds.PATH, kinds.CLASS_WEIGHT)


@pytest.mark.parametrize("door", [train, train_path, train_online], ids=lambda door: door.__name__)
def test_every_option_is_checked(door: Any) -> None:
    """Each message begins with the name of the option; test_startup.py has the command line."""
    data = fcl.open_data(np.eye(8), y=np.arange(8) % 2)
    given: dict[str, Any] = {"features": "columns"}
    given |= {"points": 3} if door is train_path else {"alpha": 0.1}
    for name, option in DOORS[door][0].items():
        if option.kind not in FREE and name not in PARTS:
            with pytest.raises(fcl.InputError, match=rf"^(unknown )?{name}\b"):
                door(data, **(given | {name: object()}))


plan = fcl.plan_training
OLD_AND_NEW: list[tuple[Any, dict[str, Any], str]] = [
    (plan, {"l1_ratio": 0.5}, "penalty='elastic:l1_ratio=0.5'"),
    (plan, {"l1_ratio": 1.0}, "penalty='l1'"),
    (plan, {"group": True, "l1_ratio": 0.5}, "penalty='group:l1_ratio=0.5'"),
    (plan, {"valid_fraction": 0.25}, "valid=0.25"),
    (plan, {"writers": 2}, "driver='processes:writers=2'"),
    (plan, {"driver": "processes", "writers": 2}, "driver='processes:writers=2'"),
    (plan, {"dask": "local:1"}, "driver='dask:address=local:1'"),
    (plan, {"warn": False}, "simplefilter"),
    (plan, {"offset": np.zeros(8)}, "fcl.open_data(..., offset=...)"),
    (train_path, {"l1_ratio": 0.5}, "penalty='elastic:l1_ratio=0.5'"),
    (train_online, {"method": "ball", "radius": 2.0}, "method='ball:radius=2.0'"),
    (train_online, {"method": "truncated-gradient", "power": 0.4, "period": 3},
     "method='truncated-gradient:power=0.4,period=3'"),
    (fcl.certify, {"l1_ratio": 0.5}, "penalty='elastic:l1_ratio=0.5'"),
]  # fmt: skip


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("door", "given", "words"), OLD_AND_NEW)
def test_old_spellings_give_the_new_ones(door: Any, given: dict[str, Any], words: str) -> None:
    data = fcl.open_data(np.eye(8), y=np.arange(8) % 2)
    more: dict[str, Any] = {"points": 2} if door is train_path else {"alpha": 0.1}
    more |= {"loss": "softmax"} if "group" in given else {}
    first = ((np.zeros(8), 0.0), data) if door is fcl.certify else (data, "columns")
    with pytest.warns(DeprecationWarning, match="old spelling") as caught:
        door(*first, **more, **given)
    messages = [str(each.message) for each in caught if "old spelling" in str(each.message)]
    assert len(messages) == len(given.keys() - {"driver", "method"})
    for name, text in zip(given.keys() - {"driver", "method"}, messages, strict=True):
        assert text.startswith(f"{door.__name__}: ") and words in text, name


@pytest.mark.parametrize(
    ("choice", "text", "object", "options"),
    [
        (DRIVER, "processes:writers=3", Processes(writers=3), {"driver": "processes", "writers": 3}),
        (DRIVER, "processes:share_cores=false", Processes(share_cores=False),
         {"driver": "processes", "share_cores": False}),
        (DRIVER, "dask:address=local:2,tls=[a,b,c]", Dask(address="local:2", tls="a,b,c"),
         {"driver": "dask", "dask": "local:2", "dask_tls": "a,b,c"}),
        (PENALTY, "elastic", ElasticNet(), {"l1_ratio": 0.5, "group": False}),
        (PENALTY, "group:l1_ratio=0.9", GroupNorm(l1_ratio=0.9), {"l1_ratio": 0.9, "group": True}),
    ],
)  # fmt: skip
def test_choices_are_texts_or_objects(
    choice: Any, text: str, object: Any, options: dict[str, Any]
) -> None:
    assert choice.read(text, TRAINING)[0] == choice.read(object, TRAINING)[0] == options
    name = str(options.get(choice.name, text.partition(":")[0]))
    assert choice.spell(options, options.keys() - {choice.name}).startswith(name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"driver": "fork"}, "driver must be one of auto, inline, processes, dask"),
        ({"driver": 3}, "driver must be one of"),
        ({"driver": "processes:workers=3"}, "expected writers=VALUE, share_cores=VALUE"),
        ({"driver": "processes:writers=0"}, "writers: expected a whole number of at least 1"),
        ({"driver": "processes:writers=2,writers=3"}, "got 'writers=3'"),
        ({"driver": "inline:threads=2"}, "expected no options, got 'threads=2'"),
        ({"driver": "dask:client=3"}, "got 'client=3'"),
        ({"penalty": "elastic:l1_ratio=0"}, "l1_ratio: expected above 0 and at most 1"),
        ({"penalty": "elastic:l1_ratio=0.5", "l1_ratio": 0.4}, "l1_ratio: expected it once"),
    ],
)
def test_wrong_choices_are_refused(given: dict[str, Any], words: str) -> None:
    data = fcl.open_data(np.eye(8), y=np.arange(8) % 2)
    with pytest.raises(fcl.InputError, match=re.escape(words)):
        train(data, "columns", C=1.0, **given)


def test_a_choice_has_only_what_the_job_has() -> None:
    data = fcl.open_data(np.eye(8), y=np.arange(8) % 2)
    with pytest.raises(fcl.InputError, match="penalty: expected l1 or elastic here, got 'group'"):
        train_online(data, "columns", C=1.0, penalty="group")
    with pytest.raises(TypeError, match="unexpected keyword argument 'group'"):
        train_online(data, "columns", C=1.0, group=True)


BY_NAME = (run_training, run_path, run_online, run_certify)
CLASSES = (
    StagewiseOptions, fcl.FCLClassifier, fcl.FCLRegressorCV, fcl.FCLOnlineRegressor,
    fcl.StagewiseClassifier,
)  # fmt: skip


@pytest.mark.parametrize("door", [*DOORS, plan, *BY_NAME, *CLASSES], ids=lambda door: door.__name__)
def test_unknown_arguments_are_refused_with_those_that_there_are(door: Any) -> None:
    first = () if door in (*BY_NAME, *CLASSES) else ("data", "columns")
    expected = r"^\w+\(\) got an unexpected keyword argument 'tolerance'; expected .*\bmemory\b"
    with pytest.raises(TypeError, match=expected) as caught:
        door(*first, memory="1MiB", tolerance=1e-3)
    if first:  # old spellings are not among them
        assert "penalty" in str(caught.value) and "l1_ratio" not in str(caught.value)


def test_no_option_is_declared_twice() -> None:
    """Two options of one name differ in what they mean, and belong to different commands."""
    for number, one in enumerate(OPTIONS):
        for other in OPTIONS[:number]:
            if one.parameter == other.parameter:
                assert not set(one.commands) & set(other.commands), one.name
                assert one.help != other.help or one.kind.name != other.kind.name, one.name
    assert all(
        option.commands and set(option.variants) <= set(option.commands) for option in OPTIONS
    )


@pytest.mark.parametrize("kind", [TrainOptions, OnlineOptions, StagewiseOptions])
def test_fields_have_the_defaults_of_their_options(kind: type) -> None:
    for each in fields(kind):
        if "option" in each.metadata:
            assert each.default == each.metadata["option"].default, each.name


def test_models_and_checkpoints_keep_the_same_options_as_before() -> None:
    assert JOB_DEFAULTS.keys() == {
        "features", "loss", "group", "C", "alpha", "l1_ratio", "limits", "class_weight", "standardize",
        "intercept", "tol", "memory", "max_time", "max_passes", "patience", "seed", "block_rows",
        "valid_fraction", "driver", "writers", "row_view", "offset", "covariates",
    }  # fmt: skip
    assert TrainOptions().of_job() == JOB_DEFAULTS
    assert {name for name, option in KEPT.items() if option.resume is Resume.FREE} == {
        "data", "valid", "out", "scratch", "tol", "max_time", "max_passes", "patience", "memory",
        "driver", "writers", "checkpoint_every", "row_view",
    }  # fmt: skip
    # the fixed ones of the command are those of the job, and how its files are read
    assert KEPT.keys() - {"x", "y", "weights", *FILE_OPTIONS} == {
        *FIXED, *(name for name, option in KEPT.items() if option.resume is Resume.FREE)
    }  # fmt: skip


def test_resumed_online_runs_keep_what_they_learn_by() -> None:
    fixed = {
        name for name, option in options_of_command(ONLINE).items() if option.resume is Resume.FIXED
    }
    learning = {option.parameter for option in ONLINE_OPTIONS.values()} - {"passes", "memory"}
    assert fixed == learning | {"features", "initial"}


def test_options_that_later_versions_add_had_their_defaults_before() -> None:
    """Otherwise checkpoints of earlier versions could not be resumed."""
    added = {"l1_ratio": 1.0, "class_weight": None, "standardize": False, "offset": False}
    added["covariates"] = added["limits"] = None
    assert added.items() <= JOB_DEFAULTS.items()


def command_of(name: str) -> TableCommand:
    found = import_module(COMMANDS[name][0]).command
    assert isinstance(found, TableCommand)
    return found


@pytest.mark.parametrize("name", [name for name, groups in GROUPS.items() if groups])
def test_help_is_in_groups(name: str) -> None:
    command, groups = command_of(name), GROUPS[name]
    text = command.get_help(click.Context(command, info_name="fcl"))
    places = [text.index(f"\n{group.capitalize()}:\n") for group in groups]
    assert places == sorted(places)
    for option in command.table.values():
        if not option.name == option.group == "data":
            negated = f" / --no-{option.spelled[2:]}" if option.negates else ""
            place = text.find(f"\n  {option.spelled}{negated} ")
            place = max(place, text.find(f"\n  {option.spelled}{negated}\n"))
            assert (place < 0) == (option.hidden or option.old), option.name
            if not (option.hidden or option.old):
                number = groups.index(option.group) + 1
                end = places[number] if number < len(places) else len(text)
                assert places[number - 1] < place < end, option.name


@pytest.mark.parametrize("name", GROUPS)
def test_every_option_of_a_command_is_in_the_table(name: str) -> None:
    command = command_of(name)
    names = {str(param.name) for param in command.params}
    options = {str(param.name) for param in command.params if isinstance(param, click.Option)}
    table = {name if o.sets is None else o.sets[0] for name, o in command.table.items()}
    assert table <= names and options - table == {"version"}


def test_flags_say_what_their_default_is() -> None:
    for option in OPTIONS:
        assert (option.kind is FLAG) == isinstance(option.default, bool), option.name


@pytest.mark.parametrize("name", GROUPS)
def test_the_reference_lists_every_option_once(name: str) -> None:
    section = options_as_markdown(name)
    assert section in options_as_markdown()
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert all(len(row) == 4 for row in rows)
    found = {row[0].removeprefix("| ").split(", ")[0].strip("`"): row for row in rows}
    table = {option.spelled: option for option in options_of_command(name).values()}
    shown = [each for each in table.values() if not (each.hidden or each.old) and each.help]
    assert found.keys() == {each.spelled for each in shown} and len(found) == len(rows)
    for each in shown:
        cells = found[each.spelled]
        assert each.help.replace("|", "\\|") in cells[3]
        assert ("fixed" in cells[3].rpartition("*")[0].rpartition(" *")[2]) == (
            name in WITH_CONFIG and each.resume is Resume.FIXED
        )
