"""Check that a worker on another machine reaches the database and the files of a batch."""

from __future__ import annotations

from pathlib import Path

from wtb.domain.errors import InvalidInput
from wtb.domain.job_attempt import WorkerName
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.runners.ray_messages import BeginWork


def machine_here() -> str:
    """Return the name of this machine, as leases have it."""
    return WorkerName(ProcessOwners().me()).machine


def check_shared_store(given: BeginWork, here: str | None = None) -> None:
    """Raise InvalidInput if this machine is another than the driver's and does not share its store."""
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
    if not Path(given.probe).exists():
        raise InvalidInput(
            f"a worker on {host} does not see {settings['folder']}, the folder in which the batch stores its files. "
            "Mount the same folder there on every machine, and name it with WTB_FOLDER or `folder` in wtb.toml"
        )
