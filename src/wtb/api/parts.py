"""ServerParts: everything that routes work with."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from wtb.api.readiness import Readiness
from wtb.api.recent_results import RecentResults
from wtb.bootstrap import Services
from wtb.domain.access import Caller
from wtb.server_bootstrap import ServerServices
from wtb.settings import ServerSettings, Settings


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """What a server is made of. Whoever builds one closes the services."""

    services: Services
    workflows: tuple[str, ...] = ()
    """The references that the command line named, in addition to those of the settings."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the server begins to stop, so that whoever answers for long can end its answer."""

    @property
    def settings(self) -> Settings:
        """All settings."""
        return self.services.settings

    @property
    def server(self) -> ServerSettings:
        """The settings of the server; its host and port are those that it really has."""
        return self.services.settings.server

    @cached_property
    def server_services(self) -> ServerServices:
        """The services that only servers use."""
        return ServerServices(services=self.services)

    @cached_property
    def readiness(self) -> Readiness:
        """Whether the server can work."""
        return Readiness(self.services.check_schema)

    @cached_property
    def results(self) -> RecentResults:
        """The results of batches, of which the last ones are kept."""
        return RecentResults(self.services)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie. Browsers do not tell two ports of one machine apart."""
        return f"wtb_session_{self.server.port}"

    @property
    def is_encrypted(self) -> bool:
        """Whether callers reach the server through TLS: its own, or that of a proxy."""
        return self.server.certificate is not None or self.server.trusted_proxy is not None

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.server.host) and self.server.trusted_proxy is None

    @property
    def serves_recorded(self) -> bool:
        """Whether a server that was told of no workflow may run those that runs have recorded in this folder."""
        return self.is_private and self.settings.url is None

    @property
    def owner(self) -> Caller:
        """Who signs in with a link: the person who started the server."""
        return Caller(name=self.services.user, role=self.server.loopback_role)


def is_loopback(host: str) -> bool:
    """Whether a host to listen on is reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def parts_of(connection: HTTPConnection) -> ServerParts:
    """Return the parts of the server that answers this request."""
    parts: ServerParts = connection.app.state.parts
    return parts


Parts = Annotated[ServerParts, Depends(parts_of)]
"""The type of a route's argument that wants the parts."""
