"""CommandServer: the commands, the workers and the workflows of one server."""

from __future__ import annotations

from dataclasses import dataclass

from wtb.application.server.commands import Commands
from wtb.application.server.dispatch import Dispatcher
from wtb.application.server.run_marks import RunMark, read_mark
from wtb.application.server.served_batches import ServedBatches
from wtb.application.server.served_workflows import ServedWorkflows
from wtb.domain.commands import Command
from wtb.domain.execution import Execution
from wtb.domain.ports import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandServer:
    """Everything that carries out commands. `start` it once, and `close` it when the server ends."""

    storage: Storage
    commands: Commands
    dispatcher: Dispatcher
    served: ServedWorkflows
    batches: ServedBatches

    def start(self) -> None:
        """Begin to carry out commands, also those that an earlier server left."""
        self.dispatcher.start()

    def close(self) -> None:
        """End all workers; what is left goes on with the next server."""
        self.dispatcher.close()

    def cancel(self, command_id: str, *, by: str) -> Command:
        """End a command and its worker; raise Conflict if it has ended."""
        cancelled = self.commands.cancel(command_id, by=by)
        self.dispatcher.end(command_id)
        return cancelled

    def mark(self, run_id: str) -> tuple[Execution, RunMark]:
        """Return a run, and where it is now; raise ExecutionNotFound."""
        return read_mark(self.storage, run_id)
