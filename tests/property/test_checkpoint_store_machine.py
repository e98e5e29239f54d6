"""Every checkpoint store against dictionaries of full copies: whatever is done, each living checkpoint loads as it was.

The machine runs on memory, SQLite and Postgres, with the real limits and with tiny ones, under which values become
blobs, lists are cut and sealed and keyframes are written within a few steps.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.property.model import Kept, Line, Model, Values, changed, frozen, spread
from wtb.bootstrap import bootstrap
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Kind, Trigger
from wtb.domain.diff import state_diffs
from wtb.domain.errors import (
    AlreadyExists,
    CheckpointNotFound,
    Conflict,
    ExecutionNotFound,
    InvalidStateChange,
    StateNotSerialisable,
    WTBError,
)
from wtb.domain.execution import Branch, Execution
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, WorkflowId
from wtb.domain.ports import Storage, UnitOfWork
from wtb.domain.state import Append, Change, DeleteKey, Merge, SetValue, Splice, State, StateDelta
from wtb.infrastructure.checkpoints import encoder, manifest, store
from wtb.infrastructure.checkpoints.cache import ManifestCache
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.tables import metadata
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database
from wtb.testing.fakes import FakeClock

Result = TypeVar("Result")

SOAK = bool(os.environ.get("WTB_SOAK"))
START = datetime(2026, 1, 1, tzinfo=UTC)


class Backend(Protocol):
    """Where the examples of one test keep their data, one after the other."""

    def open(self) -> Storage:
        """A further handle to the same data, with a cache of its own where the backend allows."""
        ...

    def wipe(self) -> None:
        """Make it empty, so that no example profits from blobs of another."""
        ...


class InMemory:
    def __init__(self) -> None:
        self._storage = self._new()

    def _new(self) -> Storage:
        return bootstrap(Settings(url="memory://"), clock=FakeClock()).storage

    def open(self) -> Storage:
        return self._storage

    def wipe(self) -> None:
        self._storage = self._new()


class InDatabase:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._first = self.open()

    def open(self) -> SqlStorage:
        storage = bootstrap(self._settings, clock=FakeClock()).storage
        assert isinstance(storage, SqlStorage)
        return storage

    def wipe(self) -> None:
        with self._first.database.engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())

    def close(self) -> None:
        self._first.close()


class Big(NamedTuple):
    """A text so long; how long depends on the limits."""

    letter: str
    size: int


ODD_VALUES: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, float("nan"), float("inf")),
    *("", "1", "é\n\0", "\ud800", b"", b"1", "a" * 255, "a" * 256, b"\xdd" * 257),
    *(2**63, 2**64, -(2**63) - 1, 10**40),
    *(START, START.replace(tzinfo=None), START.astimezone(timezone(timedelta(hours=-3)))),
    *(datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1)),
    *(date(2026, 1, 1), time(12, 30), timedelta(days=-1, microseconds=1), UUID(int=7), Decimal("1.10"), Decimal("1.1")),
    *((), (1,), (True,), [], [1], [[1]], [(1, 2)], {1, 2}, {(1, 2)}, set(), frozenset({1})),
    *({}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}, {1: "x", (2,): "y"}, {(2,): "y", 1: "x"}, {"a": {"b": [{}]}}),
)

# Some of them share a bucket of the manifest, and one is empty.
KEYS = ("", "a", "list", "ключ", *(f"k{number}" for number in (1, 2, 3, 97, 331)))

keys = st.sampled_from(KEYS)
values = st.one_of(
    st.sampled_from(ODD_VALUES),
    st.builds(Big, st.sampled_from("xyz"), st.integers(1, 60)),
    st.lists(st.sampled_from(ODD_VALUES), max_size=6),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.sampled_from(ODD_VALUES), min_size=3, max_size=9),
)
items = st.lists(st.one_of(st.integers(0, 9), st.builds(Big, st.just("i"), st.integers(1, 30)), values), max_size=5)


class Wish(NamedTuple):
    """A change before it is known what it will meet."""

    key: str
    verb: str
    value: Any
    items: list[Any]
    start: int
    length: int


wishes = st.builds(
    Wish,
    keys,
    st.sampled_from(("append", "append", "append", "merge", "merge", "merge", "set", "splice", "delete")),
    values,
    items,
    st.integers(0, 20),
    st.integers(0, 20),
)
numbers = st.lists(st.integers(0, 9), min_size=1, max_size=4)
grown = st.builds(Wish, st.just("list"), st.just("append"), st.none(), numbers | items, st.just(0), st.just(0))


class Plan(NamedTuple):
    """One step before it is known where it will happen."""

    wishes: list[Wish]
    composed: bool
    returned: str
    kind: Kind
    name: str | None


plans = st.builds(
    Plan,
    st.one_of(st.lists(grown, min_size=1, max_size=1), st.lists(wishes, max_size=5)),
    st.booleans(),
    st.sampled_from(("nothing", "written", "whole", "other")),
    st.sampled_from((Kind.AUTO, Kind.AUTO, Kind.MANUAL)),
    st.sampled_from((None, None, None, "before", "after")),
)
cut = st.builds(Wish, st.just("list"), st.just("splice"), st.none(), items, st.integers(0, 20), st.integers(0, 20))
spliced_plans = plans.flatmap(lambda plan: cut.map(lambda wish: plan._replace(wishes=[wish])))
places = st.integers(0, 1_000)
handles = st.sampled_from((0, 1))


@dataclass
class Step:
    """A step that knows where it happens: what is saved, and what the model holds when it is committed."""

    draft: CheckpointDraft
    delta: StateDelta
    returned: dict[str, dict[str, Any]] | None
    line: Line
    expected: CheckpointId | None
    after: Values

    def save(self, uow: UnitOfWork) -> Kept:
        info = uow.checkpoints.save(self.draft, self.delta, self.returned)
        uow.branches.move_head(BranchId(self.line.id), info.id, expected=self.expected)
        return Kept(info, self.after, copy.deepcopy(self.returned or {}))


def _whole(changes: tuple[Change, ...], after: Any) -> tuple[Change, ...]:
    """Say of one append or merge what it leads to, as when a node returned the whole value."""
    match changes:
        case (Append() | Merge() as change,):
            return (replace(change, whole=copy.deepcopy(after)),)
    return changes


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, backend: Backend, *, scale: int, at_once: bool) -> None:
        super().__init__()
        backend.wipe()
        self.backend = backend
        self.scale = scale
        self.at_once = at_once
        self.storages = [backend.open(), backend.open()]
        self.model = Model()
        self.numbers = itertools.count(1)
        self.hash_of: dict[Any, bytes] = {}
        self.state_of: dict[bytes, Any] = {}

    @initialize(plan=plans)
    def begin(self, plan: Plan) -> None:
        self.new_execution(None, plan, self.storages[0])

    def teardown(self) -> None:
        try:
            if self.model.kept:
                self.reopen()
                self.check_everything(0)
        finally:
            for storage in self.storages:
                storage.close()

    # What can be done.

    @rule(where=places, todo=st.lists(plans, min_size=1, max_size=4), handle=handles)
    def take_steps_in_one_transaction(self, where: int, todo: list[Plan], handle: int) -> None:
        line = self.line(where)
        with self.storages[handle].unit_of_work() as uow:
            kept = self.take(uow, line, todo)
            uow.commit()
        self.keep(line, kept)

    @rule(where=places, todo=st.lists(plans, min_size=1, max_size=8), handle=handles)
    def take_steps_one_by_one(self, where: int, todo: list[Plan], handle: int) -> None:
        line = self.line(where)
        for plan in todo:
            with self.storages[handle].unit_of_work() as uow:
                kept = self.take(uow, line, [plan])
                uow.commit()
            self.keep(line, kept)

    @rule(where=places, lost=st.lists(plans, min_size=1, max_size=3), plan=plans, handle=handles, other=handles)
    def lose_steps_and_take_another_under_the_same_id(
        self, where: int, lost: list[Plan], plan: Plan, handle: int, other: int
    ) -> None:
        line = self.line(where)
        first = self.step(line, lost[0])
        with self.storages[handle].unit_of_work() as uow:
            kept = first.save(uow)
            self.take(uow, line, lost[1:], after=kept)
        again = self.step(line, plan)
        again.draft = replace(again.draft, id=first.draft.id)
        with self.storages[other].unit_of_work() as uow:
            kept = again.save(uow)
            uow.commit()
        self.keep(line, [kept])

    @rule(where=places, at=places, steps=st.lists(plans, max_size=3), handle=handles)
    def branch(self, where: int, at: int, steps: list[Plan], handle: int) -> None:
        execution_id = self.line(where).execution_id
        origin = spread(self.model.living(execution_id) or self.model.living(), [at])[0]
        with self.storages[handle].unit_of_work() as uow:
            line = self.add_branch(uow, execution_id, origin)
            kept = self.take(uow, line, steps)
            uow.commit()
        self.model.lines[line.id] = line
        self.keep(line, kept)

    @rule(where=places, at=places, lost=st.lists(plans, min_size=1, max_size=3), cut=spliced_plans, handle=handles)
    def branch_from_where_a_branch_was_lost(
        self, where: int, at: int, lost: list[Plan], cut: Plan, handle: int
    ) -> None:
        """The lost one may have written a keyframe of the checkpoint that both leave; a splice reads its list."""
        execution_id = self.line(where).execution_id
        listed = [kept for kept in self.model.living() if isinstance(kept.values.get("list"), list)]
        origin = spread(listed or self.model.living(), [at])[0]
        with self.storages[handle].unit_of_work() as uow:
            self.take(uow, self.add_branch(uow, execution_id, origin), lost)
        with self.storages[handle].unit_of_work() as uow:
            line = self.add_branch(uow, execution_id, origin)
            kept = self.take(uow, line, [cut])
            uow.commit()
        self.model.lines[line.id] = line
        self.keep(line, kept)

    @rule(at=places, plan=st.none() | plans, handle=handles)
    @precondition(lambda self: len(self.model.executions) < 4)
    def fork_into_another_execution(self, at: int, plan: Plan | None, handle: int) -> None:
        self.new_execution(spread(self.model.living(), [at])[0], plan, self.storages[handle])

    @rule(where=places, to=places, handle=handles)
    def move_a_head(self, where: int, to: int, handle: int) -> None:
        line = self.line(where)
        target = spread(self.model.living(line.execution_id) or self.model.living(), [to])[0]
        with self.storages[handle].unit_of_work() as uow:
            uow.branches.move_head(BranchId(line.id), target.info.id, expected=CheckpointId(line.head_id))
            uow.commit()
        line.head_id = target.info.id

    @rule(which=st.lists(places, min_size=1, max_size=6), together=st.booleans(), keep=st.booleans(), handle=handles)
    @precondition(lambda self: self.model.deletable())
    def delete(self, which: list[int], together: bool, keep: bool, handle: int) -> None:
        gone = [kept.info.id for kept in spread(self.model.deletable(), which)]
        with self.storages[handle].unit_of_work() as uow:
            for batch in [gone] if together else [[one] for one in gone]:
                uow.checkpoints.delete(batch)
            if keep:
                uow.commit()
        if keep:
            self.model.bury(gone)
        self.check_everything(handle)

    @rule(where=places, last=st.integers(0, 3), handle=handles)
    def prune(self, where: int, last: int, handle: int) -> None:
        gone = [kept.info.id for kept in self.model.prunable(self.line(where).execution_id, last)]
        with self.storages[handle].unit_of_work() as uow:
            uow.checkpoints.delete(gone)
            uow.commit()
        self.model.bury(gone)
        self.check_everything(handle)

    @rule(which=places, keep=st.booleans(), handle=handles)
    @precondition(lambda self: len(self.model.executions) > 1)
    def delete_a_run(self, which: int, keep: bool, handle: int) -> None:
        execution_id = self.model.executions[which % len(self.model.executions)]
        if self.model.foreign_heads(execution_id):
            with self.storages[handle].unit_of_work() as uow, pytest.raises(Conflict, match="head of a fork"):
                uow.checkpoints.delete_run(ExecutionId(execution_id))
            return
        with self.storages[handle].unit_of_work() as uow:
            uow.checkpoints.delete_run(ExecutionId(execution_id))
            uow.executions.delete(ExecutionId(execution_id))
            if keep:
                uow.commit()
        if keep:
            self.model.delete_execution(execution_id)
        self.check_everything(handle)

    @rule(where=places, plan=plans, which=places, handle=handles)
    def be_refused_and_go_on_in_the_same_transaction(self, where: int, plan: Plan, which: int, handle: int) -> None:
        line = self.line(where)
        step = self.step(line, plan)
        with self.storages[handle].unit_of_work() as uow:
            for error, attempt in self.mistakes(uow, step, which):
                with pytest.raises(error):
                    attempt()
            kept = step.save(uow)
            uow.commit()
        self.keep(line, [kept])
        self.check_everything(handle)

    @rule(
        where=places, others=places, todo=plans, meanwhile=st.lists(plans, min_size=1, max_size=3), late=st.booleans()
    )
    def write_to_two_branches_at_once(
        self, where: int, others: int, todo: Plan, meanwhile: list[Plan], late: bool
    ) -> None:
        """A second writer commits before, or waits for, the first; the first may fork from where the second is."""
        mine, theirs = self.line(where), self.line(others)
        if mine.id == theirs.id:
            return
        step, steps = self.step(mine, todo), self.steps(theirs, meanwhile)
        found: list[Kept] = []
        with self.storages[0].unit_of_work() as uow:
            kept = step.save(uow)
            other = Thread(lambda: found.extend(self.commit(self.storages[1], steps)))
            other.start()
            if self.at_once and late:
                other.join(0.02)  # gives it the chance to be first, where the storage lets both write
            uow.commit()
        other.finish()
        self.keep(mine, [kept])
        self.keep(theirs, found)

    @rule(which=st.lists(places, min_size=2, max_size=8), cut=places, where=places, plan=plans)
    @precondition(lambda self: len(self.model.deletable()) > 1)
    def delete_and_write_at_once(self, which: list[int], cut: int, where: int, plan: Plan) -> None:
        gone = [CheckpointId(kept.info.id) for kept in spread(self.model.deletable(), which)]
        parts = [part for part in (gone[: cut % len(gone)], gone[cut % len(gone) :]) if part]
        line = self.line(where)
        step, found = self.step(line, plan), list[Kept]()
        threads = [Thread(lambda: found.extend(self.commit(self.storages[0], [step])))]
        for part, storage in zip(parts, self.storages, strict=False):
            threads.append(Thread(partial(self.commit_deletion, storage, part)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.finish()
        self.keep(line, found)
        self.model.bury(gone)
        self.check_everything(0)

    @rule(where=places, at=places, plan=plans, patient=st.booleans())
    @precondition(lambda self: self.model.deletable())
    def delete_what_another_is_building_on(self, where: int, at: int, plan: Plan, patient: bool) -> None:
        """The deletion waits for the step, which is not committed yet, and sees it."""
        execution_id = self.line(where).execution_id
        origin = spread(self.model.deletable(), [at])[0]
        with self.storages[0].unit_of_work() as uow:
            line = self.add_branch(uow, execution_id, None)
            line.head_id = origin.info.id
            step = self.step(line, plan, new_branch=True)
            kept = step.save(uow)
            other = Thread(partial(self.commit_deletion, self.storages[1], [origin.info.id]))
            other.start()
            if self.at_once and patient:
                other.join(0.02)  # where the storage lets both write, the lock on the row must hold it off
            uow.commit()
        other.finish()
        self.model.lines[line.id] = line
        self.keep(line, [kept])
        self.model.bury([origin.info.id])
        self.check_everything(0)

    @rule(where=places, plan=plans, keep=st.booleans())
    def look_while_another_writes(self, where: int, plan: Plan, keep: bool) -> None:
        line = self.line(where)
        step = self.step(line, plan)
        with self.storages[0].unit_of_work() as uow:
            kept = step.save(uow)
            self.check(uow, kept)
            with self.storages[1].unit_of_work(readonly=True) as reader:
                assert reader.branches.get(BranchId(line.id)).head_id == line.head_id
                with pytest.raises(CheckpointNotFound):
                    reader.checkpoints.get(kept.info.id)
                self.check(reader, self.model.kept[line.head_id])
            if keep:
                uow.commit()
        if keep:
            self.keep(line, [kept])

    @rule()
    def reopen(self) -> None:
        for storage in self.storages:
            storage.close()
        self.storages = [self.backend.open(), self.backend.open()]
        self.forget(0)
        self.forget(1)

    @rule(handle=handles)
    def forget(self, handle: int) -> None:
        """What a process that has just started knows: nothing."""
        storage = self.storages[handle]
        assert isinstance(storage, MemoryStorage | SqlStorage)
        storage._manifests = ManifestCache(size=4)

    # What must hold.

    @invariant()
    def the_lists_are_right(self) -> None:
        if not self.model.kept:
            return
        with self.storages[0].unit_of_work(readonly=True) as uow:
            for execution_id in self.model.executions:
                infos = uow.checkpoints.list_infos(ExecutionId(execution_id))
                assert list(infos) == [kept.info for kept in self.model.living(execution_id)]
                heads = {branch.id: branch.head_id for branch in uow.branches.list_branches(ExecutionId(execution_id))}
                lines = [line for line in self.model.lines.values() if line.execution_id == execution_id]
                assert heads == {line.id: line.head_id for line in lines}

    @rule(handle=handles)
    def check_everything(self, handle: int) -> None:
        with self.storages[handle].unit_of_work(readonly=True) as uow:
            for kept in self.model.kept.values():
                if kept.alive:
                    self.check(uow, kept)
                    continue
                with pytest.raises(CheckpointNotFound, match=kept.info.id):
                    uow.checkpoints.load(kept.info.id)
                with pytest.raises(CheckpointNotFound, match=kept.info.id):
                    uow.checkpoints.get(kept.info.id)
            for execution_id in self.model.executions:
                self.check_history(uow, execution_id)
            for execution_id in self.model.deleted_executions:
                assert uow.checkpoints.list_infos(ExecutionId(execution_id)) == ()
                with pytest.raises(ExecutionNotFound, match=execution_id):
                    uow.checkpoints.load_history(ExecutionId(execution_id))

    @rule(one=places, other=places, handle=handles)
    @precondition(lambda self: self.model.living())
    def compare_two(self, one: int, other: int, handle: int) -> None:
        living = self.model.living()
        old, new = living[one % len(living)], living[other % len(living)]
        with self.storages[handle].unit_of_work(readonly=True) as uow:
            found = uow.checkpoints.compare(old.info.id, new.info.id)
        differing = {
            key
            for key in {**old.values, **new.values}
            if not (key in old.values and key in new.values and frozen(old.values[key]) == frozen(new.values[key]))
        }
        for values, kept in zip(found, (old, new), strict=True):
            expected = {key: value for key, value in sorted(kept.values.items()) if key in differing}
            assert frozen(dict(values), ordered=True) == frozen(expected, ordered=True)
        for key in differing:
            assert state_diffs(*({key: values[key]} if key in values else {} for values in found))

    def check(self, uow: UnitOfWork, kept: Kept) -> None:
        snapshot = uow.checkpoints.load(kept.info.id)
        assert frozen(dict(snapshot.state)) == frozen(kept.values)
        for key, value in snapshot.state.items():
            assert frozen(value, ordered=True) == frozen(kept.values[key], ordered=True)
        assert frozen(dict(snapshot.returned), ordered=True) == frozen(dict(kept.returned), ordered=True)
        assert snapshot.checkpoint == kept.info == uow.checkpoints.get(kept.info.id)
        content = frozen(kept.values)
        assert self.hash_of.setdefault(content, kept.info.state_hash) == kept.info.state_hash
        assert self.state_of.setdefault(kept.info.state_hash, content) == content

    def check_history(self, uow: UnitOfWork, execution_id: str) -> None:
        history = uow.checkpoints.load_history(ExecutionId(execution_id))
        assert history.active_branch_id == f"{execution_id}-main"
        for line in self.model.lines.values():
            if line.execution_id == execution_id:
                lineage = history.lineage(line.id)
                assert list(lineage) == self.model.lineage(line.head_id)
                hashes = [b"", *(checkpoint.hash for checkpoint in lineage)]
                assert [checkpoint.parent_hash for checkpoint in lineage] == hashes[:-1]

    # How it is done.

    def line(self, where: int) -> Line:
        lines = list(self.model.lines.values())
        return lines[where % len(lines)]

    def keep(self, line: Line, kept: Sequence[Kept]) -> None:
        for one in kept:
            self.model.kept[one.info.id] = one
            line.head_id = one.info.id

    def take(self, uow: UnitOfWork, line: Line, todo: Sequence[Plan], after: Kept | None = None) -> list[Kept]:
        """Save steps on the head of a branch, each on the one before."""
        taken = [] if after is None else [after]
        for plan in todo:
            step = self.step(line, plan, taken)
            taken.append(step.save(uow))
        return taken

    def steps(self, line: Line, todo: Sequence[Plan]) -> list[Step]:
        """Steps on each other that are saved later."""
        steps: list[Step] = []
        for plan in todo:
            before = self.model.kept[line.head_id]
            if steps:
                last = steps[-1]
                before = Kept(replace(before.info, id=last.draft.id, step=last.draft.step), last.after)
            steps.append(self.step(line, plan._replace(name=None), [before]))
        return steps

    def step(self, line: Line, plan: Plan, taken: Sequence[Kept] = (), *, new_branch: bool = False) -> Step:
        before = taken[-1] if taken else self.model.kept[line.head_id]
        names = self.model.names(line.execution_id) | {kept.info.name for kept in taken}
        delta, returned, after = self.changes(plan, before.values)
        draft = self.draft(line.execution_id, line.id, before, plan, None if plan.name in names else plan.name)
        return Step(draft, delta, returned, line, None if new_branch else before.info.id, after)

    def draft(
        self, execution_id: str, branch_id: str, before: Kept | None, plan: Plan | None, name: str | None
    ) -> CheckpointDraft:
        number = next(self.numbers)
        return CheckpointDraft(
            id=CheckpointId(f"c{number:04}"),
            execution_id=ExecutionId(execution_id),
            branch_id=BranchId(branch_id),
            parent_id=None if before is None else before.info.id,
            step=0 if before is None else before.info.step + 1,
            node=None if before is None else "näch\nste",
            visit=number,
            trigger=Trigger.START if before is None else Trigger.NODE_END,
            kind=Kind.AUTO if plan is None else plan.kind,
            name=name,
            next_nodes=("a", "b") if number % 2 else (),
            joins={"j": ("a", "b")} if number % 3 else {},
            created_at=START + timedelta(microseconds=number),
        )

    def changes(self, plan: Plan, before: Values) -> tuple[StateDelta, dict[str, dict[str, Any]] | None, Values]:
        """The delta that a plan means here, what the node returned, and the values afterwards."""
        after = copy.deepcopy(before)
        made: dict[str, tuple[Change, ...]] = {}
        composed = StateDelta()
        for wish in plan.wishes:
            change = self.change(wish, after)
            changed(after, wish.key, change)
            made[wish.key] = (*made.get(wish.key, ()), change)
            composed = composed.compose(StateDelta({wish.key: (change,)}))
        delta = composed if plan.composed else StateDelta(made)
        assert frozen(dict(State(before).apply(delta))) == frozen(after)
        assert frozen(dict(State(after).apply(delta.invert(State(before))))) == frozen(before)
        if plan.returned == "whole":
            delta = StateDelta({key: _whole(changes, after.get(key)) for key, changes in delta.changes.items()})
        return delta, self.returned(plan, delta), after

    def change(self, wish: Wish, values: Values) -> Change:
        new = [self.real(item) for item in wish.items]
        old = values.get(wish.key, [])
        if wish.verb == "delete":
            return DeleteKey()
        if wish.verb == "merge" and type(old) is dict:
            gone = tuple(key for number, key in enumerate(old) if number % 7 == wish.length)
            return Merge({f"k{(wish.start + number) % 9}": item for number, item in enumerate(new)}, gone)
        if wish.verb == "merge":
            return SetValue({f"k{number}": item for number, item in enumerate(new)})
        if wish.verb == "set" or type(old) is not list:
            return SetValue(self.real(wish.value) if wish.verb == "set" else new)
        if wish.verb == "append":
            return Append(tuple(new))
        start = wish.start % (len(old) + 1)
        return Splice(start, wish.length % (len(old) - start + 1), tuple(new))

    def real(self, value: Any) -> Any:
        return value.letter * value.size * self.scale if isinstance(value, Big) else value

    def returned(self, plan: Plan, delta: StateDelta) -> dict[str, dict[str, Any]] | None:
        """What the node returned: the very values that it wrote, or something that reducers made them of."""
        if plan.returned == "nothing":
            return None
        if plan.returned == "other":
            return {"one": {"raw": [1, "y" * self.scale * 30], "": None}, "two": {}}
        update: dict[str, Any] = {}
        for key, changes in delta.changes.items():
            match changes:
                case (SetValue(value=value),):
                    update[key] = value
                case (Append(whole=whole) | Merge(whole=whole),) if whole is not None:
                    update[key] = whole
                case (Append(items=new),):
                    update[key] = list(new)
                case (Merge(items=items),):
                    update[key] = dict(items)
        return {"node": update}

    def new_execution(self, origin: Kept | None, plan: Plan | None, storage: Storage) -> None:
        """Begin an execution: from nothing, or at a checkpoint of any execution."""
        number = len(self.model.executions) + len(self.model.deleted_executions) + 1
        execution_id, branch_id = f"e{number}", f"e{number}-main"
        line = Line(branch_id, execution_id, "" if origin is None else origin.info.id)
        with storage.unit_of_work() as uow:
            uow.executions.add(
                Execution(
                    id=ExecutionId(execution_id),
                    workflow_id=WorkflowId("w"),
                    workflow_name="w",
                    branch_id=BranchId(branch_id),
                    created_at=START,
                    updated_at=START,
                )
            )
            kept: list[Kept] = []
            if origin is None:
                assert plan is not None
                self.add_branch(uow, execution_id, None, branch_id)
                delta, returned, after = self.changes(plan, {})
                info = uow.checkpoints.save(self.draft(execution_id, branch_id, None, None, None), delta, returned)
                uow.branches.move_head(BranchId(branch_id), info.id, expected=None)
                kept = [Kept(info, after, copy.deepcopy(returned or {}))]
            else:
                self.add_branch(uow, execution_id, origin, branch_id)
                kept = self.take(uow, line, [] if plan is None else [plan])
            uow.commit()
        self.model.executions.append(execution_id)
        self.model.lines[branch_id] = line
        self.keep(line, kept)

    def add_branch(self, uow: UnitOfWork, execution_id: str, origin: Kept | None, branch_id: str | None = None) -> Line:
        branch_id = branch_id or f"b{next(self.numbers)}"
        head_id = None if origin is None else origin.info.id
        uow.branches.add(
            Branch(
                id=BranchId(branch_id),
                execution_id=ExecutionId(execution_id),
                name=branch_id,
                head_id=head_id,
                forked_from_id=head_id,
                created_at=START,
            )
        )
        return Line(branch_id, execution_id, head_id or "")

    def mistakes(
        self, uow: UnitOfWork, step: Step, which: int
    ) -> Iterator[tuple[type[WTBError], Callable[[], object]]]:
        """Attempts that must be refused, and must leave nothing behind."""
        save, draft, living = uow.checkpoints.save, step.draft, self.model.living()
        big = StateDelta.setting({"new": "n" * 300 * self.scale})
        taken = spread(living, [which])[0].info
        yield AlreadyExists, lambda: save(replace(draft, id=taken.id), big)
        named = [kept.info.name for kept in living if kept.info.name and kept.info.execution_id == draft.execution_id]
        if named:
            yield AlreadyExists, lambda: save(replace(draft, name=named[0]), big)
        yield CheckpointNotFound, lambda: save(replace(draft, parent_id=CheckpointId("nobody")), big)
        dead = [kept.info for kept in self.model.kept.values() if not kept.alive]
        if dead:
            gone = dead[which % len(dead)].id
            yield CheckpointNotFound, lambda: save(replace(draft, parent_id=gone), big)
            yield CheckpointNotFound, lambda: uow.checkpoints.delete([gone])
            branch_id, head_id = BranchId(step.line.id), CheckpointId(step.line.head_id)
            yield CheckpointNotFound, lambda: uow.branches.move_head(branch_id, gone, expected=head_id)
        yield StateNotSerialisable, lambda: save(draft, StateDelta.setting({"new": {"deep": [1, print]}}))
        fault = StateDelta({"new": (SetValue("text"), Append((1,)))})
        yield InvalidStateChange, lambda: save(draft, fault)
        fault_in_list = StateDelta({"new": (SetValue(["n" * 300 * self.scale]), Splice(1, 1))})
        yield InvalidStateChange, lambda: save(draft, fault_in_list)
        yield CheckpointNotFound, lambda: uow.checkpoints.delete([taken.id, CheckpointId("nobody")])
        heads = {line.head_id for line in self.model.lines.values()}
        free = [kept.info.id for kept in self.model.deletable()]
        yield Conflict, lambda: uow.checkpoints.delete([*map(CheckpointId, heads), *free])

    def commit(self, storage: Storage, steps: Sequence[Step]) -> list[Kept]:
        """Take steps in a transaction each, as often as it takes."""
        return [_insist(storage, step.save) for step in steps]

    def commit_deletion(self, storage: Storage, gone: Sequence[CheckpointId]) -> None:
        _insist(storage, lambda uow: uow.checkpoints.delete(gone))


def _insist(storage: Storage, work: Callable[[UnitOfWork], Result]) -> Result:
    """Do some work in a transaction; where two writers met in a deadlock, one is told to try again."""
    for _ in range(20):
        try:
            with storage.unit_of_work() as uow:
                result = work(uow)
                uow.commit()
            return result
        except Conflict as error:
            if "try again" not in str(error):
                raise
    raise AssertionError("two writers kept each other from writing twenty times in a row")


class Thread(threading.Thread):
    """A thread whose error is raised where it is waited for."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  raised again in finish()
            self._error = error

    def finish(self) -> None:
        self.join(240)
        assert not self.is_alive(), "a writer waits for ever"
        if self._error is not None:
            raise self._error


