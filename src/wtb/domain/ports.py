"""Ports: what the services need from the outside; each docstring is the law for every implementation.

Laws that hold for all of them: implementations are safe to use from several threads; nothing that they return
is changed later by them or may be changed by the caller; foreign exceptions never pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol, Self

from wtb.domain.anchor import AnchoredCall
from wtb.domain.batch import Baseline, Batch, CacheEntry, Job
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeBoundary, NodeRun, PendingWrite, Snapshot
from wtb.domain.events import Event, EventType, RecordedEvent, Severity
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.figures import Usage
from wtb.domain.files import FileCommitId, FileTree, TreeDelta
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, WorkflowId
from wtb.domain.integrity import Fault
from wtb.domain.observation import Observation, Source
from wtb.domain.rollback import CallKey, Rollback
from wtb.domain.state import StateDelta
from wtb.domain.tools import ToolCall


class Clock(Protocol):
    """The time, always aware and in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        ...


class Ids(Protocol):
    """New ids: unique everywhere, and each sorts after those that the same source gave before."""

    def new(self) -> str:
        """Return an id that nobody has yet."""
        ...


class Owners(Protocol):
    """Who runs an execution: a process, by a name that says on which machine it is and since when."""

    def me(self) -> str:
        """Return the name of this process."""
        ...

    def is_gone(self, owner: str) -> bool | None:
        """Whether that process has ended; None when that cannot be seen from here (another machine)."""
        ...


