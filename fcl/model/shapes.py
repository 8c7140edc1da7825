"""The door between users, who see numbers and vectors of one output, and code with K columns."""

from __future__ import annotations

from typing import Any

from fcl.types import Floats


def public(values: Floats) -> Any:
    """Values (..., K) as users see them: without the last axis if K is 1, and one number as a float."""
    shown = values[..., 0] if values.shape[-1] == 1 else values
    return shown if shown.ndim else float(shown)
