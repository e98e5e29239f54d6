"""Pruning and sweeping that end anywhere: what is left is whole, and doing it again finishes it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.upkeep import World
from wtb.application.upkeep import retention
from wtb.domain.ports import Storage
from wtb.domain.state import Append, StateDelta
from wtb.infrastructure import unit_of_work
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.upkeep import ledger
from wtb.testing.fakes import CrashPoints


class _End(BaseException):
    """What nothing catches."""


def _end() -> None:
    raise _End


@pytest.fixture
def world(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A run with files and a fork, pruned and swept in many small transactions."""
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(ledger.batches, "__defaults__", (3,))
    return World(storage, tmp_path, keep_last=1)


def tell(world: World) -> None:
    at = world.start(items=["0"])
    for number in range(8):
        files = {"large": b"%d" % number * 9_000, "small": b"%d" % number}
        at = world.step(at, StateDelta.of(items=Append((f"{number} " * 900,))), files)
    with world.storage.unit_of_work(readonly=True) as uow:
        fourth = uow.checkpoints.load_history(at.execution.id).lineage()[4]
    world.step(world.fork_run(fourth), StateDelta.of(items=Append(("fork",))), {"small": b"fork"})


def passing(points: CrashPoints, patch: pytest.MonkeyPatch) -> None:
    """Pass a point before and after every commit and every removal of an object."""

    def around(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def passed(*args: Any, **more: Any) -> Any:
            points.reach(f"before {name}")
            result = function(*args, **more)
            points.reach(f"after {name}")
            return result

        return passed

    commits = unit_of_work.TransactionalUnitOfWork
    patch.setattr(commits, "commit", around("commit", commits.commit))
    patch.setattr(MemoryObjectStore, "delete", around("delete", MemoryObjectStore.delete))


def upkeep(world: World) -> None:
    list(world.retention.prune())
    world.sweep()


def ends(world: World) -> Iterator[tuple[str, int]]:
    points = CrashPoints(_end)
    with pytest.MonkeyPatch.context() as patch:
        passing(points, patch)
        upkeep(world)
    for name, count in points.passed.items():
        yield from ((name, number) for number in range(1, count + 1))


def test_wherever_it_ends_the_rest_is_whole_and_the_next_time_finishes_it(world: World) -> None:
    tell(world)
    places = list(ends(world))
    assert len(places) > 20
    tried = places if os.environ.get("WTB_SOAK") else random.Random(1).sample(places, 8)
    for name, number in tried:
        tell(world)
        with pytest.MonkeyPatch.context() as patch, suppress(_End):
            passing(CrashPoints(_end, at=name, passing=number), patch)
            upkeep(world)
        assert world.faults() == []
        world.check()
    upkeep(world)
    assert world.prune() == 0
    assert not any(world.sweep())
    world.check()
