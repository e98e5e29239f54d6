"""After any mixture of steps, forks, pruning and sweeping, every checkpoint that is left is whole."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.upkeep import World, random_delta, random_files
from wtb.domain.checkpoint import Kind
from wtb.domain.ports import Storage

ACTIONS = 100
SEEDS = range(60 if os.environ.get("WTB_SOAK") else 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_after_pruning_loads_verifies_and_restores(storage: Storage, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(storage, tmp_path, keep_last=chance.randrange(5))
    world.start(items=["first"])
    for number in range(ACTIONS):
        at = chance.choice(world.ends)
        match chance.choice(
            ["step"] * 12 + ["fork", "fork", "fork run", "manual", "system", "prune", "sweep", "start"]
        ):
            case "step":
                files = random_files(chance, number) if chance.random() < 0.3 else None
                world.step(at, random_delta(chance, world.copies[at.head.id].state, number), files)
            case "fork":
                own = [id for id in world.living() if world.copies[id].checkpoint.execution_id == at.execution.id]
                if own:
                    world.fork(at, chance.choice(own), f"branch {number}")
            case "fork run":
                world.fork_run(world.copies[chance.choice(world.living())].checkpoint)
            case "manual" | "system" as kind:
                world.mark(at, Kind(kind))
            case "prune":
                world.prune()
            case "sweep":
                world.sweep()
            case "start":
                world.start(items=["first"])
    at = world.start()
    for number in range(world.keep_last + 3):
        at = world.step(at, random_delta(chance, world.copies[at.head.id].state, number), {"f": b"%d" % number})
    assert world.prune() > 0
    assert world.sweep().blobs > 0
    world.check()
    assert world.prune() == 0
    assert not any(world.sweep())
    assert world.faults() == []
    for index in range(len(world.ends)):
        at = world.ends[index]
        world.step(at, random_delta(chance, world.copies[at.head.id].state, -1), random_files(chance, -1))
    world.check()
    assert world.faults() == []
