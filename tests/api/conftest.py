"""What the tests of the API share: a server over SQLite and over Postgres, and a client of each role."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from tests.api.client import ADDRESS, TestClient
from wtb.api.app import create_app
from wtb.api.parts import ServerParts
from wtb.bootstrap import Services, bootstrap
from wtb.domain.access import Role
from wtb.settings import ServerSettings, Settings

Sign = Callable[[Role | None], TestClient]


@pytest.fixture(params=["sqlite", "postgres"])
def server_settings(request: pytest.FixtureRequest, empty_folder: Path) -> Settings:
    """Settings of a server over each database in turn; the current folder is an empty project."""
    folder = empty_folder / ".wtb"
    server = ServerSettings(requests_per_minute=1_000_000)
    if request.param == "postgres":
        name = request.getfixturevalue("migrated_database")
        return Settings(url=request.getfixturevalue("postgres").url(name), folder=folder, user="tester", server=server)
    folder.mkdir(mode=0o700)
    shutil.copyfile(request.getfixturevalue("sqlite_template"), folder / "wtb.db")
    return Settings(folder=folder, user="tester", server=server)


@pytest.fixture
def services(server_settings: Settings) -> Iterator[Services]:
    """The services of the server; a test that needs a run makes one with a Bench of the same settings."""
    with bootstrap(server_settings) as services:
        yield services


@pytest.fixture
def parts(services: Services) -> ServerParts:
    """The parts of the server. To change one: `create_app(replace(parts, …))`."""
    return ServerParts(services=services)


@pytest.fixture
def app(parts: ServerParts) -> FastAPI:
    """The app of the server."""
    return create_app(parts)


@pytest.fixture
def client(app: FastAPI, services: Services) -> Iterator[Sign]:
    """Return a client of a role, with its own token; None is a stranger. The app runs with its background parts."""
    with TestClient(app, base_url=ADDRESS) as running:

        def sign(role: Role | None) -> TestClient:
            made = TestClient(app, base_url=ADDRESS, raise_server_exceptions=True)
            made.portal = running.portal
            if role is not None:
                _, token = services.tokens.create(f"the {role}", role, by="tester")
                made.headers["Authorization"] = f"Bearer {token}"
            return made

        yield sign


@pytest.fixture
def stranger(client: Sign) -> TestClient:
    """A client without a token."""
    return client(None)


@pytest.fixture
def viewer(client: Sign) -> TestClient:
    """A client that may read; its name is `the viewer`."""
    return client(Role.VIEWER)


@pytest.fixture
def operator(client: Sign) -> TestClient:
    """A client that may change runs and batches; its name is `the operator`."""
    return client(Role.OPERATOR)


@pytest.fixture
def admin(client: Sign) -> TestClient:
    """A client that may do everything; its name is `the admin`."""
    return client(Role.ADMIN)
