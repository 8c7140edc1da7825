"""Packages that only some uses need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fcl.errors import InputError


def import_extra(what: str, install: str, *names: str) -> Any:
    """Import packages, and return the last; InputError says what needs them, and how to install them."""
    try:
        return [import_module(name) for name in names][-1]
    except ImportError as error:
        packages = " and ".join(name.replace("_", "-") for name in names)
        raise InputError(
            f"{what} {packages} ({error}); install it: pip install {install}"
        ) from error
