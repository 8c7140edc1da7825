#!/usr/bin/env python3
"""Change random places of the code, one at a time, and see whether the tests notice.

    python tools/mutate.py --map tests.json                               # who runs which line, once
    python tools/mutate.py --map tests.json --out mutants.jsonl           # an hour on two cores
    python tools/mutate.py --map tests.json --out mutants.jsonl           # again: continues
    python tools/mutate.py --show mutants.jsonl                           # the score, and the survivors
    python tools/mutate.py --map tests.json --only 17                     # one of them, with its tests

A place is an operator, a comparison, a number, a condition or a statement of a function in the rooms
below, drawn with equal chances for each room, then for each place. The tests of a change are those that
run its lines according to the map, which needs `pip install pytest-cov`: first those of its room, then
the quick ones, up to about a minute. The first failure ends them. Kernels, whose lines no map has, run
with NUMBA_DISABLE_JIT=1 and the tests of tests/kernels first, then compiled with the tests of the lines
that call them. The same seed and number draw the same places while the code is the same.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: The rooms whose code is changed.
ROOMS = ("solve", "objective", "features", "model", "convert", "kernels")
#: Seconds after which the tests of a change end; a change that makes them hang counts as noticed.
LIMIT = 600
#: Seconds, and number, of the tests of a change.
MOST_SECONDS, MOST_TESTS = 60.0, 400
#: Tests that are run before the others.
FEW = 25
KERNEL_TESTS = ["tests/kernels", "--ignore=tests/kernels/test_compilation.py"]
SWAPPED: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Place:
    """A change: of the ``number``-th node of a file, in the order of ``ast.walk``."""

    room: str
    file: str
    number: int
    line: int
    change: str


# -- places ----------------------------------------------------------------------------------------


def changed(node: ast.AST) -> tuple[ast.expr | ast.stmt, str, str] | None:
    """What a change replaces, the new text, and the change in words; None if nothing can be changed."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return node.test, f"(not ({ast.unparse(node.test)}))", "condition"
    if isinstance(node, ast.AugAssign | ast.Assign) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    ):
        return node, "pass", "statement removed"
    other: Any = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in SWAPPED:
        other.ops[0] = SWAPPED[type(other.ops[0])]()
        words = "comparison"
    elif isinstance(other, ast.BinOp | ast.BoolOp) and type(other.op) in SWAPPED:
        other.op = SWAPPED[type(other.op)]()
        words = "operator"
    elif isinstance(other, ast.Constant) and isinstance(other.value, bool):
        other.value = not other.value
        words = "truth"
    elif isinstance(other, ast.Constant) and isinstance(other.value, int | float):
        other.value += 1
        words = "number"
    else:
        return None
    assert isinstance(node, ast.expr)
    return node, f"({ast.unparse(other)})", words


