"""A trace of each job of jobs.py: what every pass found, to the last bit.

The driver inline is deterministic: the same versions on the same processor give the same bits. A change
that only rearranges code therefore leaves all traces equal. `python3 tools/dev.py traces` compares them.

    python tests/traces.py OUT                write the traces of the fcl that Python imports
    python tests/traces.py --compare OLD NEW  say what differs; the exit code is then 1
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Job, jobs

STORED = Path(__file__).parent / "traces.json"
#: Libraries whose versions may change the bits.
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite")
#: Figures of a pass that a trace keeps.
FIGURES = ("objective", "bound", "max_violation", "beta", "priced", "cached", "active", "evicted")
#: Passes whose model a trace keeps; those after them have their figures alone.
MOST_MODELS = 8


def trace(job: Job) -> dict[str, Any]:
    """The figures of every pass, and the active ids and weights after the first passes and the last."""
    whole = job.train(max_passes=60)
    passes = [{name: _exact(entry[name]) for name in FIGURES} for entry in whole.model.history]
    first = range(1, min(MOST_MODELS, len(passes) - 1))
    models = {str(k): _model(job.train(max_passes=k).model) for k in first}
    return {"passes": passes, "models": models, "last": _model(whole.model)}


def _model(model: Any) -> dict[str, str]:
    ids = np.asarray(model.ids, np.int64)
    bits = model.weights.tobytes() + np.asarray(model.intercept, float).tobytes()
    return {"ids": f"{len(ids)} {_hash(ids.tobytes())}", "weights": _hash(bits)}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _exact(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


def machine() -> str:
    """The processor and the versions that determine the bits."""
    import numba
    from llvmlite import binding

    own = numba.config.CPU_NAME or binding.get_host_cpu_name()
    cpu = f"{platform.machine()} {own} {os.environ.get('NPY_DISABLE_CPU_FEATURES', '')}".rstrip()
    versions = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    return ", ".join([cpu, f"Python {sys.version_info[0]}.{sys.version_info[1]}", *versions])


def traces() -> dict[str, Any]:
    """The traces of all jobs, with the machine; an earlier fcl may lack the options of some."""
    import fcl

    known = inspect.signature(fcl.train).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known.values())
    own = [job for job in jobs() if takes_all or job.options.keys() <= known.keys()]
    return {"machine": machine(), "jobs": {job.name: trace(job) for job in own}}


# -- comparison ------------------------------------------------------------------------------------


def differences(name: str, here: dict[str, Any], there: dict[str, Any], exact: bool) -> list[str]:
    """What differs between two traces of a job, in words.

    exact : whether all bits must agree, as with the same versions on the same processor. Elsewhere sums
        are rounded otherwise, which decides when a descent ends: then the objectives of the empty model
        must agree to 1e-9, the last ones to the gaps of both certificates, and the numbers of passes and
        of active features roughly.
    """
    now, then = here["passes"], there["passes"]
    if not exact:
        return _rough_differences(name, now, then)
    found = []
    if len(now) != len(then):
        found.append(f"{name}: {len(then)} passes, now {len(now)}")
    for number, (after, before) in enumerate(zip(now, then, strict=False)):
        for key in after:
            a, b = _number(before[key]), _number(after[key])
            if a != b:
                by = f" ({(b - a) / abs(a):+.1e})" if a and b is not None else ""
                found.append(f"{name}: pass {number}, {key}: {a}, now {b}{by}")
        if found:
            break  # what follows differs for the same reason
    models = {"last": there["last"], **there["models"]}
    for key, before in models.items():
        after = {"last": here["last"], **here["models"]}.get(key, before)
        if after["ids"] != before["ids"]:
            found.append(f"{name}: model {key}: ids {before['ids']}, now {after['ids']}")
        elif after != before:
            found.append(f"{name}: model {key}: other weights")
    return found


def _rough_differences(
    name: str, now: list[dict[str, Any]], then: list[dict[str, Any]]
) -> list[str]:
    """What differs by more than rounding can explain."""
    limits = {"passes": max(2, len(then) // 4), "active": 2 + then[-1]["active"] // 20}
    ends = {"passes": (len(then), len(now)), "active": (then[-1]["active"], now[-1]["active"])}
    objectives = {
        "first objective": (then[0], now[0], 1e-9),
        "last objective": (then[-1], now[-1], 0.0),
    }
    for key, (before, after, share) in objectives.items():
        a, b = _number(before["objective"]), _number(after["objective"])
        gaps = [a - _number(before["bound"]), b - _number(after["bound"])]
        limits[key] = share * abs(a) if share else max(gaps)
        ends[key] = (a, b)
    return [
        f"{name}: {key}: {before}, now {after}"
        for key, (before, after) in ends.items()
        if not abs(after - before) <= limits[key]
    ]


def _number(value: Any) -> Any:
    return float.fromhex(value) if isinstance(value, str) else value


def compare(old: Path, new: Path) -> int:
    """Print what differs between two files; returns 1 if anything does."""
    then, now = json.loads(old.read_text()), json.loads(new.read_text())
    exact = then["machine"] == now["machine"]
    if not exact:
        sys.stdout.write(f"other machine: {then['machine']}; now {now['machine']}\n")
    found, changed = [], 0
    for name, trace_now in now["jobs"].items():
        if name in then["jobs"]:
            own = differences(name, trace_now, then["jobs"][name], exact)
            changed += bool(own)
            found += own
    lines = [*found, f"{changed} of {len(now['jobs'])} traces differ"]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(changed > 0)


def main() -> None:
    """Write the traces to a file, or compare two files."""
    if sys.argv[1] == "--compare":
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    Path(sys.argv[1]).write_text(json.dumps(traces(), indent=0) + "\n")


if __name__ == "__main__":
    main()
