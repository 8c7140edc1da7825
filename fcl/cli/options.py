"""Types of option values, and the options that several commands have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fcl.errors import InputError
from fcl.units import parse_duration, parse_size

__all__ = ["Duration", "Positive", "Size", "overwrite_option", "version_option", "x_option"]


if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # before click 8.3 it is not generic
    ParamType = click.ParamType


class Size(ParamType):
    """Bytes: ``4GiB``, ``768MiB``, ``2G``."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return parse_size(value)
        except InputError as error:
            self.fail(str(error).removeprefix("size: "), param, ctx)


class Duration(ParamType):
    """Seconds: ``90s``, ``5m``, ``2h``."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            return parse_duration(value)
        except InputError as error:
            self.fail(str(error).removeprefix("duration: "), param, ctx)


class Positive(ParamType):
    """A finite number above 0, and below `below` if that is given."""

    name = "number"

    def __init__(self, below: float = math.inf) -> None:
        self.below = below

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 < number < self.below:  # not a comparison with <=: NaN must fail it
            what = "above 0 and finite" if self.below == math.inf else f"in (0, {self.below:g})"
            self.fail(f"expected a number {what}, got {value!r}", param, ctx)
        return number


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import fcl

        click.echo(f"{ctx.info_name} {fcl.__version__}")
        ctx.exit()


def version_option() -> Callable[[Any], Any]:
    """``--version``; the version is looked up only when asked for."""
    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version and leave.",
    )


def x_option() -> Callable[[Any], Any]:
    """``--x``: the array of rows."""
    return click.option("--x", default="X", show_default=True, help="Array of the rows in DATA.")


def overwrite_option() -> Callable[[Any], Any]:
    """``--overwrite``."""
    return click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
