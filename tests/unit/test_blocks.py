"""Large files in blocks: what changed is stored, what is read is the file, and nothing is taken for what it is not."""

from __future__ import annotations

import hashlib
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.workspaces import described, workspaces_in, write
from wtb.application.workspaces import Workspaces
from wtb.domain.errors import DamagedData
from wtb.domain.files import TreeDelta, file_entry
from wtb.domain.ports import ObjectStore, StoredObject
from wtb.infrastructure.files.blocks import SIZES, BlockedObjects, BlockList, BlockSizes, BlockStream, find_blocks
from wtb.infrastructure.files.commits import FORMAT, WITH_BLOCKS
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.system import SystemClock
from wtb.testing.object_store import content_of

SMALL = BlockSizes(above_bytes=10_000, block_bytes=1_000)
LATER = timedelta(hours=1)


@pytest.fixture
def inner() -> MemoryObjectStore:
    return MemoryObjectStore(SystemClock())


@pytest.fixture
def objects(inner: MemoryObjectStore) -> BlockedObjects:
    return BlockedObjects(inner, SMALL)


def put(objects: ObjectStore, content: bytes) -> bytes:
    stored = objects.put(io.BytesIO(content))
    assert stored == (hashlib.sha256(content).digest(), len(content))
    return stored.digest


def read(objects: ObjectStore, digest: bytes) -> bytes:
    with objects.open(digest) as stream:
        return stream.read()


def listed(objects: ObjectStore) -> set[StoredObject]:
    return set(objects.list_objects(unused_since=datetime.now(UTC) + LATER))


@pytest.mark.parametrize("size", [0, 1, 9_999, 10_000, 10_001, 10_999, 11_000, 11_001, 20_000])
def test_a_content_of_any_size_comes_back_under_the_digest_of_the_whole(objects: BlockedObjects, size: int) -> None:
    content = content_of(size)
    digest = put(objects, content)
    assert read(objects, digest) == content
    blocks = find_blocks(objects, digest)
    assert sum(block.size for block in blocks) == (size if size > SMALL.above_bytes else 0)
    assert set(blocks) <= listed(objects)


def test_seven_changed_bytes_store_one_block_and_a_list(objects: BlockedObjects) -> None:
    content = content_of(100_500)
    put(objects, content)
    before = listed(objects)
    changed = content[:50_100] + b"changed" + content[50_107:]
    digest = put(objects, changed)
    (small, large) = sorted(stored.size for stored in listed(objects) - before)
    assert (small, large) == (1_000, len(BlockList(digest, 0, 0, (b"x" * 32,) * 101).encoded()))
    assert read(objects, digest) == changed


def test_blocks_that_are_there_are_marked_as_used(objects: BlockedObjects, inner: MemoryObjectStore) -> None:
    content = content_of(20_000)
    digest = put(objects, content)
    began = datetime.now(UTC)
    put(objects, content)
    assert not inner.delete(digest, unused_since=began)
    assert not any(inner.delete(block.digest, unused_since=began) for block in find_blocks(objects, digest))


def test_a_stream_that_cannot_tell_its_size_is_kept_as_one_object(objects: BlockedObjects) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    content = content_of(20_000)
    digest = objects.put(Pipe(content)).digest
    assert find_blocks(objects, digest) == ()
    assert read(objects, digest) == content


def test_a_whole_object_of_an_earlier_version_is_read_and_becomes_blocks_when_it_is_put_again(
    objects: BlockedObjects, inner: MemoryObjectStore
) -> None:
    content = content_of(20_000)
    digest = put(inner, content)
    assert read(objects, digest) == content
    put(objects, content)
    assert len(find_blocks(objects, digest)) == 20
    assert read(objects, digest) == content


def test_a_file_that_looks_like_a_list_of_blocks_is_a_file(objects: BlockedObjects) -> None:
    digest = put(objects, content_of(20_000))
    forged = BlockList(digest, 20_000, 1_000, (b"x" * 32,) * 20).encoded()
    assert read(objects, put(objects, forged)) == forged


def damaged_list(objects: MemoryObjectStore, digest: bytes) -> None:
    objects.put_as(digest, read(objects, digest)[:-40] + b"x" * 40)


def cut_list(objects: MemoryObjectStore, digest: bytes) -> None:
    objects.put_as(digest, read(objects, digest)[:50])


def missing_block(objects: MemoryObjectStore, digest: bytes) -> None:
    assert objects.delete(find_blocks(BlockedObjects(objects), digest)[3].digest)


def damaged_block(objects: MemoryObjectStore, digest: bytes) -> None:
    objects.put_as(find_blocks(BlockedObjects(objects), digest)[3].digest, b"x" * 1_000)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (damaged_list, "the list of blocks of object .* is damaged"),
        (cut_list, "the list of blocks of object .* is damaged"),
        (missing_block, "block 4 of 20 of object .* is missing"),
        (damaged_block, "'large' cannot be restored: its content .* is damaged"),
    ],
)
def test_what_is_damaged_is_not_restored_and_the_workspace_stays_as_it_was(
    tmp_path: Path, objects: BlockedObjects, inner: MemoryObjectStore, damage: object, problem: str
) -> None:
    assert callable(damage)
    workspaces: Workspaces = workspaces_in(tmp_path, objects=objects)
    folder = workspaces.path("run", "branch")  # type: ignore[arg-type]
    content = content_of(20_000)
    write(folder, {"large": content})
    commit = workspaces.snapshot(folder)
    write(folder, {"large": b"changed"})
    damage(inner, hashlib.sha256(content).digest())
    before = described(folder)
    with pytest.raises(DamagedData, match=problem):
        workspaces.restore(folder, commit)
    assert described(folder) == before


def test_a_workspace_is_restored_from_blocks(tmp_path: Path, objects: BlockedObjects) -> None:
    workspaces = workspaces_in(tmp_path, objects=objects)
    folder = workspaces.path("run", "branch")  # type: ignore[arg-type]
    write(folder, {"large": content_of(20_345)})
    before = described(folder)
    commit = workspaces.snapshot(folder)
    (folder / "large").write_bytes(b"changed")
    workspaces.restore(folder, commit)
    assert described(folder) == before


def test_a_stream_of_blocks_is_given_to_whoever_reads_it_in_any_way(objects: BlockedObjects) -> None:
    content = content_of(12_345)
    digest = put(objects, content)
    with objects.open(digest) as stream:
        assert isinstance(stream, BlockStream)
        assert stream.read(1_500) == content[:1_000], "up to the end of a block, as a pipe would"
        assert stream.read(700) == content[1_000:1_700]
        assert stream.read() == content[1_700:]
        assert stream.read(1) == b""
    with objects.open(digest) as stream:
        assert hashlib.file_digest(stream, "sha256").digest() == digest  # type: ignore[arg-type]


def test_a_version_that_does_not_know_blocks_refuses_a_commit_that_needs_them() -> None:
    from tests.workspaces import memory_storage

    storage = memory_storage()
    with storage.unit_of_work() as uow:
        small = uow.files.save(None, TreeDelta({"a": file_entry("a", 0o644, SIZES.above_bytes, b"x" * 32)}))
        large = uow.files.save(small, TreeDelta({"b": file_entry("b", 0o644, SIZES.above_bytes + 1, b"x" * 32)}))
        uow.commit()
    with storage.unit_of_work(readonly=True) as uow:
        formats = {row.id: row.format for row in uow.upkeep_rows().file_commits()}
        assert sorted(uow.files.get(large)) == ["a", "b"]
    assert formats == {small: FORMAT, large: WITH_BLOCKS}
