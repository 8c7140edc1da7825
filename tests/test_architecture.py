"""Imports go one way: from commands down to kernels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "fcl"

#: Folders by level; a module imports from its own level and from those below.
LEVELS = (
    ("cli", "estimators"),
    ("drivers",),
    ("solve",),
    ("cache", "features", "data", "model"),
    ("objective",),
    ("kernels",),
)
LEVEL = {folder: number for number, folders in enumerate(LEVELS) for folder in folders}


def imported(path: Path) -> Iterator[str]:
    """Folders of fcl that a module imports from, types aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "fcl":
                names = [f"fcl.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fcl" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("folder", LEVEL)
def test_imports_go_down(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        up = {name for name in imported(path) if LEVEL.get(name, len(LEVELS)) < LEVEL[folder]}
        # the events of a driver are what the commands show; nothing below knows them
        assert not up, f"{path.relative_to(ROOT)} imports from above: {', '.join(sorted(up))}"


def test_the_check_sees_imports() -> None:
    assert "solve" in set(imported(ROOT / "drivers" / "inline.py"))
    assert set(LEVEL) <= {path.name for path in ROOT.iterdir() if path.is_dir()}
