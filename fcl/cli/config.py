"""``--config run.toml``: options from a file, which only the command line overrides."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import click

from fcl.checks import file_kind, shortened, shown
from fcl.cli.common import be_quiet
from fcl.cli.options import TableCommand
from fcl.errors import InputError
from fcl.memory.allowance import allow, within
from fcl.options import Option
from fcl.store import is_remote

#: options that tables do not declare; a file may set none of them
_UNDECLARED = {"allow-host", "help", "import", "storage-option", "version"}
#: options that exclude each other; one on the command line overrides the other one in the file
RIVALS = (("C", "alpha"), ("valid", "valid_fraction"), ("checkpoint", "no_checkpoint"))

#: Largest TOML file that is read, in bytes.
MOST_BYTES = 1 << 20
#: Most parts of a dotted key.
MOST_PARTS = 4096
#: Bytes that tomllib takes for a part of a key, and for each pair of parts.
PART_BYTES, PAIR_BYTES = 1024, 8
#: Strings and comments of TOML, whose dots do not belong to keys. A string without an end is taken to end
#: with its line, or with the file, so that the search is linear.
_QUOTED = re.compile(
    r'"""(?s:\\.|.)*?(?:"""|\Z)|'
    r"'''(?s:.)*?(?:'''|\Z)|"
    r'"(?:\\.|[^"\\\n])*"?|'
    r"'[^'\n]*'?|#[^\n]*"
)
_NO_KEY = re.compile(r"[^\w\-. \t]+")


def read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file; InputErrors name the file, and the line of a syntax error."""
    file_kind(path)
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(
                f"{path}: expected a TOML file of options, got more than {MOST_BYTES:,} bytes"
            )
        text = content.decode()
        _check_keys(text, path)
        return tomllib.loads(text)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError:
        raise InputError(f"{path}: not a TOML file of options: nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of too many digits
        raise InputError(f"{path}: not TOML: {shortened(str(error), 400)}") from error


def _check_keys(text: str, path: str) -> None:
    """Raise InputError for a TOML file whose dotted keys would take much memory."""
    dots = [part.count(".") for part in _NO_KEY.split(_QUOTED.sub("-", text))]
    if max(dots) >= MOST_PARTS:
        raise InputError(
            f"{path}: expected keys that are names of options, such as max-time, got one of more than "
            f"{MOST_PARTS:,} parts with dots between them"
        )
    needed = sum(PART_BYTES * n + PAIR_BYTES * n * n // 2 for n in dots)
    allow(f"{path}: {sum(dots):,} parts of dotted keys need", needed, len(text))


def effective_options(ctx: click.Context) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge the command line with the TOML file of ``--config``, which it overrides.

    The file may come from a stranger: options without ``from_file`` and URLs are refused. Its keys are
    the long names of the options, with ``-`` or ``_``; paths are relative to the working folder.

    Returns the value of every option, and where each option that was given stands: ``--max-time``, or
    ``run.toml: max-time``.
    """
    values, given = dict(ctx.params), dict(ctx.meta["fcl.given"])
    path = values["config"]
    if path is None:
        return values, given
    command = ctx.command
    assert isinstance(command, TableCommand)
    table = command.table
    names = _long_names(command)
    seen: dict[str, str] = {}
    in_file = {}
    for key, value in read_toml(path).items():
        param, negated = _find(names, table, key, path)
        name = str(param.name)
        if not table[name].from_file or is_remote(value):
            positional = isinstance(param, click.Argument)
            spelled = name.upper() if positional else table[name].spelled
            raise InputError(
                _refusal(path, f"{key}, a URL," if table[name].from_file else key, spelled)
            )
        if name in seen:
            raise InputError(f"{path}: {key} and {seen[name]} are the same option; keep one")
        seen[name] = key
        converted = checked_value(table[name], key, value, path)
        if name not in given:
            values[name] = (not converted) if negated else converted
            in_file[name] = f"{path}: {key}"
    command.replace_choices(values, in_file, given)
    for name, key in in_file.items():
        if not table[name].from_file:
            raise InputError(_refusal(path, key.removeprefix(f"{path}: "), table[name].spelled))
    ctx.with_resource(within(values.get("memory")))
    for pair in RIVALS:
        for name, rival in (pair, pair[::-1]):
            if name in given and rival in in_file:
                values[rival] = ctx.params[rival]  # its default
                del in_file[rival]
    if values.get("quiet"):
        be_quiet()
    return values, given | in_file


def _long_names(command: TableCommand) -> dict[str, tuple[click.Parameter, bool]]:
    """Map each key, spelled with dashes, to its parameter and whether the key negates it."""
    names: dict[str, tuple[click.Parameter, bool]] = {}
    for param in command.params:
        if str(param.name) not in command.table or command.table[str(param.name)].hidden:
            continue  # for tests and benchmarks, or such as --version
        if isinstance(param, click.Argument):
            names[str(param.name)] = param, False  # DATA: a file may describe a whole job
            continue
        for options, negated in ((param.opts, False), (param.secondary_opts, True)):
            for option in options:
                if option.startswith("--"):
                    names[option[2:]] = param, negated
    return names


def _refusal(path: str, key: str, spelled: str) -> str:
    return (
        f"{path}: {key} is not a setting of a run; a file, which may come from a stranger, can set what "
        f"is learnt, but not where to connect, what to write, or which code to load: give {spelled} on "
        "the command line"
    )


def _find(
    names: dict[str, tuple[click.Parameter, bool]],
    table: Mapping[str, Option],
    key: str,
    path: str,
) -> tuple[click.Parameter, bool]:
    dashed = key.replace("_", "-")
    if dashed in names:
        return names[dashed]
    if dashed in _UNDECLARED:
        raise InputError(_refusal(path, key, f"--{dashed}"))
    # difflib distinguishes case: "c" would not match "C"
    settable = [name for name, (param, _) in names.items() if table[str(param.name)].from_file]
    folded = {name.lower(): name for name in settable}
    near = difflib.get_close_matches(dashed.lower()[:100], folded, n=1, cutoff=0.5)
    hint = (
        f"did you mean {folded[near[0]]!r}?"
        if near
        else f"options are: {', '.join(sorted(settable))}"
    )
    raise InputError(f"{path}: unknown option {shown(key)}; {hint}")


def checked_value(option: Option, key: str, value: Any, path: str) -> Any:
    """Validate and convert a value from a file; an InputError names the file and the key."""
    expected, types = option.kind.in_file, option.kind.types
    # bool is a subclass of int
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InputError(f"{path}: {key}: expected {expected}, got {shown(value)}")
    if isinstance(value, int) and abs(value) >= 1 << 63:  # tomllib reads integers of any size
        raise InputError(f"{path}: {key}: expected {expected} of 64 bits, got {shown(value)}")
    if isinstance(value, str) and not _is_usable(value):
        raise InputError(
            f"{path}: {key}: expected text without NUL characters or lone surrogates, got {shown(value)}"
        )
    try:
        return option.kind.read(value)
    except InputError as error:
        raise InputError(f"{path}: {key}: {error}") from None


def _is_usable(text: str) -> bool:
    """Whether a text can be an argument of a command, in which bytes need not be UTF-8."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
