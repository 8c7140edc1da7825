"""Patterns of letters such as AG, which mark the sites of a genome."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.convert.letters import Codes
from fcl.data.sequences import UNKNOWN
from fcl.errors import InputError
from fcl.types import Ints

#: The letters that each code of the IUPAC stands for.
_IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "U": "T",
    "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
    "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}  # fmt: skip
_MOST_LETTERS = 1000


@dataclass(frozen=True)
class SitePattern:
    """A pattern of letters and ambiguity codes.

    text : in upper case.
    allowed : bool (letters, 5), which codes match each letter; only N matches an unknown letter.
    """

    text: str
    allowed: npt.NDArray[np.bool_]

    @classmethod
    def parse(cls, text: str) -> SitePattern:
        """Parse the value of ``--sites``; raises InputError for other characters."""
        letters = text.strip().upper()
        if not letters or not set(letters) <= _IUPAC.keys() or len(letters) > _MOST_LETTERS:
            raise InputError(
                f"--sites: expected 1 to {_MOST_LETTERS:,} letters A, C, G, T or ambiguity codes, such "
                f"as AG or GTRAGT, got {shown(text)}"
            )
        allowed = np.zeros((len(letters), UNKNOWN + 1), np.bool_)
        for place, letter in enumerate(letters):
            allowed[place, ["ACGT".index(each) for each in _IUPAC[letter]]] = True
            allowed[place, UNKNOWN] = letter == "N"
        return cls(letters, allowed)

    def __len__(self) -> int:
        return len(self.text)

    def find(self, codes: Codes) -> Ints:
        """Where the pattern begins in a sequence of codes, int64, increasing."""
        return _find(self.allowed, codes)

    def find_reverse(self, codes: Codes) -> Ints:
        """Where the reverse complement of the pattern begins in a sequence of codes."""
        complement = [3, 2, 1, 0, UNKNOWN]
        return _find(self.allowed[::-1, complement], codes)


def _find(allowed: npt.NDArray[np.bool_], codes: Codes) -> Ints:
    last = len(codes) - len(allowed) + 1
    if last <= 0:
        return np.empty(0, np.int64)
    found = np.ones(last, np.bool_)
    counts, only = allowed.sum(axis=1).tolist(), allowed.argmax(axis=1).tolist()
    for place, count in enumerate(counts):
        here = codes[place : place + last]
        # a comparison is several times as fast as a look-up
        found &= here == only[place] if count == 1 else allowed[place][here]
    return np.flatnonzero(found)