def places(path: Path, room: str) -> Iterator[Place]:
    """The places of a file that can be changed: those within functions, but for messages."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inside |= {child for statement in node.body for child in ast.walk(statement)}
    for node in ast.walk(tree):
        # what only says something, and assertions, which check what must hold anyway
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            inside -= set(ast.walk(node))
    for number, node in enumerate(ast.walk(tree)):
        if node in inside and (found := changed(node)):
            name = path.relative_to(ROOT).as_posix()
            yield Place(room, name, number, found[0].lineno, found[2])


def draw(n: int, seed: int) -> list[Place]:
    """The places of a seed."""
    found = {
        room: [
            place
            for path in sorted((ROOT / "fcl" / room).rglob("*.py"))
            for place in places(path, room)
        ]
        for room in ROOMS
    }
    chance = random.Random(seed)
    chosen: dict[Place, None] = {}
    while len(chosen) < n:
        chosen[chance.choice(found[chance.choice(list(ROOMS))])] = None
    return list(chosen)


def mutated(place: Place) -> str:
    """The text of the file of a place with the change."""
    text = (ROOT / place.file).read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text))
    found = changed(next(node for number, node in enumerate(nodes) if number == place.number))
    assert found is not None
    node, new, _ = found
    assert node.end_lineno is not None and node.end_col_offset is not None
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # columns count bytes
    first, last = lines[node.lineno - 1], lines[node.end_lineno - 1]
    middle = first[: node.col_offset] + new.encode() + last[node.end_col_offset :]
    return b"".join([*lines[: node.lineno - 1], middle, *lines[node.end_lineno :]]).decode()


# -- tests -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """Which tests run which lines, and how long the tests take."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[int, list[int]]]  #: by file and line, numbers of tests

    @classmethod
    def read(cls, path: Path) -> Map:
        """Read a map, or measure it first if the file does not exist."""
        if not path.exists():
            measure(path)
        found = json.loads(path.read_text(encoding="utf-8"))
        lines = {
            file: {int(line): tests for line, tests in own.items()}
            for file, own in found["lines"].items()
        }
        return cls(found["tests"], found["seconds"], lines)

    def of(self, place: Place) -> list[str]:
        """The tests of a place: those that run its statement, its room's first, then the quickest."""
        own = self.lines.get(place.file, {})
        first, last = statement_lines(ROOT / place.file, place.line)
        numbers = {number for line in range(first, last + 1) for number in own.get(line, [])}
        if place.room == "kernels":
            numbers = {number for tests in self.callers(place) for number in tests}
        if not numbers:  # lines that run in threads of other libraries
            numbers = {number for tests in own.values() for number in tests}
        room = f"tests/{place.room}/"

        def order(number: int) -> tuple[bool, float]:
            return not self.tests[number].startswith(room), self.seconds[number]

        chosen: list[str] = []
        total = 0.0
        for number in sorted(numbers, key=order):
            total += self.seconds[number]
            if chosen and (total > MOST_SECONDS or len(chosen) >= MOST_TESTS):
                break
            chosen.append(self.tests[number])
        return chosen

    def callers(self, place: Place) -> Iterator[list[int]]:
        """Numbers of the tests of each line outside the kernels that names the kernel of a place.

        Kernels that call it count as it.
        """
        texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "fcl").rglob("*.py")}
        kernels = [
            (node, ast.unparse(node))
            for path, text in texts.items()
            if path.parent.name == "kernels"
            for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef)
        ]
        names = {
            node.name
            for node in ast.parse(texts[ROOT / place.file]).body
            if isinstance(node, ast.FunctionDef)
            and node.lineno <= place.line <= (node.end_lineno or node.lineno)
        }
        grown = set[str]()
        while names != grown:
            grown = set(names)
            named = re.compile(rf"\b({'|'.join(map(re.escape, grown))})\b")
            names |= {node.name for node, text in kernels if named.search(text)}
        for path, text in texts.items():
            own = self.lines.get(path.relative_to(ROOT).as_posix(), {})
            if path.parent.name != "kernels":
                for number, line in enumerate(text.splitlines(), 1):
                    if "import" not in line and named.search(line):
                        yield own.get(number, [])


def statement_lines(path: Path, line: int) -> tuple[int, int]:
    """The lines of the statement that a line belongs to; of a compound one, those before its body."""
    best = (line, line)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if isinstance(body, list) and body:
                last = max(node.lineno, body[0].lineno - 1)
            if node.lineno <= line <= last:  # inner statements come after the outer ones
                best = (node.lineno, last)
    return best