class Codec(Protocol):
    """Values to bytes and back, and the hash of their content.

    `decode(encode(v).data)` gives a value of the same types that equals v. `canonical` is the same for equal
    values whatever the order in which their mappings were filled, so hashes of content are taken from it;
    `data` keeps that order. A value that cannot be kept raises StateNotSerialisable with the path in it.
    """

    def encode(self, value: Any, path: str) -> tuple[bytes, bytes]:
        """Return (data, canonical)."""
        ...

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value; raise UnknownFormat when a type is not known here."""
        ...

    def digest(self, *parts: bytes) -> bytes:
        """Return the 32-byte hash of the parts, as if they were one."""
        ...


class Conditions(Protocol):
    """The language of edge conditions. Compiling is done once; evaluating is bounded in time and has no effects."""

    def compile(self, expression: str) -> Callable[[Mapping[str, Any]], bool]:
        """Return the condition as a function of the state, or raise InvalidCondition that says where it is wrong."""
        ...


class WorkflowRepository(Protocol):
    """Workflow definitions as data, known by their content: saving an equal one again gives the same id."""

    def save(self, definition: Mapping[str, Any]) -> WorkflowId:
        """Keep what `WorkflowDefinition.to_dict` gave."""
        ...

    def get(self, workflow_id: WorkflowId) -> Mapping[str, Any]:
        """Return it, or raise WorkflowNotFound."""
        ...


class ExecutionRepository(Protocol):
    """Executions, with optimistic locking."""

    def add(self, execution: Execution) -> None:
        """Keep a new execution; AlreadyExists when the id is taken."""
        ...

    def get(self, execution_id: ExecutionId) -> Execution:
        """Return it, or raise ExecutionNotFound."""
        ...

    def save(self, execution: Execution, *, token: int | None = None) -> None:
        """Replace the version before this one; what the run is of and who made it when never changes.

        Raises Conflict when the stored version is another, ExecutionNotFound when there is none. With a token
        also LeaseLost when the lease is not held under it: this is the fence that every write of a running
        execution passes, inside its own transaction.
        """
        ...

    def advance(self, execution: Execution, *, token: int | None = None) -> str | None:
        """Save an execution that has only made a step (`stepped`), and return what was requested of it (see `request`).

        Raises as `save` does. The lease stays as it is: the heartbeat may have extended it meanwhile.
        """
        ...

    def check_lease(self, execution_id: ExecutionId, token: int | None) -> None:
        """Raise LeaseLost unless the lease is held under this token; the fence of writes that save no execution.

        Without a token nothing is checked. The lease cannot be taken over before the transaction ends.
        """
        ...

    def renew(self, execution_id: ExecutionId, token: int, expires_at: datetime) -> None:
        """Extend a lease without a new version; LeaseLost when it is not held under this token any more."""
        ...

    def request(self, execution_id: ExecutionId, request: str | None) -> None:
        """Leave a request (`pause`, `stop`) for whoever runs the execution, or take it back; no new version."""
        ...

    def list_executions(
        self,
        *,
        statuses: Collection[ExecutionStatus] = (),
        workflow: str | None = None,
        since: datetime | None = None,
        prefix: str = "",
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[Execution, ...]:
        """Return those that fit all filters, newest first; `since` is inclusive, `prefix` is how their ids begin."""
        ...

    def delete(self, execution_id: ExecutionId) -> None:
        """Remove the execution with its branches and node runs.

        ExecutionNotFound when there is none, Conflict while it has checkpoints: delete those before.
        """
        ...


class BranchRepository(Protocol):
    """Branches of executions; names are unique within one."""

    def add(self, branch: Branch) -> None:
        """Keep a new branch; AlreadyExists when the id, or the name in this execution, is taken."""
        ...

    def get(self, branch_id: BranchId) -> Branch:
        """Return it, or raise BranchNotFound."""
        ...

    def move_head(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        """Point the branch at another checkpoint; Conflict when its head is not the expected one."""
        ...

    def fork_from(self, branch_id: BranchId, checkpoint_id: CheckpointId) -> None:
        """Say that the branch left its line at an earlier checkpoint: what lies between is gone."""
        ...

    def delete(self, branch_id: BranchId) -> None:
        """Remove a branch; its checkpoints stay. BranchNotFound when there is none."""
        ...

    def list_branches(self, execution_id: ExecutionId) -> tuple[Branch, ...]:
        """Return the branches of an execution in the order of their making."""
        ...

    def list_forks(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        """Return the branches of all executions that were forked from these, in the order of their making."""
        ...

    def list_at(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        """Return the branches, of whichever execution, whose head is one of these checkpoints."""
        ...


class NodeRunRepository(Protocol):
    """Node runs, and the boundaries that follow from them."""

    def save(self, run: NodeRun) -> None:
        """Keep a node run, new or changed."""
        ...

    def get(self, execution_id: ExecutionId, node_run_id: NodeRunId) -> NodeRun:
        """Return it, or raise NodeRunNotFound."""
        ...

    def list_runs(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        """Return the node runs of an execution in the order of their ids, which is that of their starts."""
        ...

    def list_leading_to(self, execution_id: ExecutionId, checkpoints: Sequence[Checkpoint]) -> tuple[NodeRun, ...]:
        """Return, in the same order, the runs that have to do with these checkpoints, and those that have not ended."""
        ...

    def list_unfinished(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        """Return, in the same order, the runs that have not ended, or that wait for their barrier with a result."""
        ...

    def list_boundaries(self, execution_id: ExecutionId) -> tuple[NodeBoundary, ...]:
        """Return the boundary of each run, in the same order."""
        ...


class CheckpointStore(Protocol):
    """Checkpoints and their states, by their changes.

    A checkpoint never changes once saved. Saving costs what the delta holds, whatever the size of the state.
    Everything read is verified against its hashes; what does not match raises DamagedData that names the
    checkpoint. Deleting keeps every other checkpoint whole: it loads, verifies and compares as before.
    """

    def save(
        self,
        draft: CheckpointDraft,
        delta: StateDelta,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Checkpoint:
        """Keep the state that the delta makes of the parent's, and what each node returned before reducers.

        CheckpointNotFound when the parent is not there or is deleted, AlreadyExists when the id, or the name in
        this execution, is taken. Nothing is kept of a save that raises.
        """
        ...

    def get(self, checkpoint_id: CheckpointId) -> Checkpoint:
        """Return the checkpoint without its state; CheckpointNotFound also when it is deleted."""
        ...

    def load(self, checkpoint_id: CheckpointId) -> Snapshot:
        """Return the checkpoint with its state; CheckpointNotFound also when it is deleted."""
        ...

    def load_many(self, checkpoint_ids: Sequence[CheckpointId]) -> Iterator[Snapshot]:
        """Yield checkpoints with their states in the order given, those that are not there or deleted left out.

        What several of them share is read once; what this process has read or written lately is not verified again.
        All is read when it is called, and decoded one by one as they are taken, which may be after the transaction.
        """
        ...

    def compare(self, old: CheckpointId, new: CheckpointId) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the values of the keys whose content differs, as they are in each; a key that is absent is left out.

        The same as loading both states and leaving out what is equal (the order of a mapping is no content), but only
        what differs is read. CheckpointNotFound also when one is deleted.
        """
        ...

    def list_infos(self, execution_id: ExecutionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of an execution without states, by step and then id, deleted ones left out."""
        ...

    def each_info(self, execution_id: ExecutionId) -> Iterator[Checkpoint]:
        """Yield every checkpoint of an execution without its state, by step and then id, deleted ones included.

        Few are held at a time, however many there are. DamagedData when one is missing that another follows.
        """
        ...

    def load_history(self, execution_id: ExecutionId) -> ExecutionHistory:
        """Return everything the run did; ExecutionNotFound when there is no such run."""
        ...

    def load_tail(self, execution_id: ExecutionId, length: int) -> ExecutionHistory:
        """Return the last checkpoints of the active lineage with what led to them; complete when that is all."""
        ...

    def delete(self, checkpoint_ids: Collection[CheckpointId]) -> None:
        """Delete checkpoints, leaving tombstones; Conflict when one is the head of a branch.

        Their ids stay taken, their names become free. A deletion that raises changes nothing.
        """
        ...

    def delete_run(self, execution_id: ExecutionId) -> None:
        """Delete all checkpoints of an execution, heads included; forks in other executions stay whole.

        Conflict while the branch of another execution has its head here. Nothing happens for an unknown run.
        """
        ...


class ToolCallRepository(Protocol):
    """Recorded calls of node runs; arguments and results come back with their types."""

    def save(self, call: ToolCall) -> None:
        """Keep a call, new or changed."""
        ...

    def list_calls(self, execution_id: ExecutionId, node_run_id: NodeRunId | None = None) -> tuple[ToolCall, ...]:
        """Return the calls of an execution, or of one node run, in the order in which they began."""
        ...

    def list_lost(self, execution_id: ExecutionId) -> tuple[CallKey, ...]:
        """Return the calls whose node run is not there, by node run and identity; only damage leaves such calls."""
        ...


class CallAnchor(Protocol):
    """A second note of every external call, beside the store, made after the intent is stored and before the call.

    Calls that are taken back, or made again by a redo, are noted in the same way.

    A store that lost its end (a write-ahead log that was cut, an older copy that was put back) does not know what was
    called after that, and the calls would be made again as new ones. Those that are noted here are in doubt instead. A
    store that notices such a loss itself needs no anchor, nor does one that does not outlive its process.
    """

    def note(self, call: AnchoredCall) -> None:
        """Keep a note; when that fails (StorageUnavailable) the call must not be made."""
        ...

    def list_lost(self, execution_id: ExecutionId) -> tuple[AnchoredCall, ...]:
        """Return what was noted of a run and what the store does not know.

        Of several runs of one visit of a node only the calls of the last count, and of several tries of a call the
        last. What belongs to a run that was deleted, or to a node run that was left behind, is not lost.
        """
        ...

    def inspect(self) -> tuple[Fault, ...]:
        """Return what is wrong: calls that the store has lost, notes that are damaged."""
        ...

    def repair(self, faults: Sequence[Fault]) -> None:
        """Remove the notes of those faults that have a remedy."""
        ...

    def close(self) -> None:
        """Give back files; the anchor must not be used afterwards."""
        ...


class RollbackRepository(Protocol):
    """Journals of rollbacks, each written before its first effect and after its last."""

    def save(self, rollback: Rollback) -> None:
        """Keep a journal, new or changed."""
        ...

    def list_rollbacks(self, execution_id: ExecutionId) -> tuple[Rollback, ...]:
        """Return the journals of an execution in the order of their making."""
        ...


class BatchRepository(Protocol):
    """Batch tests, their jobs, and combinations that others are held against."""

    def save(self, batch: Batch) -> None:
        """Keep a batch, new or changed; the seconds that it has taken never become fewer."""
        ...

    def took(self, batch_id: str, spent_s: float) -> None:
        """Keep how long a batch has taken so far, unless it is known to have taken longer."""
        ...

    def get(self, batch_id: str) -> Batch:
        """Return it, or raise BatchNotFound."""
        ...

    def list_batches(self, *, name: str | None = None, limit: int = 100) -> tuple[Batch, ...]:
        """Return batches, newest first."""
        ...

    def save_jobs(self, jobs: Sequence[Job]) -> None:
        """Keep jobs, new or changed."""
        ...

    def list_jobs(self, batch_id: str) -> tuple[Job, ...]:
        """Return the jobs of a batch in the order of their numbers."""
        ...

    def get_job(self, batch_id: str, number: int) -> Job:
        """Return one of them, or raise BatchNotFound."""
        ...

    def delete(self, batch_id: str) -> None:
        """Delete a batch with its jobs; its runs stay."""
        ...

    def lock(self, name: str) -> None:
        """Let nobody else plan a batch of this name until the end of the transaction."""
        ...

    def save_baseline(self, baseline: Baseline) -> None:
        """Keep a baseline; one of the same name is replaced."""
        ...

    def get_baseline(self, name: str) -> Baseline:
        """Return it, or raise BaselineNotFound."""
        ...

    def list_baselines(self) -> tuple[Baseline, ...]:
        """Return all baselines in the order of their names."""
        ...

    def delete_baseline(self, name: str) -> None:
        """Delete a baseline, if there is one of this name; the batch that it points to stays."""
        ...


class NodeCacheRepository(Protocol):
    """Results of node runs by what they depend on. Whoever claims a key makes the result, all others take it."""

    def find(self, key: bytes) -> CacheEntry | None:
        """Return the result, or who is making it."""
        ...

    def claim(self, entry: CacheEntry, *, instead_of: CacheEntry | None = None) -> bool:
        """Put an entry where none is, or in the place of one that is as it was seen; False when somebody was first."""
        ...

    def settle(self, entry: CacheEntry) -> bool:
        """Put the result in the place of the claim of the same owner; False when the claim was taken over."""
        ...

    def release(self, key: bytes, owner: str) -> None:
        """Take back a claim: there is no result to share."""
        ...

    def renew(self, owner: str, expires_at: datetime) -> None:
        """Extend all claims of an owner."""
        ...


class ObservationRepository(Protocol):
    """What runs were observed to read, by the trace of a batch run, in the order in which it was read."""

    def add(self, trace_id: str, observations: Mapping[int, Observation]) -> None:
        """Keep observations by their number; one that is there already is left as it is."""
        ...

    def list_observations(self, trace_id: str) -> dict[int, Observation]:
        """Return the observations of a trace by their number, in order."""
        ...


class Observer(Protocol):
    """Sees what the user's functions read in this process once it is started. Nothing that was read is forgotten."""

    def start(self) -> None:
        """Begin to look on; doing it again changes nothing."""
        ...

    def count(self) -> int:
        """Return how many observations there are so far; they are numbered from 0."""
        ...

    def seen(self, since: int = 0) -> Sequence[Observation]:
        """Return the observations from a number on, in order; later calls only add to them."""
        ...

    def digest(self, source: Source) -> str:
        """Return the digest of a source as it is now."""
        ...


class PendingWriteRepository(Protocol):
    """What tasks of LangGraph wrote after a checkpoint; values come back with their types."""

    def add(self, writes: Sequence[PendingWrite]) -> None:
        """Keep writes. When a task writes a number again, the first write stays; at a negative number the last does.

        The same holds for writes of one call.
        """
        ...

    def list_writes(
        self, execution_ids: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId] | None = None
    ) -> tuple[PendingWrite, ...]:
        """Return the writes of these executions, all or those after these checkpoints, by path, task and number."""
        ...

    def copy(
        self, sources: Collection[ExecutionId], checkpoint_ids: Collection[CheckpointId], execution_id: ExecutionId
    ) -> None:
        """Give another execution the writes that these have now after these checkpoints, where it has none itself."""
        ...

    def delete(self, execution_id: ExecutionId, checkpoint_ids: Collection[CheckpointId] | None = None) -> None:
        """Remove the writes of an execution, all or those after these checkpoints."""
        ...


