"""Types of option values, and the options that several commands have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fcl.checks import shown, view_of_rows
from fcl.errors import InputError
from fcl.units import parse_duration, parse_size

__all__ = [
    "ClassWeight",
    "Duration",
    "Loss",
    "Positive",
    "RowView",
    "Size",
    "import_option",
    "overwrite_option",
    "version_option",
    "x_option",
]


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
    """A finite number above 0, and below `below` or at most `most` if that is given."""

    name = "number"

    def __init__(self, below: float = math.inf, most: float = math.inf) -> None:
        self.below = below
        self.most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        # NaN must fail it
        if not (0 < number < self.below and number <= self.most):
            what = "above 0 and finite" if self.below == math.inf else f"in (0, {self.below:g})"
            if self.most < math.inf:
                what = f"in (0, {self.most:g}]"
            self.fail(f"expected a number {what}, got {shown(value)}", param, ctx)
        return number


class Loss(ParamType):
    """The name of a loss, with its parameters: ``huber:delta=2``."""

    name = "loss"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from fcl.objective import find_loss  # late: it imports NumPy

        try:
            return find_loss(value).text
        except InputError as error:
            self.fail(str(error), param, ctx)


class RowView(ParamType):
    """``all``, ``auto`` or a number of rows."""

    name = "all|auto|N"

    def convert(self, value: Any, param: Any, ctx: Any) -> str | int:
        if value in ("all", "auto"):
            return str(value)
        try:
            number: Any = int(value)
        except ValueError:
            number = value
        try:
            return view_of_rows("row_view", number)
        except InputError as error:
            self.fail(str(error).replace("row_view must be", "expected"), param, ctx)


class ClassWeight(ParamType):
    """``balanced``, or a weight for each label: ``LABEL=W,LABEL=W``; in TOML also a table."""

    name = "balanced|LABEL=W,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> str | dict[str, float]:
        if value == "balanced":
            return str(value)
        pairs = value.items() if isinstance(value, Mapping) else self._pairs(value, param, ctx)
        weights: dict[str, float] = {}
        for label, text in pairs:
            if label in weights:
                self.fail(f"two weights for the label {label!r}", param, ctx)
            weights[label] = Positive().convert(text, param, ctx)
        return weights

    def _pairs(self, value: Any, param: Any, ctx: Any) -> list[tuple[str, str]]:
        pairs = []
        for part in str(value).split(","):
            # a label may have = in it, a weight has none
            label, equals, weight = part.rpartition("=")
            if not equals or not label:
                self.fail(f"expected balanced or LABEL=W,LABEL=W, got {value!r}", param, ctx)
            pairs.append((label.strip(), weight.strip()))
        return pairs


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from fcl.version import __version__

        click.echo(f"{ctx.info_name} {__version__}")
        ctx.exit()


def version_option() -> Callable[[Any], Any]:
    """``--version``; the version is looked up only when asked for."""
    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    )


def x_option() -> Callable[[Any], Any]:
    """``--x``: the array of rows."""
    return click.option("--x", default="X", show_default=True, help="Array of the rows in DATA.")


def import_option() -> Callable[[Any], Any]:
    """``--import MODULE``: modules that the user trusts and that files may name."""
    return click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="MODULE",
        help="Module of your own features that files may import; may be given several times.",
    )


def overwrite_option() -> Callable[[Any], Any]:
    """``--overwrite``."""
    return click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
