"""Figures of the structure of the code, which may only fall.

`ratchets.toml` has a figure for each. A test that finds less writes the new figure there. A figure may be
raised only together with a line `reason = ...`, which goes again when the figure falls.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).parent / "ratchets.toml"
#: Options of training that stand for all: named in the most files, and by most kinds of jobs.
OPTIONS = ("l1_ratio", "block_rows", "max_passes", "row_view", "standardize")
FOLDERS = ("fcl", "tests", "tools")
#: A condition on one or several outputs.
_BRANCH = re.compile(
    r"n_outputs (==|>|!=|>=|<) [12]|len\([\w.]*outputs\) (==|>) 1|\.ndim (==|>) 1\b"
    r"|(^|\bnot |\band |\bor )[\w.]*\.(outputs|coupled)( and\b| or\b|$)"
)
_CLASS = re.compile(r"^class [A-Za-z_]+", re.MULTILINE)


@functools.cache
def files(folder: str) -> dict[Path, str]:
    """The Python files below a folder of the repository, with their text."""
    return {path: path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py")}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in files("fcl").items()}


def files_that_name(option: str) -> int:
    word = re.compile(rf"\b{option}\b")
    return sum(word.search(text) is not None for text in files("fcl").values())


def double_class_names() -> int:
    names = Counter(name for text in files("fcl").values() for name in _CLASS.findall(text))
    return sum(count > 1 for count in names.values())


def branches_on_outputs() -> int:
    kernels = ROOT / "fcl" / "kernels"
    own = [tree for path, tree in trees().items() if not path.is_relative_to(kernels)]
    conditions = [
        node.test for tree in own for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp)
    ]
    return sum(_BRANCH.search(ast.unparse(condition)) is not None for condition in conditions)


def lines_of(folder: str) -> int:
    return sum(len(text.splitlines()) for text in files(folder).values())


@functools.cache
def public_names() -> set[str]:
    """What users import: names in the __init__ of fcl and of its folders, and modules for authors."""
    found = set()
    for path, tree in trees().items():
        if path.name == "__init__.py":
            found |= {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            found |= {
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    return found


def documented(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The outermost name, and the lines of its docstring, of all that a module defines."""

    def of(node: ast.AST, outer: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = outer or child.name
                text = ast.get_docstring(child)
                yield name, 0 if text is None else len(text.splitlines())
                yield from of(child, name)

    yield from of(tree, "")


def internal_docstring_lines() -> int:
    names = public_names()
    return sum(
        lines for tree in trees().values() for name, lines in documented(tree) if name not in names
    )


def imports_in_functions() -> int:
    found = 0
    for tree in trees().values():
        functions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        inside = {
            child
            for function in functions
            for child in ast.walk(function)
            if isinstance(child, ast.Import | ast.ImportFrom)
        }
        found += len(inside)
    return found


FIGURES: dict[str, Callable[[], int]] = {
    **{f"files-that-name-{name}": functools.partial(files_that_name, name) for name in OPTIONS},
    "class-names-that-exist-twice": double_class_names,
    "branches-on-the-number-of-outputs": branches_on_outputs,
    **{f"lines-of-{folder}": functools.partial(lines_of, folder) for folder in FOLDERS},
    "lines-of-internal-docstrings": internal_docstring_lines,
    "imports-in-functions": imports_in_functions,
}


def check(name: str, figure: int, table: Path = TABLE) -> str:
    """Why a figure is not allowed, or an empty text; writes a lower figure to the table."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(table.read_text(encoding="utf-8"))
    row = rows[name]
    if figure > row["lowest"] and not (figure <= row.get("raised", 0) and row.get("reason")):
        return (
            f"{name} is {figure}, was {row['lowest']}; make it smaller, or add to {table.name}, below "
            f"[{name}]: raised = {figure}, and a line reason = ..."
        )
    if figure < row["lowest"]:
        rows[name] = {"lowest": figure}
        write(rows, table)
    return ""


def write(rows: dict[str, dict[str, Any]], table: Path) -> None:
    """Write the table; of a row, first the lowest figure, then what raises it."""
    text = [
        "# The figures of test_ratchets.py. They fall by themselves; see there how to raise one.",
        "",
    ]
    for name, row in rows.items():
        text.append(f"[{name}]")
        for key, value in row.items():
            text.append(f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"')
        text.append("")
    table.write_text("\n".join(text), encoding="utf-8")


def test_figures_only_fall() -> None:
    """One test for all figures, since several processes would overwrite each other's table."""
    faults = [check(name, figure()) for name, figure in FIGURES.items()]
    assert not any(faults), "\n".join(filter(None, faults))


def test_the_table_has_exactly_these_figures() -> None:
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    assert list(rows) == list(FIGURES)
    for row in rows.values():
        assert ("raised" in row) == bool(row.get("reason", "").strip())