class EventLog(Protocol):
    """The append-only record of events, hash-chained in each stream."""

    def append(self, *events: Event) -> tuple[RecordedEvent, ...]:
        """Record events at the end of their streams; they become visible, and reach the bus, with the commit."""
        ...

    def list_events(
        self,
        *,
        stream: str | None = None,
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        newest: bool = False,
    ) -> tuple[RecordedEvent, ...]:
        """Return events behind a position that fit all filters, in order of position, verified by their hash.

        With `before` those from that position on are left out. Of more events than `limit` the first are returned, or
        the last with `newest`.
        """
        ...

    def list_stream(
        self,
        stream: str,
        *,
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        newest: bool = False,
    ) -> tuple[RecordedEvent, ...]:
        """Return events of one stream that fit all filters, oldest first, verified by their hash.

        `after` and `before` are sequence numbers, and both are left out themselves. Of more events than `limit` the
        first are returned, or the last with `newest`. A page costs what it holds, unless a filter leaves out most.
        """
        ...

    def count_types(self, stream: str) -> Mapping[EventType, int]:
        """Return how many events of each type a stream holds; types that it does not hold are left out."""
        ...


class CheckpointCounts(NamedTuple):
    """The checkpoints of a run on all its lines, without deleted ones, and how many of them are restore points."""

    checkpoints: int
    restore_points: int


