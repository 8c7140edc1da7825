"""Names of contigs in intervals and variants, and the contigs of the genome that they mean."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from fcl.checks import listed, shown
from fcl.convert.genome import Genome
from fcl.errors import InputError
from fcl.units import counted

#: Why a record is dropped, with ``--skip-contigs``.
LACKING = "on a contig that the genome lacks"
#: Names that a note or a message lists.
_MOST_NAMES = 8


@dataclass(frozen=True)
class Renaming:
    """``--rename OLD=NEW,...``: how names in the intervals become names in the genome.

    A whole name takes precedence; otherwise OLD is a prefix, which NEW replaces.
    """

    pairs: dict[str, str]

    @classmethod
    def parse(cls, text: str | None) -> Renaming:
        """Parse the value of the option."""
        pairs = dict[str, str]()
        for pair in text.split(",") if text else ():
            old, equals, new = pair.strip().partition("=")
            if not equals or (not old and not new):
                raise InputError(
                    f"--rename: expected OLD=NEW, such as chr= or chrM=MT,chr=, got {shown(pair)}"
                )
            pairs[old] = new
        return cls(pairs)

    def apply(self, name: str) -> str:
        """The name in the genome."""
        if name in self.pairs:
            return self.pairs[name]
        prefixes = [old for old in self.pairs if name.startswith(old)]
        longest = max(prefixes, key=len, default=None)
        return name if longest is None else self.pairs[longest] + name[len(longest) :]


class ContigNames:
    """Finds the contigs that the names in another file mean.

    file : what the file with the names is called in messages.
    skips : whether names that the genome lacks are skipped; otherwise they are an error.
    """

    def __init__(self, renaming: Renaming, genome: Genome, file: str, skips: bool) -> None:
        self._renaming, self._genome, self._file, self._skips = renaming, genome, file, skips
        self._numbers: dict[str, int] = {}
        self._first_error: InputError | None = None

    def find(self, name: str, where: str) -> int:
        """Number of the contig; -1 for a name that is skipped.

        where : of the name, for messages.
        """
        if name not in self._numbers:
            renamed = self._renaming.apply(name)
            self._numbers[name] = self._genome.names.get(renamed, -1)
            if self._numbers[name] < 0:
                self._refuse_or_skip(name, renamed, where)
        return self._numbers[name]

    def notes(self) -> list[str]:
        """Lines for the summary, asked for at the end; InputError if the genome has none of the names."""
        lacking = [name for name, number in self._numbers.items() if number < 0]
        if not lacking:
            return []
        if len(lacking) == len(self._numbers) and self._first_error is not None:
            raise self._first_error
        n = counted(len(lacking), "name")
        return [f"contigs: skipped {n} that the genome lacks: {listed(lacking, _MOST_NAMES)}"]

    def _refuse_or_skip(self, name: str, renamed: str, where: str) -> None:
        known = list(self._genome.names)
        prefix = _prefix_advice(name, known, self._file)
        advice = prefix or _advice(name, renamed, known, self._file)
        more = "" if prefix else "; --skip-contigs skips and counts records on such contigs"
        error = InputError(
            f"{where}: {self._genome.file_name} has no contig {shown(renamed)}; {advice}{more}"
        )
        if prefix or not self._skips:
            raise error
        self._first_error = self._first_error or error


def _prefix_advice(name: str, known: list[str], file: str) -> str:
    """How to rename a name that differs from one of the genome by the prefix chr; else empty."""
    if name.startswith("chr") and name[3:] in known:
        return f"{file} says {name}, genome says {name[3:]}: --rename chr="
    if f"chr{name}" in known:
        return f"{file} says {name}, genome says chr{name}: --rename =chr"
    return ""


def _advice(name: str, renamed: str, known: list[str], file: str) -> str:
    """How to make a name agree with one of the genome."""
    near = difflib.get_close_matches(renamed, known, n=1)
    if near:
        return f"{file} says {name}, genome says {near[0]}: --rename {name}={near[0]}"
    return f"it has {listed(known, _MOST_NAMES)}: is it the right genome? Otherwise give --rename OLD=NEW"
