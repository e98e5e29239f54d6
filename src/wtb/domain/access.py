"""Who may do what on a server: roles, and the caller of a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wtb.domain.errors import Forbidden


class Role(StrEnum):
    """What a caller may do. Each role may do everything that the one before it may."""

    VIEWER = "viewer"
    """Reads everything."""
    OPERATOR = "operator"
    """Changes runs and batches."""
    ADMIN = "admin"
    """Deletes, prunes, and keeps tokens and webhooks."""

    def includes(self, other: Role) -> bool:
        """Whether this role may do what the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request: the name of a token or of a signed-in person, and the role that it has."""

    name: str
    role: Role

    def require(self, role: Role) -> Caller:
        """Return this caller if it has the role, or raise Forbidden."""
        if not self.role.includes(role):
            raise Forbidden(f"{self.name!r} is {self.role}, and this needs {role}; ask an admin for such a token")
        return self
