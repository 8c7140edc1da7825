"""Memory plans: the uses of a budget, listed and summed before a job starts.

``--memory`` is one number that covers everything: the interpreter, the rows, what a learner holds of
them. A budget that is too small is refused, with all uses and the smallest budget that works.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fcl.errors import BudgetError
from fcl.units import format_bytes, least_memory

MIB = 1 << 20
#: A single process: interpreter, numpy, numba, the readers and the compiler.
INTERPRETER = 320 * MIB

#: What memory is for, and its bytes.
Use = tuple[str, int]

# uses that plans have in common, or whose bytes are asked for by name
LIBRARIES = "interpreter and libraries"
TARGETS = "targets and weights"
TABLES = "tables of a pass"  #: of which each thread needs its own


@dataclass(frozen=True)
class MemoryPlan:
    """How a memory budget is used.

    parts : tuple of (str, int), uses in words, and their bytes.
    budget : bytes.
    """

    parts: tuple[Use, ...]
    budget: int

    @property
    def total(self) -> int:
        return sum_of(self.parts)

    def of(self, use: str) -> int:
        return dict(self.parts)[use]

    def lines(self) -> list[str]:
        """The plan as a table."""
        rows = [*self.parts, ("total", self.total), ("budget", self.budget)]
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {format_bytes(size):>10}  {size:>18,}" for name, size in rows]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, object]:
        """The plan as JSON data, sizes in bytes."""
        lines = {name: int(size) for name, size in self.parts}
        return {"lines": lines, "total": int(self.total), "budget": int(self.budget)}


def sum_of(uses: Iterable[Use]) -> int:
    return sum(size for _, size in uses)


def in_words(uses: Iterable[Use]) -> str:
    """Uses and their sizes."""
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in uses)


def check_budget(
    budget: int, uses: Sequence[Use], job: str, advice: str = "", smallest: int | None = None
) -> None:
    """Raise BudgetError unless a budget suffices.

    budget : bytes.
    uses : sequence of (str, int), what must fit into it.
    job : what needs the memory, for the message.
    advice : what the message adds: further needs, or what the user can do beside raising the budget.
    smallest : the smallest budget that works, if uses alone do not say it.
    """
    smallest = sum_of(uses) if smallest is None else smallest
    if budget >= smallest:
        return
    raise BudgetError(
        f"memory: a budget of {format_bytes(budget)} is too small; {job} needs at least "
        f"{least_memory(smallest)}: {in_words(uses)}{advice}",
        smallest,
    )
