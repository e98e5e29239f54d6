"""What only a server is put together with: the workers of its commands, and the file that says that it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from wtb.application.server.command_server import CommandServer
from wtb.application.server.dispatch import Dispatcher
from wtb.application.server.served_batches import ServedBatches
from wtb.application.server.served_workflows import ServedWorkflows, absolute
from wtb.bootstrap import DATABASE_FILE, Services, private_folder
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.runners.command_process import CommandProcess
from wtb.infrastructure.server_file import RunningServer, ServerFile
from wtb.settings import Settings, settings_data


def command_server(services: Services, references: Sequence[str], *, recorded: bool) -> CommandServer:
    """Build what carries out the commands of a server: with the references that it serves, or with recorded ones."""
    settings = settings_data(services.settings)
    if settings is None:
        raise InvalidInput("a server cannot use memory://, because its workers are other processes")
    served = ServedWorkflows(
        references,
        folder=Path.cwd(),
        recorded=recorded,
        queries=services.queries,
        describe=lambda wanted: dispatcher.ask({"describe": list(wanted)})["workflows"],
    )
    dispatcher = Dispatcher(
        services.commands,
        lambda: CommandProcess(settings),
        workers=services.settings.server.workers,
        find_reference=served.for_command,
    )
    batches = ServedBatches(
        references=[absolute(each, Path.cwd()) for each in services.settings.server.batches],
        maybe=[absolute(each, Path.cwd()) for each in references],
        ask=dispatcher.ask,
    )
    return CommandServer(
        storage=services.storage, commands=services.commands, dispatcher=dispatcher, served=served, batches=batches
    )


def server_file(settings: Settings) -> ServerFile:
    """Return the file of a server that is about to start: one for a SQLite database, one for each on Postgres."""
    database = _sqlite_path(settings)
    if database is not None:
        return ServerFile(database.with_name(f"{database.name}-server"))
    folder = private_folder(settings.folder)
    for path in folder.glob("server-*.json"):
        if ServerFile(path).find() is None:  # of a server that was killed
            path.unlink(missing_ok=True)
    return ServerFile(folder / f"server-{os.getpid()}.json")


def running_servers(settings: Settings) -> tuple[RunningServer, ...]:
    """Return the servers that run for this folder."""
    database = _sqlite_path(settings)
    files = [server_file(settings)] if database else map(ServerFile, sorted(settings.folder.glob("server-*.json")))
    return tuple(found for file in files if (found := file.find()) is not None)


def _sqlite_path(settings: Settings) -> Path | None:
    if settings.url is None:
        return (private_folder(settings.folder) / DATABASE_FILE).resolve()
    return Path(settings.url.removeprefix("sqlite:///")).resolve() if settings.url.startswith("sqlite:///") else None
