"""Letters as shapes whose heights are numbers, as in sequence logos (Schneider and Stephens 1990)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.report.figures import INK, PANEL, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fcl.types import Floats

#: The usual colours of nucleotides, which are readable on light and dark pages.
LETTER_COLOURS = {"A": "#2f9e44", "C": "#1c7ed6", "G": "#f08c00", "T": "#e03131"}
#: Letters that a logo draws at most: the highest ones. Each takes about 300 bytes of the page.
MOST_LETTERS = 600
#: Width of a letter, as a share of the distance between positions.
WIDTH = 0.92
#: Positions of a panel, in which letters are wide enough to be read, and panels of a picture.
PANEL_POSITIONS, MOST_PANELS = 30, 4
#: The share of the height of all letters that the range of a logo holds.
MOST_HEIGHT = 0.85


def zoomed(sizes: Floats) -> list[range]:
    """The positions of each panel of a logo: the shortest range that holds most of the height.

    sizes : sum of the |heights| of the letters at each position, float64 (L,). Of a range that is too
    long, the MOST_PANELS highest parts are kept, in their order.
    """
    L, total = len(sizes), sizes.sum()
    if L <= PANEL_POSITIONS or not total > 0.0:
        return [range(min(L, PANEL_POSITIONS))]
    before = np.append(0.0, np.cumsum(sizes))
    ends = np.searchsorted(before, before[:-1] + MOST_HEIGHT * total)
    first = int(np.argmin(np.where(ends <= L, ends - np.arange(L), L + 1)))
    last = min(int(ends[first]), L)
    room = max(2, PANEL_POSITIONS // 2 - (last - first))  # some positions beside a single letter
    first, last = max(0, first - room // 2), min(L, last + room // 2)
    width = -(-(last - first) // -(-(last - first) // PANEL_POSITIONS))
    parts = [range(at, min(at + width, last)) for at in range(first, last, width)]
    heights = np.array([sizes[part.start : part.stop].sum() for part in parts])
    chosen = np.sort(np.argsort(-heights, kind="stable")[:MOST_PANELS])
    return [parts[i] for i in chosen.tolist()]


def logo_panels(
    letters: str, heights: Floats, origin: int, ylabel: str, height: float = 1.9, title: str = ""
) -> tuple[list[str], str]:
    """The panels of a logo where its letters are high, and a sentence about what they leave out.

    letters, heights, origin : as for :func:`draw_logo`.
    height : of a panel, in inches.
    """
    sizes = np.abs(heights).sum(axis=1)
    parts, panels = zoomed(sizes), []
    for part in parts:
        with drawing(PANEL, height) as drawn:
            draw_logo(drawn.axes, letters, heights, origin, part)
            drawn.axes.set(xlabel="position", title=title)
            drawn.axes.set_ylabel(ylabel if part is parts[0] else "")
        panels.append(drawn.svg)
    shown = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    if len(shown) == len(sizes):
        return panels, ""
    left_out = 1.0 - sizes[shown].sum() / (sizes.sum() or 1.0)
    ends = f"{-origin} to {len(sizes) - 1 - origin}"
    return panels, (
        f"Shown are {len(shown)} of the {len(sizes)} positions ({ends}); the others have "
        f"{left_out:.0%} of the height."
    )


def draw_logo(
    axes: Axes,
    letters: Sequence[str],
    heights: npt.ArrayLike,
    origin: int = 0,
    positions: range | None = None,
) -> None:
    """Draw letters above the axis where heights are positive, and below where they are negative.

    letters : one for each column of ``heights``.
    heights : float (L, len(letters)); larger letters are further from the axis.
    origin : position that the axis calls 0.
    positions : the positions to draw, from 0; the range of heights is always that of all positions.
    """
    values = np.asarray(heights, np.float64)
    positions = range(len(values)) if positions is None else positions
    drawn = _drawn(values)
    for position in positions:
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
    axes.set_xlim(positions.start - origin - 0.6, positions.stop - origin - 0.4)
    axes.axhline(0.0, color=INK, linewidth=0.6)
    axes.grid(False)
    axes.locator_params(axis="x", integer=True)


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
