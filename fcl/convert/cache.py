"""Conversions that are kept and used again, until their files or options change."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fcl.convert.contract import ConvertSource
from fcl.convert.files import file_state
from fcl.convert.run import Progress, Summary, convert
from fcl.errors import InputError
from fcl.files.same_job import JobFacts, differences
from fcl.options.convert import READING
from fcl.version import __version__

#: The attribute of a converted group that says what it was made from.
ATTRIBUTE = "conversion"


def convert_cached(
    inputs: Sequence[str],
    out: str,
    *,
    memory: int | str,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Summary | None, list[str]]:
    """Convert files as :func:`convert` does, unless their conversion is there already.

    Returns the summary, or None for a conversion of an earlier call; and what has changed since then, in
    words, if it was made again.

    Raises
    ------
    InputError
        As from :func:`convert`; or `out` is something else than a conversion of an earlier call.
    """
    facts = {
        **dict.fromkeys(READING),
        **{name: value for name, value in options.items() if value is not False},
        "version": __version__,
        "files": [os.path.abspath(path) for path in inputs],
    }
    like = options.get("like")
    saved, changed = _saved(out), []
    if saved is not None:
        files = {path: _state(path) for path in saved["read"]}
        before = JobFacts({**saved["options"], **saved["read"]})
        changed = differences(before, JobFacts({**facts, **files}))
        if not changed:
            return None, []

    def attributes(source: ConvertSource) -> dict[str, Any]:
        read = {str(file.path.absolute()): file.state for file in source.inputs}
        if like is not None:
            read[os.path.abspath(like)] = _state(like)
        return {ATTRIBUTE: {"options": facts, "read": read}}

    summary = convert(
        inputs,
        out,
        memory=memory,
        overwrite=saved is not None,
        progress=progress,
        attributes=attributes,
        **options,
    )
    return summary, changed


def _saved(out: str) -> Mapping[str, Any] | None:
    """What a kept conversion was made from; None if there is none."""
    if not os.path.lexists(out):
        return None
    import zarr

    try:
        found = zarr.open_group(out, mode="r").attrs[ATTRIBUTE]
        if isinstance(found, dict) and all(isinstance(found[k], dict) for k in ("options", "read")):
            return found
    except (OSError, ValueError, KeyError):
        pass
    raise InputError(
        f"{out}: expected rows that an earlier job converted, got something else, which is not replaced; "
        "move it, or choose another --out"
    )


def _state(path: str) -> str:
    """The state of a file, as :class:`InputFile` has it."""
    try:
        return file_state(os.stat(path))
    except OSError:
        return "missing"
