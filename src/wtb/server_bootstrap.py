"""Builds what only servers use: webhooks, upkeep in the background, the workers of commands, and the server's file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from wtb.application.server.background_jobs import BackgroundJobs
from wtb.application.server.bounded_pruning import BoundedPruning
from wtb.application.server.command_server import CommandServer
from wtb.application.server.dispatch import Dispatcher
from wtb.application.server.served_batches import ServedBatches
from wtb.application.server.served_workflows import ServedWorkflows, absolute
from wtb.application.server.upkeep_jobs import UpkeepJobs
from wtb.application.server.webhook_outbox import WebhookOutbox
from wtb.application.server.webhooks import Webhooks
from wtb.application.upkeep.abandoned_runs import AbandonedRuns
from wtb.application.upkeep.light_check import LightCheck
from wtb.bootstrap import Services
from wtb.domain.commands import Command
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.runners.command_process import CommandProcess
from wtb.infrastructure.server_file import RunningServer, ServerFile
from wtb.infrastructure.webhook_sender import PinnedSender
from wtb.settings import Settings, settings_data
from wtb.storage_bootstrap import DATABASE_FILE, private_folder


@dataclass(frozen=True, kw_only=True)
class ServerServices:
    """The services that only servers and the commands about them use, each built when it is first asked for."""

    services: Services

    @cached_property
    def light_check(self) -> LightCheck:
        """Checks a part of the store at a time."""
        return LightCheck(self.services.storage)

    @cached_property
    def pruning(self) -> BoundedPruning:
        """Prunes within a time that a request can wait."""
        return BoundedPruning(self.services.retention, self.services.collection)

    @cached_property
    def webhooks(self) -> Webhooks:
        """What people do with webhooks."""
        services = self.services
        return Webhooks(services.storage, services.clock, services.ids, self._webhook_sender)

    @cached_property
    def background(self) -> BackgroundJobs:
        """What a server does beside requests; it starts and stops it."""
        services = self.services
        storage, clock, owners, masker = services.storage, services.clock, services.owners, services.masker
        intervals = services.settings.server.background.intervals
        abandoned = AbandonedRuns(storage, clock, owners, user=services.user)
        upkeep = UpkeepJobs(storage, services.retention, services.collection, abandoned, self.light_check)
        outbox = WebhookOutbox(storage, clock, self._webhook_sender, masker)
        plans = [*upkeep.plans(intervals), outbox.plan(intervals["webhooks"])]
        return BackgroundJobs(storage, clock, owners, masker, plans)

    @cached_property
    def _webhook_sender(self) -> PinnedSender:
        return PinnedSender(to_private=self.services.settings.server.webhooks_to_private_addresses)


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

    def find_reference(command: Command) -> str | None:
        batches.check(command)
        return served.for_command(command)

    dispatcher = Dispatcher(
        services.commands,
        lambda: CommandProcess(settings),
        workers=services.settings.server.workers,
        find_reference=find_reference,
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
