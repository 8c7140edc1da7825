"""Random inputs for all commands, files and arrays: each must succeed, or fail with one message.

    python -m tools.fuzz --runs 10000 --seed 0 --jobs 2
    python -m tools.fuzz --seed 0 --only 4711             # one case; its folder is kept

README.md beside this file says what is checked. The exit code is 1 if any case failed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, os.fspath(ROOT))

from tools.fuzz.kinds import KINDS  # noqa: E402
from tools.fuzz.worker import Result, again, kind_of, serve  # noqa: E402

#: Seconds that a worker may take to load all kernels, or to compile them.
WARM_UP = 600.0


class Remote:
    """A worker in a process of its own, which is replaced if it hangs or dies."""

    def __init__(self, seed: int, wanted: list[str], folder: Path, limit: float) -> None:
        self.seed, self.wanted, self.folder, self.limit = seed, wanted, folder, limit
        self.process: subprocess.Popen[bytes] | None = None
        self.incarnation = 0
        self.unread = b""

    def do(self, number: int) -> dict[str, Any]:
        """Run a case, and return its result."""
        if self.process is None:
            self.start()
        assert self.process is not None and self.process.stdin is not None
        began = time.monotonic()
        self.process.stdin.write(b"%d\n" % number)
        self.process.stdin.flush()
        # The worker itself reports a process that exceeds the limit; so wait a little longer here.
        begun = self._answer(self.limit + 10.0)
        line = self._answer(self.limit + 10.0) if begun else b""
        if line:
            return dict(json.loads(line))
        code = self.process.poll()
        self.stop()
        result = asdict(Result(number, kind_of(self.seed, number, self.wanted)))
        result["again"] = again(self.seed, number, self.wanted)
        result |= json.loads(begun or "{}")
        result["outcome"] = "hang" if code is None else "crash"
        result["faults"] = ["hang" if code is None else f"crash: exit code {code}"]
        result["seconds"] = round(time.monotonic() - began, 3)
        return result

    def start(self) -> None:
        """Start a process, and wait until its kernels are loaded."""
        self.incarnation += 1
        place = self.folder / f"worker-{self.incarnation}"
        arguments = ["--serve", os.fspath(place), "--seed", str(self.seed)]
        arguments += ["--kinds", ",".join(self.wanted), "--limit", str(self.limit)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.fuzz", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )
        if not self._answer(WARM_UP):
            self.stop()
            raise SystemExit("fuzz: a worker did not start")

    def _answer(self, limit: float) -> bytes:
        """Read a line; empty if it does not come in time, or if the worker is gone."""
        assert self.process is not None and self.process.stdout is not None
        until = time.monotonic() + limit
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.unread:
            if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                return b""
            part = os.read(descriptor, 1 << 16)
            if not part:
                self.process.wait()
                return b""
            self.unread += part
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def stop(self) -> None:
        """Kill the worker and all processes that it has started."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process, self.unread = None, b""


def run_all(
    numbers: list[int], seed: int, wanted: list[str], jobs: int, folder: Path, limit: float
) -> Iterator[dict[str, Any]]:
    """Run cases on several workers, and yield their results as they arrive."""
    waiting = collections.deque(numbers)
    results: collections.deque[dict[str, Any]] = collections.deque()
    failed: list[BaseException] = []

    def work(remote: Remote) -> None:
        try:
            while waiting and not failed:
                try:
                    number = waiting.popleft()
                except IndexError:
                    break
                results.append(remote.do(number))
        except BaseException as error:
            failed.append(error)
        finally:
            remote.stop()

    remotes = [Remote(seed, wanted, folder / f"job-{job}", limit) for job in range(jobs)]
    threads = [threading.Thread(target=work, args=(remote,), daemon=True) for remote in remotes]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads) or results:
            while results:
                yield results.popleft()
            time.sleep(0.05)
    finally:
        waiting.clear()
        failed.append(KeyboardInterrupt())
        for remote in remotes:
            remote.stop()
    if isinstance(failed[0], SystemExit):
        raise failed[0]


def class_of(fault: str) -> str:
    """The class of a fault: its text without numbers and names."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*", "*", fault)[:110]


def summary(results: list[dict[str, Any]]) -> list[str]:
    """Counts by kind and outcome, then the classes of faults with the first cases of each."""
    outcomes = sorted({r["outcome"] for r in results})
    lines = [
        "",
        " ".join(f"{word:>10}" for word in ("kind", "runs", *outcomes, "failed", "seconds")),
    ]
    for kind in [*KINDS, "all"]:
        some = [r for r in results if kind in (r["kind"], "all")]
        if not some:
            continue
        cells: list[Any] = [kind, len(some)]
        cells += [sum(r["outcome"] == outcome for r in some) for outcome in outcomes]
        cells += [sum(bool(r["faults"]) for r in some), f"{sum(r['seconds'] for r in some):.0f}"]
        lines.append(" ".join(f"{cell:>10}" for cell in cells))
    classes: dict[str, list[int]] = {}
    for result in results:
        for fault in dict.fromkeys(map(class_of, result["faults"])):
            classes.setdefault(fault, []).append(result["case"])
    lines += [""] if classes else []
    for fault, found in sorted(classes.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(found):5}  {fault}   (cases {', '.join(map(str, found[:4]))})")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of: " + ", ".join(KINDS))
    parser.add_argument("--limit", type=float, default=30.0, help="most seconds for one case")
    parser.add_argument(
        "--out", type=Path, default=Path("fuzz.jsonl"), help="file of failures, as JSON lines"
    )
    parser.add_argument("--folder", type=Path, help="folder for the files of failed cases")
    parser.add_argument("--only", type=int, help="run only the case with this number")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    wanted = [kind for kind in args.kinds.split(",") if kind]
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; expected {', '.join(KINDS)}")
    if args.serve is not None:
        serve(args.seed, wanted, args.serve, args.limit)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the workers end with it
    folder = args.folder or Path(tempfile.mkdtemp(prefix="fcl-fuzz-"))
    if args.only is not None:
        numbers, jobs = [args.only], 1
    else:
        numbers, jobs = list(range(args.first, args.first + args.runs)), args.jobs
    results = []
    began = time.monotonic()
    with args.out.open("w") if args.only is None else open(os.devnull, "w") as out:
        for result in run_all(numbers, args.seed, wanted, jobs, folder, args.limit):
            results.append(result)
            if result["faults"]:
                out.write(json.dumps(result) + "\n")
                out.flush()
            if len(results) % 500 == 0:
                bad = sum(bool(r["faults"]) for r in results)
                spent = time.monotonic() - began
                print(
                    f"{len(results)} of {len(numbers)} in {spent:.0f} s, {bad} failed", flush=True
                )
    if args.only is not None:
        print(json.dumps(results[0], indent=1))
    else:
        print("\n".join(summary(results)))
    failed = any(result["faults"] for result in results)
    if failed or args.only is not None:
        print(f"files: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