class WorkflowUse(NamedTuple):
    """The runs of one definition of a workflow: how many there are, and when the first and the last were created."""

    name: str
    version: str | None
    workflow_id: WorkflowId
    runs: int
    first_at: datetime
    last_at: datetime


class Pages(Protocol):
    """Pages, counts and sums that the database makes, so that nobody reads a long run as a whole.

    Checkpoints come without states, oldest first, deleted ones included, verified as in CheckpointStore.
    """

    def list_line(self, head_id: CheckpointId, *, upto: int | None = None, limit: int) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints of the line that ends with this one, through other runs if it is a fork.

        With `upto` those after that step are left out.
        """
        ...

    def list_checkpoints(
        self, execution_id: ExecutionId, *, before: tuple[int, CheckpointId] | None = None, limit: int
    ) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints that a run has made on whichever line, by step and then id.

        With `before`, a step and an id, those from there on are left out.
        """
        ...

    def count_checkpoints(self, execution_id: ExecutionId) -> CheckpointCounts:
        """Count the checkpoints of a run."""
        ...

    def sum_line(self, head_id: CheckpointId) -> Usage | None:
        """Return what the completed node runs along a line used; None when the figures of one are not kept with it."""
        ...

    def sum_spent(self, execution_id: ExecutionId) -> Usage | None:
        """Return what all node runs of a run used in all attempts; None when those of a completed one are not kept."""
        ...

    def list_workflows(self) -> tuple[WorkflowUse, ...]:
        """Return the definitions that runs were made of, by name and then by their last run, oldest first."""
        ...


