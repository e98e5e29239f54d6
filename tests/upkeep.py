"""What the tests of upkeep share: runs with forks and files, told at random, and a model that keeps full copies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.run_writer import RunWriter
from tests.workspaces import Description, described
from wtb.application.runs.steps import Position
from wtb.application.upkeep.integrity import Integrity
from wtb.application.upkeep.retention import Retention
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import Checkpoint, Kind, Trigger
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.files import FileCommitId
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import ObjectStore, Storage, Swept
from wtb.domain.retention import RetentionPolicy
from wtb.domain.state import Append, Change, DeleteKey, SetValue, Splice, State, StateDelta
from wtb.infrastructure.files.blocks import SIZES, BlockSizes
from wtb.infrastructure.files.folders import LocalFolders
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.files.store import LocalFolderStore
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.no_anchor import NoAnchor
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.system import Uuid7Ids
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.infrastructure.upkeep.inspection import StoredInspection
from wtb.testing.fakes import FakeClock

WORKFLOW = {"name": "flow", "version": "1"}
GRACE = timedelta(hours=1)


@dataclass
class Copy:
    """What a checkpoint must give for ever."""

    checkpoint: Checkpoint
    state: State
    files: Description


@dataclass
class World:
    """A storage with everything beside it, runs in it, and full copies of what they hold."""

    storage: Storage
    folder: Path
    keep_last: int = 3
    copies: dict[CheckpointId, Copy] = field(default_factory=dict)
    ends: list[Position] = field(default_factory=list)
    objects: ObjectStore | None = None
    sizes: BlockSizes = SIZES

    def __post_init__(self) -> None:
        assert isinstance(self.storage, MemoryStorage | SqlStorage)
        clock = self.storage.clock
        assert isinstance(clock, FakeClock)
        self.clock: FakeClock = clock
        objects = self.objects = self.objects or MemoryObjectStore(self.clock)
        self.recorder = RunWriter(self.storage, self.clock, Uuid7Ids())
        self.garbage = SweptGarbage(self.storage, objects, codec=self.storage.codec, clock=self.clock, sizes=self.sizes)
        store = LocalFolderStore(self.folder / "workspaces")
        folders = LocalFolders(objects, self.folder / "indexes", store)
        self.workspaces = Workspaces(self.storage, folders, store)
        self.retention = Retention(
            self.storage, self.clock, self.garbage, policy_for=lambda _: self.policy, grace=GRACE
        )

        self.integrity = Integrity(
            storage=self.storage,
            clock=self.clock,
            owners=ProcessOwners(),
            anchor=NoAnchor(),
            inspection=StoredInspection(
                self.storage, objects, self.folder / "workspaces", codec=self.storage.codec, sizes=self.sizes
            ),
            garbage=self.garbage,
            workspaces=self.workspaces,
            folders=folders,
            grace=GRACE,
        )

    @property
    def policy(self) -> RetentionPolicy:
        return RetentionPolicy(keep_last=self.keep_last)

    def start(self, **state: Any) -> Position:
        at = self.recorder.start(WORKFLOW, state)
        self.copies[at.head.id] = Copy(at.head, State(state), {})
        self.ends.append(at)
        return at

    def step(self, at: Position, delta: StateDelta, files: dict[str, bytes] | None = None, **facts: Any) -> Position:
        """Add a step to an end, and keep a copy of what it must give."""
        before = self.copies[at.head.id]
        save: Callable[..., str] | None = None
        described_now = before.files
        if files is not None:
            commit = None if at.head.file_commit is None else FileCommitId(at.head.file_commit)
            place = self.workspaces.path(at.execution.id, at.branch.id)
            self.workspaces.restore(place, commit)
            for name, content in files.items():
                if content:
                    (place / name).write_bytes(content)
                else:
                    (place / name).unlink(missing_ok=True)
            described_now = described(place)
            save = self.workspaces.prepare(place, commit).save
        after = self.recorder.complete(at, self.recorder.node_run(at, "node", 1), delta, files=save, **facts)
        self.copies[after.head.id] = Copy(after.head, before.state.apply(delta), described_now)
        self._replace(at, after)
        return after

    def mark(self, at: Position, kind: Kind) -> Position:
        """Add a checkpoint of another kind."""
        after, _ = self.recorder.mark(
            at,
            self.recorder.node_run(at, "node", 1),
            trigger=Trigger.USER_REQUEST,
            kind=kind,
            also=lambda uow, run: None,
        )
        copy = self.copies[at.head.id]
        self.copies[after.head.id] = Copy(after.head, copy.state, copy.files)
        self._replace(at, after)
        return after

    def _replace(self, old: Position, new: Position) -> None:
        self.ends = [new if each.branch.id == new.branch.id else each for each in self.ends]
        self.ends = [
            Position(execution=new.execution, branch=each.branch, head=each.head)
            if each.execution.id == new.execution.id
            else each
            for each in self.ends
        ]

    def fork(self, at: Position, checkpoint_id: CheckpointId, name: str) -> Position:
        """Add a branch to the run of an end."""
        forked = self.recorder.fork(at, checkpoint_id, name)
        self.ends.append(forked)
        self._replace(at, forked)
        return forked

    def fork_run(self, checkpoint: Checkpoint) -> Position:
        """Add a run that begins at a checkpoint of another."""
        now, ids = self.clock.now(), Uuid7Ids()
        branch = Branch(
            id=BranchId(ids.new()),
            execution_id=ExecutionId(ids.new()),
            name="main",
            head_id=checkpoint.id,
            forked_from_id=checkpoint.id,
            created_at=now,
        )
        with self.storage.unit_of_work() as uow:
            execution = Execution(
                id=branch.execution_id,
                workflow_id=uow.workflows.save(WORKFLOW),
                workflow_name="flow",
                branch_id=branch.id,
                status=ExecutionStatus.RUNNING,
                created_at=now,
                updated_at=now,
            )
            uow.executions.add(execution)
            uow.branches.add(branch)
            uow.commit()
        at = Position(execution=execution, branch=branch, head=checkpoint)
        self.ends.append(at)
        return at

    def living(self) -> list[CheckpointId]:
        """Return the checkpoints that the storage still has, of those that were made."""
        runs = {copy.checkpoint.execution_id for copy in self.copies.values()}
        with self.storage.unit_of_work(readonly=True) as uow:
            return [each.id for run in sorted(runs) for each in uow.checkpoints.list_infos(run)]

    def prune(self) -> int:
        """Prune all runs; return how many checkpoints went."""
        pruned = list(self.retention.prune())
        assert [each.problem for each in pruned if each.problem] == []
        return sum(sum(each.counts.values()) for each in pruned)

    def sweep(self) -> Swept:
        """Let the grace period pass and sweep."""
        self.clock.advance(GRACE * 2)
        return self.garbage.sweep(GRACE)

    def check(self) -> None:
        """Every checkpoint that is left gives the state and the files that it was made with."""
        living = self.living()
        for at in self.ends:
            assert at.head.id in living or at.head.execution_id != at.execution.id
        for number, checkpoint_id in enumerate(living):
            copy = self.copies[checkpoint_id]
            with self.storage.unit_of_work(readonly=True) as uow:
                snapshot = uow.checkpoints.load(checkpoint_id)
            assert dict(snapshot.state) == dict(copy.state)
            assert snapshot.checkpoint == copy.checkpoint
            if copy.checkpoint.file_commit is not None:
                place = self.folder / "restored" / str(number % 3)
                self.workspaces.materialise(place, FileCommitId(copy.checkpoint.file_commit))
                assert described(place) == copy.files
        for run in {copy.checkpoint.execution_id for copy in self.copies.values()}:
            with self.storage.unit_of_work(readonly=True) as uow:
                history = uow.checkpoints.load_history(run)
            for branch in history.branches:
                assert history.lineage(branch.id)[-1].id == branch.head_id

    def faults(self) -> list[Fault]:
        """Return what is wrong, but for runs that nobody gets on with: nobody does in these tests."""
        return [fault for fault in self.integrity.check().faults if fault.kind is not FaultKind.ABANDONED_RUN]


def random_delta(chance: random.Random, state: State, number: int) -> StateDelta:
    """Return a change that fits the state: small and large values, appends, splices, deletions."""
    items = len(state.get("items", []))
    changes: dict[str, tuple[Change, ...]] = {"n": (SetValue(number),)}
    choice = chance.randrange(6)
    size = chance.choice((3, 300, 3_000))
    if choice < 3:
        changes["items"] = (Append(tuple(f"{number}.{each} " * size for each in range(chance.randrange(1, 3)))),)
    elif choice == 3 and items > 1:
        start = chance.randrange(items - 1)
        changes["items"] = (Splice(start, 1, (f"{number} spliced " * size,)),)
    elif choice == 4:
        changes[f"key{chance.randrange(3)}"] = (SetValue({"text": f"{number} " * size}),)
    elif "key0" in state:
        changes["key0"] = (DeleteKey(),)
    return StateDelta(changes)


def random_files(chance: random.Random, number: int) -> dict[str, bytes]:
    """Return changes of a few files; empty content removes one."""
    names = ("a", "b", "c")
    size = chance.choice((0, 10, 1_000, 3_000))
    return {chance.choice(names): f"{number % 7} ".encode() * size for _ in range(chance.randrange(1, 3))}
