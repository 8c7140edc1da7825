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
    words, if it was made again. InputError if `out` is something else than a conversion.
    """
    facts = _facts(inputs, options)
    saved, changed = _saved(out), []
    if saved is not None:
        changed = _changes(saved, facts)
        if not changed:
            return None, []

    def attributes(source: ConvertSource) -> dict[str, Any]:
        read = {str(file.path.absolute()): file.state for file in source.inputs}
        if options.get("like"):
            read[os.path.abspath(options["like"])] = _state(options["like"])
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


def is_conversion_of(out: str, inputs: Sequence[str], options: Mapping[str, Any] | None) -> bool:
    """Whether :func:`convert_cached` converted files as they are now, with these options (None: any)."""
    try:
        saved = _saved(out)
    except InputError:
        return False
    if saved is None:
        return False
    facts = _facts(inputs, options or {})
    return not _changes(saved, facts if options is not None else {"files": facts["files"]})


def _facts(inputs: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for a conversion to be used again, beside the files."""
    return {
        **dict.fromkeys(READING),
        **{name: value for name, value in options.items() if value is not False},
        "version": __version__,
        "files": [os.path.abspath(path) for path in inputs],
    }


def _changes(saved: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """What differs between a kept conversion and another one, in words."""
    files = {path: _state(path) for path in saved["read"]}
    before = JobFacts({**saved["options"], **saved["read"]})
    return differences(before, JobFacts({**facts, **files}))


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
