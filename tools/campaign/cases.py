"""The cases of the campaign: what goes wrong, and which exit codes may come of it."""

from __future__ import annotations

from dataclasses import dataclass

from fcl.drivers.processes.messages import TASKS

#: Where code is marked with ``fault(...)``, by role.
WRITER_POINTS = (
    *(f"{task}-{end}" for task in TASKS for end in ("begin", "done")),
    *("prepare-block", "columns-piece", "columns-commit"),
)
TRAINER_POINTS = (
    *(f"order-{name}" for name in ("anchor", "restore", "commit", "lend", "make_room")),
    *("order-drop_all", "order-rejected", "anchor-taken", "compaction", "step", "publish"),
)
SUPERVISOR_POINTS = ("write-open", "write-flush", "write-rename", "write-renamed")

#: What a job must have for a point to be met.
NEEDS = {
    **dict.fromkeys(("draw", "sample"), "sampled"),
    **dict.fromkeys(("order-drop_all", "order-rejected"), "sampled"),
    **dict.fromkeys(("validate", "score"), "valid"),
    **dict.fromkeys(("order-make_room", "compaction"), "small"),
    "accept": "resumed",
}


@dataclass(frozen=True)
class Case:
    """What goes wrong, and the exit codes that may come of it."""

    name: str
    kind: str  #: of the functions below
    codes: tuple[int, ...] = (0,)
    role: str = ""
    point: str = ""
    action: str = ""
    needs: str = ""

    @property
    def group(self) -> str:
        """For the table."""
        return f"{self.role} {self.action} at a point" if self.point else self.kind


def point_case(role: str, point: str, action: str) -> Case:
    """A fault at a marked point."""
    need = NEEDS.get(point, NEEDS.get(point.partition("-")[0], ""))
    codes: tuple[int, ...] = (0,)
    if role == "supervisor":
        codes = {"kill": (-9,), "stop": (0,), "raise": (1,)}[action]
    elif action == "raise":
        codes = (1,)
    elif point == "order-restore":  # met by each successor
        codes = (0, 5)
    return Case(f"{role}-{point}-{action}", "point", (0, *codes), role, point, action, need)


def all_cases() -> list[Case]:
    """Each point with each action once, the others several times."""
    points = [("writer", p) for p in WRITER_POINTS]
    points += [("trainer", p) for p in TRAINER_POINTS]
    points += [("supervisor", p) for p in SUPERVISOR_POINTS]
    cases = [point_case(*p, action) for p in points for action in ("kill", "stop", "raise")]
    for role in ("writer", "trainer"):
        for kind in ("kill", "kill", "kill", "pause", "freeze", "freeze"):
            cases.append(Case(f"{kind}-{role}", kind, role=role))
    stops = (
        *(("terminate", 143), ("terminate-group", 143), ("interrupt", 130)),
        *(("twice", 143), ("terminate-frozen", 143)),
    )
    for kind, code in stops:
        cases += [Case(kind, kind, (0, code))] * 3
    cases += [Case("kill-supervisor", "kill-supervisor", (0, -9))] * 4
    cases += [Case("kill-group", "kill-group", (0, -9))] * 3
    cases += [Case("kill-saving", "kill-saving", (0, -9))] * 4
    cases += [Case("freeze-all", "freeze-all")] * 2
    cases += [Case("save-now", "save-now")] * 2
    cases += [Case("disk-full", "disk-full", (0, 6))] * 3
    cases += [Case("disk-freed", "disk-freed", (0, 6))] * 2
    cases += [Case("bad-chunk", "bad-chunk", (2,))] * 3
    cases += [Case("changed", "changed", (2,))] * 3
    cases += [Case("changed-later", "changed-later")]
    deaths = {"writer": ("prepare-begin", "price-begin"), "trainer": ("publish", "step")}
    for role, at in deaths.items():
        cases += [Case(f"deaths-{role}-{p}", "deaths", (0, 5), role, p, "kill!") for p in at]
    return cases
