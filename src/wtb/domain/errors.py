"""Every error WTB raises.

WTBError
├── NotFound                    nothing has this id or name
│   ├── WorkflowNotFound
│   ├── ExecutionNotFound
│   ├── BranchNotFound
│   ├── NodeRunNotFound
│   ├── CheckpointNotFound
│   ├── FileCommitNotFound
│   ├── FileNotFound
│   ├── BatchNotFound
│   ├── CaseNotFound
│   ├── BaselineNotFound
│   ├── WebhookNotFound
│   ├── DeliveryNotFound
│   ├── BackgroundJobNotFound
│   ├── CommandNotFound
│   ├── ObjectNotFound
│   └── TokenNotFound
├── InvalidInput                the caller can correct it
│   ├── InvalidWorkflow         lists every fault of the definition at once
│   ├── InvalidCondition
│   ├── InvalidTransition       the status does not allow it
│   ├── InvalidStateChange      an operation that does not fit the value it meets
│   ├── StateNotSerialisable    names the path in the state
│   ├── MissingLibrary          an optional one; says what to install
│   ├── UnsafePath              a path that leads out of a workspace
│   ├── TooMuchToShow           one answer would be too large; says how to ask for pieces
│   ├── PreconditionRequired    a request must say which version it changes
│   └── IdempotencyMismatch     the same key came with another request before
├── Conflict                    somebody else was first
│   ├── AlreadyExists
│   ├── LeaseLost
│   ├── CommandCancelled        somebody ended a server's command
│   ├── MergeConflict           two members of a superstep changed the same path
│   ├── VersionMismatch         it is no longer the version that a request named
│   └── WorkflowNotServed       this server may not run the workflow; says the command that can
├── AccessDenied                a server refuses the caller
│   ├── Unauthenticated         no token or session, or one that is no longer valid
│   ├── Forbidden               the role does not allow it, or the request comes from a foreign page
│   └── TooManyRequests         says when to try again
├── ServerAway                  no server answers a client
├── NotFinished                 a server has not finished in time what a client waits for
├── CursorGone                  the place in the feed of events no longer exists
├── ReaderTooSlow               a client of the feed did not take its events in time
├── ServerStopping              the server ends; another one, or the same one later, goes on
├── CircuitOpen                 a service failed too often, and is left alone for a while
├── WorkerFailed                a worker process could not start or go on
├── EnvironmentFailed           the environment of a node could not start, or ended before the node
│   ├── EnvironmentAway         its server is full or does not answer; the node has not begun
│   └── OutOfMemory             a node took more memory than its environment allows
└── StorageError                the database or the disk
    ├── StorageUnavailable      full, read-only, locked, unreachable
    │   └── DatabaseAway        it does not answer, and has not for too long
    │       └── ConnectionLost  in the middle of a unit of work that could not be repeated
    ├── DamagedData             a hash does not match what was read
    ├── StorageReplaced         deleted, replaced or set back while it was in use
    ├── UnknownFormat           written by a version that this one cannot read
    ├── SchemaOutdated          `wtb db upgrade`
    ├── SchemaTooNew            upgrade wtb itself
    └── WorkspaceError          a file of a workspace cannot be read or put back

Every message says what happened, to what, and what to do.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any


class WTBError(Exception):
    """The root of all errors that WTB raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling __init__, whose arguments are not the message; errors are sent between processes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def error_with(kind: type[WTBError], message: str) -> WTBError:
    """Return an error of a class with the message that another process made, whatever the class makes it of."""
    if kind.__init__ in (Exception.__init__, MemoryError.__init__):
        return kind(message)
    error = kind.__new__(kind)
    error.args = (message,)
    return error


class NotFound(WTBError, LookupError):
    """Nothing has this id or name."""

    noun = "item"
    hint = ""

    def __init__(self, key: object, where: str = "") -> None:
        """Name the key that was asked for, and where it was looked for."""
        self.key = key
        place = f" in {where}" if where else ""
        super().__init__(f"no {self.noun} {str(key)!r}{place}{self.hint}")


