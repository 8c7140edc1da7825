"""The cases of the campaign: the fault of each, and the exit codes that may follow."""

from __future__ import annotations

from dataclasses import dataclass

from fcl.drivers.processes.logic.stages import TASKS

#: Points of the code that are marked with ``fault(...)``, by role.
WRITER_POINTS = (
    *(f"{task}-{end}" for task in TASKS for end in ("begin", "done")),
    "prepare-block",
    "columns-piece",
    "columns-commit",
)
TRAINER_POINTS = (
    *(f"order-{name}" for name in ("anchor", "restore", "commit", "lend", "make_room")),
    "order-drop_all",
    "order-rejected",
    "anchor-taken",
    "compaction",
    "step",
    "publish",
)
SUPERVISOR_POINTS = ("write-open", "write-flush", "write-rename", "write-renamed")

#: The property that a job needs to reach a point.
NEEDS = {
    **dict.fromkeys(("draw", "sample"), "sampled"),
    **dict.fromkeys(("order-drop_all", "order-rejected"), "sampled"),
    **dict.fromkeys(("validate", "score"), "valid"),
    **dict.fromkeys(("order-make_room", "compaction"), "small"),
    "accept": "resumed",
}


@dataclass(frozen=True)
class Case:
    """A fault, and the exit codes that may follow."""

    name: str
    kind: str  #: a key of `acts.ACTS`, or of `others.FAULTS`, or "point" or "deaths"
    codes: tuple[int, ...] = (0,)
    role: str = ""
    point: str = ""
    action: str = ""
    needs: str = ""
    command: str = ""  #: a key of `others.COMMANDS`; empty for ``fcl train``

    @property
    def group(self) -> str:
        """The row of the summary table."""
        if self.command:
            return f"{self.command}: {self.kind}"
        return f"{self.role} {self.action} at a point" if self.point else self.kind

    @property
    def processes(self) -> bool:
        """Whether the case needs the driver ``processes``."""
        return bool(self.role or self.point) or self.kind in ("terminate-frozen", "changed")


def point_case(role: str, point: str, action: str) -> Case:
    """A fault at a marked point."""
    need = NEEDS.get(point, NEEDS.get(point.partition("-")[0], ""))
    codes: tuple[int, ...] = (0,)
    if role == "supervisor":
        codes = {"kill": (-9,), "stop": (0,), "raise": (1,)}[action]
    elif action == "raise":
        codes = (1,)
    elif point == "order-restore":  # every successor reaches this point
        codes = (0, 5)
    return Case(f"{role}-{point}-{action}", "point", (0, *codes), role, point, action, need)


#: Faults from outside, by kind: how often one round has them, and the exit codes that may follow.
KINDS: dict[str, tuple[int, tuple[int, ...]]] = {
    "terminate": (4, (0, 143)),
    "terminate-group": (3, (0, 143)),
    "interrupt": (4, (0, 130)),
    "hangup": (4, (0, 129)),
    "terminate-twice": (3, (0, 143)),
    "interrupt-twice": (3, (0, 130)),
    "terminate-frozen": (3, (0, 143)),
    "kill-supervisor": (6, (0, -9)),
    "kill-group": (4, (0, -9)),
    "kill-saving": (5, (0, -9)),
    "freeze-all": (3, (0,)),
    "save-now": (3, (0,)),
    "disk-full": (4, (0, 6)),
    "disk-freed": (3, (0, 6)),
    "model-disk-full": (4, (0, 1)),
    "model-disk-freed": (3, (0, 1)),
    "damaged-checkpoint": (5, (0, -9)),
    "no-reader": (4, (0,)),
    "bad-chunk": (3, (2,)),
    "changed": (3, (2,)),
    "changed-later": (2, (0,)),
}


def all_cases() -> list[Case]:
    """One round: each point with each action once, and the other kinds several times."""
    points = [("writer", p) for p in WRITER_POINTS]
    points += [("trainer", p) for p in TRAINER_POINTS]
    points += [("supervisor", p) for p in SUPERVISOR_POINTS]
    cases = [point_case(*p, action) for p in points for action in ("kill", "stop", "raise")]
    for role in ("writer", "trainer"):
        for kind in ("kill", "kill", "kill", "pause", "freeze", "freeze"):
            cases.append(Case(f"{kind}-{role}", kind, role=role))
    for kind, (times, codes) in KINDS.items():
        cases += [Case(kind, kind, codes)] * times
    deaths = {"writer": ("prepare-begin", "price-begin"), "trainer": ("publish", "step")}
    for role, at in deaths.items():
        cases += [Case(f"deaths-{role}-{p}", "deaths", (0, 5), role, p, "kill!") for p in at]
    return cases
