"""A process that writes steps as fast as it can, says which ones are committed, and is killed in the middle of it.

Started once, it forks a writer for every job (a line of JSON) that it reads: a fork begins without the second that
Python needs to import everything, and has no connection that was opened before. Lines that it writes:

    started PID                 a writer runs
    acknowledged {…}            this checkpoint is committed
    unavailable MESSAGE         the database cannot be reached; the writer goes on when it can be
    failed TRACEBACK            something else went wrong
    ended                       the writer is gone
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any

import tests.crash.preloaded  # noqa: F401
from tests.run_writer import RunWriter
from wtb.application.runs.steps import Position
from wtb.bootstrap import Services, bootstrap
from wtb.domain.errors import ExecutionNotFound, StorageUnavailable
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.state import Append, Change, DeleteKey, SetValue, Splice, State, StateDelta
from wtb.infrastructure.sql.sqlite import SqliteDatabase
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import Settings

WORKFLOW = {"name": "crash", "version": "1", "nodes": []}
RETRY_S = 0.02


def input_of_run() -> dict[str, Any]:
    return {"constant": "c" * 20_000, "messages": [], "log": []}


def delta_at(step: int, state: State) -> StateDelta:
    """What a step changes: always the same, so that a reader knows what each checkpoint must hold.

    Inline appends, chunks, blobs and splices, so much that every few steps write a keyframe and seal a list.
    """
    chance = random.Random(step)
    message = {"step": step, "text": chance.choice("abc") * chance.randrange(3_500)}
    changes: dict[str, tuple[Change, ...]] = {"messages": (Append((message,)),), "last": (SetValue(step),)}
    length = state.list_length("messages") or 0
    if step % 4 == 0:
        changes["blob"] = (SetValue(chance.randbytes(chance.randrange(100, 60_000))),)
    if step % 6 == 0:
        changes["log"] = (Append(tuple(chance.randbytes(2_000) for _ in range(chance.randrange(1, 60)))),)
    if step % 9 == 0 and length > 2:
        changes["messages"] = (Append((message,)), Splice(length // 2, 1, ("spliced", step)))
    if step % 14 == 0:
        changes["blob"] = (DeleteKey(),)
    if step % 50 == 0:
        changes |= {"messages": (SetValue([message]),), "log": (SetValue([]),)}
    return StateDelta(changes)


def say(line: str) -> None:
    """Write a line at once and whole."""
    os.write(1, f"{line}\n".encode())


def position_of(services: Services, execution_id: ExecutionId) -> tuple[Position, State, int]:
    """Where the run stands, its state there, and how often the node was visited."""
    with services.storage.unit_of_work(readonly=True) as uow:
        history = uow.checkpoints.load_history(execution_id)
        head = history.latest()
        assert head is not None
        at = Position(execution=uow.executions.get(execution_id), branch=history.branch(), head=head)
        return at, uow.checkpoints.load(head.id).state, history.visits().get("node", 0)


def acknowledge(at: Position) -> None:
    head = at.head
    facts = {"id": head.id, "step": head.step, "state_hash": head.state_hash.hex(), "hash": head.hash.hex()}
    say(f"acknowledged {json.dumps(facts)}")


def write(services: Services, job: Mapping[str, Any]) -> None:
    """Start the run or continue it, for so many steps; `paced`: each when a line comes."""
    recorder = RunWriter(services.storage, services.clock, services.ids)
    try:
        at, state, visit = position_of(services, job["run"])
    except ExecutionNotFound:
        at = recorder.start(WORKFLOW, input_of_run(), execution_id=job["run"])
        state, visit = State(input_of_run()), 0
        acknowledge(at)
    if at.execution.status is ExecutionStatus.PENDING:  # killed between its creation and its start
        at = recorder.begin(at, owner=None)
    if job["dies_at"]:
        die_at(services, job["dies_at"])
    for number in range(visit + 1, visit + 1 + job["steps"]):
        if job["paced"] and not sys.stdin.readline():
            return
        delta = delta_at(at.head.step + 1, state)
        at = recorder.complete(at, recorder.node_run(at, "node", number), delta, returned={"last": number})
        state = state.apply(delta)
        acknowledge(at)


def die_at(services: Services, number: int) -> None:
    """Kill this process right before SQLite executes its statement of this number, counted from now on."""
    storage = services.storage
    assert isinstance(storage, SqlStorage)
    numbers = itertools.count(1)

    def count(statement: str) -> None:
        if next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    database = storage.database
    assert isinstance(database, SqliteDatabase)
    opened = database._open

    def watched() -> sqlite3.Connection:
        connection = opened()
        connection.set_trace_callback(count)
        return connection

    database._open = watched  # type: ignore[method-assign]
    database.close()  # those that are open already are not watched


def run(job: Mapping[str, Any]) -> None:
    """Write, and when the database goes away, wait for it and write on."""
    while True:
        try:
            with bootstrap(Settings(**job["settings"])) as services:
                if job["only_open"]:
                    return
                write(services, job)
                return
        except StorageUnavailable as error:
            say(f"unavailable {' '.join(str(error).split())}")
            time.sleep(RETRY_S)


def serve() -> None:
    forked = 0
    for line in sys.stdin:
        if forked:
            os.waitpid(forked, 0)
        pid = os.fork()
        if pid == 0:
            try:
                say(f"started {os.getpid()}")
                run(json.loads(line))
            except BaseException:  # noqa: BLE001  the test shows it
                say(f"failed {json.dumps(traceback.format_exc())}")
            finally:
                os._exit(0)
        # Reaped only when the next line comes: until then nobody else gets the pid that the test may kill.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        say("ended")
        forked = pid


if __name__ == "__main__":
    serve()
