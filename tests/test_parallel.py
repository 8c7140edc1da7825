"""Teams of threads: order, errors, fewer threads during a map, and the same bits for any number."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fcl import parallel
from fcl.parallel import SERIAL, Team, available_cores, cut


@pytest.fixture
def team() -> Iterator[Team]:
    made = Team(4)
    yield made
    made.close()


def names() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("fcl-team")}


def late(part: int) -> int:
    """Parts that come first take longest."""
    time.sleep(0.002 * (5 - part % 5))
    return 10 * part


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50])
def test_results_are_in_the_order_of_the_parts(team: Team, n: int) -> None:
    assert team.map(late, range(n)) == [10 * part for part in range(n)]
    assert team.map(str, list(range(n))) == [str(part) for part in range(n)]


def test_work_is_shared(team: Team) -> None:
    barrier = threading.Barrier(4)

    def meet(part: int) -> str:
        barrier.wait(10.0)
        return threading.current_thread().name

    assert len(set(team.map(meet, range(4)))) == 4


@pytest.mark.parametrize("threads", [1, 0])
def test_one_thread_is_the_callers(team: Team, threads: int) -> None:
    team.threads = threads
    used = set(team.map(lambda part: threading.get_ident(), range(20)))
    assert used == {threading.get_ident()}
    assert SERIAL.map(late, range(3)) == [0, 10, 20]


@pytest.mark.parametrize("fewer", [1, 2, 0])
def test_fewer_threads_in_mid_map(team: Team, fewer: int) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def part(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
        if number == 8:
            team.threads = fewer
        time.sleep(0.005)
        with lock:
            if number > 20:  # those that were begun before are done by now
                most = max(most, running)
            running -= 1
        return number

    assert team.map(part, range(40)) == list(range(40))
    assert 1 <= most <= max(1, fewer)
    team.threads = 4
    assert team.map(late, range(8)) == [10 * part for part in range(8)]


def fail_from(first: int, part: int) -> int:
    if part >= first:
        time.sleep(0.003 * (part == first))  # later ones fail earlier
        raise ValueError(f"part {part}")
    return part


@pytest.mark.parametrize("first", [0, 7, 19])
def test_the_error_of_the_first_part_is_raised(team: Team, first: int) -> None:
    for threads in (1, 2, 4):
        team.threads = threads
        with pytest.raises(ValueError, match=rf"^part {first}$"):
            team.map(lambda part: fail_from(first, part), range(20))
    assert team.map(late, range(8)) == [10 * part for part in range(8)]


def test_after_an_error_nothing_is_begun_and_nothing_runs(team: Team) -> None:
    """The caller may reuse the buffers to which the parts write."""
    begun, ended = [], []

    def part(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError("one")
        time.sleep(0.05)
        ended.append(number)

    with pytest.raises(ValueError, match="one"):
        team.map(part, range(100))
    assert len(begun) <= 8
    assert sorted(ended) == sorted(set(begun) - {1})
    time.sleep(0.1)
    assert len(ended) == len(begun) - 1


def test_an_interrupt_of_the_caller(team: Team) -> None:
    caller = threading.get_ident()

    def part(number: int) -> None:
        time.sleep(0.005)
        if threading.get_ident() == caller:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        team.map(part, range(50))


def test_a_map_within_a_map(team: Team) -> None:
    expected = [[10 * part for part in range(6)]] * 9
    assert team.map(lambda _: team.map(late, range(6)), range(9)) == expected


def test_close_ends_the_threads() -> None:
    before = names()
    team = Team(3)
    team.close()
    for _ in range(2):
        team.map(late, range(6))
        assert names() > before
        team.close()
        assert names() == before
    team.close()


# -- the same bits -----------------------------------------------------------------------------


@pytest.mark.parametrize("items", [range(0), range(1), range(3, 40), range(100)])
def test_ranges_are_cut_evenly(items: range) -> None:
    for n, unit in itertools.product((1, 2, 7, 100), (1, 2, 5)):
        parts = cut(items, n, unit)
        assert [i for part in parts for i in part] == list(items)
        assert len(parts) <= n
        assert all(len(part) % unit == 0 for part in parts[:-1])
        assert len(items) == 0 or max(map(len, parts)) - min(map(len, parts)) <= 2 * unit


def test_some_of_the_threads(team: Team) -> None:
    few, running, most, lock = team.at_most(2), 0, 0, threading.Lock()

    def part(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return number

    assert few.map(part, range(12)) == list(range(12))
    assert most == 2 == few.most
    assert team.at_most(9) is team and team.at_most(0).most == 1


def test_little_work_is_left_to_the_caller(team: Team) -> None:
    assert team.for_entries(parallel.LEAST_ENTRIES) is team
    assert team.for_entries(parallel.LEAST_ENTRIES - 1) is SERIAL


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, np.inf),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, np.inf),
        ({"cpu.max": "nonsense"}, np.inf),
        ({"cpu.max": "1 0"}, np.inf),
        ({}, np.inf),
    ],
)
def test_the_quota_of_a_control_group(tmp_path: Path, files: dict[str, str], quota: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert parallel._quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("text", "most"), [("1", 1), ("2,1", 2), ("0", 8), ("", 8), ("many", 8), ("-3", 8)]
)
def test_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(parallel, "_quota", lambda _: np.inf)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert available_cores() == most
    monkeypatch.setattr(parallel, "_quota", lambda _: 0.5)
    assert available_cores() == 1
