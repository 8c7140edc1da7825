"""``--resume DIR``: options from a checkpoint, which options given now override."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fcl.cli.config import checked_value
from fcl.cli.options import KEPT, MAY_CHANGE
from fcl.errors import InputError, ModelFileError
from fcl.files.signature import check_places
from fcl.options import Option, Resume
from fcl.options.kinds import PATH
from fcl.plain import plain
from fcl.store import absolute

if TYPE_CHECKING:
    from fcl.files.checkpoint import Checkpoint


def command_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``fcl train`` that a checkpoint keeps, with absolute paths."""
    return absolute_paths({name: options[name] for name in KEPT}, KEPT)


def absolute_paths(kept: dict[str, Any], table: Mapping[str, Option]) -> dict[str, Any]:
    """Options that a checkpoint keeps, with absolute paths."""
    for name, value in kept.items():
        if table[name].kind is PATH and value is not None:
            kept[name] = _absolute(value)
    return kept


def check_command(
    command: Mapping[str, Any], table: Mapping[str, Option], number: int, folder: str
) -> None:
    """Raise InputError if a checkpoint of this number holds a value that its option does not accept."""
    for name, option in table.items():
        if command.get(name) is not None:
            checked_value(option, f"{name} of checkpoint {number}", command[name], folder)


def resume_options(
    options: Mapping[str, Any], given: Mapping[str, str], checkpoint: Checkpoint, folder: str
) -> dict[str, Any]:
    """The options of a job resumed from `folder`; options and given as from `merge_config`.

    Raises InputError naming every given option that would change a fixed option of the job, or a host to
    which the checkpoint of a stranger would lead.
    """
    command = checkpoint.options.get("command")
    if not isinstance(command, Mapping):
        raise InputError(
            f"{folder}: this checkpoint was not made by fcl train and does not name its data; "
            "resume it from Python, where it was started"
        )
    check_places(folder, "train", command, checkpoint.signature, given, options["allowed_hosts"])
    from fcl.files.same_job import JobFacts, require_same

    resumed = dict(options)
    before: dict[str, Any] = {}
    now: dict[str, Any] = {}
    for name, option in KEPT.items():
        if name not in command:
            continue  # saved by an earlier version, which did not have the option
        if name not in given:
            if command[name] is not None:
                resumed[name] = command[name]
        elif option.resume is Resume.FIXED and not _same(name, options[name], command[name]):
            where = f"{given[name]} ({name})" if option.old else given[name]  # part of a choice
            before[where], now[where] = command[name], options[name]
    advice = f"A resumed job may change only {MAY_CHANGE}"
    require_same(f"--resume {folder}: the checkpoint", JobFacts(before), JobFacts(now), advice)
    other = "checkpoint" in given and not _same_path(options["checkpoint"], folder)
    if options["no_checkpoint"] or other:
        raise InputError(
            f"--resume {folder}: expected a job that keeps its folder of checkpoints, got "
            f"{given['checkpoint' if other else 'no_checkpoint']}; leave it out"
        )
    resumed["checkpoint"] = folder
    return resumed


def is_own_model(path: str, checkpoint: Checkpoint, trusted: Collection[str]) -> bool:
    """Whether `path` holds a model that this job wrote when it was stopped earlier.

    trusted : modules that the checkpoint and the model may import.
    """
    from fcl.features import family_from_config
    from fcl.features.centred import uncentred
    from fcl.model import Model

    # a class that cannot be imported is an error, not a foreign model
    family = uncentred(family_from_config(checkpoint.family, trusted))
    try:
        model = Model.load(path, trusted)
    except ModelFileError:  # there is no file, or not a model file
        return False
    return (
        model.encoding is None
        and plain(model.family.to_config()) == plain(family.to_config())
        and checkpoint.matches(model.options, model.fingerprint)
    )


def _absolute(path: str) -> str:
    file, separator, group = path.partition("::")
    return absolute(file) + separator + group


def _same_path(a: str, b: str) -> bool:
    return os.path.realpath(a) == os.path.realpath(b)


def _same(name: str, now: Any, before: Any) -> bool:
    if KEPT[name].kind is PATH and now is not None:
        now = _absolute(now)
    if name == "features" and isinstance(now, str) and isinstance(before, str) and now != before:
        from fcl.features import parse_features

        spec = parse_features(now)
        try:
            return spec == parse_features(before, trusted=())
        except InputError:  # its class is missing, or its module is not trusted
            return False
    return bool(plain(now) == before)