def measure(path: Path) -> None:
    """Run all tests that are not slow, and write which of them run which lines."""
    from coverage import CoverageData

    with tempfile.TemporaryDirectory(prefix="fcl-map-") as name:
        data = Path(name) / "coverage"
        options = [
            "-q",
            "-n",
            "2",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "--durations=0",
            "-vv",
        ]
        options += ["--cov=fcl", "--cov-context=test", "--cov-report="]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "COVERAGE_FILE": str(data)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "tests"],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if not data.exists():
            sys.exit(f"no coverage was measured:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        taken: defaultdict[str, float] = defaultdict(float)
        for line in done.stdout.splitlines():
            if found := re.match(r"([\d.]+)s (?:call|setup|teardown) +(tests/.*)$", line):
                taken[found[2]] += float(found[1])
        measured = CoverageData(str(data))
        measured.read()
        numbers: dict[str, int] = {}
        lines: dict[str, dict[int, list[int]]] = {}
        for file in measured.measured_files():
            own = lines.setdefault(Path(file).relative_to(ROOT).as_posix(), {})
            for line_number, contexts in measured.contexts_by_lineno(file).items():
                tests = {context.rpartition("|")[0] for context in contexts} - {""}
                own[line_number] = sorted(numbers.setdefault(test, len(numbers)) for test in tests)
    seconds = [taken[test] for test in numbers]
    path.write_text(json.dumps({"tests": list(numbers), "seconds": seconds, "lines": lines}))


def run_tests(tree: Path, tests: list[str]) -> tuple[bool, str]:
    """Whether the tests pass in a folder, and the first failure; KERNEL_TESTS without compilation."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree), "FCL_QUIET": "1"}
    options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow"]
    if tests is KERNEL_TESTS:  # numbers wrap around without a word in what is compiled
        variables["NUMBA_DISABLE_JIT"] = "1"
        options += ["-W", "ignore::RuntimeWarning"]
    arguments = tree / "arguments.txt"
    arguments.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", *options, f"@{arguments.name}"]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=variables,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, "time-out"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    # an import that fails, of conftest or of a module with tests, is a failure too
    imported = "conftest" not in done.stderr and "found no collectors" not in done.stderr
    if done.returncode > 2 and imported:
        raise RuntimeError(f"pytest {tests[:3]} ...: exit code {done.returncode}: {done.stderr}")
    return done.returncode == 0, failed[0][:200] if failed else f"exit code {done.returncode}"


def examine(place: Place, tree: Path, tests: list[str]) -> dict[str, Any]:
    """Change a place in a copy of the repository, run its tests, and put the file back."""
    path, began = tree / place.file, time.monotonic()
    before, passed, why = path.read_text(encoding="utf-8"), True, ""
    path.write_text(mutated(place), encoding="utf-8")
    try:
        # most changes fall to the first few, which are quick to import
        first = [KERNEL_TESTS] if place.room == "kernels" else []
        for some in filter(None, (*first, tests[:FEW], tests[FEW:])):
            passed, why = run_tests(tree, some)
            if not passed:
                break
    finally:
        path.write_text(before, encoding="utf-8")
    seconds = round(time.monotonic() - began, 1)
    result = {**asdict(place), "survived": passed, "by": "" if passed else why}
    return {**result, "tests": len(tests), "seconds": seconds}


def copied(folder: Path) -> Path:
    """A copy of what git knows of the repository."""
    tree = folder / "tree"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    return tree


def work(todo: list[tuple[int, Place]], tests: Map, out: Path | None, jobs: int) -> None:
    """Examine places, each worker in a copy of its own, and write a line for each."""
    with tempfile.TemporaryDirectory(prefix="fcl-mutate-") as name:
        trees = [copied(Path(name) / str(k)) for k in range(jobs)]
        passed, why = run_tests(trees[0], KERNEL_TESTS)
        if not passed:
            sys.exit(f"the tests of the kernels fail without a change: {why}")

        def one(numbered: tuple[int, Place]) -> None:
            tree = trees.pop()
            try:
                place = numbered[1]
                result = {**examine(place, tree, tests.of(place)), "number": numbered[0]}
            finally:
                trees.append(tree)
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, todo))


def show(path: Path) -> None:
    """Print the score by room, and the changes that no test noticed."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    total: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    for row in rows:
        total[row["room"]] += 1
        survived[row["room"]] += row["survived"]
    for room, n in total.items():
        sys.stdout.write(f"{room:10} {n - survived[room]:3} of {n:3} noticed\n")
    n, left = total.total(), survived.total()
    sys.stdout.write(f"all        {n - left} of {n} noticed: {(n - left) / max(n, 1):.1%}\n")
    for row in rows:
        if row["survived"]:
            text = f"{row['number']}: {row['file']}:{row['line']}: {row['change']}"
            sys.stdout.write(text + "\n")


def main() -> None:
    """Examine the places of a seed, or show a file of results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--map", type=Path, default="tests.json", help="which tests run which lines"
    )
    parser.add_argument("--out", type=Path, help="file of results, a line for each; continues it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, help="examine only the place of this number")
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="show results, and do nothing else"
    )
    args = parser.parse_args()
    if args.show is not None:
        show(args.show)
        return
    todo = list(enumerate(draw(args.places, args.seed)))
    if args.only is not None:
        todo = [todo[args.only]]
    elif args.out is not None and args.out.exists():
        lines = args.out.read_text(encoding="utf-8").splitlines()
        done = {json.loads(line)["number"] for line in lines}
        todo = [numbered for numbered in todo if numbered[0] not in done]
    work(todo, Map.read(args.map), args.out, args.jobs)


if __name__ == "__main__":
    main()
