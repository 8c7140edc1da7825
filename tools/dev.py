#!/usr/bin/env python3
"""Set up fcl for development and run it. Needs Python 3.11 or newer, and nothing else.

    python3 tools/dev.py demo                train on the example data, show the model
    python3 tools/dev.py test                run the tests but for the slow ones
    python3 tools/dev.py test --all          run all tests
    python3 tools/dev.py test ARGUMENTS      run pytest with these arguments
    python3 tools/dev.py test --lowest ...   the same with the lowest versions in pyproject.toml
    python3 tools/dev.py lint                check style, format and types
    python3 tools/dev.py docs                build the pages of docs/ into docs/_build/html
    python3 tools/dev.py release             build wheel and sdist into dist/, and check that both install
    python3 tools/dev.py release --check     the same in a temporary folder
    python3 tools/dev.py traces              compare the traces of tests/jobs.py with those recorded
    python3 tools/dev.py traces --against COMMIT    the same with those of another commit, to the last bit
    python3 tools/dev.py traces --record     record the traces of this machine

Each command first creates a virtual environment in .venv, or updates it, which takes no time if it is
up to date; --lowest has an environment of its own, in .venv-lowest. `-v` before the command shows the
output of pip; the variable FCL_VENV names another folder for the environment (FCL_VENV-lowest with
--lowest). Works from any folder; paths are relative to the repository's.
"""

from __future__ import annotations  # a SyntaxError here: fcl needs Python 3.11 or newer

import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
# the extras in pyproject.toml that each command needs
EXTRAS: dict[str, set[str]] = {
    "demo": set(),
    "test": {"test"},
    "lint": {"lint"},
    "docs": {"docs"},
    "release": {"release"},
    "traces": set(),
}
#: Families of all kinds, in two sets whose kernels take equally long to compile.
FEATURES = "kmers + fourier", "columns + products:degree=2"
DEMO_CONFIG = "examples/celegans/demo.toml"
#: The option of `test` that installs the lowest versions that pyproject.toml allows.
LOWEST = "--lowest"
#: The option of `test` that runs the slow tests too.
ALL = "--all"
#: The traces that tests/traces.py recorded.
RECORDED = "tests/traces.json"
# a requirement of pyproject.toml with its lowest version, such as moto[server]>=5.1
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9][0-9.]*)")
#: Marks a folder that this tool made and may empty; any other folder is left alone.
STAMP = "fcl-dev.json"


class SetupError(Exception):
    """The environment cannot be created; the message says what to do."""


def say(text: str) -> None:
    print(f"dev: {text}", flush=True)


# --- checks of this machine -----------------------------------------------------------------


def check_platform(platform: str = sys.platform) -> None:
    """Raise SetupError on anything but Linux and macOS."""
    if platform != "darwin" and not platform.startswith("linux"):
        raise SetupError(f"fcl runs on Linux and macOS, not on {platform}; on Windows use WSL 2")


def check_python(
    version: tuple[int, ...] = sys.version_info[:3],
    implementation: str = sys.implementation.name,
    executable: str = sys.executable,
) -> None:
    """Raise SetupError if fcl does not support this Python."""
    if implementation != "cpython":
        raise SetupError(f"fcl needs CPython (numba does), this is {implementation}: {executable}")
    if version[:2] < OLDEST_PYTHON:
        oldest, running = (".".join(map(str, numbers)) for numbers in (OLDEST_PYTHON, version))
        raise SetupError(
            f"fcl needs Python {oldest} or newer, this is {running} ({executable}); install one, and "
            f"run python{oldest} tools/dev.py ..."
        )


def starts(python: str | pathlib.Path) -> bool:
    """Whether an interpreter exists and starts."""
    try:
        done = subprocess.run([python, "-c", ""], capture_output=True, check=False, env=clean_env())
    except OSError:
        return False
    return done.returncode == 0


def clean_env() -> dict[str, str]:
    """os.environ without the variables that make a Python use another environment, or no bytecode."""
    leave_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", "PIP_TARGET",
                 "PYTHONDONTWRITEBYTECODE"}  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if name not in leave_out}
    return {**kept, "PIP_USER": "0"}  # pip refuses --user in a virtual environment


# --- the environment ------------------------------------------------------------------------


