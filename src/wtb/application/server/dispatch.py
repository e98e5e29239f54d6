"""Dispatcher: gives accepted commands to worker processes, at most so many at a time, and answers quick questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from wtb.application.server.command_errors import error_from
from wtb.application.server.commands import Commands
from wtb.application.server.run_streams import RunStreams
from wtb.domain.commands import Command
from wtb.domain.errors import (
    ServerStopping,
    StorageError,
    TooManyRequests,
    WorkerFailed,
    WorkflowNotServed,
    WTBError,
)
from wtb.domain.secrets import masked_logger

_log = masked_logger(__name__)

_LOOK_S = 1.0
"""How often the dispatcher looks for commands of other servers and of workers that are gone."""

_TIDY_S = 3_600.0
"""How often old commands are deleted."""

_FIRST_SPARE_S = 2.0
"""How long after its start a server starts its first spare worker, unless a command comes before."""

_STARTS = 3
"""How often a worker is started that ends before it is ready."""

_ANSWER_S = 60.0
"""How long a worker may take for the answer to a question, which includes importing the user's code."""

_MOST_QUESTIONS = 8
"""How many questions are answered at a time: each takes a process, and a thread of the request that waits for it."""

_RETRY_S = 2

_GRACE_S = 10.0
"""How long runs may take to reach the end of a step when the server ends."""


_OTHERS_FIRST_S = 10.0
"""How long a command is left to the server that its caller is connected to."""

_MOST_LEFT = 1_000

FOLLOWED_AT = "followed_at"
"""The argument of a command with the name of the server where somebody listens to it."""


