"""Fault injection for tests.

``fault("before-commit")`` marks a point where a process may fail. The environment variable FCL_FAULT
lists the faults, separated by commas, each as ``role:number:point:count:action``. When that process
reaches that point for the count-th time (from 1), it acts: ``kill`` (SIGKILL), ``stop`` (SIGSTOP),
``raise`` or ``exit``. Only the first process of a role and number fails, not its replacements, unless
the action ends in ``!``. Without the variable a point costs almost nothing.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "FCL_FAULT"
EXIT_CODE = 70
ACTIONS = ("kill", "stop", "raise", "exit")

# point -> list of (arrivals still to come, action)
_armed: dict[str, list[tuple[int, str]]] = {}


class InjectedFault(RuntimeError):
    """Raised by the action ``raise``."""


def fault(point: str) -> None:
    """Fail here, if FCL_FAULT says so."""
    if not _armed or point not in _armed:
        return
    due = [action for count, action in _armed[point] if count == 1]
    _armed[point] = [(count - 1, action) for count, action in _armed[point] if count > 1]
    for action in due:
        _act(point, action)


def arm(role: str, number: int, incarnation: int) -> None:
    """Arm the faults of FCL_FAULT that are meant for this process.

    incarnation : 0 for the first process of its role and number.

    Raises ValueError if the variable cannot be parsed.
    """
    _armed.clear()
    for item in filter(None, os.environ.get(VARIABLE, "").split(",")):
        try:
            who, which, point, count, action = item.rsplit(":", 4)
            at, n = int(which), int(count)
        except ValueError:
            raise _unreadable(item) from None
        if n < 1 or action.removesuffix("!") not in ACTIONS:
            raise _unreadable(item)
        if (who, at) == (role, number) and (incarnation == 0 or action.endswith("!")):
            _armed.setdefault(point, []).append((n, action.removesuffix("!")))


def _unreadable(item: str) -> ValueError:
    return ValueError(
        f"{VARIABLE}: expected role:number:point:count:action with a count from 1 and an action "
        f"among {', '.join(ACTIONS)}, got {item!r}"
    )


def _act(point: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "exit":
        os._exit(EXIT_CODE)
    else:
        raise InjectedFault(f"fault injected at {point!r}")