class UnitOfWork(Protocol):
    """One transaction over everything: entered with `with`, kept by `commit`, undone by leaving without it.

    Others see nothing of it before the commit. One that was opened as read-only cannot commit, and sees one moment:
    that of its first look. It belongs to one thread, and is used once: after the commit, or outside the block, every
    use raises InvalidInput. A write that a rule refuses leaves the unit usable; one that the database refuses does not.
    """

    @property
    def workflows(self) -> WorkflowRepository:
        """Workflow definitions."""
        ...

    @property
    def executions(self) -> ExecutionRepository:
        """Executions."""
        ...

    @property
    def branches(self) -> BranchRepository:
        """Branches."""
        ...

    @property
    def node_runs(self) -> NodeRunRepository:
        """Node runs and boundaries."""
        ...

    @property
    def checkpoints(self) -> CheckpointStore:
        """Checkpoints and their states."""
        ...

    @property
    def tool_calls(self) -> ToolCallRepository:
        """Recorded calls of tools."""
        ...

    @property
    def rollbacks(self) -> RollbackRepository:
        """Journals of rollbacks."""
        ...

    @property
    def batches(self) -> BatchRepository:
        """Batch tests."""
        ...

    @property
    def cache(self) -> NodeCacheRepository:
        """Shared node runs."""
        ...

    @property
    def observations(self) -> ObservationRepository:
        """What runs read."""
        ...

    @property
    def writes(self) -> PendingWriteRepository:
        """Pending writes."""
        ...

    @property
    def events(self) -> EventLog:
        """The log of events."""
        ...

    @property
    def files(self) -> FileCommitRepository:
        """File commits."""
        ...

    @property
    def pages(self) -> Pages:
        """Pages, counts and sums."""
        ...

    def now(self) -> datetime:
        """Return the time by which leases are judged: where several machines share a database, that of the database."""
        ...

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo what was not committed."""
        ...

    def commit(self) -> None:
        """Keep everything, then hand the recorded events to the bus."""
        ...


class Storage(Protocol):
    """Where everything lives; gives units of work. Writers wait for each other, readers for nobody."""

    def unit_of_work(self, *, readonly: bool = False) -> UnitOfWork:
        """Return a new unit of work, not yet begun."""
        ...

    def close(self) -> None:
        """Give back connections and files; the storage must not be used afterwards."""
        ...


class Subscription(Protocol):
    """A handler that gets events until it is cancelled."""

    @property
    def dropped(self) -> int:
        """How many events this handler was too slow for."""
        ...

    @property
    def failures(self) -> int:
        """How often the handler raised."""
        ...

    def cancel(self) -> None:
        """Stop delivery; safe to call twice, and from the handler itself."""
        ...


class EventBus(Protocol):
    """Delivers committed events to handlers in this process.

    Publishing never waits for a handler and never raises because of one. Each handler gets its events in
    order, from a queue with a bound; what does not fit is dropped for that handler, counted and logged.
    """

    def publish(self, events: Sequence[RecordedEvent]) -> None:
        """Hand events to everybody who asked for their type."""
        ...

    def subscribe(self, handler: Callable[[RecordedEvent], None], *, types: Collection[EventType] = ()) -> Subscription:
        """Call the handler with every event of these types, or of all types when none is given."""
        ...

    def history(
        self, *, stream: str | None = None, types: Collection[EventType] = (), limit: int = 1000
    ) -> tuple[RecordedEvent, ...]:
        """Return the latest events that fit, oldest first; at most the last thousand are remembered."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything published so far is delivered; False when the time was not enough."""
        ...

    def close(self) -> None:
        """Deliver what is queued, then stop; publishing afterwards does nothing."""
        ...


