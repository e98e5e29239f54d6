"""Runs with tools and files go back, forward and apart, fail and crash; a model with full copies always agrees."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import wtb
from tests.property.time_travel_model import (
    NODES,
    Call,
    Copy,
    ModelRun,
    Undone,
    World,
    foreseen,
    kept_for,
    make_flow,
)
from tests.services import PostgresServer
from tests.workspaces import described
from wtb.application.runs.reversals import ReversalInDoubt
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.application.upkeep.retention import Retention
from wtb.domain.checkpoint import NodeStatus
from wtb.domain.errors import (
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    InvalidTransition,
)
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import FaultKind
from wtb.domain.retention import RetentionPolicy
from wtb.domain.rollback import CannotUndo
from wtb.domain.tools import CallStatus
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.unit_of_work import TransactionalUnitOfWork
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.testing.fakes import CrashPoints

SOAK = bool(os.environ.get("WTB_SOAK"))

FLAT = st.sampled_from(["a", "b", "d", "e"])
PATHS = st.sampled_from(["a", "b", "d", "d/x", "d/y", "ü"])
MODES = st.sampled_from([0o600, 0o644, 0o700, 0o755])
CHANGES = st.one_of(
    st.tuples(st.just("write"), PATHS, st.sampled_from(["", "one", "two", "large"]), MODES),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("chmod"), PATHS, MODES),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["a", "..", "/nowhere"])),
    st.tuples(st.just("folder"), PATHS, st.sampled_from([0o700, 0o755])),
    st.tuples(st.just("rename"), FLAT, st.sampled_from(["a", "b", "e"])).filter(lambda change: change[1] != change[2]),
).map(lambda change: ["file", *change])
CALLS = st.sampled_from(["open"] * 6 + ["book"] * 3 + ["send"]).map(lambda tool: ["call", tool])
OTHERS = st.sampled_from([["mark"], ["fail"], ["ask"], ["bad"]])
WORK = st.lists(st.one_of(CALLS, CALLS, CHANGES, OTHERS), min_size=1, max_size=6)


def member(name: str) -> st.SearchStrategy[list[Any]]:
    own = st.sampled_from([["file", "write", name, name, 0o644], ["file", "folder", f"{name}-2", 0o755], ["fail"]])
    return st.lists(st.one_of(CALLS, own), min_size=name == "left", max_size=3)


STEPS = st.fixed_dictionaries(
    {"work": WORK, "left": st.one_of(st.just([]), st.just([]), member("left")), "right": member("right")}
)
PLANS = st.lists(STEPS, min_size=2, max_size=4)
PICKS = st.integers(0, 1_000)
COMMITS = st.sampled_from(["before a commit", "after a commit"])
EFFECTS = st.sampled_from(["before a reversal", "after a reversal", "before an effect", "after an effect"])
CRASHES = st.tuples(st.one_of(COMMITS, EFFECTS), st.integers(1, 9))
NEVER = ("", 0)
_numbers = itertools.count(1)
WHOLE = {kind for kind in FaultKind if kind not in (FaultKind.ABANDONED_RUN, FaultKind.LEASE, FaultKind.WORKSPACE)}
"""What no crash, rollback, fork or deletion may leave behind."""


class Crash(BaseException):
    """The end of a process, as far as one can have it within one."""


class Place:
    """Where an example keeps its runs: a folder, and a database in it or elsewhere."""

    def __init__(self, url: str | None, template: Path | None, examples: int) -> None:
        self.url = url
        self.examples = examples
        self._template = template

    def make(self) -> Path:
        home = Path(mkdtemp(prefix="wtb-machine-"))
        if self._template is not None:
            home.joinpath("wtb").mkdir(mode=0o700)
            shutil.copyfile(self._template, home / "wtb" / "wtb.db")
        return home

    def open(self, home: Path) -> wtb.Bench:
        return wtb.Bench(self.url, folder=home / "wtb")


class TimeTravelMachine(RuleBasedStateMachine):
    """Every rule says beforehand what will be; after every rule everything is looked at."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.home = self.place.make()
        self.world = World()
        self.flow = make_flow(self.world)
        self.bench = self.place.open(self.home)
        self.runs: dict[str, ModelRun] = {}
        self.copies: dict[str, Copy] = {}
        self.parents: dict[str, str | None] = {}
        self.names: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.calls: list[Call] = []
        self.known: dict[str, Execution] = {}
        self.touched: set[str] = set()

    def teardown(self) -> None:
        try:
            if self.place.url is None or self.place.url.startswith("memory"):  # else examples share a database
                found = self.bench.services.integrity.check().faults
                assert [fault for fault in found if fault.kind in WHOLE] == []
        finally:
            self.bench.close()
            shutil.rmtree(self.home)

    def run_at(self, pick: int) -> ModelRun:
        found = list(self.runs.values())
        run = found[pick % len(found)]
        self.touched.add(run.id)
        return run

    def real(self, run: ModelRun) -> wtb.Run:
        return self.bench.get(run.id)

    def line(self, run: ModelRun) -> list[str]:
        return self.lineage(run.head)

    def lineage(self, id: str) -> list[str]:
        line = [id]
        while (parent := self.parents[line[-1]]) is not None:
            line.append(parent)
        return line[::-1]

    def targets(self, run: ModelRun) -> list[str]:
        return [id for id in self.line(run) if id not in self.deleted]

    def label(self, run: ModelRun, target: str, how: int) -> str | int:
        """Return one of the ways to say which checkpoint is meant."""
        copy = self.copies[target]
        ways: list[str | int] = [target, self.line(run).index(target)]
        if target in self.names:
            ways.append(self.names[target])
        if copy.trigger == "node_end":
            ways.append("{}#{}".format(*copy.path[-1]))
        return ways[how % len(ways)]

    def learn(self, run: ModelRun, copies: list[Copy]) -> None:
        """See that the checkpoints since the head are these, and move it."""
        line = self.real(run).history.lineage()
        new = line[[str(each.id) for each in line].index(run.head) + 1 :]
        assert [each.trigger for each in new] == [each.trigger for each in copies]
        for checkpoint, copy in zip(new, copies, strict=True):
            self.add(checkpoint.id, checkpoint.parent_id, copy)
            run.head = checkpoint.id

    def add(self, id: str, parent: str | None, copy: Copy) -> None:
        assert id not in self.copies
        self.copies[id], self.parents[id] = copy, parent

    @contextmanager
    def crashing(self, crash: tuple[str, int]) -> Iterator[None]:
        """Crash there; whoever goes on is another process with the same database and the same folder."""

        def end() -> None:
            raise Crash

        points = self.world.points = CrashPoints(end, at=crash[0], passing=crash[1])
        commit = TransactionalUnitOfWork.commit

        def watched(uow: TransactionalUnitOfWork) -> None:
            points.reach("before a commit")
            commit(uow)
            points.reach("after a commit")

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TransactionalUnitOfWork, "commit", watched)
                yield
        except Crash:
            if self.place.url != "memory://":
                self.bench.close()
                self.bench = self.place.open(self.home)
        finally:
            self.world.points = CrashPoints(lambda: None)

    @initialize(plan=PLANS, fine=st.booleans(), steps=st.integers(0, 6))
    def begin(self, plan: list[Any], fine: bool, steps: int) -> None:
        self.create(plan, fine, steps)

    @precondition(lambda self: len(self.runs) < 3)
    @rule(plan=PLANS, fine=st.booleans(), steps=st.integers(0, 6))
    def create(self, plan: list[Any], fine: bool, steps: int) -> None:
        state = {"plan": plan, "n": 0, "log": [], "spreads": False}
        real = self.bench.create(self.flow, state, fine_grained=fine, run_id=f"run-{next(_numbers)}")
        [start] = real.checkpoints
        run = self.runs[real.id] = ModelRun(real.id, start.id, fine)
        self.add(start.id, None, Copy(trigger="start", state=state, files={}, next=("work",), run=run.id))
        self.touched.add(run.id)
        for _ in range(steps):
            if run.status != "completed":
                self.go_on(run, failing=False, crash=NEVER)

    @rule(pick=PICKS, steps=st.integers(1, 6), failing=st.sampled_from([False, False, True]))
    def resume(self, pick: int, steps: int, failing: bool) -> None:
        run = self.run_at(pick)
        for _ in range(steps):
            if run.status == "completed":
                with pytest.raises(InvalidTransition):
                    self.bench.resume(run.id, self.flow)
                return
            self.go_on(run, failing=failing, crash=NEVER)

    @rule(pick=PICKS, failing=st.booleans(), crash=CRASHES)
    def resume_and_crash(self, pick: int, failing: bool, crash: tuple[str, int]) -> None:
        """Where a run that crashed goes on is the business of the engine's own tests; here it is taken to the end.

        A member of a parallel step that fails would hide that a call of its sibling is in doubt.
        """
        run = self.run_at(pick)
        head = self.copies[run.head]
        marks = any(["mark"] in step["work"] for step in head.state["plan"])
        if run.status != "completed" and not run.fine and not marks:
            self.go_on(run, failing=failing and len(head.next) == 1, crash=crash)

    def go_on(self, run: ModelRun, *, failing: bool, crash: tuple[str, int]) -> None:
        answer = None if run.asked is None else "yes"
        forecast = foreseen(run, self.copies[run.head], failing=failing, answered=answer is not None)
        self.world.failing = failing
        before = len(self.world.log)
        old, crashed, asked = run.head, crash, self.open_questions(run.id)
        for _ in range(6):
            with self.crashing(crashed):
                self.bench.resume(run.id, self.flow, break_after=NODES, answer=answer)
            real = self.real(run)
            waiting = real.waiting
            in_doubt = waiting is not None and waiting.reason == "in doubt"
            if real.status != "running" and not in_doubt and (real.status, run.head) != (run.status, self.head(real)):
                break
            if crashed == NEVER and not in_doubt:
                break
            is_taken = not asked <= self.open_questions(run.id)  # a crash may come before the answer is taken
            answer = self.truth(run) if in_doubt else None if is_taken else answer
            crashed = NEVER
        assert run.head == old
        made = {title.partition(" ")[2]: title[1:] for title in self.world.log[before:]}
        assert len(made) == len(self.world.log) - before
        assert sorted(made) == sorted(call.label for call in forecast.made)
        for call in forecast.made:
            call.title = made[call.label]
        self.calls += forecast.made
        self.learn(run, forecast.copies)
        run.status, run.open, run.asked = forecast.status, forecast.open, forecast.asked

    def head(self, real: wtb.Run) -> str:
        latest = real.history.latest()
        assert latest is not None
        return latest.id

    def open_questions(self, run_id: str) -> set[tuple[str, str]]:
        """Return the questions without an answer. A node may ask a second one after its first was answered."""
        with self.bench.services.storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(ExecutionId(run_id))
        waits = [call for call in calls if call.tool == "ask" and call.status is CallStatus.INTENDED]
        return {(call.node_run_id, call.identity) for call in waits}

    def truth(self, run: ModelRun) -> Any:
        """Say whether the call in doubt was made."""
        question = self.real(run).waiting.question  # type: ignore[union-attr]
        assert question is not None
        with self.bench.services.storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(ExecutionId(run.id))
        doubtful = [call for call in calls if call.status is CallStatus.INTENDED and call.tool != "ask"]
        [title] = [c.arguments["title"] for c in doubtful if c.identity == question["identity"]][-1:]
        return {"done": f"#{title}"} if self.world.effects[title] else "again"

    def planned(self, run: ModelRun, target: str, *, tools: bool, shared: str) -> tuple[list[Call], list[Call]]:
        """Return the calls to take back, and those that cannot be."""
        kept = set(self.copies[target].calls)
        if shared == "keep":
            kept |= set(kept_for((each for each in self.runs.values() if each is not run), self.copies))
        mine = [call for call in run.calls(self.copies) if call.active and call.run == run.id and call not in kept]
        if not tools:
            mine = []
        return [call for call in mine if call.tool != "send"], [call for call in mine if call.tool == "send"]

    def moved_back(self, run: ModelRun, target: str, calls: list[Call], *, files: bool = True) -> None:
        """Note that a rollback was done."""
        for call in calls:
            call.active = False
        goal = self.head(self.real(run))
        here, there = self.copies[run.head], self.copies[target]
        if goal != target:
            assert not files
            self.add(goal, target, replace(there, trigger="user_request", files=here.files, run=run.id))
        else:
            assert files or here.files == there.files
        run.undone.append(Undone(run.head, goal, run.open, tuple(calls)))
        run.head, run.open, run.asked, run.status = goal, {}, None, "paused"
        self.see_folder(run)

    def see_folder(self, run: ModelRun) -> None:
        """Look at the files where they lie, before anybody asks wtb for them."""
        real = self.real(run)
        if real.history.latest().file_commit is not None:  # type: ignore[union-attr]
            folder = self.bench.services.workspaces.path(real.id, real.execution.branch_id)
            assert described(folder) == self.copies[run.head].files

    @rule(
        pick=PICKS,
        where=PICKS,
        how=PICKS,
        tools=st.sampled_from([True, True, True, False]),
        files=st.sampled_from([True, True, True, False]),
        shared=st.sampled_from(["keep", "keep", "reverse"]),
        allowed=st.booleans(),
        crash=st.one_of(st.just(NEVER), CRASHES),
        gives_up=st.booleans(),
    )
    def rollback(
        self,
        pick: int,
        where: int,
        how: int,
        tools: bool,
        files: bool,
        shared: str,
        allowed: bool,
        crash: tuple[str, int],
        gives_up: bool,
    ) -> None:
        run = self.run_at(pick)
        if run.status == "pending":
            with pytest.raises(InvalidTransition, match="resume it first"):
                self.real(run).rollback(0)
            return
        target = self.targets(run)[where % len(self.targets(run))]
        calls, irreversible = self.planned(run, target, tools=tools, shared=shared)
        options: dict[str, Any] = {"tools": tools, "files": files, "shared": shared}
        label = self.label(run, target, how)
        real = self.real(run)
        before = (real.execution, real.checkpoints, self.world.log[:])
        plan = real.rollback(label, dry_run=True, **options)
        assert (real.execution, real.checkpoints, self.world.log) == before
        assert sorted(call.arguments["title"] for call in plan.reverse) == sorted(call.title for call in calls)
        assert sorted(call.arguments["title"] for call in plan.irreversible) == sorted(c.title for c in irreversible)
        assert plan.target.id == target
        if irreversible and not allowed:
            with pytest.raises(CannotUndo):
                real.rollback(label, **options)
            return
        done = []
        with self.crashing(crash):
            done.append(self.real(run).rollback(label, allow_irreversible=allowed, **options))
        found = self.found(run, calls, before[0].version, gives_up=gives_up)
        if found == "before":
            done.append(self.real(run).rollback(label, allow_irreversible=allowed, **options))
        assert not done or done == [plan]
        if found != "given up":
            self.moved_back(run, target, calls, files=files)
        order = [call.title for call in calls if "work" in call.label]
        taken_back = [line[1:] for line in self.world.log[len(before[2]) :] if line[0] == "-" and line[1:] in order]
        assert taken_back == order[::-1][: len(taken_back)]

    def found(self, run: ModelRun, calls: list[Call], version: int, *, gives_up: bool) -> str:
        """Return how a rollback or redo that may have crashed is found; when half done it is finished, or given up."""
        real = self.real(run)
        if real.status != "rolling_back":
            is_done = real.execution.version > version and real.execution.lease is None
            assert is_done or all(self.world.effects[call.title] == call.active for call in calls)
            return "after" if is_done else "before"
        with pytest.raises(InvalidTransition):
            self.bench.resume(run.id, self.flow)
        go = real.abandon_rollback if gives_up else real.continue_rollback
        try:
            go()
        except (RollbackFailed, ReversalInDoubt):
            go(in_doubt=self.what_happened(run))
        if gives_up:
            self.given_up(run, calls)
        return "given up" if gives_up else "after"

    def given_up(self, run: ModelRun, calls: list[Call]) -> None:
        """Note what stays as it was taken back: the newest calls, if any."""
        for call in calls:
            call.active = bool(self.world.effects[call.title])
        run.status, run.asked = "paused", None

    def what_happened(self, run: ModelRun) -> str:
        with self.bench.services.storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(ExecutionId(run.id))
        [call] = [each for each in calls if each.status in (CallStatus.REVERSING, CallStatus.REDOING)]
        is_in_effect = bool(self.world.effects[call.arguments["title"]])
        return "done" if is_in_effect == (call.status is CallStatus.REDOING) else "again"

    @rule(pick=PICKS, where=PICKS, which=PICKS, gives_up=st.booleans())
    def fail_to_take_back(self, pick: int, where: int, which: int, gives_up: bool) -> None:
        run = self.run_at(pick)
        targets = self.targets(run)
        target = targets[where % len(targets)]
        calls, irreversible = self.planned(run, target, tools=True, shared="keep")
        if run.status == "pending" or not calls or irreversible:
            return
        stuck = calls[which % len(calls)]
        self.world.closed.add(stuck.title)
        real = self.real(run)
        with pytest.raises(RollbackFailed, match="--continue"):
            real.rollback(target)
        assert real.status == "rolling_back"
        for refused in (real.redo, lambda: real.rollback(target), lambda: real.checkpoint("here")):
            with pytest.raises(InvalidTransition):
                refused()
        with pytest.raises(RollbackFailed):
            real.continue_rollback()
        self.world.closed.clear()
        if gives_up:
            real.abandon_rollback()
            self.given_up(run, calls)
            assert stuck.active
        else:
            real.continue_rollback()
            self.moved_back(run, target, calls)

    @rule(pick=PICKS, crash=st.one_of(st.just(NEVER), CRASHES), gives_up=st.booleans())
    def redo(self, pick: int, crash: tuple[str, int], gives_up: bool) -> None:
        run = self.run_at(pick)
        undone = run.undone[-1] if run.undone else None
        called = any(isinstance(e, Call) and e.active for each in run.open.values() for e in each.records.values())
        if undone is None or run.head != undone.goal or called or run.status == "pending":
            with pytest.raises((InvalidInput, InvalidTransition)):
                self.real(run).redo()
            return
        if undone.head in self.deleted:
            with pytest.raises(InvalidInput, match="have been deleted"):
                self.real(run).redo()
            return
        calls = list(undone.calls)
        version = self.real(run).execution.version
        with self.crashing(crash):
            self.real(run).redo()
        found = self.found(run, calls, version, gives_up=gives_up)
        if found == "given up":
            assert not any(call.active for call in calls)
            return
        if found == "before":
            self.real(run).redo()
        for call in calls:
            call.active = True
        run.undone.pop()
        run.head, run.open, run.status, run.asked = undone.head, undone.open, "paused", None
        self.see_folder(run)

    @precondition(lambda self: len(self.runs) < 5)
    @rule(pick=PICKS, where=PICKS, plan=st.one_of(st.none(), PLANS), crash=st.one_of(st.just(NEVER), CRASHES))
    def fork(self, pick: int, where: int, plan: list[Any] | None, crash: tuple[str, int]) -> None:
        """From its own checkpoints, also those of abandoned lines, and from those of its origin."""
        run = self.run_at(pick)
        points = [id for id, copy in self.copies.items() if copy.run == run.id and id not in self.deleted]
        points = list(dict.fromkeys([*self.targets(run), *points]))
        point = points[where % len(points)]
        copy = self.copies[point]
        update = None if plan is None else {"plan": [*copy.state["plan"][: copy.state["n"]], *plan]}
        if update is not None and copy.records is not None:
            with pytest.raises(InvalidInput, match="in the middle of node"):
                self.real(run).fork(point, update=update)
            return
        id = f"fork-{next(_numbers)}"
        with self.crashing(crash):
            self.real(run).fork(point, update=update, run_id=id)
        try:
            real = self.bench.get(id)
        except ExecutionNotFound:
            real = self.real(run).fork(point, update=update, run_id=id)
        forked = self.runs[id] = ModelRun(id, point, run.fine, origin=point)
        self.touched.add(id)
        if update is not None:
            self.learn(forked, [replace(copy, trigger="pause", state={**copy.state, **update}, run=id)])
        assert real.status == "pending"

    @rule(pick=PICKS, crash=st.one_of(st.just(NEVER), CRASHES))
    def name(self, pick: int, crash: tuple[str, int]) -> None:
        run = self.run_at(pick)
        if run.status == "pending":
            return
        if len(run.open) > 1:
            with pytest.raises(InvalidInput, match="in the middle of a parallel step"):
                self.real(run).checkpoint("here")
            return
        head = self.copies[run.head]
        name = f"named {next(_numbers)}"
        with self.crashing(crash):
            self.real(run).checkpoint(name)
        if self.head(self.real(run)) == run.head:
            self.real(run).checkpoint(name)
        copy = replace(head, trigger="user_request", run=run.id)
        for node, begun in run.open.items():
            calls = head.calls if head.records is None else head.began_with
            base = head.files if head.records is None else head.base
            made = [entry for entry in begun.records.values() if isinstance(entry, Call) and entry.active]
            facts: dict[str, Any] = {"base": base, "began_with": calls, "calls": (*calls, *made)}
            copy = replace(copy, node=node, records=dict(begun.records), **facts)
        self.learn(run, [copy])
        self.names[run.head] = name

    @rule(pick=PICKS, where=PICKS, crash=st.one_of(st.just(NEVER), CRASHES))
    def delete_checkpoint(self, pick: int, where: int, crash: tuple[str, int]) -> None:
        run = self.run_at(pick)
        own = [id for id, copy in self.copies.items() if copy.run == run.id and id not in self.deleted]
        if not own:
            return
        target = own[where % len(own)]
        if any(each.head == target for each in self.runs.values()):
            with pytest.raises(Conflict, match="is the head of a branch"):
                self.real(run).delete(target)
            return
        with self.crashing(crash):
            self.real(run).delete(target)
        if not next(each.deleted for each in self.real(run).history.checkpoints if each.id == target):
            self.real(run).delete(target)
        self.deleted.add(target)

    @rule(keep=st.integers(0, 3), crash=st.one_of(st.just(NEVER), st.tuples(COMMITS, st.integers(1, 9))))
    def prune(self, keep: int, crash: tuple[str, int]) -> None:
        """What somebody may still want stays, and what is left is whole."""
        needed = {id for run in self.runs.values() for id in self.needed(run, keep)}
        with self.crashing(crash):
            self.pruned(keep)
        self.pruned(keep)
        for run in self.runs.values():
            gone = {str(each.id) for each in self.real(run).history.checkpoints if each.deleted} - self.deleted
            assert gone.isdisjoint(needed)
            self.deleted |= gone & set(self.copies)
        for run in self.runs.values():
            for target in self.targets(run):
                self.differs(run, target)
                if self.copies[target].run == run.id:
                    self.has_files(run, target)
        self.touched |= set(self.runs)
        if self.place.url in (None, "memory://"):  # elsewhere there are runs of other examples, without their folders
            assert self.bench.services.integrity.check().faults == ()

    def differs(self, run: ModelRun, target: str) -> None:
        old, new, diff = self.copies[target], self.copies[run.head], self.real(run).diff(target)
        assert bool(diff.state) == (old.state != new.state)
        paths = {*old.files, *new.files}
        assert {each.path for each in diff.files} == {
            each for each in paths if old.files.get(each) != new.files.get(each)
        }

    def pruned(self, keep: int) -> None:
        services = self.bench.services
        assert isinstance(services.storage, MemoryStorage | SqlStorage)
        garbage = SweptGarbage(services.storage, services.objects, codec=services.codec, clock=services.clock)
        policy = RetentionPolicy(keep_last=keep)
        retention = Retention(
            services.storage, services.clock, garbage, policy_for=lambda workflow: policy, grace=timedelta(0)
        )
        for run in self.runs.values():
            assert [each.problem for each in retention.prune(run=ExecutionId(run.id))] == [None]
        retention.sweep()

    def needed(self, run: ModelRun, keep: int) -> set[str]:
        """Return what must stay: where the run stands, came from and can be redone to, names, and the last ones."""
        line = self.targets(run)
        own = {id for id, copy in self.copies.items() if copy.run == run.id and id not in self.deleted}
        found = {run.head} | {id for id in own if self.copies[id].trigger in ("start", "user_request")}
        if run.origin is not None:
            found |= {run.origin}
        for undone in run.undone:
            found |= set(self.lineage(undone.head)) - set(line)
        automatic = [id for id in line if self.copies[id].trigger != "user_request"]
        return (found | {id for id in automatic[len(automatic) - keep :] if id in own}) - self.deleted

    @precondition(lambda self: len(self.runs) > 1)
    @rule(pick=PICKS, crash=st.one_of(st.just(NEVER), CRASHES))
    def delete_run(self, pick: int, crash: tuple[str, int]) -> None:
        run = self.run_at(pick)
        own = {id for id, copy in self.copies.items() if copy.run == run.id}
        if any(each.head in own for each in self.runs.values() if each is not run):
            with pytest.raises(Conflict, match=r"is the head of a fork, run "):
                self.real(run).delete()
            return
        with self.crashing(crash):
            self.real(run).delete()
        try:
            self.real(run).delete()
        except ExecutionNotFound:
            self.bench.services.workspaces.discard_all(ExecutionId(run.id))
        self.deleted |= own
        del self.runs[run.id]
        self.touched.discard(run.id)
        self.known.pop(run.id, None)

    @rule(pick=PICKS, where=PICKS)
    def look_back(self, pick: int, where: int) -> None:
        run = self.run_at(pick)
        self.has_files(run, self.targets(run)[where % len(self.targets(run))])

    def has_files(self, run: ModelRun, target: str) -> None:
        files, folder = self.copies[target].files, self.home / f"export-{next(_numbers)}"
        if files:
            self.real(run).export(folder, target)
            assert described(folder) == files
        else:
            assert not self.real(run).files(target)

    @invariant()
    def everything_agrees(self) -> None:
        active = Counter(call.title for call in self.calls if call.active)  # one taken back may have been made again
        assert self.world.effects == active
        for run in self.runs.values():
            execution = self.real(run).execution
            assert execution.lease is None
            if run.id in self.touched:
                self.agrees(run)
                execution = self.real(run).execution
            assert self.known.setdefault(run.id, execution) == execution or run.id in self.touched
            self.known[run.id] = execution
        self.touched.clear()

    def agrees(self, run: ModelRun) -> None:
        real, copy = self.real(run), self.copies[run.head]
        assert (real.status, self.head(real)) == (run.status, run.head)
        assert real.state == copy.state
        assert described(real.workspace) == copy.files
        history = real.history
        line = history.lineage()
        assert [each.step for each in line] == list(range(len(line)))
        done = [each for each in history.boundaries() if each.status is NodeStatus.COMPLETED and each.last_id]
        assert sorted((each.node, each.visit) for each in done) == sorted(copy.path)
        with self.bench.services.storage.unit_of_work(readonly=True) as uow:
            for checkpoint in history.checkpoints:
                known = self.copies.get(checkpoint.id)
                assert checkpoint.deleted == (checkpoint.id in self.deleted) or known is None
                if not checkpoint.deleted:
                    found = uow.checkpoints.load(checkpoint.id)
                    assert found.checkpoint.hash == checkpoint.hash
                    assert known is None or dict(found.state) == known.state


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return Place("memory://", None, examples=18)
    if request.param == "sqlite":
        return Place(None, request.getfixturevalue("sqlite_template"), examples=12)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Place(server.url(request.getfixturevalue("migrated_database")), None, examples=6)


def test_state_files_and_effects_move_together(place: Place) -> None:
    """In a soak again and again instead of all at once: hypothesis remembers every choice of a run."""
    machine = type("Machine", (TimeTravelMachine,), {"place": place})
    for _ in range(50 if SOAK else 1):
        run_machine(machine, settings=settings(max_examples=100 if SOAK else place.examples, stateful_step_count=20))