def venv_folder(lowest: bool = False) -> pathlib.Path:
    """The folder of the environment: FCL_VENV (relative to the working folder), or .venv here.

    The environment of the lowest versions lies beside it.
    """
    named = os.environ.get("FCL_VENV")
    folder = pathlib.Path(named).expanduser().absolute() if named else ROOT / ".venv"
    return folder.with_name(folder.name + "-lowest") if lowest else folder


def lowest_versions(pyproject: pathlib.Path, extras: set[str]) -> list[str]:
    """The lowest versions that pyproject.toml allows, as lines of a file of constraints for pip.

    Requirements of the project and of `extras`; each must have the form NAME>=VERSION, else SetupError.
    """
    import tomllib  # not at the top, so that check_python reports its error on an older Python

    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    requirements = list(project.get("dependencies", ()))
    for extra in sorted(extras):
        requirements += project.get("optional-dependencies", {}).get(extra, ())
    lines = set()
    for requirement in requirements:
        parts = _REQUIREMENT.fullmatch(requirement)
        if parts is None:
            raise SetupError(
                f"{pyproject}: expected NAME>=VERSION for {LOWEST}, got {requirement!r}; give the "
                "lowest version that works"
            )
        lines.add(f"{parts[1]}=={parts[2]}")
    return sorted(lines)


def read_stamp(folder: pathlib.Path) -> dict[str, Any] | None:
    """The stamp of an environment; None if it has no stamp, {} if it is incomplete or damaged."""
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(folder: pathlib.Path, stamp: dict[str, Any]) -> None:
    """Write what an environment is made for; {} while it is incomplete."""
    (folder / STAMP).write_text(json.dumps(stamp, indent=1) + "\n")


