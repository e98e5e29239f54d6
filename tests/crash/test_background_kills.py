"""Servers that are killed in the middle of background jobs: every event reaches its webhook, and jobs go on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.webhook_receiver import Handler, Received, WebhookReceiver
from wtb.bootstrap import Services, bootstrap
from wtb.domain.event_catalogue import ExecutionDegraded
from wtb.domain.events import Event, EventType
from wtb.domain.webhooks import DeliveryStatus
from wtb.server_bootstrap import ServerServices
from wtb.settings import Settings, settings_data

PROGRAM = Path(__file__).with_name("background_worker.py")
KILLS = 3
EVENTS = 60
"""How many events are recorded between two kills."""


class Server:
    """A process of `background_worker.py`."""

    def __init__(self, settings: Settings) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(settings_data(settings)) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ready\n", "it did not start"

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(20)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            with closing(stream):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            assert self._process.stdin
            self._process.stdin.close()
            self._end()


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of a server that sends to this machine and does nothing else."""
    never: dict[str, Any] = dict.fromkeys(
        ["retention_s", "workspaces_s", "abandoned_runs_s", "doctor_s", "expired_s"], "never"
    )
    server = {"webhooks_to_private_addresses": True, "background": {**never, "webhooks_s": 1}}
    if request.param == "sqlite":
        return Settings(folder=request.getfixturevalue("sqlite_folder"), server=server)
    url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
    return Settings(url=url, folder=tmp_path / "wtb", server=server)


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    with bootstrap(settings) as services:
        yield services


def tell(services: Services) -> list[int]:
    """Record events one by one, and return their positions."""
    positions = []
    for number in range(EVENTS):
        with services.storage.unit_of_work() as uow:
            event = Event.of(ExecutionDegraded(error=str(number)), stream="run", at=services.clock.now())
            positions.append(uow.events.append(event)[0].position)
            uow.commit()
    return positions


def has_more_than(count: int, received: list[Received]) -> bool:
    return len(received) > count


def test_every_event_is_delivered_although_servers_are_killed_again_and_again(
    settings: Settings, services: Services
) -> None:
    def answer_late(handler: Handler, received: Received) -> None:
        time.sleep(0.005)
        handler.reply(200)

    positions: list[int] = []
    with WebhookReceiver(answer_late) as receiver:
        webhooks = ServerServices(services=services).webhooks
        webhook = webhooks.create(receiver.url, by="alice")
        for _ in range(KILLS):
            before = len(receiver.received)
            with Server(settings) as server:
                positions += tell(services)
                receiver.wait_for(partial(has_more_than, before))
                time.sleep(random.uniform(0, 0.3))
                server.kill()
        with Server(settings):
            receiver.wait_for(lambda got: set(positions) <= set(receiver.positions), timeout_s=60)
            deadline = time.monotonic() + 30
            while webhooks.list_deliveries(webhook.id, status=DeliveryStatus.PENDING):
                assert time.monotonic() < deadline, "a delivery stayed pending"
                time.sleep(0.05)
    again = len(receiver.positions) - len(set(receiver.positions))
    assert again < len(positions), "only what was under way is sent again"
    found = webhooks.list_deliveries(webhook.id, limit=1_000)
    assert {each.status for each in found} == {DeliveryStatus.DELIVERED}
    assert sorted(each.position for each in found) == positions


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_two_servers_on_one_postgres_do_a_job_once_an_interval_and_one_goes_on_alone(
    settings: Settings, services: Services
) -> None:
    background = settings.server.background.model_copy(update={"expired_s": 1.0})
    server = settings.server.model_copy(update={"background": background})
    settings = settings.model_copy(update={"server": server})

    def runs(count: int) -> list[float]:
        """Return when the job ran, once it has run so often."""
        deadline = time.monotonic() + 30
        while True:
            with services.storage.unit_of_work(readonly=True) as uow:
                found = uow.events.list_events(types=[EventType.BACKGROUND_COMPLETED])
            if len(found) >= count:
                return [event.at.timestamp() for event in found]
            assert time.monotonic() < deadline, "it took too long"
            time.sleep(0.05)

    with Server(settings) as one, Server(settings):
        before = runs(3)
        one.kill()
        times = runs(len(before) + 2)
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.9
