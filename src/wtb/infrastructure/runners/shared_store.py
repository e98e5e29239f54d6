"""Check that a worker on another machine may use the database of a batch, before it opens it."""

from __future__ import annotations

from wtb.domain.errors import InvalidInput
from wtb.domain.job_attempt import WorkerName
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.runners.ray_messages import BeginWork


def machine_here() -> str:
    """Return the name of this machine, as leases have it."""
    return WorkerName(ProcessOwners().me()).machine


def check_shared_store(given: BeginWork, here: str | None = None) -> None:
    """Raise InvalidInput if this machine is another than the driver's and the database is SQLite.

    Opening it would create an empty database here. Whether the files are shared, the probe object shows later.
    """
    here = here or machine_here()
    if here == given.machine:
        return
    settings, host = given.assignment.settings, WorkerName(f"{here}:/").host
    url = settings.get("url") or "sqlite:"
    if url.startswith("sqlite:"):
        raise InvalidInput(
            f"a worker on {host} cannot use the SQLite database of this batch: SQLite works on one machine only, "
            "because its locks fail on network drives. Use a Postgres database (`--url postgresql://…`) for a batch on "
            "several machines, or run it on one"
        )
