"""The code of README.md and of the pages of docs/ runs, and prints what they show (tools/pages.py)."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fcl.cli import COMMANDS

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import pages
finally:
    sys.path.pop(0)

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [
    page
    for page in PAGES
    if any(
        block.language in ("sh", "python", "console") for block in pages.blocks(page.read_text())
    )
]


@pytest.mark.slow
@pytest.mark.forked_commands
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_shows_what_its_code_prints(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "pages.py"), str(page)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
    )
    assert done.returncode == 0, done.stderr


def test_readme_is_short_and_begins_with_a_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert "python3 tools/dev.py demo" in text and "python3 tools/dev.py test" in text


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    assert f"version: {version}\n" in (ROOT / "docs" / "CITATION.cff").read_text(encoding="utf-8")
    recipe = (ROOT / "tools" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert f'version = "{version}"' in recipe
    for requirement in project["dependencies"]:
        assert f"- {requirement.replace('>=', ' >=')}\n" in recipe
    for command, function in project["scripts"].items():
        assert f"- {command} = {function}\n" in recipe
    assert f"## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_links_of_readme_files_lead_somewhere() -> None:
    """Sphinx checks the links of docs/."""
    for page in [
        *ROOT.glob("*.md"),
        *(ROOT / "fcl").rglob("*.md"),
        *(ROOT / "tools").rglob("*.md"),
    ]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


PAGE = """
% run: echo made > hidden.txt

```text data.txt
one line
```

```sh
cat hidden.txt data.txt
```

```text
made
...
```

```python
print("pi is 3.14159 in 2.0 s")
```

```text
pi is 3.1416
```
"""


def run(text: str, folder: Path, *options: str) -> tuple[int, str]:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    program = [sys.executable, str(ROOT / "tools" / "pages.py"), *options, str(page)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pi is 3.1416", "pi is 3.5", "the page shows 'pi is 3.5'"),
        ("made\n...", "one line\nmade", "the page shows 'made'"),
        ("cat hidden.txt", "cat nothing.txt", "exit code 1"),
        ("print(", "undefined(", "NameError"),
        ("cat hidden.txt data.txt", "fcl train --no-such-option", "No such option"),
    ],
)
def test_a_page_that_does_not_hold(old: str, new: str, message: str, tmp_path: Path) -> None:
    code, said = run(PAGE.replace(old, new), tmp_path)
    assert code == 1 and message in said


def test_options_of_commands_that_do_not_run_are_looked_up(tmp_path: Path) -> None:
    good = "```console\n$ fcl predict m.fcl s3://b/x.zarr --storage-option anon=true --out -\n```\n"
    assert run(good, tmp_path) == (0, "")
    code, said = run(good.replace("--out", "--output-file"), tmp_path)
    assert code == 1 and "fcl predict has no option --output-file" in said


def test_reference_has_all_commands() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    for name, (module, _) in COMMANDS.items():
        assert f".. click:: {module}:command\n   :prog: fcl {name}\n" in text


def test_events_page_names_all_events() -> None:
    import fcl.run

    text = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    for name in fcl.run.__all__:
        assert f"   {name}\n" in text or f"`fcl.run.{name}`" in text
        kind = getattr(fcl.run, name)
        if issubclass(kind, fcl.run.Event) and kind is not fcl.run.Measured:
            for field in dataclasses.fields(kind):
                assert re.search(rf"\b{field.name}\b.* : ", kind.__doc__ or ""), (name, field.name)
    for reason in fcl.run.StopReason:
        assert f"`{reason}`" in text and reason.sentence


def stub(name: str, calls: list[tuple[Any, ...]]) -> ModuleType:
    """A module of which every function and method records its calls."""

    def record(function: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls.append((function, args, options))
            return Recorder()

        return call

    class Recorder:
        def __getattr__(self, method: str) -> Any:
            return record(method)

    module = ModuleType(name)
    module.__getattr__ = record  # type: ignore[method-assign]
    return module


@pytest.mark.parametrize(
    ("page_file", "module", "callback", "expected"),
    [
        ("tensorboard", "torch.utils.tensorboard", lambda m: m.TensorBoard("runs"), "add_scalar"),
        ("mlflow", "mlflow", lambda m: m.to_mlflow, "log_metrics"),
        ("wandb", "wandb", lambda m: m.to_wandb, "log"),
    ],
)
def test_trackers(
    page_file: str,
    module: str,
    callback: Callable[[Any], Any],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recipes of the page log every pass; the trackers are stubs that record calls."""
    import numpy as np

    import fcl

    page = (ROOT / "docs" / "howto" / "progress.md").read_text(encoding="utf-8")
    (code,) = (b.text for b in pages.blocks(page) if b.name == f"{page_file}_progress.py")
    calls: list[tuple[Any, ...]] = []
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, stub(name, calls))
    recipe = ModuleType("recipe")
    exec(code, vars(recipe))
    x = np.random.default_rng(0).standard_normal((200, 5))
    data = fcl.open_data(x, y=np.where(x[:, 0] > 0.1, 1, -1))
    result = fcl.train(data, "columns", C=0.1, valid=0.3, progress=callback(recipe))
    logged = [(args, options) for name, args, options in calls if name == expected]
    if page_file == "tensorboard":
        gaps = [args[1] for args, _ in logged if args[0] == "gap"]
        assert {"validation.auprc", "objective"} <= {args[0] for args, _ in logged}
    else:
        gaps = [args[0]["gap"] for args, _ in logged]
        assert [options["step"] for _, options in logged] == list(range(result.passes))
    assert gaps == pytest.approx([each["gap"] for each in result.history])
