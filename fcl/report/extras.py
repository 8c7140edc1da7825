"""The packages that only reports need."""

from __future__ import annotations

from importlib import import_module

from fcl.errors import InputError


def check_extras() -> None:
    """Import the packages of the extra ``report``; raises InputError if one is missing."""
    missing = []
    for name in ("matplotlib", "jinja2"):
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        raise InputError(
            f"a report needs {' and '.join(missing)}; install the extra: pip install 'fcl[report]'"
        )