class FileCommitRepository(Protocol):
    """File commits: trees of workspaces by their changes, and the contents of small files.

    A commit is known by its tree, so saving the same tree again, from whatever base, gives the same id and keeps
    nothing twice. It never changes. What is read is verified; DamagedData names the commit. The contents that a
    tree refers to are here or in the object store *before* the tree is saved: a crash leaves garbage, never a
    reference to nothing.
    """

    def save(
        self, base_id: FileCommitId | None, delta: TreeDelta, contents: Mapping[bytes, bytes] | None = None
    ) -> FileCommitId:
        """Keep the tree that the delta makes of the base's (of nothing, without one), and contents by digest.

        FileCommitNotFound when the base is not there, UnsafePath when the result is no tree.
        """
        ...

    def get(self, commit_id: FileCommitId) -> FileTree:
        """Return its tree, or raise FileCommitNotFound."""
        ...

    def get_contents(self, digests: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return those that are kept here, verified; the others lie in the object store."""
        ...


class StoredObject(NamedTuple):
    """A content that an object store holds."""

    digest: bytes
    size: int


class ObjectStore(Protocol):
    """Contents of files by their SHA-256, outside the database.

    Putting the same content again changes nothing but marks it as used now; a sweep leaves alone what was used
    lately, so an object is safe from `put` until the row that refers to it is committed. Nobody ever sees half an
    object. What is put survives the death of the process; after `sync` it is as durable as the store promises.
    StorageUnavailable when the place is full, read-only or gone.
    """

    def put(self, stream: BinaryIO) -> StoredObject:
        """Keep everything up to the end of the stream, in bounded memory."""
        ...

    def put_as(self, digest: bytes, content: bytes) -> None:
        """Keep a content under a digest that the caller vouches for; one of this size that is there is used instead."""
        ...

    def sync(self) -> None:
        """Make durable what this process has put; called before the row that refers to it is committed."""
        ...

    def open(self, digest: bytes) -> BinaryIO:
        """Return the content for reading, unverified; ObjectNotFound when it is not there."""
        ...

    def list_objects(self, *, unused_since: datetime) -> Iterator[StoredObject]:
        """Yield, in no order, the objects that nobody has put since then."""
        ...

    def delete(self, digest: bytes, *, unused_since: datetime | None = None) -> bool:
        """Remove an object, unless somebody has put it since then; False when nothing was removed."""
        ...

    def discard_unfinished(self, *, unused_since: datetime) -> int:
        """Remove what was begun before that and never became an object, as a crash leaves it; return how many."""
        ...


class Swept(NamedTuple):
    """What nothing refers to: how much of it there was, or is."""

    blobs: int = 0
    commits: int = 0
    objects: int = 0
    size_bytes: int = 0


class Garbage(Protocol):
    """What no checkpoint refers to any more, in the database and in the object store.

    Whoever stores or reuses a content marks it as used in the same transaction, and a sweep leaves alone what was
    used within the grace period: so it may run beside everything else. DamagedData, and nothing is removed, when
    something cannot be read that may refer to others.
    """

    def count(self, grace: timedelta) -> Swept:
        """Return what a sweep would collect."""
        ...

    def sweep(self, grace: timedelta) -> Swept:
        """Collect it, and return how much it was."""
        ...


class Inspected(NamedTuple):
    """What was found wrong, how many things of which kind were looked at, and what nothing refers to at the moment."""

    faults: tuple[Fault, ...]
    looked_at: Mapping[str, int]
    garbage: Swept


class Inspection(Protocol):
    """Looks at everything that the database and the object store hold, without stopping at the first fault."""

    def inspect(self, watch: Callable[[str], None]) -> Inspected:
        """Verify everything against its hashes and references, in bounded memory; `watch` hears of each thing."""
        ...

    def repair(self, faults: Sequence[Fault]) -> None:
        """Try to put right those that have a remedy; inspecting again tells which of them that did."""
        ...


class ScannedFolder(NamedTuple):
    """What a folder holds, how that differs from the base, and contents of small files that are not stored yet."""

    tree: FileTree
    delta: TreeDelta
    contents: Mapping[bytes, bytes]


class Folders(Protocol):
    """Folders on this machine as trees. One caller at a time for each folder.

    Links are kept as links and never followed. Sockets, pipes, devices and what `.wtbignore` names (patterns as
    in .gitignore, one file at the root) are no part of a tree: they are not stored, and a restore leaves them
    where they are, unless the folder that they lie in goes. Nothing outside the folder is ever written,
    whatever a tree says and whatever lies in the folder. WorkspaceError names the path that makes trouble.
    """

    def scan(self, folder: Path, base: FileTree) -> ScannedFolder:
        """Return what lies there; the contents of all that is not in the base are in the object store, or returned.

        Refused while a restore of the folder is half done: restore it again first.
        """
        ...

    def restore(
        self, folder: Path, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]]
    ) -> TreeDelta:
        """Make the folder hold exactly this tree, and return what was changed for that.

        `read` gives small contents. Everything new is staged and verified before anything is changed, and a
        failure undoes what was done. After a kill in the middle, calling it again completes it.
        """
        ...

    def staged(
        self, folder: Path, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]]
    ) -> AbstractContextManager[Callable[[], TreeDelta]]:
        """Do the first half of `restore`, and give the second as a function, to be called inside the block or not."""
        ...


class FolderStore(Protocol):
    """The folder in which all workspaces lie. Nothing here follows a link below the root.

    A folder that was opened before is known again for the life of the process: another one in its place is refused.
    """

    @property
    def root(self) -> Path:
        """Where all of it lies."""
        ...

    def holds(self, folder: Path) -> bool:
        """Whether a path leads below the root."""
        ...

    def make(self, folder: Path) -> None:
        """Make a folder, with those above it, unless it is there."""
        ...

    def is_ours(self, folder: Path) -> bool:
        """Whether a folder is absent, or the one that was made; False for a link and for another folder."""
        ...

    def rename(self, folder: Path, name: str) -> None:
        """Give a folder another name in the same place; refused when it is not the one that was made."""
        ...

    def remove(self, folder: Path) -> None:
        """Remove a folder with everything in it; a link in its place goes, and not what it points to."""
        ...

    def read_note(self, path: Path) -> str | None:
        """Return the text of a small file beside a workspace, if there is one."""
        ...

    def note_time_ns(self, path: Path) -> int | None:
        """Return when such a file was written, in nanoseconds by the file system's clock; None without one."""
        ...

    def write_note(self, path: Path, text: str | None) -> None:
        """Write a small file as a whole; None removes it."""
        ...


class SurveyedFolder(NamedTuple):
    """What lies in a folder: what a tree holds of it, and what no tree does."""

    tree: FileTree
    left_out: tuple[str, ...]
    """Paths that `.wtbignore` leaves out, and sockets, pipes and devices."""
    changed_ns: int
    """When something in it was last changed, by the clock of its file system."""


class FolderCare(Protocol):
    """What must be known of folders on this machine to keep them well, and to remove them."""

    def survey(self, folder: Path, *, known_as: Path | None = None) -> SurveyedFolder:
        """Look at everything in a folder, and store nothing. `known_as` is the name that it had until now."""
        ...

    def is_half_restored(self, folder: Path) -> bool:
        """Whether a restore of this folder was begun and not finished."""
        ...

    def list_damaged_indexes(self) -> tuple[Path, ...]:
        """Return the stat indexes that cannot be used."""
        ...

    def index_of(self, folder: Path) -> Path:
        """Return where the stat index of a folder is kept."""
        ...

    def drop_index(self, index: Path) -> None:
        """Remove a stat index; the next scan reads the files instead."""
        ...

    def check_restorable(
        self, tree: FileTree, read: Callable[[Collection[bytes]], Mapping[bytes, bytes]], checked: set[bytes]
    ) -> None:
        """Raise DamagedData unless all contents of a tree are stored and whole; those in `checked` are known to be."""
        ...
