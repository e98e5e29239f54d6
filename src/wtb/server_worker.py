"""A worker of a server: `python -m wtb.server_worker FD` carries out one command, or answers one question, and ends.

It is a fresh process each time, so edited code is never stale. When the server's process is gone, it ends at once, like
a crash, with every process that it started.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from wtb.application.runs.run_request import RunRequest
from wtb.application.server.command_errors import error_data
from wtb.application.server.commands import Commands
from wtb.bench import Bench
from wtb.bootstrap import bootstrap
from wtb.domain.commands import LEASE, Command
from wtb.domain.errors import Conflict, ExecutionNotFound, InvalidInput, StorageUnavailable, WTBError
from wtb.domain.secrets import SECRET_KEYS, SECRET_PATTERNS, Masker, masked_logger
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.worker_process import channel_to_parent, end_at_once, print_at_once
from wtb.server_commands import HANDLERS
from wtb.server_commands.context import CommandContext
from wtb.server_commands.workflows import answer
from wtb.settings import Settings, settings_from

_log = masked_logger("wtb.server_worker")


class _Mailbox:
    """Reads the server's messages in a thread, so that the worker notices the server's end, or its wish to end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self.request = RunRequest()
        threading.Thread(target=self._read, name="wtb-server", daemon=True).start()

    def next(self) -> Mapping[str, Any]:
        return self._messages.get()

    def _read(self) -> None:
        while (message := self._channel.receive()) is not None:
            if "stop" in message:
                self.request.pause()
            else:
                self._messages.put(message)
        end_at_once()


def serve(channel: Channel) -> None:
    """Do the one thing that comes over a channel."""
    mailbox = _Mailbox(channel)
    begin = mailbox.next()
    sys.path[:] = begin["path"]
    channel.send({"ready": ProcessOwners().me()})
    message, settings = mailbox.next(), settings_from(begin["settings"])
    if "ask" in message:
        channel.send(_answered(message["ask"], settings))
        return
    command = Command.from_data(message["command"])
    own = settings_from({**begin["settings"], "user": command.created_by})
    with Bench._over(bootstrap(own, is_worker=True)) as bench:
        ctx = CommandContext(
            bench=bench,
            reference=message["reference"],
            request=mailbox.request,
            say=lambda said: channel.send({"said": said}),
        )
        _carry_out(ctx, command)
    channel.send({"done": command.id})


def _answered(question: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    masker = Masker((*SECRET_KEYS, *settings.secret_keys), (*SECRET_PATTERNS, *settings.secret_patterns))
    try:
        return {"answer": answer(question, masker)}
    except Exception as error:  # noqa: BLE001  the user's module may raise anything
        return {"refused": error_data(error, masker)}


def _carry_out(ctx: CommandContext, command: Command) -> None:
    """Carry a command out and store how it ended, while a thread keeps it in this worker's hands."""
    commands, ended = ctx.services.commands, threading.Event()
    threading.Thread(target=_keep, args=(commands, command, ended), name="wtb-keep", daemon=True).start()
    try:
        handler = HANDLERS.get(command.kind)
        if handler is None:
            raise InvalidInput(f"this server cannot carry out {command.kind}")
        if command.attempts > 1:
            _wait_for_run(ctx, command)
        result = handler(ctx, command)
    except StorageUnavailable:  # nothing is wrong with the command: the next worker goes on with it
        raise
    except BaseException as error:  # noqa: BLE001  whatever the user's code raises is the answer to the caller
        _log.debug("command %s failed", command.id, exc_info=True)
        ended.set()
        commands.fail(command, error)
        return
    ended.set()
    if result.get("stopped_by_server"):
        commands.put_back(command, {})
    elif _is_paused_by_server(ctx.request, result):
        commands.put_back(command, {"paused_at_version": result["run"]["version"]})
    else:
        commands.complete(command, ctx.services.masker.data(result))


def _wait_for_run(ctx: CommandContext, command: Command) -> None:
    """Wait for the lease of the worker that had this command before, if the run exists."""
    with suppress(ExecutionNotFound):
        ctx.wait_until_free(command.subject or "")


def _is_paused_by_server(request: RunRequest, result: Mapping[str, Any]) -> bool:
    """Whether the run waits only because the server ends; a person's request names the person."""
    pause = (result.get("run") or {}).get("pause")
    return request.wanted == "pause" and request.by is None and pause is not None and pause["kind"] == "requested"


def _keep(commands: Commands, command: Command, ended: threading.Event) -> None:
    """Extend the lease of a command until it has ended; if it is in other hands, end at once."""
    while not ended.wait(LEASE.total_seconds() / 3):
        try:
            commands.extend(command)
        except Conflict:
            if not ended.is_set():
                end_at_once()
        except WTBError:
            _log.warning("the lease of command %s could not be extended; it tries again", command.id, exc_info=True)


def main() -> None:
    """Serve the server that started this process."""
    print_at_once()
    serve(channel_to_parent())


if __name__ == "__main__":
    main()
