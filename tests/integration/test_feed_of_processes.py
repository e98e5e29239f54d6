"""Several processes write into one SQLite file while another follows: nothing is missed, nothing comes twice."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.integration.race import GUN, race
from wtb.application.server.feed import LiveFeed
from wtb.bootstrap import bootstrap
from wtb.domain.feed import EVERY_EVENT, START, FedEvent
from wtb.settings import Settings

WRITE = f"""
import sys
from datetime import UTC, datetime
from wtb.bootstrap import bootstrap
from wtb.domain.events import Event, EventType
from wtb.settings import Settings

with bootstrap(Settings(folder=sys.argv[1])) as services:
    {GUN.strip()}
    for number in range(150):
        streams = ("shared", sys.argv[2])
        with services.storage.unit_of_work() as uow:
            for stream in streams[: 1 + number % 2]:
                uow.events.append(Event(type=EventType.NODE_LOGGED, stream=stream, at=datetime.now(UTC)))
            uow.commit()
print("done")
"""


def test_two_processes_that_write_are_followed_by_a_third(sqlite_folder: Path) -> None:
    with bootstrap(Settings(folder=sqlite_folder)) as services:
        feed, woken, done = LiveFeed(services.storage, services.bus, page_size=20), threading.Event(), threading.Event()
        client = feed.follow(START, EVERY_EVENT, woken.set)
        seen: list[FedEvent] = []

        def follow() -> None:
            while not (done.is_set() and not client.is_behind and client.cursor == feed.end()):
                woken.clear()
                seen.extend(client.take())
                woken.wait(0.01)

        follower = threading.Thread(target=follow)
        follower.start()
        assert race(WRITE, [[str(sqlite_folder), "a"], [str(sqlite_folder), "b"]]) == ["done\n"] * 2
        done.set()
        follower.join(60)
        assert not follower.is_alive()
        with services.storage.unit_of_work(readonly=True) as uow:
            table = uow.events.list_events(limit=10_000)
        feed.close()
    assert [fed.event for fed in seen] == list(table)
    assert len(table) == 2 * (150 + 75)
