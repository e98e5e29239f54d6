"""Of a long run only the end is read; it tells the same as the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.crash import engine_worker, rollback_worker
from wtb.application.time_travel import comparison, run_editor
from wtb.domain.errors import CheckpointNotFound
from wtb.domain.history import Granularity
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.infrastructure.checkpoints.store import DeltaCheckpointStore

EVERYTHING = 1_000


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[wtb.Run]:
    """A run with calls, files, a parallel step and a checkpoint at every call."""
    monkeypatch.setattr(engine_worker, "effects", tmp_path)
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        yield bench.run(rollback_worker.flow, {}, fine_grained=True)


def targets(run: wtb.Run) -> list[CheckpointId]:
    return [checkpoint.id for checkpoint in run.history.rollback_targets(Granularity.TOOL)]


def check_same(monkeypatch: pytest.MonkeyPatch, read: Callable[[], Any]) -> Any:
    """Return what is read, which must not depend on how many checkpoints are looked at first."""
    found = []
    for length in (EVERYTHING, 1, 2, 5):
        for module in (run_editor, comparison):
            monkeypatch.setattr(module, "_TAIL", length)
        found.append(read())
    assert found[1:] == found[:1] * 3
    return found[0]


def test_what_a_rollback_would_do_is_the_same(run: wtb.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [check_same(monkeypatch, lambda: run.rollback(id, dry_run=True)) for id in targets(run)]  # noqa: B023
    assert sum(len(plan.reverse) for plan in plans) > 20


def test_it_is_the_same_when_others_build_on_what_would_be_undone(
    run: wtb.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.fork("left")
    run.rollback("b")
    plans = [check_same(monkeypatch, lambda: run.rollback(id, dry_run=True)) for id in targets(run)]  # noqa: B023
    assert any(plan.kept for plan in plans)


def test_what_differs_is_the_same(run: wtb.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for old, new in permutations(targets(run)[::3], 2):
        assert check_same(monkeypatch, lambda: run.diff(old, new))  # noqa: B023


def test_a_target_that_does_not_exist_is_looked_for_everywhere(run: wtb.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_editor, "_TAIL", 1)
    with pytest.raises(CheckpointNotFound, match="nowhere"):
        run.diff("nowhere")


def test_near_the_end_the_whole_is_not_read(run: wtb.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_editor, comparison):
        monkeypatch.setattr(module, "_TAIL", 8)
    last = targets(run)[-1]

    def refuse(store: DeltaCheckpointStore, execution_id: ExecutionId) -> None:
        raise AssertionError(f"all of {execution_id} is read")

    monkeypatch.setattr(DeltaCheckpointStore, "load_history", refuse)
    assert run.rollback(last, dry_run=True).checkpoints == 1
    assert run.diff(last)