def prepare(extras: set[str], verbose: bool, lowest: bool = False) -> tuple[pathlib.Path, float]:
    """Bring the environment up to date; return its `bin` folder and the seconds this took.

    With `lowest`, packages have the lowest versions that pyproject.toml allows. Raises SetupError.
    """
    folder, pyproject = venv_folder(lowest), ROOT / "pyproject.toml"
    stamp = read_stamp(folder)
    before = stamp or {}
    binaries = folder / "bin"
    own = {  # a moved environment is broken: its scripts contain the old path
        "folder": str(folder),
        "python": "{}.{}".format(*sys.version_info),
        "root": str(ROOT),
    }
    is_sound = own.items() <= before.items() and starts(binaries / "python")
    installed = set(before.get("extras", ()))
    content = hashlib.sha256(pyproject.read_bytes()).hexdigest()
    if is_sound and extras <= installed and before["pyproject"] == content:
        return binaries, 0.0
    began = time.monotonic()
    if not is_sound:
        make_venv(folder, stamp)
    wanted = {**own, "extras": sorted(extras | installed), "pyproject": content}
    packages = f".[{','.join(wanted['extras'])}]" if wanted["extras"] else "."
    say(f"installing {packages} and its dependencies into {shown(folder)} (a minute or two)")
    install: list[str | pathlib.Path] = [binaries / "python"]
    install += ["-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    if lowest:
        constraints = folder / "lowest.txt"
        versions = lowest_versions(pyproject, set(wanted["extras"]))
        constraints.write_text("\n".join(versions) + "\n")
        install += ["--constraint", constraints]
    # If this run is killed, the next one begins with an empty environment. An update that fails has
    # changed nothing: pip resolves and downloads everything before it installs.
    write_stamp(folder, {})
    try:
        run_quietly([*install, "--editable", packages], "pip", verbose)
    except SetupError:
        write_stamp(folder, before if is_sound else {})
        raise
    write_stamp(folder, wanted)
    seconds = time.monotonic() - began
    say(f"installed in {seconds:.0f} s")
    return binaries, seconds


def make_venv(folder: pathlib.Path, stamp: dict[str, Any] | None) -> None:
    """Create an empty environment; replaces one that this tool made earlier."""
    foreign = folder.exists() if not folder.is_dir() else stamp is None and any(folder.iterdir())
    if foreign:
        raise SetupError(
            f"{folder} exists and was not made by this tool; remove it, or name another folder: "
            "FCL_VENV=FOLDER python3 tools/dev.py ..."
        )
    folder.mkdir(parents=True, exist_ok=True)
    say("creating {} with Python {}.{}.{}".format(shown(folder), *sys.version_info))
    write_stamp(folder, {})  # if the creation is interrupted, the folder is this tool's to replace
    run_quietly([sys.executable, "-m", "venv", "--clear", folder], "venv", verbose=False)
    write_stamp(folder, {})


def run_quietly(command: Sequence[str | pathlib.Path], name: str, verbose: bool) -> None:
    """Run a command in ROOT, and show its output only if it fails. Raises SetupError."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        output = None if verbose else log
        status = run(command, stdout=output, stderr=output)
        if status == 0:
            return
        log.seek(0)
        sys.stderr.write(log.read())
    sys.stderr.flush()
    raise SetupError(f"{name} failed (exit code {status}); its output is above")


def shown(path: pathlib.Path) -> str:
    """A path relative to ROOT if it lies below."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


# --- the commands ---------------------------------------------------------------------------


def run(*commands: Sequence[str | pathlib.Path], **options: Any) -> int:
    """Run commands side by side in ROOT; return the largest exit code, 128 + n if signal n ended one.

    The terminal sends SIGINT to all processes: the commands decide what to do, so this process ignores
    it. SIGTERM is sent only to this process, which forwards it.
    """
    started: list[subprocess.Popen[Any]] = []
    received: list[int] = []

    def pass_on(number: int, _: object) -> None:
        received.append(number)
        for child in started:
            child.send_signal(number)

    # Set before the commands start, so that no signal is lost; the commands do not inherit them.
    earlier = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    try:
        with contextlib.ExitStack() as stack:
            for command in commands:
                child = subprocess.Popen(command, cwd=ROOT, **{"env": clean_env(), **options})
                started.append(stack.enter_context(child))
                for number in received:
                    child.send_signal(number)
            codes = [child.wait() for child in started]
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    return max(code if code >= 0 else 128 - code for code in codes)


def demo(binaries: pathlib.Path, installation: float) -> int:
    """Train on the example data and show the model."""
    with tempfile.TemporaryDirectory(prefix="fcl-demo-") as folder:
        model = str(pathlib.Path(folder, "model.fcl"))
        train = ["fcl-train", "--config", DEMO_CONFIG, "--out", model]
        say(" ".join(train))
        began = time.monotonic()
        status = run([binaries / train[0], *train[1:]])
        training = time.monotonic() - began
        if status:
            return status
        say(f"fcl-inspect {model}")
        status = run([binaries / "fcl-inspect", model])
        if status:
            return status
    say(
        f"{training:.0f} s for reading, training, validation and, the first time, compilation; "
        f"before it {installation:.0f} s for installation"
    )
    return 0


def test(binaries: pathlib.Path, arguments: list[str], lowest: bool) -> int:
    """Run pytest with the arguments; without arguments, all tests but the slow ones on all cores.

    lowest : whether `binaries` has the lowest versions, which may use what newer ones deprecate.
    """
    pytest: list[str | pathlib.Path] = [binaries / "python", "-m", "pytest"]
    if lowest:
        pytest += ["-W", "default::DeprecationWarning", "-W", "default::PendingDeprecationWarning"]
    everything = ALL in arguments
    arguments = [argument for argument in arguments if argument != ALL]
    if arguments:
        return run([*pytest, *arguments])
    pytest += ["--durations=20"] if everything else ["-m", "not slow"]
    # otherwise the workers of pytest, and the children of their tests, would compile the same kernels
    say("compiling the kernels (cached for later runs)")
    program = str(binaries / "fcl-train")
    warm_ups = [[program, "--quiet", "--warmup", "--features", names] for names in FEATURES]
    status = run(*warm_ups)
    if status:
        return status
    # More workers than cores, since many tests wait for their children. worksteal: most tests of a file
    # run in one process, which makes what they share once.
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    workers = str(max(1, 3 * cores // 2))
    return run([*pytest, "-n", workers, "--dist", "worksteal"])


def traces(binaries: pathlib.Path, arguments: list[str]) -> int:
    """Compare the traces of the jobs in tests/jobs.py with recorded ones, or with another commit's."""
    program: list[str | pathlib.Path] = [binaries / "python", "tests/traces.py"]
    with tempfile.TemporaryDirectory(prefix="fcl-traces-") as name:
        folder = pathlib.Path(name)
        new, old = folder / "new.json", ROOT / RECORDED
        match arguments:
            case []:
                pass
            case ["--record"]:
                return trace(program, ROOT, old)
            case ["--against", commit]:
                tree, old = folder / "tree", folder / "old.json"
                tree.mkdir()
                say(f"traces of {commit}")
                tar = str(folder / "tree.tar")
                archive = ["git", "archive", "--output", tar, commit, "fcl"]
                unpack = ["tar", "-xf", tar, "-C", str(tree)]
                status = run(archive) or run(unpack) or trace(program, tree, old)
                if status:
                    return status
            case _:
                given = " ".join(arguments)
                raise SetupError(f"traces: expected --record or --against COMMIT, got {given}")
        say("traces of this checkout")
        return trace(program, ROOT, new) or run([*program, "--compare", old, new])


def trace(program: Sequence[str | pathlib.Path], tree: pathlib.Path, out: pathlib.Path) -> int:
    """Write the traces of the fcl in a folder."""
    more = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "FCL_QUIET": "1"}
    return run([*program, out], env={**clean_env(), **more})


def lint(binaries: pathlib.Path) -> int:
    """Run all checks, even after one has failed; return the exit code of the first failure."""
    checks = [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]]
    failed = 0
    for check in checks:
        say(" ".join(check))
        status = run([binaries / check[0], *check[1:]])
        failed = failed or status
    return failed


def docs(binaries: pathlib.Path) -> int:
    """Build the pages, and fail at a warning."""
    out = ROOT / "docs" / "_build"
    build: list[str | pathlib.Path] = [binaries / "python", "-m", "sphinx", "-b", "html", "-W"]
    build += ["--keep-going", "-q", "-d", out / "doctrees", ROOT / "docs", out / "html"]
    status = run(build, env={**clean_env(), "MPLBACKEND": "agg", "FCL_QUIET": "1"})
    if not status:
        say(f"open {shown(out / 'html' / 'index.html')}")
    return status


def release(binaries: pathlib.Path, arguments: list[str]) -> int:
    """Build wheel and sdist, install each into a folder of its own, and run a command from there."""
    if arguments not in ([], ["--check"]):
        raise SetupError(f"release: expected --check or nothing, got {' '.join(arguments)}")
    with tempfile.TemporaryDirectory(prefix="fcl-release-") as name:
        folder = pathlib.Path(name)
        made = folder / "dist" if arguments else ROOT / "dist"
        python: list[str | pathlib.Path] = [binaries / "python", "-P", "-m"]
        status = run([*python, "build", "--no-isolation", "--outdir", made, ROOT])
        newest = sorted(made.glob("fcl-*"), key=lambda path: path.stat().st_mtime)[-2:]
        for package in [] if status else newest:
            target = folder / package.name
            pip = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
            status = status or run([*python, *pip, "--target", target, package])
            environment = {**clean_env(), "PYTHONPATH": str(target)}
            status = status or run([*python, "fcl", "--version"], env=environment)
            lost = {path.relative_to(ROOT) for path in (ROOT / "fcl").rglob("*.py")} - {
                path.relative_to(target) for path in (target / "fcl").rglob("*.py")
            }
            if lost and not status:
                raise SetupError(f"{package.name} lacks {', '.join(map(str, sorted(lost)))}")
    return status


def main(arguments: list[str]) -> int:
    """Run one command; return its exit code, or 2 for a usage or set-up error."""
    verbose = arguments[:1] in (["-v"], ["--verbose"])
    command, *rest = arguments[int(verbose) :] or ["--help"]
    if command in ("-h", "--help", "help"):
        print((__doc__ or "").strip())
        return 0
    if command not in EXTRAS:
        print(f"dev: unknown command {command!r}; expected {', '.join(EXTRAS)}", file=sys.stderr)
        return 2
    if rest and command not in ("release", "test", "traces"):
        print(f"dev: {command} takes no arguments, got: {' '.join(rest)}", file=sys.stderr)
        return 2
    lowest = LOWEST in rest
    rest = [argument for argument in rest if argument != LOWEST]
    try:
        check_platform()
        check_python()
        binaries, installation = prepare(EXTRAS[command], verbose, lowest)
        match command:
            case "demo":
                return demo(binaries, installation)
            case "test":
                return test(binaries, rest, lowest)
            case "docs":
                return docs(binaries)
            case "release":
                return release(binaries, rest)
            case "traces":
                return traces(binaries, rest)
            case _:
                return lint(binaries)
    except SetupError as error:
        print(f"dev: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
