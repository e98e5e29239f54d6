"""A server of a project on a real port of this machine, for clients that know nothing but its address and a token."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.api.running_server import running
from tests.api.served_project import FLOW
from tests.services import free_port
from wtb.api.parts import ServerParts
from wtb.application.server.feed import LiveFeed
from wtb.bootstrap import Services, bootstrap
from wtb.domain.access import Role
from wtb.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ServedAddress:
    """A project and how programs reach its server; between two blocks `with served.up()` the server is away."""

    folder: Path
    services: Services
    token: str
    workflow: str

    @property
    def port(self) -> int:
        return self.services.settings.server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def up(self) -> Iterator[None]:
        """Run the server until the end of the block."""
        feed = LiveFeed(self.services.storage, self.services.bus)  # a server closes its own when it stops
        parts = ServerParts(services=replace(self.services, feed=feed), workflows=(self.workflow,))
        with running(parts, self.token, port=self.port):
            yield


@contextmanager
def served_address(
    folder: Path, settings: Settings, file: str = "agent.py", code: str = FLOW
) -> Iterator[ServedAddress]:
    """Prepare a project and its server in a folder; it does not run yet."""
    (folder / file).write_text(code)
    server = settings.server.model_copy(update={"port": free_port(), "requests_per_minute": 1_000_000})
    before = Path.cwd()
    os.chdir(folder)
    try:
        with bootstrap(settings.model_copy(update={"server": server})) as services:
            _, token = services.tokens.create("the admin", Role.ADMIN, by="tester")
            yield ServedAddress(folder=folder, services=services, token=token, workflow=f"{file}:flow")
    finally:
        os.chdir(before)
