"""The options of a stagewise training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fcl.errors import InputError
from fcl.options import StagewiseOptions
from fcl.options.option import document_options, validate_options
from fcl.options.stagewise import CALIBRATIONS, UPDATES
from fcl.stagewise.links import Link, find_link
from fcl.units import parse_size

#: Default numbers of visits: more visits are the cheapest gain for ls.
VISITS = {"ls": 3, "gls": 1, "cls": 1}
#: Default number of rounds of cls, most of which patience saves, and default patience.
ROUNDS = 20
PATIENCE = {"ls": 10, "gls": 10, "cls": 3}


@document_options
@dataclass(frozen=True)
class Settings(StagewiseOptions):
    """The options of a stagewise training, in the notation of docs/explanation/stagewise.md."""

    @property
    def link(self) -> Link:
        """The link of the loss."""
        return find_link(UPDATES[self.update] if self.loss is None else self.loss)

    @property
    def n_visits(self) -> int:
        """Number of visits of each block."""
        return VISITS[self.update] if self.visits is None else self.visits

    @property
    def steps(self) -> int:
        """Number of steps of a visit."""
        return self.inner if self.update == "gls" else 1

    @property
    def calibrates(self) -> bool:
        """Whether rounds end with a calibration."""
        return self.update == "cls"

    @property
    def ends(self) -> tuple[str, ...]:
        """The options that only say when the training ends, which a resumed job may change."""
        return ("rounds" if self.calibrates else "visits", "patience")

    @property
    def visits_of_round(self) -> int:
        """Visits of each block in a round of cls; 0 for other updates."""
        return self.n_visits if self.calibrates else 0

    @property
    def n_rounds(self) -> int:
        """Number of rounds, 1 unless they calibrate."""
        return (self.rounds or ROUNDS) if self.calibrates else 1

    @property
    def degree(self) -> int:
        """The highest power in a calibration."""
        return CALIBRATIONS[self.calibration]

    @property
    def most_waits(self) -> int:
        """The patience, in blocks or rounds."""
        return PATIENCE[self.update] if self.patience is None else self.patience

    @property
    def memory_bytes(self) -> int:
        """The budget in bytes."""
        return parse_size(self.memory, "memory")

    def checked(self) -> Settings:
        """Validate the options and fill in defaults, except for the loss, which depends on the targets.

        Raises InputError that names the first wrong option.
        """
        made = validate_options(self)
        update = self.update
        if self.link.is_quadratic == (update == "gls"):
            other = "ls" if update == "gls" else "gls"
            raise InputError(
                f"loss: the update {update} has no {self.loss} loss; set update to {other}, or leave "
                "loss out"
            )
        if not self.calibrates and (self.rounds is not None or self.calibration != "cubic"):
            what = "calibration" if self.rounds is None else "rounds"
            raise InputError(f"{what}: applies only to the update cls, got update {update}")
        return replace(
            made,
            visits=self.n_visits,
            rounds=self.n_rounds if self.calibrates else None,
            patience=self.most_waits,
        )

    def fixed(self) -> dict[str, Any]:
        """The options that determine the model, for models and checkpoints."""
        left_out = {"memory"} if self.calibrates else {"memory", "rounds", "calibration"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}
