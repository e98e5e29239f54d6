"""What tasks wrote on its way: with the checkpoint that follows, or by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from time import sleep

import pytest

from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.infrastructure.langgraph.pending_writes import PendingWrite
from wtb.infrastructure.langgraph.saver.write_buffer import Place, TaskWrites, WriteBuffer, settle

LONG_S = 3600.0
"""Longer than a test may take: whoever waits that long fails it."""


def place(step: int, thread_id: str = "thread") -> Place:
    return Place(thread_id, "", f"checkpoint-{step}")


def write(at: Place, task: str = "task") -> PendingWrite:
    return PendingWrite(
        execution_id=ExecutionId(at.thread_id),
        checkpoint_id=CheckpointId(at.checkpoint_id),
        task_id=task,
        number=0,
        path="",
        channel="text",
        value="said",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class Graph:
    """Hands in what tasks write, in threads as LangGraph does, and remembers what was stored by itself."""

    def __init__(self, linger_s: float) -> None:
        self.waiting = WriteBuffer(linger_s)
        self.alone: list[PendingWrite] = []

    def task(self, at: Place, name: str = "task", *, wait: bool = True) -> threading.Thread:
        arguments = (at, [write(at, name)], self.alone.extend)
        thread = threading.Thread(target=self.waiting.store, args=arguments, kwargs={"wait": wait}, daemon=True)
        thread.start()
        return thread

    def taken(self, at: Place) -> list[TaskWrites]:
        """Take what waits for the checkpoint after this one, once something does."""
        while not (handed := self.waiting.take(at)):
            sleep(0.001)
        return handed

    def wait_for_a_task(self, at: Place) -> None:
        while at not in self.waiting._waiting:
            sleep(0.001)


def ended(thread: threading.Thread) -> bool:
    thread.join(30)
    return not thread.is_alive()


def test_writes_go_with_the_checkpoint_that_follows() -> None:
    graph = Graph(LONG_S)
    for step in range(3):
        task = graph.task(place(step))
        handed = graph.taken(place(step))
        settle(handed)
        assert [each.writes for each in handed] == [[write(place(step))]]
        assert ended(task)
    assert graph.alone == []


def test_without_a_checkpoint_writes_are_stored_by_themselves() -> None:
    graph = Graph(0.01)
    assert ended(graph.task(place(0)))
    assert graph.alone == [write(place(0))]


def test_a_second_task_stores_those_of_the_first_with_its_own() -> None:
    graph = Graph(LONG_S)
    first = graph.task(place(0), "first")
    graph.wait_for_a_task(place(0))
    second = graph.task(place(0), "second")
    assert ended(first)
    assert ended(second)
    assert graph.alone == [write(place(0), "first"), write(place(0), "second")]


def test_tasks_after_a_parallel_superstep_do_not_wait() -> None:
    graph = Graph(LONG_S)
    assert ended(graph.task(place(0), "first", wait=False))
    assert ended(graph.task(place(0), "second", wait=False))
    graph.waiting.take(place(0))
    assert ended(graph.task(place(1)))


def test_an_error_or_a_question_does_not_wait() -> None:
    assert ended(Graph(LONG_S).task(place(0), wait=False))


def test_writes_that_come_after_their_checkpoint_was_followed_do_not_wait() -> None:
    graph = Graph(LONG_S)
    graph.waiting.take(place(0))
    assert ended(graph.task(place(0)))


def test_after_one_waited_in_vain_those_after_it_do_not_wait_but_other_threads_do() -> None:
    graph = Graph(0.01)
    assert ended(graph.task(place(0)))
    graph.waiting._linger_s = LONG_S
    for step in range(1, 40):
        graph.waiting.take(place(step - 1))
        assert ended(graph.task(place(step)))
    other = graph.task(place(0, "other"))
    settle(graph.taken(place(0, "other")))
    assert ended(other)
    assert write(place(0, "other")) not in graph.alone


def test_what_the_checkpoint_could_not_store_its_owner_stores() -> None:
    graph = Graph(LONG_S)
    task = graph.task(place(0))
    settle(graph.taken(place(0)), failed=True)
    assert ended(task)
    assert graph.alone == [write(place(0))]


def test_who_cannot_store_says_so_and_lets_the_others_do_it() -> None:
    graph = Graph(LONG_S)
    first = graph.task(place(0), "first")
    graph.wait_for_a_task(place(0))

    def full(writes: Sequence[PendingWrite]) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        graph.waiting.store(place(0), [write(place(0), "second")], full, wait=False)
    assert ended(first)
    assert graph.alone == [write(place(0), "first")]
