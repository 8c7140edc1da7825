"""Draws the curves of the benchmarks of this folder as SVG, for light and for dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
#: Colours of text and axes; curves have colours that show on both kinds of page.
INK = {"light": "#1f2328", "dark": "#e6edf3"}
CURVES = (
    "#0969da",
    "#cf222e",
    "#1a7f37",
    "#bf8700",
    "#8250df",
    "#6e7781",
    "#1b9aaa",
    "#e36209",
    "#d63384",
    "#57a639",
)
#: Columns of the legend, and most panels in a row.
COLUMNS, PANELS = 3, 4
#: Curves of more points are lines without markers.
MOST_MARKED = 40

Curve = tuple[Sequence[float], Sequence[float]]


def draw(
    name: str,
    panels: Mapping[str, Mapping[str, Curve]],
    x: str,
    y: str,
    *,
    logarithmic: str = "xy",
    folder: Path = FOLDER,
) -> None:
    """Write NAME-light.svg and NAME-dark.svg.

    panels : title -> label -> (x, y); a label has the same colour in each panel
    x, y : labels of the axes
    logarithmic : the axes with a logarithmic scale
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
            "svg.hashsalt": "fcl",
            "font.family": "sans-serif",
            "font.size": 10,
            "legend.frameon": False,
            **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), ink),
            **dict.fromkeys(("xtick.color", "ytick.color"), ink),
        }
        with mpl.rc_context(style):
            height = 3.4 * lines + 0.25 * math.ceil(len(labels) / COLUMNS)
            figure, grid = plt.subplots(
                lines,
                across,
                figsize=(4.0 * max(across, 2), height),
                layout="constrained",
                squeeze=False,
            )
            for axes in grid.flat[len(panels) :]:
                axes.remove()
            all_axes = grid.flat[: len(panels)]
            for axes, (title, curves) in zip(all_axes, panels.items(), strict=True):
                for label, (right, up) in curves.items():
                    colour = CURVES[labels.index(label) % len(CURVES)]
                    style_of = ".-" if len(right) <= MOST_MARKED else "-"
                    axes.plot(right, up, style_of, label=label, color=colour, markersize=4)
                axes.set(title=title, xlabel=x)
                axes.set_xscale("log" if "x" in logarithmic else "linear")
                axes.set_yscale("log" if "y" in logarithmic else "linear")
                axes.spines[["top", "right"]].set_visible(False)
            for axes in grid[:, 0]:
                axes.set_ylabel(y)
            shown = {curve.get_label(): curve for axes in all_axes for curve in axes.get_lines()}
            curves_of = [shown[label] for label in labels]
            figure.legend(curves_of, labels, loc="outside lower center", ncols=COLUMNS)
            target = folder / f"{name}-{mode}.svg"
            figure.savefig(target, transparent=True, metadata={"Date": None})
            plt.close(figure)
    print(f"{name}-light.svg and {name}-dark.svg are in {folder}")
