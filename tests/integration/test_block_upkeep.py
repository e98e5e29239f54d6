"""`wtb prune` and `wtb doctor` over files that are kept in blocks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.upkeep import World
from wtb.application.runs.steps import Position
from wtb.domain.errors import DamagedData
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Storage
from wtb.domain.state import StateDelta
from wtb.infrastructure.files.blocks import BlockedObjects, BlockSizes, find_blocks
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.testing.object_store import content_of

pytestmark = pytest.mark.parametrize("storage", ["memory", "sqlite"], indirect=True)

SMALL = BlockSizes(above_bytes=10_000, block_bytes=5_000)
CONTENT = content_of(52_000)
CHANGED = CONTENT[:20_010] + b"changed" + CONTENT[20_017:]


class BlockWorld(World):
    """A run with a large file of which a step changes seven bytes."""

    inner: MemoryObjectStore
    at: Position

    def blocks(self, content: bytes) -> list[bytes]:
        assert self.objects is not None
        return [block.digest for block in find_blocks(self.objects, hashlib.sha256(content).digest())]


@pytest.fixture
def world(storage: Storage, tmp_path: Path) -> BlockWorld:
    inner = MemoryObjectStore(storage.clock)  # type: ignore[attr-defined]
    world = BlockWorld(storage, tmp_path, objects=BlockedObjects(inner, SMALL), sizes=SMALL)
    world.inner = inner
    at = world.step(world.start(), StateDelta(), {"large": CONTENT})
    world.at = world.step(at, StateDelta(), {"large": CHANGED})
    return world


def test_blocks_of_files_that_are_needed_are_not_swept(world: BlockWorld) -> None:
    assert len({*world.blocks(CONTENT), *world.blocks(CHANGED)}) == 12
    assert not any(world.sweep())
    world.check()


def test_blocks_go_with_the_last_file_that_they_are_part_of(world: BlockWorld) -> None:
    only_old = set(world.blocks(CONTENT)) - set(world.blocks(CHANGED))
    old = world.copies[world.at.head.parent_id].checkpoint  # type: ignore[index]
    with world.storage.unit_of_work() as uow:
        uow.checkpoints.delete([old.id])
        uow.commit()
    del world.copies[old.id]
    swept = world.sweep()
    assert (swept.objects, len(only_old)) == (2, 1)
    assert world.faults() == []
    world.check()


def test_nothing_is_swept_while_a_list_of_blocks_is_damaged(world: BlockWorld) -> None:
    digest = hashlib.sha256(CONTENT).digest()
    with world.inner.open(digest) as stream:
        world.inner.put_as(digest, stream.read()[:-1])
    with pytest.raises(DamagedData, match="the list of blocks"):
        world.sweep()


def break_block(world: BlockWorld) -> bytes:
    block = world.blocks(CHANGED)[4]
    world.inner.put_as(block, b"x" * 5_000)
    return block


def lose_block(world: BlockWorld) -> bytes:
    block = world.blocks(CHANGED)[4]
    world.inner.delete(block)
    return block


def break_list(world: BlockWorld) -> bytes:
    digest = hashlib.sha256(CHANGED).digest()
    world.inner.put_as(digest, b"x")
    return digest


def swap_blocks(world: BlockWorld) -> bytes:
    """Make a list that is whole in itself, and not that of the file."""
    digest = hashlib.sha256(CHANGED).digest()
    with BlockedObjects(world.inner).open(digest) as stream:
        blocks = stream.blocks  # type: ignore[attr-defined]
    world.inner.put_as(digest, blocks._replace(blocks=tuple(reversed(blocks.blocks))).encoded())
    return digest


@pytest.mark.parametrize("damage", [break_block, lose_block, break_list, swap_blocks])
def test_damage_is_named_with_the_file_and_its_run_and_healed_from_the_workspace(
    world: BlockWorld, damage: object
) -> None:
    assert callable(damage)
    digest = damage(world)
    fault = next(fault for fault in world.faults() if fault.what == digest.hex())
    part = "a block of the file 'large'" if damage in (break_block, lose_block) else "the file 'large'"
    assert (fault.kind, fault.runs) == (FaultKind.OBJECT, (world.at.execution.id,))
    assert part in fault.problem
    assert all(each.repaired for each in world.integrity.repair().faults)
    assert world.faults() == []
    world.check()
