"""Outage: who waits for a database that is away, how long, and who asks."""

from __future__ import annotations

import threading
from time import sleep

import pytest

from wtb.domain.errors import DatabaseAway
from wtb.infrastructure.sql.outage import Outage


class Time:
    """A clock that runs only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []
        self.looked: set[int] = set()
        """The threads that have looked at this clock."""

    def now(self) -> float:
        self.looked.add(threading.get_ident())
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.now_s += duration_s


class Server:
    """A database that is away until some time; `asked` counts who asks."""

    def __init__(self, time: Time, back_at: float) -> None:
        self._time = time
        self._back_at = back_at
        self.asked = 0

    def ask(self) -> Exception | None:
        self.asked += 1
        return None if self._time.now_s >= self._back_at else ConnectionRefusedError("nobody listens")


def outage(time: Time, timeout_s: float, jitter: float = 1.0) -> Outage:
    return Outage("db", timeout_s, now=time.now, sleep=time.sleep, jitter=lambda: jitter)


def test_a_database_that_answers_is_not_asked() -> None:
    time = Time()
    server = Server(time, back_at=0)
    outage(time, 30).wait(server.ask)
    assert (server.asked, time.slept) == (0, [])


def test_pauses_grow_to_two_seconds_until_the_database_is_back() -> None:
    time = Time()
    server, found = Server(time, back_at=1009), outage(time, 30)
    found.report(ConnectionRefusedError("nobody listens"))
    found.wait(server.ask)
    assert time.slept == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2])
    assert not found.is_on


def test_jitter_makes_a_pause_up_to_half_as_long() -> None:
    time = Time()
    server, found = Server(time, back_at=1000.1), outage(time, 30, jitter=0.0)
    found.report(ConnectionRefusedError("nobody listens"))
    found.wait(server.ask)
    assert time.slept == pytest.approx([0.025, 0.05, 0.1])


def test_the_time_counts_from_the_first_failure_for_everybody() -> None:
    time = Time()
    server, found = Server(time, back_at=5000), outage(time, 30)
    found.report(ConnectionRefusedError("nobody listens"))
    time.now_s += 20
    with pytest.raises(DatabaseAway, match=r"nobody listens\. It has not answered for 30 s\. Everything stored"):
        found.wait(server.ask)
    assert time.now_s == pytest.approx(1030)


def test_after_too_long_everybody_fails_after_one_try_until_the_database_is_back() -> None:
    time = Time()
    server, found = Server(time, back_at=1040), outage(time, 30)
    found.report(ConnectionRefusedError("nobody listens"))
    with pytest.raises(DatabaseAway):
        found.wait(server.ask)
    asked, slept = server.asked, len(time.slept)
    for _ in range(10):
        time.now_s += 0.1
        with pytest.raises(DatabaseAway):
            found.wait(server.ask)
    assert (server.asked, len(time.slept)) == (asked + 10, slept)
    time.now_s = 1040
    found.wait(server.ask)
    assert not found.is_on


def test_who_came_while_another_thread_asked_takes_its_answer() -> None:
    time, asking, may_answer = Time(), threading.Event(), threading.Event()
    found, asked, failed = outage(time, 30), list[int](), list[DatabaseAway]()

    def ask() -> Exception:
        asked.append(1)
        asking.set()
        assert may_answer.wait(30)
        time.now_s += 1
        return ConnectionRefusedError("nobody listens")

    def wait() -> None:
        try:
            found.wait(ask)
        except DatabaseAway as error:
            failed.append(error)

    found.report(ConnectionRefusedError("nobody listens"))
    time.now_s += 31
    threads = [threading.Thread(target=wait) for _ in range(5)]
    threads[0].start()
    assert asking.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(time.looked - {threading.get_ident()}) < 5:
        sleep(0.001)
    may_answer.set()
    for thread in threads:
        thread.join(30)
    assert (len(failed), len(asked)) == (5, 1)


def test_a_second_outage_has_its_own_time() -> None:
    time = Time()
    found = outage(time, 30)
    for back_at in (1020.0, 1045.0):
        found.report(ConnectionRefusedError("nobody listens"))
        found.wait(Server(time, back_at).ask)
    assert not found.is_on
