"""What all benchmarks share: the machine, folders, medians, tables and pictures."""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
#: The folder of the shared data, beside the repository.
SHARED = ROOT.parent / "shared" / "data"
#: The folder of derived data, which are made once and reused.
MADE = Path(tempfile.gettempdir()) / "fcl-bench"
#: Windows that ship with fcl, and the folder of the pictures of the pages.
EXAMPLE = ROOT / "examples" / "celegans"
MIB = 1 << 20
#: Units of metrics, for the header of a table.
UNITS = {
    "seconds": "s",
    "processor": "processor, s",
    "peak": "peak, MiB",
    "own peak": "own peak, MiB",
    "ratio": "of the first",
    "from files": "from files, s",
    **{name: f"{name}, s" for name in ("first line", "prepared", "first pass", "load", "reading")},
    **{f"to {gap:g}": f"gap {gap:g}, s" for gap in (1e-1, 1e-2, 1e-3)},
    **{f"within {level:g}": f"within {level:g}, s" for level in (1e-2, 1e-3, 1e-4, 1e-6)},
    **{name: f"{name}, ns" for name in ("random update",)},
    "compiling": "compiling, processor, s",
}
#: Formats of metrics; the others have three digits.
FORMATS = {
    **dict.fromkeys(("gap", "away", "weights off", "tolerance", "own gap"), ".1e"),
    **dict.fromkeys(("active", "rows", "features", "visited", "nonzeros", "touched"), ",.0f"),
    **dict.fromkeys(("objective", "optimum"), ".8g"),
    **dict.fromkeys(("AUPRC", "AUROC", "accuracy", "test loss", "area"), ".4f"),
    **dict.fromkeys(("test error", "squared penalty", "errors"), ".2%"),
    **dict.fromkeys(("serial", "in two", "share", "outside", "of the budget", "left"), ".1%"),
    "above optimum": ".2%",
}


def machine() -> str:
    """Describe processor, cores, system and versions in one line."""
    import numba
    import numpy

    import fcl

    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}; Python {platform.python_version()}, "
        f"numpy {numpy.__version__}, numba {numba.__version__}, fcl {fcl.__version__}"
    )


def pin(core: int | None) -> None:
    """Pin this process and its children to one core; None: the last one that the process may use."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[-1] if core is None else core})


def shared(name: str) -> Path:
    """The path of a shared data file; exits if it is missing."""
    path = SHARED / name
    if not path.exists():
        sys.exit(f"expected {name} in shared/data beside the repository, but it is missing")
    return path


def warm_commands() -> None:
    """Compile all kernels for ``fcl`` commands."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fcl", "train", "--warmup", "--quiet"]
    subprocess.run(command, check=True, env=environment)


# -- figures ---------------------------------------------------------------------------------------


def median(values: Sequence[float]) -> float:
    """The median; NaN if there are no values."""
    return statistics.median(values) if values else float("nan")


def spread(values: Sequence[float], form: str | None = None) -> str:
    """The median with the lowest and highest value, such as "4.9 (4.8-5.1)"."""

    def text(value: float) -> str:
        return _short(value) if form is None else format(value, form)

    parts = [text(value) for value in (median(values), min(values), max(values))]
    return parts[0] if parts[1] == parts[2] else f"{parts[0]} ({parts[1]}-{parts[2]})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a Markdown table with aligned columns."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


@contextmanager
def constants(module: Any, **values: Any) -> Iterator[None]:
    """Set constants of a module inside a ``with`` block, and restore them."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


# -- pictures --------------------------------------------------------------------------------------

#: Colours of text and axes; curves have colours that show on both kinds of page.
INK = {"light": "#1f2328", "dark": "#e6edf3"}
CURVES = ("#0969da", "#cf222e", "#1a7f37", "#bf8700", "#8250df", "#6e7781", "#1b9aaa", "#e36209",
          "#d63384", "#57a639")  # fmt: skip
#: Columns of the legend, most panels in a row, and points of a curve with markers.
COLUMNS, PANELS, MOST_MARKED = 3, 4, 40


def draw(
    name: str, panels: Mapping[str, Mapping[str, Any]], x: str, y: str, logarithmic: str
) -> None:
    """Write NAME-light.svg and NAME-dark.svg to docs/pictures.

    Parameters
    ----------
    name : str
    panels : mapping
        Title -> label -> (x, y); a label has the same colour in each panel.
    x, y : str
        Labels of the axes.
    logarithmic : str
        The axes with a logarithmic scale, such as "xy".
    """
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    across = min(len(panels), PANELS)
    lines = math.ceil(len(panels) / across)
    for mode, ink in INK.items():
        style: Any = {
            "svg.fonttype": "none",
            "svg.hashsalt": "fcl",  # the same run gives the same file, byte for byte
            "font.family": "sans-serif",
            "font.size": 10,
            "legend.frameon": False,
            **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), ink),
            **dict.fromkeys(("xtick.color", "ytick.color"), ink),
        }
        with mpl.rc_context(style):
            height = 3.4 * lines + 0.25 * math.ceil(len(labels) / COLUMNS)
            size = (4.0 * max(across, 2), height)
            figure, grid = plt.subplots(
                lines, across, figsize=size, layout="constrained", squeeze=False
            )
            for axes in grid.flat[len(panels) :]:
                axes.remove()
            all_axes = grid.flat[: len(panels)]
            for axes, (title, curves) in zip(all_axes, panels.items(), strict=True):
                for label, (right, up) in curves.items():
                    colour = CURVES[labels.index(label) % len(CURVES)]
                    mark = ".-" if len(right) <= MOST_MARKED else "-"
                    axes.plot(right, up, mark, label=label, color=colour, markersize=4)
                axes.set(title=title, xlabel=x)
                axes.set_xscale("log" if "x" in logarithmic else "linear")
                axes.set_yscale("log" if "y" in logarithmic else "linear")
                axes.spines[["top", "right"]].set_visible(False)
            for axes in grid[:, 0]:
                axes.set_ylabel(y)
            shown = {curve.get_label(): curve for axes in all_axes for curve in axes.get_lines()}
            handles = [shown[label] for label in labels]
            figure.legend(handles, labels, loc="outside lower center", ncols=COLUMNS)
            target = PICTURES / f"{name}-{mode}.svg"
            figure.savefig(target, transparent=True, metadata={"Date": None})
            plt.close(figure)
    print(f"wrote {name}-light.svg and {name}-dark.svg", file=sys.stderr)
