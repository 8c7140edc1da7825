"""Pictures as SVG, in colours that the page can change.

Figures are drawn in placeholder colours. :func:`themed` replaces them with variables of the page, which
has a light and a dark theme; :func:`standalone` replaces them with fixed colours, for files.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fcl.checks import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: placeholder in drawings -> variable of the page, and colour in files
COLOURS = {
    "#010101": ("--ink", "#1f2933"),
    "#020202": ("--faint", "#c9d1d9"),
    "#030303": ("--accent", "#0b6bcb"),
    "#040404": ("--second", "#d9480f"),
    "#050505": ("--third", "#2b8a3e"),
    "#060606": ("--page", "#ffffff"),
}
INK, FAINT, ACCENT, SECOND, THIRD, PAGE = COLOURS

_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fcl",  # without a salt, ids and bytes differ from run to run
    "text.parse_math": False,  # names may hold dollar signs
    "text.usetex": False,
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
_TAG = re.compile(r"<[^>]*>")  # everything else is text, such as names, which stays as it is
_PLACEHOLDER = re.compile("|".join(COLOURS))
_REFERENCE = re.compile(r'url\(#([^)"]+)\)|href="#([^"]+)"')
_IDENTIFIER = re.compile(r' id="([^"]*)"')
_LONG_NUMBER = re.compile(r"(?<=\d)\.(\d{2})\d+(?=[ \"\n,)])")


class Drawing:
    """A figure that is being drawn; ``svg`` holds the picture once the drawing has ended."""

    def __init__(self, figure: Figure, axes: Any) -> None:
        self.figure = figure
        #: the only axes, or an array of axes
        self.axes = axes
        self.svg = ""


@contextmanager
def drawing(
    width: float, height: float, rows: int = 1, columns: int = 1, **more: Any
) -> Iterator[Any]:
    """Yield a :class:`Drawing` of ``width`` by ``height`` inches.

    Parameters
    ----------
    width, height : float
    rows, columns : int
        Numbers of axes.
    **more
        Arguments of matplotlib's ``Figure.subplots``.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as letters that matplotlib's font lacks
        matplotlib.rcdefaults()  # a user's matplotlibrc must not change the bytes
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(width, height), layout="constrained")
        drawn = Drawing(figure, figure.subplots(rows, columns, **more))
        yield drawn
        drawn.svg = _svg(figure)


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    used = {a or b for tag in _TAG.findall(svg) for a, b in _REFERENCE.findall(tag)}

    def tidied(tag: re.Match[str]) -> str:
        text = _IDENTIFIER.sub(lambda m: m[0] if m[1] in used else "", tag[0])
        return _LONG_NUMBER.sub(r".\1", text)

    return _TAG.sub(tidied, svg)


def _coloured(svg: str, colours: dict[str, str]) -> str:
    """A drawing with colours in place of the placeholders."""
    return _TAG.sub(lambda tag: _PLACEHOLDER.sub(lambda m: colours[m[0]], tag[0]), svg)


def themed(svg: str) -> str:
    """A drawing for the page: its colours are variables, and it shrinks with the page."""
    svg = _coloured(svg, {key: f"var({variable})" for key, (variable, _) in COLOURS.items()})
    svg = re.sub(r' height="[\d.]+pt"', "", svg, count=1)
    return re.sub(r' width="([\d.]+)pt"', _width, svg, count=1)


def _width(attribute: re.Match[str]) -> str:
    """The largest width of a drawing, and the smallest one at which its letters can be read."""
    most = float(attribute[1])
    return f' style="max-width: {most:g}pt; min-width: {0.7 * most:g}pt"'


def standalone(svg: str) -> str:
    """A drawing as an SVG file of its own, on white, so that dark pages can show it."""
    svg = _coloured(svg, {key: colour for key, (_, colour) in COLOURS.items()})
    head, end, rest = svg.partition(">")
    paper = f'<rect width="100%" height="100%" fill="{COLOURS[PAGE][1]}"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}{end}\n {paper}{rest}'


def short(name: str, most: int = 40) -> str:
    """A name for an axis: one short line of printable characters."""
    return shortened(name, most)


def log_axis(axes: Axes, which: str, low: float, high: float) -> None:
    """Make an axis logarithmic, with the powers of ten of its range as labels such as ``1e-3``."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, -(-(last - first) // 8))
    powers = list(range(first, last + 1, step))
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    setter = axes.set_xticks if which == "x" else axes.set_yticks
    setter([10.0**p for p in powers], [f"1e{p}" for p in powers])
    setter([], minor=True)