class WorkflowNotFound(NotFound):
    """No stored workflow definition has this id."""

    noun = "workflow"


class ExecutionNotFound(NotFound):
    """No run has this id."""

    noun = "run"
    hint = "; `wtb ls` lists the runs of this store"


class BranchNotFound(NotFound):
    """No branch has this id or name."""

    noun = "branch"


class NodeRunNotFound(NotFound):
    """No node run has this id."""

    noun = "node run"


class CheckpointNotFound(NotFound):
    """No checkpoint has this id, name, node or step."""

    noun = "checkpoint"
    hint = "; `wtb history RUN` lists them"


class FileCommitNotFound(NotFound):
    """No file commit has this id."""

    noun = "file commit"


class FileNotFound(NotFound):
    """The checkpoint has no file with this path."""

    noun = "file"


class BatchNotFound(NotFound):
    """No batch has this id or name."""

    noun = "batch"
    hint = "; `wtb batch ls` lists them"


class CaseNotFound(NotFound):
    """The batch has no case with this id."""

    noun = "case"


class BaselineNotFound(NotFound):
    """No baseline has this name."""

    noun = "baseline"
    hint = "; `wtb baseline set NAME BATCH` saves one"

    @classmethod
    def among(cls, name: str, known: Iterable[str]) -> BaselineNotFound:
        """Return an error that names the baselines that exist."""
        names = ", ".join(sorted(known))
        return cls(name, f"this store, which has {names}" if names else "")


class WebhookNotFound(NotFound):
    """No webhook has this id."""

    noun = "webhook"
    hint = "; `wtb webhook ls` lists them"


class DeliveryNotFound(NotFound):
    """A webhook has no delivery of the event at this position."""

    noun = "delivery of event"
    hint = "; `wtb webhook deliveries ID` lists them"


class BackgroundJobNotFound(NotFound):
    """No background job has this name."""

    noun = "background job"


class CommandNotFound(NotFound):
    """No accepted command has this id."""

    noun = "command"


class ObjectNotFound(NotFound):
    """The object store has no content with this digest."""

    noun = "object"


class TokenNotFound(NotFound):
    """No token has this name."""

    noun = "token"
    hint = "; `wtb token ls` lists them"


class InvalidInput(WTBError, ValueError):
    """Something you passed cannot be used as it is."""


class MissingLibrary(InvalidInput, ImportError):
    """This needs a library that is not installed."""


class TooMuchToShow(InvalidInput):
    """One answer would be too large; ask for it in pieces."""


class InvalidWorkflow(InvalidInput):
    """The workflow cannot run; `faults` lists everything that is wrong."""

    def __init__(self, name: str, faults: Sequence[str]) -> None:
        """Keep the faults as a list for programs, and join them into a message for people."""
        self.faults = tuple(faults)
        super().__init__(f"workflow {name!r} cannot run:\n" + "\n".join(f"  - {fault}" for fault in self.faults))


class InvalidCondition(InvalidInput):
    """An edge condition that does not parse, or does not evaluate to true or false."""


class InvalidTransition(InvalidInput):
    """The status of the run does not allow this."""


class InvalidStateChange(InvalidInput):
    """An operation that does not fit the value it meets, such as an append to a string."""


class StateNotSerialisable(InvalidInput):
    """A value cannot be stored; `path` says where it is in the state."""

    def __init__(self, path: str, problem: str) -> None:
        """Say where in the state, and what is wrong there."""
        self.path = path
        super().__init__(f"{path}: {problem}")


class UnsafePath(InvalidInput):
    """A path that must not be written to a disk, no matter who stored it."""

    def __init__(self, path: str, problem: str) -> None:
        """Name the path and what is wrong with it."""
        self.path = path
        super().__init__(f"the path {path!r} cannot be used: {problem}")


class PreconditionRequired(InvalidInput):
    """The request must say which version it changes, with If-Match."""


class IdempotencyMismatch(InvalidInput):
    """The same Idempotency-Key came with another request before."""


class Conflict(WTBError):
    """Somebody else changed it first; read it again and decide again."""


class AlreadyExists(Conflict):
    """The id or the name is taken."""


