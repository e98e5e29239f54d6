"""What is checked before and while Ray runs a batch: the package, the address, the project folder, the store."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from wtb.batches import default_workers
from wtb.domain.errors import InvalidInput
from wtb.domain.job_attempt import AttemptEnd, JobAttempt, RayIds
from wtb.domain.runner import Assignment
from wtb.domain.work_order import BatchCode
from wtb.infrastructure.runners import project_folder
from wtb.infrastructure.runners.project_folder import project_runtime
from wtb.infrastructure.runners.ray_cluster import RayCluster
from wtb.infrastructure.runners.ray_messages import BeginWork
from wtb.infrastructure.runners.shared_store import check_shared_store, machine_here
from wtb.runners import load_runner


def work(url: str | None, folder: Path, machine: str = "here-1234") -> BeginWork:
    assignment = Assignment(
        batch_id="batch",
        trace_id="trace",
        attempt_id="attempt",
        attempt_began_at=datetime(2026, 1, 1, tzinfo=UTC),
        probe="ab" * 32,
        settings={"url": url, "folder": str(folder)},
    )
    return BeginWork(assignment=assignment, machine=machine, folder=str(folder), path=["/code"])


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    with pytest.raises(InvalidInput, match=r'pip install "workflow-test-bench\[ray\]"'):
        load_runner("ray")


def test_an_address_is_only_for_ray_and_not_that_of_a_client_server() -> None:
    with pytest.raises(InvalidInput, match="a Ray address is for runner='ray', not for 'threads'"):
        load_runner("threads", ray_address="auto")
    with pytest.raises(InvalidInput, match="Start the batch on a machine of the cluster"):
        load_runner("ray", ray_address="ray://head:10001")


def test_a_cluster_gets_as_many_workers_however_its_address_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert default_workers("ray") <= 4
    assert default_workers("ray", "auto") == 50
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert default_workers("ray") == 50
    assert default_workers("processes") <= 4


def test_the_message_to_a_worker_survives_as_plain_data(tmp_path: Path) -> None:
    given = work("postgresql://db/x", tmp_path)
    assert BeginWork.from_data(given.to_data()) == given


def test_a_worker_on_the_same_machine_may_use_sqlite(tmp_path: Path) -> None:
    check_shared_store(work(None, tmp_path, machine_here()))


@pytest.mark.parametrize("url", [None, "sqlite:////shared/wtb.db"])
def test_a_worker_on_another_machine_refuses_sqlite(tmp_path: Path, url: str | None) -> None:
    with pytest.raises(InvalidInput, match=r"a worker on there .*SQLite works on one machine only"):
        check_shared_store(work(url, tmp_path), "there-5678")


def test_a_worker_on_another_machine_may_use_postgres(tmp_path: Path) -> None:
    check_shared_store(work("postgresql://db/x", tmp_path), "there-5678")


def test_the_copy_of_the_project_leaves_out_what_is_ignored_and_a_large_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_folder, "MOST_BYTES", 1_000)
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / ".wtb").mkdir()
    (tmp_path / ".wtb" / "wtb.db").write_bytes(bytes(5_000))
    data = tmp_path / "data"
    data.mkdir()
    (data / "large.bin").write_bytes(bytes(2_000))
    with pytest.raises(InvalidInput, match=r"The largest parts are data \(0 MB\), code.py"):
        project_runtime(tmp_path)
    (tmp_path / ".rayignore").write_bytes("# nicht nötig\ndata/\n".encode("latin-1"))
    found: dict[str, Any] = project_runtime(tmp_path)
    assert found["working_dir"] == str(tmp_path)
    assert {"data/", ".wtb/"} <= set(found["excludes"])


def test_a_large_project_is_refused_before_anybody_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_folder, "MOST_BYTES", 1)
    (tmp_path / "code.py").write_text("x = 1\n")
    with pytest.raises(InvalidInput, match="are copied to the workers of a cluster"):
        RayCluster(1, "127.0.0.1:1", tmp_path)


def test_code_is_found_in_the_copy_of_the_project_if_it_was_inside() -> None:
    code = BatchCode(reference="/home/me/project/tests/story.py:batch", is_batch=True, folder="/home/me/project")
    moved = code.moved_to(Path("/copy"))
    assert (moved.reference, moved.folder) == ("/copy/tests/story.py:batch", "/copy")
    module = BatchCode(reference="package.story:batch", is_batch=True, folder="/home/me/project")
    assert module.moved_to(Path("/copy")).reference == "package.story:batch"
    outside = BatchCode(reference="/elsewhere/story.py:batch", is_batch=True, folder="/home/me/project")
    with pytest.raises(InvalidInput, match="start the batch in the folder of the project"):
        outside.moved_to(Path("/copy"))


def test_an_attempt_keeps_the_ids_of_ray() -> None:
    attempt = JobAttempt(
        worker="vm-1/2/3",
        end=AttemptEnd.COMPLETED,
        started=None,
        ended=datetime(2026, 1, 1, tzinfo=UTC),
        ray=RayIds(actor="a1", task="t1"),
    )
    assert JobAttempt.from_data(attempt.to_data()) == attempt