class CommandWorker(Protocol):
    """A worker process for one command or one question. It ends afterwards, and whenever the server ends."""

    @property
    def name(self) -> str:
        """The name of the process in leases."""
        ...

    def carry_out(
        self, command: Command, reference: str | None, heard: Callable[[Mapping[str, Any]], object]
    ) -> str | None:
        """Wait until the worker has stored how the command ended; if the worker ended before that, say how.

        `heard` gets what the worker says meanwhile.
        """
        ...

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a question; raise its error, or WorkerFailed if the worker ended."""
        ...

    def stop(self) -> None:
        """Ask for an end after the current step."""
        ...

    def kill(self) -> None:
        """End the process and its children now."""
        ...


class SpareWorkers:
    """Keeps a worker ready that has imported WTB and nothing of the user's, so that no command waits for that."""

    def __init__(self, start: Callable[[], CommandWorker], count: int = 1) -> None:
        self._start = start
        self._count = count
        self._ready: list[CommandWorker] = []
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="wtb-spares", daemon=True)

    def open(self) -> None:
        """Begin to start workers."""
        self._thread.start()

    def get(self) -> CommandWorker:
        """Return a worker that nobody else has."""
        with self._changed:
            self._changed.notify_all()
            if self._ready:
                return self._ready.pop(0)
        return self._started()

    def close(self) -> None:
        """End all spare workers."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            ready, self._ready = self._ready, []
        for worker in ready:
            worker.kill()
        if self._thread.ident is not None:
            self._thread.join()

    def _fill(self) -> None:
        with self._changed:  # the server itself comes first
            self._changed.wait(_FIRST_SPARE_S)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or len(self._ready) < self._count)
                if self._closed.is_set():
                    return
            try:
                worker = self._started()
            except Exception:  # noqa: BLE001  without this thread, every command would wait for the start of its worker
                _log.exception("no worker can be started; trying again")
                with self._changed:
                    self._changed.wait_for(self._closed.is_set, timeout=_GRACE_S)
                continue
            with self._changed:
                if not self._closed.is_set():
                    self._ready.append(worker)
                    continue
            worker.kill()

    def _started(self) -> CommandWorker:
        for _ in range(_STARTS - 1):
            with suppress(WorkerFailed):
                return self._start()
        return self._start()


class Dispatcher:
    """Carries out the commands of a store in worker processes of this server."""

    def __init__(
        self,
        commands: Commands,
        start_worker: Callable[[], CommandWorker],
        *,
        workers: int,
        find_reference: Callable[[Command], str | None],
    ) -> None:
        self._commands = commands
        self._spares = SpareWorkers(start_worker)
        self._find_reference = find_reference
        self.streams = RunStreams()
        """What the runs of this server say while they run."""
        self.name = uuid4().hex
        """Names this server in commands whose caller follows them here."""
        self._free = threading.BoundedSemaphore(workers)
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._begun: dict[str, CommandWorker | None] = {}
        """The commands that this server has begun with, and their workers once they have one."""
        self._left_to_others: dict[str, float] = {}
        """Since when each command waits for the server where its caller is."""
        self._asked: set[CommandWorker] = set()
        self._questions = threading.BoundedSemaphore(_MOST_QUESTIONS)
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._dispatch, name="wtb-dispatcher", daemon=True)

    def start(self) -> None:
        """Begin to carry out commands."""
        self._commands.on_accepted = self._wake.set
        self._spares.open()
        self._thread.start()

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask a worker something that changes nothing, as what a workflow looks like; raise its error.

        It raises TooManyRequests while many other questions are being answered.
        """
        if not self._questions.acquire(blocking=False):
            raise TooManyRequests("the server answers many questions about workflows and batches", _RETRY_S)
        try:
            return self._answered(question)
        finally:
            self._questions.release()

    def _answered(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        worker = self._spares.get()
        timer = threading.Timer(_ANSWER_S, worker.kill)
        timer.start()
        with self._lock:
            self._asked.add(worker)
        try:
            if self._closed.is_set():
                raise ServerStopping("the server stops; ask again when it is back")
            return worker.ask(question)
        finally:
            timer.cancel()
            with self._lock:
                self._asked.discard(worker)
            worker.kill()

    def end(self, command_id: str) -> None:
        """End the worker of a command now, if this server has it."""
        with self._lock:
            worker = self._begun.get(command_id)
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """Let runs reach the end of their step, then end all workers. What is left goes on with the next server."""
        self._closed.set()
        self._wake.set()
        with self._lock:
            asked = list(self._asked)
        for worker in asked:  # the dispatcher itself may wait for an answer
            worker.kill()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            workers, threads = [each for each in self._begun.values() if each is not None], list(self._threads)
        for worker in workers:
            worker.stop()
        until = time.monotonic() + _GRACE_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            workers = [each for each in self._begun.values() if each is not None]
        for worker in workers:
            worker.kill()
        for thread in threads:
            thread.join()
        self._spares.close()

    def _dispatch(self) -> None:
        tidied_at, told = -_TIDY_S, ""
        while not self._closed.is_set():
            self._wake.wait(_LOOK_S)
            self._wake.clear()
            try:
                if time.monotonic() - tidied_at >= _TIDY_S:
                    tidied_at = time.monotonic()
                    self._commands.forget_old()
                while not self._closed.is_set() and self._take_one():
                    pass
                told = ""
            except WTBError as error:
                if str(error) != told:  # once, not every second
                    _log.warning("commands wait: %s", error)
                told = str(error)
                self._closed.wait(_LOOK_S)
            except Exception:  # noqa: BLE001  without this thread, no command would ever be carried out again
                _log.exception("no command can be taken now; trying again")
                self._closed.wait(_LOOK_S)

    def _take_one(self) -> bool:
        """Begin with the next command; return False if there is none, or no worker is free."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            found = self._commands.find_next(self._may_take)
            reference = None if found is None else self._find_reference(found)
        except BaseException:
            self._free.release()
            raise
        if found is None:
            self._free.release()
            return False
        # In a thread from here on: to start a worker takes time, and the next command may begin meanwhile.
        thread = threading.Thread(
            target=self._carry_out, args=(found, reference), name=f"wtb-command-{found.id}", daemon=True
        )
        with self._lock:
            self._begun[found.id] = None
            self._threads.add(thread)
        thread.start()
        return True

    def _may_take(self, command: Command) -> bool:
        """Whether this server has not begun with a command, and can load the code that it needs.

        One whose code is not served here waits for another server. One whose code is broken fails at once.
        """
        if command.id in self._begun or not self._is_ours(command):
            return False
        try:
            self._find_reference(command)
        except (WorkflowNotServed, TooManyRequests):
            return False
        except StorageError:  # tried again
            raise
        except WTBError as error:
            self._commands.fail(command, error)
            self._commands.told_of_end(command.id)
            return False
        return True

    def _is_ours(self, command: Command) -> bool:
        """Whether no other server comes first: a client follows the run there, and hears it only there."""
        wanted = command.arguments.get(FOLLOWED_AT)
        if wanted in (None, self.name) or command.attempts:
            return True
        if len(self._left_to_others) > _MOST_LEFT:
            self._left_to_others.clear()
        since = self._left_to_others.setdefault(command.id, time.monotonic())
        return time.monotonic() - since >= _OTHERS_FIRST_S

    def has(self, command_id: str) -> bool:
        """Whether this server carries out a command now, or still hears from its worker."""
        with self._lock:
            return command_id in self._begun

    def _carry_out(self, found: Command, reference: str | None) -> None:
        worker: CommandWorker | None = None
        try:
            worker = self._spares.get()
            command = None if self._closed.is_set() else self._commands.take(found, worker.name)
            if command is not None:
                with self._lock:
                    self._begun[found.id] = worker
                self._carried_out(command, reference, worker)
        except Exception:  # noqa: BLE001  it has a next attempt
            _log.exception("command %s could not be carried out here; it waits for its next attempt", found.id)
            self._closed.wait(_LOOK_S)  # whatever is wrong, such as too many processes, needs a moment
        finally:
            if worker is not None:
                worker.kill()
            with self._lock:
                del self._begun[found.id]
                self._threads.discard(threading.current_thread())
            self._free.release()
            self._commands.told_of_end(found.id)
            self._wake.set()

    def _carried_out(self, command: Command, reference: str | None, worker: CommandWorker) -> None:
        how = worker.carry_out(command, reference, partial(self.streams.publish, command.id))
        if how is not None and not self._closed.is_set():
            _log.warning("the worker of command %s (%s) %s", command.id, command.kind, how)
            self._commands.lose(command, how)


def answer_of(said: Any, how: str) -> Mapping[str, Any]:
    """Return what a worker answered to a question; raise the error that it answered instead."""
    if said is None:
        raise WorkerFailed(f"the worker {how} before it answered; the server's log has its last output")
    if not isinstance(said, Mapping) or not isinstance(said.get("refused", said.get("answer")), Mapping):
        raise WorkerFailed("the answer of the worker cannot be read: the workflow's own code wrote into its connection")
    if "refused" in said:
        raise error_from(said["refused"])
    answer: Mapping[str, Any] = said["answer"]
    return answer
