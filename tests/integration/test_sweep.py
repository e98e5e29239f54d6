"""Mark and sweep: what nothing refers to goes after a grace period, and nothing else ever does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.upkeep import GRACE, World
from wtb.domain.checkpoint import NodeStatus
from wtb.domain.errors import DamagedData, ObjectNotFound
from wtb.domain.files import EMPTY_TREE, FileCommitId, diff
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import Storage, Swept
from wtb.domain.state import Append, SetValue, Splice, StateDelta
from wtb.domain.values import evolve
from wtb.infrastructure.checkpoints.cache import ManifestCache
from wtb.infrastructure.files.commits import TreeCache
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.infrastructure.upkeep.ledger import Ledger
from wtb.testing.file_commits import many, new_file, saved, tree_at

LARGE = "large " * 1_000


@pytest.fixture
def world(storage: Storage, tmp_path: Path) -> World:
    return World(storage, tmp_path, keep_last=1)


def delete_run(world: World, at: Any) -> None:
    with world.storage.unit_of_work() as uow:
        uow.checkpoints.delete_run(at.execution.id)
        uow.executions.delete(at.execution.id)
        uow.commit()


def test_nothing_is_collected_from_a_store_that_is_in_use(world: World) -> None:
    at = world.start(text=LARGE)
    for number in range(4):
        at = world.step(
            at, StateDelta.of(items=Append((f"{number} {LARGE}",))), {"f": b"%d" % number * 9_000, "g": b"x"}
        )
    assert world.sweep() == Swept()
    world.check()


def test_what_a_deleted_run_alone_used_goes_and_what_others_use_stays(world: World) -> None:
    one = world.start(text=LARGE, own="own " * 1_000)
    one = world.step(one, StateDelta(), {"shared": b"s" * 9_000, "own": b"o" * 9_000, "small": b"o"})
    other = world.start(text=LARGE)
    other = world.step(other, StateDelta(), {"shared": b"s" * 9_000})
    delete_run(world, one)
    world.copies = {id: copy for id, copy in world.copies.items() if copy.checkpoint.execution_id == other.execution.id}
    world.ends = [other]
    swept = world.sweep()
    assert (swept.blobs, swept.commits, swept.objects) == (2, 1, 1)
    assert swept.size_bytes > 9_000 + 4_000
    world.check()


def test_counting_says_what_a_sweep_collects_and_removes_nothing(world: World) -> None:
    at = world.start(text=LARGE)
    world.step(at, StateDelta(), {"f": b"f" * 9_000, "g": b"g"})
    delete_run(world, at)
    world.clock.advance(GRACE * 2)
    counted = world.garbage.count(GRACE)
    assert counted == world.garbage.count(GRACE)
    assert counted == world.garbage.sweep(GRACE)
    assert world.garbage.count(GRACE) == Swept()


def test_what_was_used_within_the_grace_period_stays(world: World) -> None:
    delete_run(world, world.start(text=LARGE))
    assert world.garbage.sweep(GRACE) == Swept()
    world.clock.advance(GRACE * 2)
    again = world.start(text=LARGE)
    delete_run(world, again)
    assert world.garbage.sweep(GRACE) == Swept()
    assert world.sweep().blobs == 1


def test_returned_values_are_kept(world: World) -> None:
    at = world.start()
    at = world.step(at, StateDelta(), returned={"raw": LARGE})
    assert world.sweep() == Swept()
    with world.storage.unit_of_work(readonly=True) as uow:
        assert uow.checkpoints.load(at.head.id).returned == {"node": {"raw": LARGE}}


def test_the_files_of_a_result_that_waits_for_its_barrier_are_kept(world: World) -> None:
    at = world.start()
    place = world.workspaces.path(at.execution.id, at.branch.id, "member")
    (place / "f").write_bytes(b"f" * 9_000)
    prepared = world.workspaces.prepare(place, None)
    run = world.recorder.node_run(at, "member", 1)
    finished = run.finished({"returned": {}, "file_commit": str(prepared.id)}, world.clock.now())
    world.recorder.keep_pending(at, finished, prepared.save)
    assert world.sweep() == Swept()
    assert list(tree_at(world.storage, prepared.id)) == ["f"]
    with world.storage.unit_of_work() as uow:
        uow.node_runs.save(evolve(finished.ended(NodeStatus.SKIPPED, world.clock.now()), pending=None))
        uow.commit()
    assert world.sweep()[1:3] == (1, 1)


def test_contents_that_every_kept_tree_has_replaced_go_though_their_commit_is_still_built_on(world: World) -> None:
    at = world.start()
    for number in range(5):
        at = world.step(at, StateDelta(), {"changes": b"%d" % number * 9_000, "stays": b"stays" * 2_000})
    assert world.prune() == 4
    swept = world.sweep()
    assert (swept.commits, swept.objects) == (0, 4)
    world.check()


def test_a_chain_of_commits_that_build_on_each_other_goes_whole(world: World) -> None:
    tree = many(30)
    commit: FileCommitId | None = None
    before = EMPTY_TREE
    for number in range(700):
        after = tree.apply(diff(tree, tree.apply(type(diff(tree, tree))({"x": new_file("x", str(number))}))))
        commit = saved(world.storage, commit, diff(before, after))
        before = after
    assert world.sweep().commits == 700
    assert world.sweep() == Swept()


def reopened(storage: Storage) -> Storage:
    """The same rows, as another process has them."""
    assert isinstance(storage, MemoryStorage | SqlStorage)
    parts: dict[str, Any] = {"codec": storage.codec, "clock": storage.clock, "bus": storage.bus}
    if isinstance(storage, SqlStorage):
        return SqlStorage(storage.database, **parts)
    other = MemoryStorage(**parts)
    other.tables = storage.tables
    return other


def test_a_commit_that_another_process_remembers_is_saved_again_after_it_was_collected(world: World) -> None:
    base = saved(world.storage, None, diff(EMPTY_TREE, many(3)))
    delta = diff(many(3), many(4))
    commit = saved(world.storage, base, delta)
    assert world.sweep().commits == 2
    assert saved(world.storage, base, delta) == commit
    assert tree_at(reopened(world.storage), commit) == many(4)


def test_a_commit_that_is_saved_again_keeps_what_it_was_built_on(world: World) -> None:
    base = saved(world.storage, None, diff(EMPTY_TREE, many(3)))
    commit = saved(world.storage, base, diff(many(3), many(4)))
    world.clock.advance(GRACE * 2)
    assert saved(world.storage, None, diff(EMPTY_TREE, many(4))) == commit
    assert world.garbage.sweep(GRACE).commits == 0
    assert tree_at(reopened(world.storage), commit) == many(4)


@pytest.mark.parametrize("change", ["splice", "append", "set"])
def test_a_step_on_a_cached_state_whose_chunks_were_collected_is_no_damage(world: World, change: str) -> None:
    """Another process rewrites a keyframe otherwise and sweeps; what is remembered here names chunks that are gone."""
    at = world.start(items=[])
    for number in range(80):
        at = world.step(at, StateDelta.of(items=Append((f"{number} " * 300,))))
    other = World(reopened(world.storage), world.folder)
    with other.storage.unit_of_work() as uow:
        rows = uow.upkeep_rows()  # type: ignore[attr-defined]
        for checkpoint_id, _ in list(rows.keyframes()):
            rows.drop_keyframe(checkpoint_id)
        uow.commit()
    assert other.sweep().blobs > 0
    changes: dict[str, StateDelta] = {
        "splice": StateDelta.of(items=Splice(3, 1, ("spliced",))),
        "append": StateDelta.of(items=Append(tuple(f"{number} " * 300 for number in range(80)))),
        "set": StateDelta.of(x=SetValue(1)),
    }
    for _ in range(3):
        at = world.step(at, changes[change])
    assert isinstance(world.storage, MemoryStorage | SqlStorage)
    world.storage._manifests = ManifestCache()
    world.check()


def test_a_damaged_row_stops_the_sweep_before_anything_is_removed(world: World) -> None:
    delete_run(world, world.start(text=LARGE))
    at = world.step(world.start(), StateDelta.of(x=SetValue(1)))
    _tamper_with_payload(world.storage, at.head.id)
    with pytest.raises(DamagedData, match=at.head.id):
        world.sweep()
    with world.storage.unit_of_work(readonly=True) as uow:
        assert len(list(uow.upkeep_rows().blobs())) == 1  # type: ignore[attr-defined]


def _tamper_with_payload(storage: Storage, checkpoint_id: CheckpointId) -> None:
    if isinstance(storage, MemoryStorage):
        rows = storage.tables.tables["checkpoints"].rows
        row, payload = rows[checkpoint_id]
        rows[checkpoint_id] = (row, payload[:-1] + b"\x07")
        return
    assert isinstance(storage, SqlStorage)
    with storage.unit_of_work() as uow:
        statement = "UPDATE wtb_checkpoints SET payload = ? WHERE id = ?"
        uow._sql.run(statement, (b"damaged", checkpoint_id))
        uow.commit()


def test_leftovers_of_killed_writers_are_removed_from_a_folder_of_objects(tmp_path: Path) -> None:
    objects = LocalObjectStore(tmp_path / "objects", durable=False)
    (tmp_path / "objects" / "tmp").mkdir(parents=True)
    old, new = tmp_path / "objects" / "tmp" / "old", tmp_path / "objects" / "tmp" / "new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7_200, time.time() - 7_200))
    assert objects.discard_unfinished(unused_since=datetime.now(UTC) - timedelta(hours=1)) == 1
    assert (old.exists(), new.exists()) == (False, True)


def test_an_object_whose_deletion_was_killed_is_still_there_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = LocalObjectStore(tmp_path / "objects", durable=False)
    digest = objects.put(BytesIO(b"content")).digest
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda path: sys.exit("killed"))
        with pytest.raises(SystemExit):
            objects.delete(digest)
    assert list(objects.list_objects(unused_since=tomorrow)) == []
    with objects.open(digest) as stream:
        assert stream.read() == b"content"
    objects.discard_unfinished(unused_since=tomorrow)
    assert [stored.digest for stored in objects.list_objects(unused_since=tomorrow)] == [digest]
    assert objects.delete(digest)
    with pytest.raises(ObjectNotFound):
        objects.open(digest)


def test_the_cache_of_trees_is_no_reason_to_leave_a_row_out(world: World) -> None:
    commit = saved(world.storage, None, diff(EMPTY_TREE, many(2)))
    assert isinstance(world.storage, MemoryStorage | SqlStorage)
    world.storage._trees = TreeCache()
    assert world.sweep().commits == 1
    assert saved(world.storage, None, diff(EMPTY_TREE, many(2))) == commit
    assert tree_at(reopened(world.storage), commit) == many(2)


@pytest.mark.parametrize("storage", ["memory", "sqlite"], indirect=True)
def test_a_damaged_blob_is_healed_when_the_same_content_is_saved_again(world: World) -> None:
    at = world.start(text=LARGE)
    with world.storage.unit_of_work() as uow:
        rows = uow.upkeep_rows()  # type: ignore[attr-defined]
        (blob,) = rows.blobs()
        rows.replace_blob(blob.address, b"damaged")
        uow.commit()
    with world.storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData):
        uow.checkpoints.load(at.head.id)
    world.start(text=LARGE)
    world.check()


class Interrupted(SweptGarbage):
    """A sweep during which something else happens: after it has looked, and before it removes anything."""

    meanwhile: Callable[[], Any]

    def _mark(self, ledger: Ledger) -> None:
        super()._mark(ledger)
        self.meanwhile()


def test_what_is_used_again_between_the_look_and_the_removal_stays(world: World) -> None:
    contents = {"small": b"small", "large": b"large" * 2_000}
    delete_run(world, world.step(world.start(text=LARGE), StateDelta(), contents))
    world.copies, world.ends = {}, []
    assert isinstance(world.storage, MemoryStorage | SqlStorage)
    assert world.objects is not None
    garbage = Interrupted(world.storage, world.objects, codec=world.storage.codec, clock=world.clock)
    garbage.meanwhile = lambda: world.step(world.start(text=LARGE), StateDelta(), contents)
    world.clock.advance(GRACE * 2)
    assert garbage.sweep(GRACE) == Swept()
    world.check()
    assert world.faults() == []


def test_what_is_made_between_the_look_and_the_removal_stays(world: World) -> None:
    at = world.step(world.start(items=["x"]), StateDelta(), {"f": b"f" * 9_000})
    assert isinstance(world.storage, MemoryStorage | SqlStorage)
    assert world.objects is not None
    garbage = Interrupted(world.storage, world.objects, codec=world.storage.codec, clock=world.clock)

    def go_on() -> None:
        after = at
        for number in range(60):
            files = {"g": b"%d" % number * 9_000} if number % 20 == 0 else None
            after = world.step(after, StateDelta.of(items=Append((f"{number} {LARGE}"[:3_000],))), files)
        world.prune()

    garbage.meanwhile = go_on
    world.clock.advance(GRACE * 2)
    garbage.sweep(GRACE)
    world.check()
    assert world.faults() == []
