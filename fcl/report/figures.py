"""Pictures as SVG, in colours that the page can change.

Figures are drawn in placeholder colours. :func:`themed` replaces them with variables of the page, which
has a light and a dark theme; :func:`standalone` replaces them with fixed colours, for files.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fcl.checks import shortened
from fcl.extras import import_extra

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

#: Inches of the width of a panel. Two panels fill the page, and one fills the page of a telephone.
PANEL = 4.5

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
_SIZE = {name: re.compile(rf'<svg[^>]* {name}="([\d.]+)pt"') for name in ("width", "height")}
_LONG_NUMBER = re.compile(r"(?<=\d)\.(\d{2})\d+(?=[ \"\n,)])")


def check_packages() -> None:
    """Import the packages of the extra ``report``; raises InputError if one is missing."""
    import_extra("a report needs", "'fcl[report]'", "matplotlib", "jinja2")


class Drawing:
    """A figure that is being drawn; ``svg`` holds the picture once the drawing has ended."""

    def __init__(self, figure: Any, axes: Any) -> None:
        self.figure = figure
        self.axes = axes
        self.svg = ""


@contextmanager
def drawing(width: float, height: float) -> Iterator[Drawing]:
    """Yield a :class:`Drawing` of ``width`` by ``height`` inches."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as letters that matplotlib's font lacks
        matplotlib.rcdefaults()  # a user's matplotlibrc must not change the bytes
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(width, height), layout="constrained")
        drawn = Drawing(figure, figure.subplots())
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
    """How a panel grows and shrinks; a wide one only as long as its letters can be read."""
    own = float(attribute[1])
    least = 0.7 * own if own > 72.0 * PANEL else 0.0
    return f' style="flex: 1 1 {0.76 * own:g}pt; max-width: {own:g}pt; min-width: {least:g}pt"'


def standalone(panels: Sequence[str]) -> str:
    """The panels of a picture as one SVG file on white, so that dark pages can show it."""
    colours = {key: colour for key, (_, colour) in COLOURS.items()}
    columns = min(len(panels), 2)
    sizes = [[float(_SIZE[name].search(svg)[1]) for name in _SIZE] for svg in panels]  # type: ignore[index]
    width = max(w for w, _ in sizes)
    placed, top = [], 0.0
    for first in range(0, len(panels), columns):
        for column, svg in enumerate(panels[first : first + columns]):
            place = f'<svg x="{column * width:g}" y="{top:g}"'
            placed.append(_coloured(svg, colours).replace("<svg", place, 1).replace('pt"', '"'))
        top += max(h for _, h in sizes[first : first + columns])
    across, body = columns * width, "\n".join(placed)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{across:g}pt" height="{top:g}pt" viewBox="0 0 {across:g} {top:g}">\n'
        f'<rect width="100%" height="100%" fill="{COLOURS[PAGE][1]}"/>\n{body}\n</svg>\n'
    )


#: Characters of a name that is beside its bar; longer ones are above it, up to the second number.
BESIDE, MOST_CHARACTERS = 22, 64


def bars(names: Sequence[str], values: Sequence[float], title: str, most: float = 0.0) -> str:
    """A panel of horizontal bars with their names, in two colours by the sign of the value.

    most : the |value| that fills the panel; 0 for the largest one.
    """
    texts = [short(name, MOST_CHARACTERS) for name in names]
    above = max(map(len, texts), default=0) > BESIDE
    n = max(1, len(texts))
    with drawing(PANEL, 0.75 + (0.36 if above else 0.22) * n) as drawn:
        axes = drawn.axes
        at = list(range(n - 1, n - 1 - len(texts), -1))
        colours = [ACCENT if value > 0.0 else SECOND for value in values]
        low = at if not above else [y - 0.22 for y in at]
        axes.barh(low, values, height=0.42 if above else 0.7, color=colours, alpha=0.85)
        axes.axvline(0.0, color=INK, linewidth=0.6)
        if most:
            right = 1.05 * most if not values or values[0] > 0.0 else 0.0
            axes.set_xlim(right - 1.05 * most, right)
        axes.set_yticks([] if above else at, [] if above else texts)
        axes.set(title=title, ylim=(-0.6, n - 0.4))
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=5)
        for y, text in zip(at, texts if above else [], strict=False):
            left = axes.get_yaxis_transform()
            axes.annotate(text, (0.0, y + 0.2), (3, 0), left, "offset points", va="center")
    return drawn.svg


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