def run_machine(backend: Backend, *, scale: int, examples: int, at_once: bool = False) -> None:
    """Run so many examples, in a soak twenty times over.

    Again and again instead of all at once: hypothesis remembers every choice of a run, several MB an example.
    """
    for _ in range(20 if SOAK else 1):
        run_state_machine_as_test(
            cast("type[StoreMachine]", partial(StoreMachine, backend, scale=scale, at_once=at_once)),
            settings=settings(max_examples=examples, report_multiple_bugs=False),
        )


@pytest.fixture
def tiny_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values become blobs, lists are cut and sealed, mappings are kept by key, when they are a few bytes long."""
    for module, limits in (
        (manifest, {"CHUNK_BYTES": 96, "SEAL_BYTES": 48}),
        (encoder, {"INLINE_BYTES": 16, "INLINE_APPEND_BYTES": 32, "SMALLEST_MERGE": 3}),
        (store, {"KEYFRAME_BYTES": 256, "_ROW_BYTES": 32}),
    ):
        for name, limit in limits.items():
            monkeypatch.setattr(module, name, limit)


@pytest.fixture(params=["real limits", "tiny limits"])
def scale(request: pytest.FixtureRequest) -> int:
    """How much of a Big is needed to cross the limits."""
    if request.param == "real limits":
        return 200
    request.getfixturevalue("tiny_limits")
    return 1


def test_a_memory_store_is_a_dictionary_of_full_copies(scale: int) -> None:
    run_machine(InMemory(), scale=scale, examples=25 if SOAK else 15)


def test_a_sqlite_store_is_a_dictionary_of_full_copies(scale: int, tmp_path: Path) -> None:
    backend = InDatabase(Settings(folder=tmp_path / "wtb"))
    run_machine(backend, scale=scale, examples=20 if SOAK else 12)
    backend.close()


def test_a_postgres_store_is_a_dictionary_of_full_copies(scale: int, postgres_url: str) -> None:
    database = open_database(Settings(url=postgres_url))
    schema.upgrade(database)
    database.close()
    backend = InDatabase(Settings(url=postgres_url))
    run_machine(backend, scale=scale, examples=10 if SOAK else 6, at_once=True)
    backend.close()


class Appender:
    """A branch that a thread of its own appends to; item n of its list is n, so that every state is known."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.id = BranchId(name)
        self.written: list[Checkpoint] = []
        with storage.unit_of_work() as uow:
            uow.branches.add(Branch(id=self.id, execution_id=RUN, name=name, head_id=None, created_at=START))
            uow.commit()

    def write(self, number: int) -> None:
        """Save a checkpoint and, now and then, delete some that lie behind it."""
        draft = CheckpointDraft(
            id=CheckpointId(f"{self.id}-{number:04}"),
            execution_id=RUN,
            branch_id=self.id,
            parent_id=self.written[-1].id if self.written else None,
            step=number,
            created_at=START,
        )
        self.written.append(_insist(self.storage, lambda uow: self.save(uow, draft)))
        if number % 10 == 9:
            gone = [checkpoint.id for checkpoint in self.written[number - 8 : number - 2]]
            _insist(self.storage, lambda uow: uow.checkpoints.delete(gone))

    def save(self, uow: UnitOfWork, draft: CheckpointDraft) -> Checkpoint:
        delta = StateDelta.of(list=Append((draft.step,)), text=SetValue("t" * (draft.step % 7) * 100))
        saved = uow.checkpoints.save(draft, delta)
        uow.branches.move_head(self.id, saved.id, expected=draft.parent_id)
        return saved


