"""``fcl list``: what can be named in an option, with the options of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import signature
from typing import Any

import click

from fcl.cli.common import Command, show
from fcl.cli.options import version_option
from fcl.options import TRAINING
from fcl.options.choices import DRIVER, PENALTY, Choice
from fcl.options.online import METHOD, ONLINE_OPTIONS

#: (name, its options, what it is)
Row = tuple[str, str, str]


def _of_classes(classes: Iterable[tuple[str, Any]]) -> list[Row]:
    rows = []
    for name, kind in classes:
        options = ",".join(
            each.name if each.default in (each.empty, None) else f"{each.name}={each.default}"
            for each in signature(kind).parameters.values()
        )
        rows.append((name, options, (kind.__doc__ or "").partition("\n")[0]))
    return rows


def _of_choice(choice: Choice) -> list[Row]:
    table = TRAINING | ONLINE_OPTIONS
    rows = []
    for name, value in choice.values.items():
        rows.append((name, "", value.help))
        for option, of_job in value.options.items():
            if of_job in table:
                rows.append(("", option, table[of_job].help))
    return rows


def _families() -> list[Row]:
    registry = import_module("fcl.features.registry")
    return _of_classes(
        (name, registry.class_of(name, "list", None)) for name in registry.family_names()
    )


def _of_tables(module: str, *tables: str) -> list[Row]:
    """The classes of tables in a module, which is imported late: it imports NumPy."""
    found = import_module(module)
    return _of_classes(item for table in tables for item in getattr(found, table).items())


def _formats() -> list[Row]:
    readers = import_module("fcl.convert.registry").READERS
    docs = {name: import_module(path).__doc__ or "" for name, path in readers.items()}
    return [(name, "", text.partition("\n")[0]) for name, text in docs.items()]


#: What can be listed -> the option that takes it, and its rows.
_LISTS: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "families": ("--features", _families),
    "losses": (
        "--loss",
        lambda: _of_tables("fcl.objective.losses", "LOSSES", "COUPLED_LOSSES", "KINKED_LOSSES"),
    ),
    "penalties": ("--penalty", lambda: _of_choice(PENALTY)),
    "drivers": ("--driver", lambda: _of_choice(DRIVER)),
    "methods": ("--method, of fcl online", lambda: _of_choice(METHOD)),
    "links": (
        "--loss, of fcl stagewise --update gls",
        lambda: _of_tables("fcl.stagewise.links", "LINKS"),
    ),
    "formats": ("--format, of fcl convert", _formats),
}


@click.command("fcl list", cls=Command, params=[version_option()])
@click.argument("what", type=click.Choice([*_LISTS]), required=False)
def command(what: str | None) -> None:
    """List families, losses, penalties, drivers, methods, links or formats, with their options.

    Options follow the name: NAME:OPTION=VALUE,OPTION=VALUE, such as kmers:d=8,origin=70.
    """
    for name in _LISTS if what is None else [what]:
        option, rows = _LISTS[name]
        show([f"{name} ({option}):", *_lines(rows())])


def _lines(rows: list[Row]) -> Iterable[str]:
    for name, options, help in rows:
        word = f"{name}:{options}" if name and options else name or f"  :{options}=..."
        yield f"  {word}" if len(word) > 22 else f"  {word:24}{help}".rstrip()
        if len(word) > 22:
            yield f"  {'':24}{help}"
