"""ServerParts: everything that routes work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from wtb.bootstrap import Services
from wtb.domain.access import Caller
from wtb.settings import ServerSettings, Settings


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """What a server is made of. Whoever builds one closes the services."""

    services: Services
    find_caller: Callable[[str], Caller | None]
    """Who has this token."""
    workflows: tuple[str, ...] = ()
    """The references that the command line named, in addition to those of the settings."""

    @property
    def settings(self) -> Settings:
        """All settings."""
        return self.services.settings

    @property
    def server(self) -> ServerSettings:
        """The settings of the server."""
        return self.services.settings.server


def parts_of(connection: HTTPConnection) -> ServerParts:
    """Return the parts of the server that answers this request."""
    parts: ServerParts = connection.app.state.parts
    return parts


Parts = Annotated[ServerParts, Depends(parts_of)]
"""The type of a route's argument that wants the parts."""