RUN = ExecutionId("run")


def read_everything(storage: Storage, chance: random.Random) -> None:
    with storage.unit_of_work(readonly=True) as uow:
        history = uow.checkpoints.load_history(RUN)
        for branch in history.branches:
            line = history.lineage(branch.id)
            assert [checkpoint.step for checkpoint in line] == list(range(len(line)))
            assert [checkpoint.parent_hash for checkpoint in line] == [b"", *(each.hash for each in line)][: len(line)]
        known = [checkpoint for checkpoint in history.checkpoints if not checkpoint.deleted]
        for checkpoint in chance.sample(known, min(3, len(known))):
            with suppress(CheckpointNotFound):  # deleted since
                state = uow.checkpoints.load(checkpoint.id).state
                assert state["list"] == list(range(checkpoint.step + 1))


@pytest.mark.usefixtures("tiny_limits")
def test_readers_see_nothing_half_done_while_others_write_and_delete(storage: Storage) -> None:
    interval = sys.getswitchinterval()
    with storage.unit_of_work() as uow:
        facts: dict[str, Any] = {"id": RUN, "workflow_id": WorkflowId("w"), "workflow_name": "w"}
        uow.executions.add(Execution(**facts, branch_id=BranchId("one"), created_at=START, updated_at=START))
        uow.commit()
    branches = [Appender(storage, "one"), Appender(storage, "two")]
    writers = [Thread(partial(_each, branch.write, range(300))) for branch in branches]

    def read(seed: int) -> None:
        chance = random.Random(seed)
        while any(writer.is_alive() for writer in writers):
            read_everything(storage, chance)

    sys.setswitchinterval(1e-5)  # so that threads meet where they seldom do
    try:
        threads = [*writers, Thread(partial(read, 1)), Thread(partial(read, 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.finish()
    finally:
        sys.setswitchinterval(interval)
    read_everything(storage, random.Random(0))


def _each(work: Callable[[int], None], numbers: range) -> None:
    for number in numbers:
        work(number)
