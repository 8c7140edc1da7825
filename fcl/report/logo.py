"""Letters as shapes whose heights are numbers, as in sequence logos (Schneider and Stephens 1990)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.report.figures import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The usual colours of nucleotides, which are readable on light and dark pages.
LETTER_COLOURS = {"A": "#2f9e44", "C": "#1c7ed6", "G": "#f08c00", "T": "#e03131"}
#: Letters that a logo draws at most: the highest ones. Each takes about 300 bytes of the page.
MOST_LETTERS = 600
#: Width of a letter, as a share of the distance between positions.
WIDTH = 0.92


def draw_logo(axes: Axes, letters: Sequence[str], heights: npt.ArrayLike, origin: int = 0) -> None:
    """Draw letters above the axis where heights are positive, and below where they are negative.

    Parameters
    ----------
    axes : Axes
    letters : sequence of str
        One letter for each column of ``heights``.
    heights : float (L, len(letters))
        Heights of the letters at each position, where larger letters are further from the axis.
    origin : int
        Position that the axis calls 0.
    """
    values = np.asarray(heights, np.float64)
    drawn = _drawn(values)
    for position in range(len(values)):
        for sign in (1, -1):
            base = 0.0
            own = values[position] * sign
            for index in np.argsort(own, kind="stable"):
                if own[index] > 0.0 and drawn[position, index]:
                    bottom = base if sign > 0 else -base - own[index]
                    _draw(axes, letters[index], position - origin, bottom, own[index], sign)
                    base += own[index]
    low, high = logo_range(values)
    axes.set_ylim(low, high)
    axes.set_xlim(-origin - 0.6, len(values) - origin - 0.4)
    axes.axhline(0.0, color=INK, linewidth=0.6)
    axes.grid(False)


def logo_range(heights: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Lower and upper limit of the axis of a logo."""
    high = np.where(heights > 0.0, heights, 0.0).sum(axis=1).max(initial=0.0)
    low = np.where(heights < 0.0, heights, 0.0).sum(axis=1).min(initial=0.0)
    margin = 0.05 * ((high - low) or 1.0)
    return float(low - margin), float(high + margin)


def _drawn(heights: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which letters are drawn: the highest ones; invisible letters only take space."""
    sizes = np.abs(heights)
    chosen = np.zeros(sizes.size, np.bool_)
    chosen[np.argsort(-sizes, axis=None, kind="stable")[:MOST_LETTERS]] = True
    return chosen.reshape(sizes.shape) & (sizes >= 0.004 * sizes.max(initial=0.0))


def _draw(axes: Axes, letter: str, x: float, bottom: float, height: float, sign: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Affine2D

    shape = _shape(letter)
    grow = Affine2D().scale(WIDTH, height).translate(x - WIDTH / 2, bottom)
    colour = LETTER_COLOURS.get(letter, INK)
    path = shape.transformed(grow)
    axes.add_patch(PathPatch(path, facecolor=colour, linewidth=0, alpha=1.0 if sign > 0 else 0.75))


@lru_cache(maxsize=8)
def _shape(letter: str) -> Any:
    """The outline of a letter, in a square of side 1."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    outline = TextPath((0, 0), letter, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    box = outline.get_extents()
    place = Affine2D().translate(-box.x0, -box.y0).scale(1 / box.width, 1 / box.height)
    return outline.transformed(place)
