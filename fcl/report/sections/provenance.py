"""Provenance: the file, the data, the versions, the options, and how to continue."""

from __future__ import annotations

import os
import platform
import shlex
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fcl.checks import shortened, shown
from fcl.files.path import FOLDER_SUFFIX
from fcl.model import Model
from fcl.model.certificate import Scope
from fcl.options import TRAINING
from fcl.options.kinds import SIZE
from fcl.report.contract import Context, Section, Table
from fcl.store import local_neighbour
from fcl.units import counted, format_bytes
from fcl.version import __version__

#: Options that the page shows; a stranger's file may hold any number.
MOST_OPTIONS = 100
PACKAGES = ("numpy", "numba", "scikit-learn", "matplotlib")


def section(context: Context) -> Section:
    """The provenance of model and page."""
    model = context.predictor
    facts = [
        ("model file", shortened(context.path.name)),
        ("SHA-256 of the file", context.checksum),
        ("fingerprint of the training data", shortened(model.fingerprint)),
        ("trained", f"{shortened(model.created, 40)}, by fcl {shortened(model.fcl_version, 40)}"),
        ("report", f"fcl {__version__}, {_versions()}"),
        *_data(context),
    ]
    blocks = []
    if isinstance(model, Model):
        facts.append(("same options again", _command(context)))
        facts.append(("to a smaller gap", _resume(context)))
        given = sorted(model.options.items())[:MOST_OPTIONS]
        options = [[_text(name), _value(name, value)] for name, value in given if value is not None]
        blocks = [Table("options", ["option", "value"], options, "The options of the training.")]
    return Section("provenance", "Provenance and options", "", facts, blocks, folded=True)


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _data(context: Context) -> list[tuple[str, str]]:
    if context.measured is None:
        return []
    measured = context.measured
    name, n = shortened(measured.data.name), measured.data.n_rows
    return [
        (
            "rows of this report",
            f"{name}, {counted(n, 'row')}, fingerprint {measured.data.fingerprint()}",
        )
    ]


def _command(context: Context) -> str:
    """A command with the options of the model that differ from the defaults of ``fcl train``."""
    if context.model.certificate.scope is Scope.SUPPORT:
        return "no single command: --refit trained the features of another model again"
    words = ["fcl", "train", "DATA"]
    for option in (option for option in TRAINING.values() if option.stored):
        value = context.model.options.get(option.name)
        default = option.default_of_command
        # alpha follows from C, and 0 writers from the driver
        implied = option.name == "alpha" or (option.name, value) == ("writers", 0)
        if not implied and value not in (None, option.check(default)):
            words += _spelled(option.spelled, option.name, value)
    if context.model.sum_weights != context.model.n_rows:  # the model has no name of their array
        words += ["--weights", "NAME"]
    if context.model.has_offset:
        words += ["--offset", "NAME"]
    if names := context.model.covariate_names:
        words += ["--covariates", shlex.quote(",".join(names))]
    return shortened(" ".join([*words, "--out", "MODEL"]), 1_000)


def _spelled(option: str, name: str, value: Any) -> list[str]:
    """An option as words of a command line."""
    if isinstance(value, bool):
        return [option if value else f"--no-{option[2:]}"]
    if name == "limits":
        low, high, named = value
        ends = ("" if end is None else repr(end) for end in (low, high))
        value = "LIMITS.tsv" if named else ":".join(ends)
    if name == "class_weight" and isinstance(value, list):
        value = ",".join(f"{label}={weight!r}" for label, weight in value)
    return [option, shlex.quote(str(value))]


def _resume(context: Context) -> str:
    """How to continue the training: by its checkpoints, if they are beside the model file."""
    refit = context.model.certificate.scope is Scope.SUPPORT
    if refit or os.path.isdir(local_neighbour(context.path, FOLDER_SUFFIX)):
        return "the command of the path with a smaller --tol and another --out"
    folder = local_neighbour(context.path, ".checkpoint")
    name = os.path.basename(folder)
    command = f"fcl train --resume {shlex.quote(name)} --tol SMALLER"
    if os.path.isdir(folder):
        return shortened(command, 400)
    return (
        f"{shortened(command, 400)}, with the checkpoints of the training, which are not beside the "
        "model; or train again with a smaller --tol"
    )


def _value(name: str, value: Any) -> str:
    """The value of an option as the command line reads it."""
    option = TRAINING.get(name)
    if option is not None and option.kind is SIZE and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "covariates" and isinstance(value, list):
        return shortened(", ".join(map(str, value)))
    return f"{value:.10g}" if isinstance(value, float) else _text(value)


def _text(value: Any) -> str:
    return shortened(value if isinstance(value, str) else shown(value))
