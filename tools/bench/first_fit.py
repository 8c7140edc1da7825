"""The first fit on a machine: a script with an empty cache of kernels, and what each kernel takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from tools.bench import common
from tools.bench.runner import Clock, Figures

#: Scripts whose first answer a user waits for.
SCRIPTS = {
    "dense": """
import numpy as np
import fcl.estimators
random = np.random.default_rng(0)
X = random.normal(size=(500, 20))
y = X[:, 0] - X[:, 1] + random.normal(size=500) > 0
fcl.estimators.FCLClassifier().fit(X, y)
""",
    "kmers": """
import numpy as np
import fcl
random = np.random.default_rng(0)
X = random.integers(0, 4, (2000, 30)).astype(np.uint8)
y = ((X[:, 10] == 2) & (X[:, 11] != 3)) ^ (random.random(2000) < 0.1)
fcl.train(fcl.open_data(X, y=y), "kmers:d=6", C=0.1)
""",
}

#: Records the processor seconds of each kernel, without those of the kernels that it calls.
RECORDER = """
import json
import time
from numba.core import event

class Recorder(event.Listener):
    def __init__(self):
        self.open, self.kernels = [], []

    def on_start(self, event):
        self.open.append([time.thread_time(), 0.0])

    def on_end(self, event):
        since, inner = self.open.pop()
        seconds = time.thread_time() - since
        if self.open:
            self.open[-1][1] += seconds
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('fcl.kernels.')}.{function.__qualname__}"
        self.kernels.append([name, seconds - inner])

recorder = Recorder()
event.register("numba:compile", recorder)
"""


def script(name: str) -> str:
    """The script of a case."""
    return SCRIPTS[name]


def first_fit(code: str, clock: Clock, cache: str = "empty", kernels: int = 0) -> list[Figures]:
    """Run a script in a fresh interpreter.

    Parameters
    ----------
    code : str
    clock : Clock
        Runs from the start of the interpreter to its end.
    cache : {"empty", "full"}
        Whether the kernels are still to be compiled.
    kernels : int
        The number of slowest kernels that have a line of their own.
    """
    with tempfile.TemporaryDirectory(prefix="fcl-first-") as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "FCL_QUIET": "1"}
        environment["PYTHONPATH"] = str(common.ROOT)
        report = "\nprint(json.dumps(recorder.kernels))"
        command = [sys.executable, "-c", RECORDER + code + report]

        def run() -> str:
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            return done.stdout

        if cache == "full":
            run()
        with clock:
            said = run()
    compiled: list[tuple[str, float]] = json.loads(said.splitlines()[-1])
    total: Figures = {"kernels": len(compiled), "compiling": sum(own for _, own in compiled)}
    by_name: dict[str, Figures] = {}
    for name, own in compiled:
        line = by_name.setdefault(name, {"line": name, "kernels": 0, "compiling": 0.0})
        line["kernels"] += 1
        line["compiling"] += own
        line["seconds"] = line["processor"] = None
    slowest = sorted(by_name.values(), key=lambda line: -line["compiling"])
    return [total, *slowest[:kernels]]
