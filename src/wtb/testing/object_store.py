"""The contract of ObjectStore: a subclass gives the fixture `objects`, an empty store on the clock of this machine."""

from __future__ import annotations

import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest

from wtb.domain.errors import ObjectNotFound
from wtb.domain.ports import ObjectStore, StoredObject

WAIT_S = 30.0
SIZES = (0, 1, 4096, 4097, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 1 << 20, (1 << 20) + 64 * 1024, 5_000_000)


def content_of(size: int) -> bytes:
    """Return a content of this size in which no two blocks are alike."""
    return b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(size // 32 + 1))[:size]


def read(objects: ObjectStore, digest: bytes) -> bytes:
    """Read a whole object."""
    with objects.open(digest) as stream:
        return stream.read()


def put(objects: ObjectStore, content: bytes) -> StoredObject:
    """Put a content."""
    return objects.put(io.BytesIO(content))


class _Drip(io.BytesIO):
    """A stream that gives a few bytes at a time, as a socket may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, 1000) if size is not None and size > 0 else size)


class _Broken(io.BytesIO):
    """A stream that fails in the middle."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or self.tell() > 100_000:
            raise RuntimeError("the source failed")
        return super().read(size)


def _listed(objects: ObjectStore) -> set[StoredObject]:
    return set(objects.list_objects(unused_since=datetime.now(UTC) + timedelta(hours=1)))


class ObjectStoreContract:
    """What every object store does."""

    @pytest.mark.parametrize("size", SIZES)
    def test_a_content_comes_back_by_its_sha256(self, objects: ObjectStore, size: int) -> None:
        content = content_of(size)
        stored = put(objects, content)
        objects.sync()
        assert stored == (hashlib.sha256(content).digest(), size)
        assert read(objects, stored.digest) == content

    def test_a_stream_may_give_a_few_bytes_at_a_time(self, objects: ObjectStore) -> None:
        content = content_of(100_000)
        stored = objects.put(_Drip(content))
        assert stored == (hashlib.sha256(content).digest(), len(content))
        assert read(objects, stored.digest) == content

    def test_the_same_content_is_kept_once(self, objects: ObjectStore) -> None:
        for size in (10, 10, 200_000, 200_000, 3_000_000, 3_000_000):
            put(objects, content_of(size))
        assert {stored.size for stored in _listed(objects)} == {10, 200_000, 3_000_000}

    def test_a_content_may_be_kept_under_a_digest_that_the_caller_vouches_for(self, objects: ObjectStore) -> None:
        stored = put(objects, content_of(5_000_000))
        objects.put_as(stored.digest, b"what stands for it")
        objects.sync()
        assert read(objects, stored.digest) == b"what stands for it"
        assert _listed(objects) == {StoredObject(stored.digest, 18)}
        objects.put_as(stored.digest, b"what stands for it")
        assert not objects.delete(stored.digest, unused_since=datetime.now(UTC) - timedelta(hours=1))

    def test_an_unknown_object_is_named(self, objects: ObjectStore) -> None:
        with pytest.raises(ObjectNotFound, match="abab"):
            objects.open(b"\xab" * 32)

    def test_a_source_that_fails_leaves_nothing(self, objects: ObjectStore) -> None:
        with pytest.raises(RuntimeError, match="the source failed"):
            objects.put(_Broken(content_of(5_000_000)))
        assert _listed(objects) == set()

    def test_a_deleted_object_is_gone_and_can_be_put_again(self, objects: ObjectStore) -> None:
        stored, other = put(objects, b"x"), put(objects, b"y")
        objects.delete(stored.digest)
        objects.delete(stored.digest)
        assert _listed(objects) == {other}
        with pytest.raises(ObjectNotFound):
            objects.open(stored.digest)
        assert read(objects, put(objects, b"x").digest) == b"x"

    def test_a_reader_keeps_what_is_deleted_meanwhile(self, objects: ObjectStore) -> None:
        stored = put(objects, b"x" * 10)
        with objects.open(stored.digest) as stream:
            objects.delete(stored.digest)
            assert stream.read() == b"x" * 10

    def test_what_was_put_lately_is_not_listed_as_unused(self, objects: ObjectStore) -> None:
        put(objects, b"x")
        put(objects, content_of(100_000))
        assert list(objects.list_objects(unused_since=datetime.now(UTC) - timedelta(hours=1))) == []
        assert len(_listed(objects)) == 2

    def test_what_was_put_lately_is_not_deleted_as_unused(self, objects: ObjectStore) -> None:
        stored = put(objects, b"x" * 10)
        assert not objects.delete(stored.digest, unused_since=datetime.now(UTC) - timedelta(hours=1))
        assert read(objects, stored.digest) == b"x" * 10
        assert objects.delete(stored.digest, unused_since=datetime.now(UTC) + timedelta(hours=1))
        assert not objects.delete(stored.digest, unused_since=datetime.now(UTC) + timedelta(hours=1))
        assert not objects.delete(stored.digest)
        assert _listed(objects) == set()

    def test_whole_objects_are_no_leftovers(self, objects: ObjectStore) -> None:
        stored = put(objects, content_of(100_000))
        assert objects.discard_unfinished(unused_since=datetime.now(UTC) + timedelta(hours=1)) == 0
        assert _listed(objects) == {stored}

    def test_of_those_who_put_and_those_who_sweep_at_once_the_first_win(self, objects: ObjectStore) -> None:
        """Whoever has put an object can read it, however eager the sweep of those that are unused."""
        content, barrier = content_of(1_000), Barrier(3)

        def sweep() -> None:
            barrier.wait(WAIT_S)
            for _ in range(200):
                objects.delete(digest, unused_since=datetime.now(UTC) - timedelta(seconds=60))

        def keep(_: int) -> None:
            barrier.wait(WAIT_S)
            for _ in range(200):
                assert read(objects, put(objects, content).digest) == content

        digest = put(objects, content).digest
        with ThreadPoolExecutor(3) as threads:
            sweeping = threads.submit(sweep)
            list(threads.map(keep, range(2)))
            sweeping.result(WAIT_S)

    def test_threads_that_put_the_same_content_do_not_disturb_each_other(self, objects: ObjectStore) -> None:
        barrier = Barrier(4)

        def work(number: int) -> set[StoredObject]:
            barrier.wait(WAIT_S)
            stored = {put(objects, content_of(size)) for size in (10, 70_000, 2_000_000, 100 + number)}
            objects.sync()
            return stored

        with ThreadPoolExecutor(4) as threads:
            found = set[StoredObject]().union(*threads.map(work, range(4)))
        assert _listed(objects) == found
        assert all(read(objects, stored.digest) == content_of(stored.size) for stored in found)