class LeaseLost(Conflict):
    """Another process owns the execution now; this one must stop writing to it."""


class CommandCancelled(Conflict):
    """Somebody ended a command of a server before it ended by itself."""


class MergeConflict(Conflict):
    """Two members of a parallel superstep changed one path of their workspaces, each in its own way."""

    def __init__(self, path: str, first: str, second: str) -> None:
        """Name the path and both members."""
        self.path = path
        self.members = (first, second)
        super().__init__(f"{first!r} and {second!r} both changed {path!r}; let one of them write elsewhere")


class VersionMismatch(Conflict):
    """It is no longer the version that the request named; read it again and decide again."""


class WorkflowNotServed(Conflict):
    """This server may not run the workflow; `command` is what to type in its folder instead."""

    def __init__(self, message: str, command: str) -> None:
        """Say what cannot be done here, and the command that does it."""
        self.command = command
        super().__init__(f"{message}; type `{command}` where its code is")


class AccessDenied(WTBError):
    """The server refuses the caller."""


class Unauthenticated(AccessDenied):
    """The request has no valid token or session."""


class Forbidden(AccessDenied):
    """The caller may not do this, or the request comes from a foreign page."""


class TooManyRequests(AccessDenied):
    """The caller sends too much; `retry_after_s` says when the next request is answered."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        """Say what there is too much of, and how long to wait."""
        self.retry_after_s = retry_after_s
        super().__init__(f"{message}; try again in {retry_after_s} s")


class ServerAway(WTBError, ConnectionError):
    """No server answers at this address."""


class NotFinished(WTBError, TimeoutError):
    """The server has not finished in time; it goes on, and can be asked again."""


class CursorGone(WTBError):
    """The feed of events no longer has the event that a cursor names; begin again without one."""


class ReaderTooSlow(WTBError):
    """A client of the feed did not take its events in time, so it was dropped; its cursor is still good."""


class ServerStopping(WTBError):
    """The server ends."""


class CircuitOpen(WTBError):
    """A service failed too often in a row, so its calls fail at once; `until` is when the next one is tried."""

    def __init__(self, limit: str, failures: int, until: datetime) -> None:
        """Name the limit, and say when a call is tried again."""
        self.limit = limit
        self.until = until
        super().__init__(
            f"the circuit breaker of limit {limit!r} is open: {failures} calls in a row found the service overloaded "
            f"or away. A call is tried again from {until:%H:%M:%S} UTC; run the failed jobs again after that"
        )


class WorkerFailed(WTBError):
    """A worker process could not start or go on."""


class EnvironmentFailed(WTBError):
    """The environment of a node could not start, or it ended before the node did."""


class EnvironmentAway(EnvironmentFailed):
    """No environment can be started now: its server is full or does not answer. The node has not begun."""

    def __init__(self, message: str, worth_waiting_s: float = 0.0) -> None:
        """Say what happened, and how long it is worth trying again."""
        super().__init__(message)
        self.worth_waiting_s = worth_waiting_s


class OutOfMemory(EnvironmentFailed, MemoryError):
    """A node took more memory than its environment allows."""


class StorageError(WTBError):
    """The database or the disk failed; everything committed before is intact."""


class StorageUnavailable(StorageError):
    """The store is full, read-only, locked or out of reach."""


class DatabaseAway(StorageUnavailable):
    """The database has not answered for too long. What is stored is intact; continue when it is back."""


class ConnectionLost(DatabaseAway):
    """The connection was lost in the middle of a unit of work that could not be repeated; nothing of it is stored."""


class DamagedData(StorageError):
    """The stored data is not what was written."""


class StorageReplaced(StorageError):
    """The store was deleted, replaced or set back to an earlier state while this process used it."""


class UnknownFormat(StorageError):
    """A row or a value was written by a version that this one cannot read."""


class SchemaOutdated(StorageError):
    """The database is older than this version of wtb."""


class SchemaTooNew(StorageError):
    """The database was written by a newer version of wtb."""


class WorkspaceError(StorageError):
    """A file of a workspace cannot be read or put back; the workspace is as it was, unless the message says more."""
