"""Imports go one way: from commands down to kernels, and never in a circle."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent / "fcl"

#: Folders by level; a module imports from its own level and from those below.
LEVELS = (
    ("cli", "estimators", "testing"),
    ("report", "path", "scoring", "stagewise"),
    ("drivers", "convert"),
    ("run",),
    ("solve", "online"),
    ("cache", "files", "model", "options"),
    ("features", "data"),
    ("objective",),
    ("kernels", "store", "memory"),
)
LEVEL = {folder: number for number, folders in enumerate(LEVELS) for folder in folders}


class Import(NamedTuple):
    """An import of one fcl module by another; types : for annotations only."""

    by: str
    module: str
    types: bool


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in ROOT.rglob("*.py")}


def imports_of(by: str, node: ast.AST, types: bool = False) -> Iterator[Import]:
    """All imports below a syntax node: at load time, in functions, and for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom) and child.module:
            whole = [f"{child.module}.{alias.name}" for alias in child.names]
            names = [name if name in MODULES else child.module for name in whole]
        else:
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from imports_of(by, child, types or guarded)
            continue
        yield from (Import(by, name, types) for name in names if name in MODULES)


@functools.cache
def all_imports() -> list[Import]:
    found = []
    for name, path in MODULES.items():
        found += imports_of(name, ast.parse(path.read_text(encoding="utf-8")))
    return found


def folder(module: str) -> str:
    """The folder of fcl that contains a module, or the module itself if it is in no folder."""
    return ".".join(module.split(".")[:2])


def package(module: str) -> str:
    """The innermost folder that contains a module."""
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def circle(imports: list[Import], unit: Callable[[str], str]) -> list[str]:
    """Units that import each other in a circle; empty if there are none."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        if unit(found.by) != unit(found.module):
            graph.setdefault(unit(found.by), set()).add(unit(found.module))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.slow
@pytest.mark.parametrize("own", LEVEL)
def test_imports_go_down(own: str) -> None:
    for found in all_imports():
        if folder(found.by) == f"fcl.{own}":
            level = LEVEL.get(folder(found.module).removeprefix("fcl."), len(LEVELS))
            # the door of the package leads to all of it
            assert level >= LEVEL[own] and found.module != "fcl", f"{found} goes up"


def test_folders_do_not_import_in_a_circle() -> None:
    assert not circle(all_imports(), folder)


def test_modules_do_not_import_in_a_circle() -> None:
    """Imports inside functions count; circles for types may only occur in the folder of a family."""
    imports = all_imports()
    assert not circle([found for found in imports if not found.types], str)
    across = [
        found
        for found in imports
        if not found.types
        or package(found.by) != package(found.module)
        or not package(found.by).startswith("fcl.features.")
    ]
    assert not circle(across, str)


def test_stagewise_needs_neither_solver_nor_cache() -> None:
    for found in all_imports():
        if folder(found.by) == "fcl.stagewise":
            assert folder(found.module) not in ("fcl.solve", "fcl.cache"), found


@pytest.mark.parametrize("own", ["features", "objective", "cache", "solve"])
def test_named_tuples_for_kernels_are_defined_among_kernels(own: str) -> None:
    """Compiled code refers to fields by position, and the key of its cache covers fcl/kernels alone."""
    for name, path in MODULES.items():
        if folder(name) == f"fcl.{own}":
            assert "namedtuple" not in path.read_text(encoding="utf-8").lower(), name


def imported_at_load(node: ast.AST) -> Iterator[str]:
    """Packages that a module imports when it is loaded: not in functions, and not for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").partition(".")[0]
        elif not isinstance(child, ast.FunctionDef | ast.If):
            yield from imported_at_load(child)


@pytest.mark.parametrize("extra", ["pyarrow", "bed_reader"])
def test_extras_are_imported_inside_functions(extra: str) -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    using = {name: text for name, text in texts.items() if extra in text}
    assert using
    for name, text in using.items():
        assert extra not in imported_at_load(ast.parse(text)), name
    assert extra in imported_at_load(ast.parse(f"class A:\n    from {extra}.b import c"))


def lost_texts(tree: ast.AST) -> list[int]:
    """Lines of statements that are a text, but no docstring: the rest of a text without brackets."""
    named = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    docstrings = {node.body[0] for node in ast.walk(tree) if isinstance(node, named) and node.body}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and node not in docstrings
        and (
            isinstance(node.value, ast.JoinedStr)
            or (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | bytes))
        )
    ]


@pytest.mark.slow
def test_no_text_is_lost() -> None:
    """Ruff has no rule for this (pylint's W0105)."""
    files = [*ROOT.rglob("*.py")]
    for folder_name in ("examples", "tests", "tools"):
        files += (ROOT.parent / folder_name).rglob("*.py")
    assert len(files) > 500
    lost = {path: lost_texts(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    assert {path: lines for path, lines in lost.items() if lines} == {}
    source = 'def f(x):\n    "doc"\n    y = f"{x} certified for "\n    "what"\n    f"{x}"\n    return y\n'
    assert lost_texts(ast.parse(source)) == [4, 5]
