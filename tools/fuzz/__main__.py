"""Random inputs and faults: each case must succeed, or fail with one message, and leave nothing behind.

    python -m tools.fuzz --runs 10000 --seed 0 --jobs 2
    python -m tools.fuzz --runs 200 --kinds fault          # jobs that are killed, stopped, ...
    python -m tools.fuzz --runs 10 --kinds fault:trainer   # cases with this in their name
    python -m tools.fuzz --seed 0 --only 4711              # one case; its folder is kept

docs/explanation/fuzzing.md says what is checked. The exit code is 1 if any case failed. On a busy
machine, set FCL_FAULTS_PATIENCE=10 to multiply all time limits by 10.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, os.fspath(ROOT))

from tools.fuzz.kinds import KINDS  # noqa: E402
from tools.fuzz.run import PATIENCE  # noqa: E402
from tools.fuzz.worker import new_result, serve  # noqa: E402

#: Seconds that a worker may take to load all kernels, or to compile them.
WARM_UP = 600.0


class Remote:
    """A worker in a process of its own, which is replaced if it hangs or dies."""

    def __init__(
        self, seed: int, wanted: list[str], folder: Path, patience: float = PATIENCE
    ) -> None:
        self.seed, self.wanted, self.folder, self.patience = seed, wanted, folder, patience
        self.process: subprocess.Popen[bytes] | None = None
        self.incarnation = 0
        self.unread = b""

    def do(self, number: int) -> dict[str, Any]:
        """Run a case, and return its result."""
        if self.process is None:
            self.start()
        assert self.process is not None and self.process.stdin is not None
        began = time.monotonic()
        result = asdict(new_result(self.seed, number, self.wanted))
        self.process.stdin.write(b"%d\n" % number)
        self.process.stdin.flush()
        # The worker itself reports a process that exceeds the limit; so wait a little longer here.
        limit = KINDS[result["kind"]].limit * self.patience + 10.0
        begun = self._answer(limit)
        line = self._answer(limit) if begun else b""
        if line:
            return dict(json.loads(line))
        code = self.process.poll()
        self.stop()
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
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.fuzz", *arguments, "--kinds", ",".join(self.wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "FCL_FAULTS_PATIENCE": str(self.patience)},
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
        started: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            started = psutil.Process(self.process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in started:  # some have sessions of their own
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process, self.unread = None, b""


def run_all(
    numbers: list[int], seed: int, wanted: list[str], jobs: int, folder: Path
) -> Iterator[dict[str, Any]]:
    """Run cases on several workers, and yield their results as they arrive."""
    remotes = [Remote(seed, wanted, folder / f"job-{job}") for job in range(jobs)]
    free = queue.SimpleQueue[Remote]()
    for remote in remotes:
        free.put(remote)

    def run_one(number: int) -> dict[str, Any]:
        remote = free.get()
        try:
            return remote.do(number)
        finally:
            free.put(remote)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in as_completed([pool.submit(run_one, number) for number in numbers]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for remote in remotes:
                remote.stop()


def class_of(fault: str) -> str:
    """The class of a fault: its text without numbers and names."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*", "*", fault)[:110]


def summary(results: list[dict[str, Any]]) -> list[str]:
    """Counts by group and outcome, then the classes of faults with the first cases of each."""
    outcomes = sorted({r["outcome"] for r in results})
    rows = [["cases", "runs", *outcomes, "failed", "seconds"]]
    for group in [*sorted({r["group"] for r in results}), "all"]:
        some = [r for r in results if group in (r["group"], "all")]
        cells = [group, len(some)]
        cells += [sum(r["outcome"] == outcome for r in some) or "" for outcome in outcomes]
        cells += [sum(bool(r["faults"]) for r in some), round(sum(r["seconds"] for r in some))]
        rows.append([str(cell) for cell in cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [""]
    for first, *others in rows:
        aligned = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *aligned]))
    for name in ("stop_seconds", "lost_seconds", "lost_passes"):
        if found := [r["figures"][name] for r in results if name in r["figures"]]:
            lines.append(f"most {name}: {max(found)}")
    classes: dict[str, list[int]] = {}
    for result in results:
        for fault in dict.fromkeys(map(class_of, result["faults"])):
            classes.setdefault(fault, []).append(result["case"])
    lines += [""] if classes else []
    for fault, cases in sorted(classes.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(cases):5}  {fault}   (cases {', '.join(map(str, cases[:4]))})")
    return lines


def read_results(path: Path) -> list[dict[str, Any]]:
    """The results of an earlier campaign, without an incomplete last line."""
    results = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            results.append(json.loads(line))
    return results


def main() -> int:
    """Run the cases; return the exit code."""
    quick = [kind for kind in KINDS if KINDS[kind].is_quick]
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", default=",".join(quick), help="some of: " + ", ".join(KINDS))
    parser.add_argument(
        "--out", type=Path, default=Path("fuzz.jsonl"), help="file of results, as JSON lines"
    )
    parser.add_argument("--resume", action="store_true", help="continue the campaign in --out")
    parser.add_argument("--only", type=int, help="run only the case with this number")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    wanted = [kind for kind in args.kinds.split(",") if kind]
    if unknown := [kind for kind in wanted if kind.partition(":")[0] not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; expected {', '.join(KINDS)}")
    if args.serve is not None:
        serve(args.seed, wanted, args.serve)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the workers end with it
    folder = Path(tempfile.mkdtemp(prefix="fcl-fuzz-"))
    if args.only is not None:
        result = next(run_all([args.only], args.seed, wanted, 1, folder))
        print(json.dumps(result, indent=1))
        print(f"files: {folder}")
        return 1 if result["faults"] else 0
    if args.out.exists() and not args.resume:
        parser.error(f"{args.out} exists; add --resume, or name another file with --out")
    results = read_results(args.out)
    done = {result["case"] for result in results}
    numbers = [number for number in range(args.runs) if number not in done]
    began = time.monotonic()
    with args.out.open("a") as out:
        for result in run_all(numbers, args.seed, wanted, args.jobs, folder):
            results.append(result)
            out.write(json.dumps(result) + "\n")
            out.flush()
            if result["faults"] or not KINDS[result["kind"]].is_quick:
                words = "; ".join(result["faults"])[:200] or result["outcome"]
                about = ", ".join(result["notes"][:1])[:40]
                print(
                    f"{result['case']:5} {about:40} {result['seconds']:6.1f} s  {words}", flush=True
                )
            if len(results) % 500 == 0:
                spent = time.monotonic() - began
                print(f"{len(results)} of {args.runs} in {spent:.0f} s", flush=True)
    print("\n".join(summary(results)))
    if not any(result["faults"] for result in results):
        shutil.rmtree(folder)
        return 0
    print(f"files: {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
