"""Facts: what is known about a model or a run, said once, as data and in words.

Models, certificates and results have a method ``facts()``. The command line, notebooks and the report
show the same facts as lines, as a table and as a list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from fcl.checks import shortened
from fcl.units import format_bytes, format_score, format_seconds

#: Characters of the words of a fact.
LONGEST_FACT = 400
#: Outputs whose names, intercepts and features are listed.
LISTED_OUTPUTS = 20
_LEFT = "style='text-align:left'"


class Fact(NamedTuple):
    """One thing that is known.

    text : the fact in words; it may hold text from a file.
    value : the fact as a JSON value; None if the text says it all.
    """

    name: str
    text: str
    value: Any = None


def chosen(facts: Iterable[Fact], *names: str) -> list[Fact]:
    """The facts of these names, in their order."""
    return [fact for fact in facts if fact.name in names]


def aligned(facts: Iterable[Fact]) -> list[str]:
    """Each fact as a line ``name   text``, with the texts in one column."""
    return [f"{fact.name:<12} {fact.text}" for fact in facts]


def table_lines(
    rows: Sequence[Sequence[str]], left: Collection[int] = (), least: int = 0
) -> list[str]:
    """Rows of cells as lines: the columns ``left`` are aligned on the left, others on the right.

    least : characters of a column that is aligned on the right.
    """
    columns = []
    for at, cells in enumerate(zip(*rows, strict=True)):
        mark, width = ("<", 0) if at in left else (">", least)
        width = max(width, *map(len, cells))
        columns.append([f"{cell:{mark}{width}}" for cell in cells])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def rows_html(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], marked: int | None = None
) -> str:
    """A table of texts, which are escaped; one row may be bold. Empty without rows."""
    if not rows:
        return ""
    lines = [f"<tr>{''.join(f'<th {_LEFT}>{escape(name)}</th>' for name in head)}</tr>"]
    for number, row in enumerate(rows):
        tag = "th" if number == marked else "td"
        lines.append(f"<tr>{''.join(f'<{tag} {_LEFT}>{escape(c)}</{tag}>' for c in row)}</tr>")
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def table_html(title: str, facts: Iterable[Fact]) -> str:
    """A table of names and texts, which are escaped."""
    rows = "".join(
        f"<tr><th {_LEFT}>{escape(fact.name)}</th><td {_LEFT}>{escape(fact.text)}</td></tr>"
        for fact in facts
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def short_fact(name: str, text: str, value: Any = None) -> Fact:
    """A fact whose words come from a file, cut to LONGEST_FACT characters."""
    return Fact(name, shortened(text, LONGEST_FACT), value)


def C_fact(C: float, alpha: float) -> Fact:
    """The weight of the losses, given in two ways."""
    return Fact("C", f"{C:.8g} (alpha {alpha:.8g})", C)


def active_fact(n_active: int, n_priced: int) -> Fact:
    """How many of the priced features have a weight."""
    text = f"{n_active:,} of {n_priced:,} priced feature{'s' * (n_priced != 1)}"
    return Fact("active", text, n_active)


def time_fact(seconds: Mapping[str, float]) -> Fact:
    """The time of each step."""
    text = ", ".join(f"{step} {format_seconds(spent)}" for step, spent in seconds.items())
    return Fact("time", text, sum(seconds.values()))


def memory_fact(peak: int, budget: Any = None) -> Fact:
    """The peak memory, and the budget if it is known."""
    of = f" of {format_bytes(budget)}" if isinstance(budget, int | float) else ""
    return Fact("memory", f"peak {format_bytes(peak)}{of}", peak)


def whole(label: Any) -> Any:
    """A label without the fraction .0, which the type of the stored array adds."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def penalty_texts(options: Mapping[str, Any]) -> list[str]:
    """What a job's penalty has besides the L1 norm: its share, and limits as ``0 <= w_j`` or a count."""
    from fcl.objective import Limits, stored_penalty

    penalty, limits = stored_penalty(options), Limits.from_stored(options.get("limits"))
    return [*([] if penalty.pure_l1 else [penalty.share_text]), *filter(None, [limits.text])]


def class_weight_text(given: str | Sequence[tuple[Any, float]] | None) -> str:
    """``class weights -1: 1, 1: 20``; empty without class weights."""
    if given is None:
        return ""
    if isinstance(given, str):
        return f"class weights {given}"
    return "class weights " + ", ".join(f"{label!r:.80}: {weight:g}" for label, weight in given)


def validation_text(validation: Mapping[str, Any] | None) -> str:
    """``AUPRC 0.7652`` or ``MSE 1.25``, the metric; empty if it was not measured or is undefined."""
    for name, value in (validation or {}).items():
        if name not in ("n_rows", "loss") and value is not None:
            return format_score(name, value)
    return ""
