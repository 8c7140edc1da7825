"""Whether a file is of the same job: every difference is named, and what is not known is not compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fcl.errors import InputError
from fcl.files.same_job import JobFacts, differences, require_same

PROBED = {"family": "columns", "probe": [1.0, 2.0]}
SAVED = JobFacts(
    {"C": 0.1, "loss": "logistic", "limits": None},
    "ab" * 32,
    {"first_id": 1, "sha256": "cd" * 32},
    PROBED,
    n_features=8,
    checksums=np.array([1, 2, 3], np.uint64),
    n_rows=150,
    block_rows=64,
)
#: Other facts of the job to be run, and what is said of them.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "option": ({"options": {"C": 0.3}}, "C was 0.1, is 0.3"),
    "new option": ({"options": {"limits": "0:"}}, "limits was not given, is '0:'"),
    "dropped option": ({"options": {"loss": None}}, "loss was 'logistic', is not given"),
    "NumPy option": ({"options": {"C": np.float64(0.2)}}, "C was 0.1, is 0.2"),
    "hash": ({"options": {"folds": "ef" * 32}}, "folds was not given, is efefefefefef"),
    "data": ({"fingerprint": "cd" * 32}, "the data differ: fingerprint was abababababab, is cdcdcd"),
    "first id": ({"columns": {"first_id": 0, "sha256": "cd" * 32}}, "began at 1, begin at 0"),
    "columns": ({"columns": {"first_id": 1, "sha256": ""}}, "had other names, alleles, means or"),
    "features": ({"family": {"family": "columns", "probe": [1.0, 3.0]}}, "the features differ: "),
    "fewer features": ({"n_features": 7}, "its features go up to 7, with 7 features"),
    "rows": ({"checksums": np.array([1, 2, 4], np.uint64)},
             r"training rows 128-149 \(block 2\) differ: checksum was 0000000000000003, is"),
    "blocks": ({"checksums": np.ones(2, np.uint64)}, "there were 3 blocks of rows, there are 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_named(name: str) -> None:
    changes, message = CASES[name]
    now = replace(SAVED, **changes)
    with pytest.raises(InputError, match=rf"^c/1 is of another job: .*{message}") as caught:
        require_same("c/1", SAVED, now)
    assert len(differences(SAVED, now)) == 1
    assert str(caught.value).endswith("Resume with the data and options of that job, or start over")


def test_all_differences_are_in_one_message() -> None:
    now = JobFacts({"C": 0.3, "loss": "squared"}, "cd" * 32)
    with pytest.raises(InputError) as caught:
        require_same("c/1", SAVED, now, "Stop", ["more", ""])
    words = "C was 0.1, is 0.3; loss was 'logistic', is 'squared'; the data differ"
    assert str(caught.value).startswith(f"c/1 is of another job: {words}")
    assert str(caught.value).endswith("; more. Stop")


def test_what_is_not_known_is_not_compared() -> None:
    require_same("c/1", SAVED, SAVED)
    require_same("c/1", SAVED, JobFacts({"C": 0.1}))
    require_same("c/1", JobFacts(SAVED.options), SAVED)
    early = replace(SAVED, checksums=np.empty(0, np.uint64))  # stopped before they were computed
    require_same("c/1", early, SAVED)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("probe", [-np.inf, 3, ["a"], [[1.0]], {"0": 1.0}, [1.0], [10**400, 1.0]])
def test_a_hostile_family_is_another_one(probe: Any, nested: bool) -> None:
    saved, now = ({"members": [each]} if nested else each for each in ({"probe": probe}, PROBED))
    assert differences(JobFacts(family=saved), JobFacts(family=now))


def test_few_of_many_blocks_are_named() -> None:
    now = replace(SAVED, checksums=np.zeros(50, np.uint64))
    (*first, more) = differences(replace(now, checksums=np.ones(50, np.uint64)), now)
    assert len(first) == 3 and "(block 2)" in first[-1] and more == "and so do 47 more blocks"
