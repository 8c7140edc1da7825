"""Faults on demand, for tests: ``fault("before-commit")`` marks a point where a process may fail.

The environment variable FCL_FAULT says where: ``role:number:point:count:action``, several separated by
commas. At the count-th arrival (from 1) of that process at that point the action is taken: ``kill``
(SIGKILL), ``stop`` (SIGSTOP), ``raise`` or ``exit``. It fires in the first process of that role and
number alone, not in those that replace it, unless the action ends in ``!``. Without the variable a
point costs one look-up.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "FCL_FAULT"
EXIT_CODE = 70
ACTIONS = ("kill", "stop", "raise", "exit")

# point -> list of [arrivals still to come, action]
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
    """Say who this process is: of FCL_FAULT, what is meant for it counts from now on.

    Raises ValueError if the variable cannot be read.
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
