"""Objects that several machines reach: in the database, in S3, and a clear refusal where a worker cannot read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Barrier, Thread

import pytest

import wtb
from tests.s3_server import S3Server
from tests.services import PostgresServer
from wtb.domain.errors import InvalidInput, MissingLibrary, StorageUnavailable
from wtb.domain.ports import Storage
from wtb.infrastructure.files.remote_contents import RemoteContents
from wtb.infrastructure.sql.objects import BUFFER_BYTES, SqlObjectStore
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.system import SystemClock
from wtb.loading import load_workflow
from wtb.settings import load_settings
from wtb.testing.fakes import FakeClock

LATER = timedelta(days=1)


@pytest.fixture(params=["database", "s3", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each place for objects in turn, empty."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_url"))
    return "database" if request.param == "database" else f"memory://{tmp_path.name}"


def stored(storage: Storage, place: str, clock: FakeClock | SystemClock) -> SqlObjectStore:
    assert isinstance(storage, SqlStorage)
    return SqlObjectStore(storage.database, clock, None if place == "database" else RemoteContents(place))


@pytest.mark.parametrize("storage", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("place", ["database", "memory"], indirect=True)
def test_what_was_put_again_survives_a_sweep_at_the_same_moment(storage: Storage, place: str) -> None:
    long_ago = stored(storage, place, FakeClock())
    now = stored(storage, place, SystemClock())
    before = datetime.now(UTC) - timedelta(minutes=1)
    barrier = Barrier(2)

    def sweep(digest: bytes) -> None:
        barrier.wait(30)
        now.delete(digest, unused_since=before)

    def put(content: bytes) -> bytes:
        barrier.wait(30)
        digest = now.put(BytesIO(content)).digest
        now.sync()
        return now.open(digest).read()

    with ThreadPoolExecutor(2) as threads:
        for number in range(20):
            content = b"content %d" % number
            digest = long_ago.put(BytesIO(content)).digest
            long_ago.sync()
            swept, read = threads.submit(sweep, digest), threads.submit(put, content)
            assert read.result(30) == content
            swept.result(30)
            assert now.open(digest).read() == content


class InterruptedSweep(RemoteContents):
    """Something happens between the two halves of a sweep: its row is gone, its content is still there."""

    def remove(self, place: str) -> None:
        self.meanwhile()
        super().remove(place)

    def meanwhile(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_a_slow_sweep_does_not_delete_what_was_put_again_meanwhile(
    storage: Storage, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(storage, SqlStorage)
    sweeping = SqlObjectStore(storage.database, SystemClock(), InterruptedSweep(s3_url))
    putting = stored(storage, s3_url, SystemClock())
    digest = putting.put(BytesIO(b"content")).digest
    putting.sync()

    def put_again(_: InterruptedSweep) -> None:
        putting.put(BytesIO(b"content"))
        putting.sync()

    monkeypatch.setattr(InterruptedSweep, "meanwhile", put_again)
    assert sweeping.delete(digest)
    assert putting.open(digest).read() == b"content"


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_contents_that_a_kill_left_in_s3_are_removed_after_a_while(storage: Storage, s3_url: str) -> None:
    objects = stored(storage, s3_url, SystemClock())
    kept = objects.put(BytesIO(b"kept"))
    objects.sync()
    name = "cd" * 31
    RemoteContents(s3_url).write({f"ab/{name}-0123456789abcdef": b"left", "ab/notes.txt": b"not ours"})
    now = datetime.now(UTC)
    assert objects.discard_unfinished(unused_since=now - LATER) == 0
    assert objects.discard_unfinished(unused_since=now + LATER) == 1
    assert objects.discard_unfinished(unused_since=now + LATER) == 0
    assert RemoteContents(s3_url).find("ab/notes.txt") == b"not ours"
    assert objects.open(kept.digest).read() == b"kept"


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_a_deleted_object_leaves_nothing_in_s3(storage: Storage, s3_url: str) -> None:
    objects = stored(storage, s3_url, SystemClock())
    digest = objects.put(BytesIO(b"x" * 5_000)).digest
    objects.sync()
    assert objects.delete(digest)
    assert list(RemoteContents(s3_url).list_places()) in ([], [set()])


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_files_stored_in_the_database_are_still_read_after_the_change_to_s3(storage: Storage, s3_url: str) -> None:
    before = stored(storage, "database", SystemClock())
    digest = before.put(BytesIO(b"old")).digest
    before.sync()
    after = stored(storage, s3_url, SystemClock())
    assert after.open(digest).read() == b"old"
    assert after.put(BytesIO(b"old")).digest == digest
    after.sync()
    assert before.open(digest).read() == b"old"


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_small_contents_are_written_together_and_much_is_written_at_once(storage: Storage) -> None:
    objects = stored(storage, "database", SystemClock())
    other = stored(storage, "database", SystemClock())
    everything = datetime.now(UTC) + LATER
    objects.put(BytesIO(b"small"))
    assert list(other.list_objects(unused_since=everything)) == []
    objects.put(BytesIO(bytes(BUFFER_BYTES)))
    assert len(list(other.list_objects(unused_since=everything))) == 2


def test_a_stream_without_end_is_refused(sqlite_folder: Path) -> None:
    class Endless(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return bytes(size or 0)

        def seekable(self) -> bool:
            return False

    with wtb.Bench(folder=sqlite_folder, objects="database") as bench, pytest.raises(StorageUnavailable, match="64 MB"):
        bench.services.objects.put(Endless())


@pytest.fixture
def quiet_variables(monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> pytest.MonkeyPatch:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


class TestErrorsOfS3:
    def test_a_missing_bucket_is_named(self, quiet_variables: pytest.MonkeyPatch) -> None:
        with pytest.raises(StorageUnavailable, match=r"s3://nowhere/wtb: .*not exist; create the bucket, or correct"):
            RemoteContents("s3://nowhere/wtb").write({"ab/c": b"x"})

    def test_missing_credentials_say_what_to_set(self, quiet_variables: pytest.MonkeyPatch) -> None:
        quiet_variables.delenv("AWS_ACCESS_KEY_ID")
        quiet_variables.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(StorageUnavailable, match=r"Unable to locate credentials; set AWS_ACCESS_KEY_ID"):
            RemoteContents("s3://bucket/wtb").write({"ab/c": b"x"})

    def test_a_service_out_of_reach_is_told_and_the_keys_are_not(self, quiet_variables: pytest.MonkeyPatch) -> None:
        quiet_variables.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with pytest.raises(StorageUnavailable, match="check the network and the address") as error:
            RemoteContents("s3://bucket/wtb").write({"ab/c": b"x"})
        assert "testing-secret" not in str(error.value)

    def test_an_overloaded_service_is_tried_a_few_times(self, quiet_variables: pytest.MonkeyPatch) -> None:
        requests = []

        class Overloaded(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                requests.append(self.path)
                self.send_error(503)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Overloaded) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            quiet_variables.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
            with pytest.raises(StorageUnavailable, match="the service is overloaded: try again later"):
                RemoteContents("s3://bucket/wtb").write({"ab/c": b"x"})
            server.shutdown()
        assert 1 < len(requests) <= 10

    def test_an_unknown_protocol_or_library_is_told(self) -> None:
        with pytest.raises(InvalidInput, match="fsspec does not know nothing://"):
            RemoteContents("nothing://x")
        with pytest.raises(MissingLibrary, match="gs://bucket need gcsfs: pip install gcsfs"):
            RemoteContents("gs://bucket")

    def test_without_fsspec_the_error_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch, sqlite_folder: Path
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingLibrary, match=r"pip install 'workflow-test-bench\[s3\]'"):
            wtb.Bench(folder=sqlite_folder, objects="s3://bucket/wtb")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("somewhere", "no place for objects; use database"),
        ("file:///data", "write folder:///data"),
        ("folder://data", "by its whole path"),
        ("s3://key:hunter2@bucket/x", "holds a password"),
        ("s3://bucket/x?secret=hunter2", "holds a password or options"),
    ],
)
def test_a_wrong_place_is_refused_without_repeating_a_password(value: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as error:
        load_settings(objects=value)
    assert "hunter2" not in str(error.value)


def files_of(content: bytes) -> wtb.Workflow:
    flow = wtb.Workflow("files")

    @flow.node(start=True)
    def write(state: dict[str, object], ctx: wtb.Context) -> dict[str, object]:
        (ctx.workspace / "large.bin").write_bytes(content)
        return {"written": True}

    @flow.node
    def change(state: dict[str, object], ctx: wtb.Context) -> dict[str, object]:
        (ctx.workspace / "large.bin").write_bytes(content[::-1])
        return {"changed": True}

    flow.edge("write", "change")
    return flow


@pytest.fixture
def team_url(postgres: PostgresServer, migrated_database: str) -> str:
    """The database that several machines use."""
    return postgres.url(migrated_database)


@pytest.mark.parametrize("size", [100_000, 9_000_000])
def test_another_machine_with_a_folder_of_its_own_goes_on_with_the_files(
    place: str, size: int, team_url: str, tmp_path: Path
) -> None:
    content = os.urandom(size)
    flow = files_of(content)
    with wtb.Bench(team_url, folder=tmp_path / "here", objects=place) as bench:
        run = bench.run(flow, {}, break_before=["change"])
        assert run.status == "paused"
    with wtb.Bench(team_url, folder=tmp_path / "there", objects=place) as bench:
        run = bench.resume(run.id, flow)
        assert (run.workspace / "large.bin").read_bytes() == content[::-1]
        run.rollback(1)
        assert (run.workspace / "large.bin").read_bytes() == content
        assert bench.services.integrity.check().faults == ()


def test_a_run_goes_on_after_its_bucket_was_away_in_the_middle_of_a_step(
    s3: S3Server, s3_url: str, sqlite_folder: Path
) -> None:
    bucket = s3_url.removeprefix("s3://").partition("/")[0]
    flow = files_of(os.urandom(50_000))
    with wtb.Bench(folder=sqlite_folder, objects=s3_url, checkpoint_failure="fatal") as bench:
        s3.delete_bucket(bucket)
        run = bench.run(flow, {})
        assert run.status == "failed"
        assert "create the bucket, or correct the setting `objects`" in str(run.error)
        assert run.state == {}
        s3.create_bucket(bucket)
        run = run.resume()
        assert (run.status, run.state) == ("completed", {"written": True, "changed": True})
        assert bench.services.integrity.check().faults == ()


class TestUpkeep:
    """What `wtb prune` and `wtb doctor` do, wherever the objects lie."""

    @pytest.fixture
    def bench(self, place: str, sqlite_folder: Path) -> Iterator[wtb.Bench]:
        with wtb.Bench(folder=sqlite_folder, objects=place, sweep_grace_s=0) as bench:
            yield bench

    def test_files_of_deleted_runs_are_swept_and_others_stay(self, bench: wtb.Bench) -> None:
        kept = bench.run(files_of(os.urandom(9_000_000)), {})
        gone = bench.run(files_of(os.urandom(9_000_000)), {})
        size = len(list(bench.services.objects.list_objects(unused_since=datetime.now(UTC) + LATER)))
        gone.delete()
        swept = bench.services.garbage.sweep(timedelta(0))
        assert swept.objects == size / 2
        report = bench.services.integrity.check()
        assert (report.faults, report.garbage.objects) == ((), 0)
        assert (kept.workspace / "large.bin").stat().st_size == 9_000_000

    def test_doctor_finds_a_missing_file_and_takes_it_from_the_workspace(self, bench: wtb.Bench) -> None:
        content = os.urandom(50_000)
        run = bench.run(files_of(content), {})
        assert (run.workspace / "large.bin").read_bytes() == content[::-1]
        assert bench.services.objects.delete(sha256(content[::-1]).digest())
        [fault] = bench.services.integrity.check().faults
        assert "large.bin" in fault.problem
        assert "is missing" in fault.problem
        assert bench.services.integrity.repair().is_healthy
        assert bench.services.integrity.check().faults == ()


BATCH = """
from dataclasses import replace
from pathlib import Path

import wtb
from wtb.infrastructure.runners.processes import ProcessRunner

flow = wtb.Workflow("files")


@flow.node(start=True)
def write(state, ctx):
    (ctx.workspace / "large.bin").write_bytes(state["text"].encode() * 10_000)
    return {"size": (ctx.workspace / "large.bin").stat().st_size}


class OtherMachines(ProcessRunner):
    '''Workers as on other machines: each has a folder of its own.'''

    def assign(self, assignment):
        folder = Path(assignment.settings["folder"]).parent / "there"
        super().assign(replace(assignment, settings={**assignment.settings, "folder": str(folder)}))
"""


@pytest.mark.usefixtures("no_registered_classes")
class TestWorkersOnOtherMachines:
    @pytest.fixture
    def batch_file(self, empty_folder: Path) -> Path:
        path = empty_folder / "other_machines.py"
        path.write_text(BATCH)
        return path

    def test_a_worker_that_cannot_read_the_files_refuses(self, batch_file: Path, team_url: str) -> None:
        with (
            wtb.Bench(team_url, folder=batch_file.parent / "here") as bench,
            pytest.raises(InvalidInput, match=r"cannot read the files of this batch: no object .*set `objects` to"),
        ):
            self.run(bench, batch_file)

    def test_objects_in_the_database_need_no_shared_folder(self, batch_file: Path, team_url: str) -> None:
        with wtb.Bench(team_url, folder=batch_file.parent / "here", objects="database") as bench:
            result = self.run(bench, batch_file)
            assert [job.run.state["size"] for job in result.results] == [30_000, 30_000]
            assert (result.results[0].run.workspace / "large.bin").stat().st_size == 30_000
            assert bench.services.integrity.check().garbage.objects == 0  # the probe is gone too

    def run(self, bench: wtb.Bench, batch_file: Path) -> wtb.BatchResult:
        cases = [{"id": text, "input": {"text": text}} for text in ("abc", "xyz")]
        flow = load_workflow(f"{batch_file}:flow")
        return bench.batch(flow, cases=cases, runner=f"{batch_file}:OtherMachines", workers=2, evaluators=["latency_s"])


def test_results_do_not_depend_on_how_wtb_reaches_s3(
    s3_url: str, sqlite_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = files_of(os.urandom(50_000))
    with wtb.Bench(folder=sqlite_folder, objects=s3_url) as bench:
        for region, executed in (("eu-central-1", 2), ("eu-west-1", 0)):
            monkeypatch.setenv("AWS_DEFAULT_REGION", region)
            result = bench.batch(flow, cases=[{"id": "one", "input": {}}], evaluators=["latency_s"])
            assert (result.outside, result.sharing["executed"]) == ({}, executed)
