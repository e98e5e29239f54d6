"""A run whose rows were damaged is refused by resume, rollback and gate: nothing that it did is done again."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.integration.quiz import batch, quiz
from wtb.bench import Bench
from wtb.domain.errors import DamagedData
from wtb.domain.execution import ExecutionStatus
from wtb.infrastructure.sql import schema


@pytest.fixture
def bench(tmp_path: Path, sqlite_template: Path) -> Iterator[Bench]:
    (tmp_path / "wtb").mkdir()
    shutil.copyfile(sqlite_template, tmp_path / "wtb" / "wtb.db")
    with Bench(folder=tmp_path / "wtb") as opened:
        yield opened


def change(bench: Bench, statement: str, *values: Any) -> None:
    """Change one row behind the back of the bench."""
    path = bench.services.settings.folder / "wtb.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1


def with_one_bit_flipped(text: str) -> str:
    return text[:-1] + chr(ord(text[-1]) ^ 1)


class Shop:
    """A workflow that charges a card in one node and breaks down in it until it is repaired."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.returned: list[int] = []
        self.is_broken = True
        self.flow = wtb.Workflow("shop")
        self.flow.add_node("begin", lambda state: {"n": 1}, start=True)
        self.flow.add_node("pay", self._pay)
        self.flow.edge("begin", "pay")

        @wtb.tool(name="charge", effects="external", reverse=lambda call: self.returned.append(call.result))
        def charge(amount: int) -> int:
            self.charged.append(amount)
            return amount

        self._charge = charge

    def _pay(self, state: Any, ctx: Any) -> dict[str, Any]:
        paid = ctx.tool(self._charge, 5)
        if self.is_broken:
            raise RuntimeError("the printer has no paper")
        return {"paid": paid}


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def run(bench: Bench, shop: Shop) -> Any:
    """A run that has charged the card and failed after that."""
    run = bench.run(shop.flow, {}, run_id="run")
    assert run.status is ExecutionStatus.FAILED
    assert shop.charged == [5]
    shop.is_broken = False
    return run


def node_run_of_the_call(bench: Bench) -> str:
    (call,) = bench.get("run").calls
    return call.node_run_id


def faults(bench: Bench) -> list[str]:
    return [fault.problem for fault in bench.services.integrity.check().faults]


def test_without_damage_the_recorded_call_answers(bench: Bench, shop: Shop, run: Any) -> None:
    run.resume()
    assert run.status is ExecutionStatus.COMPLETED
    assert shop.charged == [5]
    assert faults(bench) == []


DAMAGE = {
    "one bit of its id": "UPDATE wtb_node_runs SET id = :other WHERE id = :id",
    "one bit of its id, in an old row": "UPDATE wtb_node_runs SET id = :other, seal = NULL WHERE id = :id",
    "its run": "UPDATE wtb_node_runs SET execution_id = 'rum' WHERE id = :id",
    "all of it": "DELETE FROM wtb_node_runs WHERE id = :id",
    "where it began": "UPDATE wtb_node_runs SET input_id = NULL WHERE id = :id",
    "its status": "UPDATE wtb_node_runs SET status = 'skipped' WHERE id = :id",
}


@pytest.fixture(params=DAMAGE)
def damaged(request: pytest.FixtureRequest, bench: Bench, run: Any) -> Any:
    """The run after its node run was damaged."""
    id = node_run_of_the_call(bench)
    path = bench.services.settings.folder / "wtb.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        values = {"id": id, "other": with_one_bit_flipped(id)}
        assert connection.execute(DAMAGE[request.param], values).rowcount == 1
    return run


def test_a_run_with_a_damaged_node_run_is_not_resumed_and_pays_nothing_again(
    bench: Bench, shop: Shop, damaged: Any
) -> None:
    assert faults(bench)
    with pytest.raises(DamagedData, match="wtb doctor"):
        bench.resume("run", shop.flow)
    assert shop.charged == [5]
    assert bench.get("run").status is ExecutionStatus.FAILED


def test_a_run_with_a_damaged_node_run_is_not_rolled_back_as_if_it_had_done_nothing(
    bench: Bench, shop: Shop, damaged: Any
) -> None:
    with pytest.raises(DamagedData, match="wtb doctor"):
        damaged.rollback("begin")
    assert (shop.charged, shop.returned) == ([5], [])


def test_a_run_with_a_damaged_node_run_can_be_deleted(bench: Bench, damaged: Any) -> None:
    damaged.delete()
    assert [problem for problem in faults(bench) if "'run'" in problem] == []


def test_lists_go_past_a_damaged_run(bench: Bench, shop: Shop, run: Any) -> None:
    others = [bench.run(shop.flow, {}).id for _ in range(3)]
    change(bench, "UPDATE wtb_executions SET degraded = 'x' WHERE id = 'run'")
    assert {found.id for found in bench.list_executions()} == {*others}
    assert [found.id for found in bench.list_executions(limit=1, offset=1)] == [others[1]]
    bench.services.run_editor.delete_run(run.id)
    assert faults(bench) == []


def test_a_batch_with_a_damaged_job_can_be_deleted_and_run_again(bench: Bench) -> None:
    batch(bench, quiz())
    change(bench, "UPDATE wtb_batch_jobs SET fingerprint = 'x' WHERE number = 3")
    with pytest.raises(DamagedData, match="job"):
        batch(bench, quiz())
    bench.delete_batch("quiz")
    assert len(batch(bench, quiz()).results) == 12
    assert faults(bench) == []


def test_a_damaged_baseline_stops_no_other_and_is_put_right_by_setting_it_again(bench: Bench) -> None:
    batch(bench, quiz())
    for name in ("main", "other"):
        bench.set_baseline(name, "quiz")
    change(bench, "UPDATE wtb_baselines SET combination = 'x' WHERE name = 'other'")
    assert bench.gate("quiz", baseline="main", metric="exact_match").gate.outcome == "fine"
    bench.set_baseline("other", "quiz")
    assert faults(bench) == []


def test_a_fork_in_the_middle_of_a_node_whose_run_was_lost_does_not_pay_again(bench: Bench, shop: Shop) -> None:
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        paid = ctx.tool(shop._charge, 5)
        ctx.checkpoint("paid")
        return {"paid": paid}

    flow = wtb.Workflow("shop")
    flow.add_node("pay", pay, start=True)
    run = bench.run(flow, {}, run_id="run")
    fork = run.fork("paid", run_id="fork")
    change(bench, "DELETE FROM wtb_node_runs WHERE execution_id = 'run'")
    with pytest.raises(DamagedData, match="run 'run' is damaged: the node runs of its calls"):
        bench.resume(fork.id, flow)
    assert shop.charged == [5]


def test_a_head_that_went_back_by_itself_is_not_gone_on_from(bench: Bench, shop: Shop) -> None:
    shop.is_broken = False
    shop.flow.add_node("after", lambda state: None)
    shop.flow.edge("pay", "after")
    run = bench.run(shop.flow, {}, run_id="run", break_before=["after"])
    begin = next(step.id for step in run.history.lineage() if step.node == "begin")
    change(bench, "UPDATE wtb_branches SET head_id = ?, head_seal = NULL", begin)  # an old row, or a lost write
    with pytest.raises(DamagedData, match="no rollback took it back"):
        bench.resume("run", shop.flow)
    assert shop.charged == [5]
    assert any("there was no rollback" in problem for problem in faults(bench))


def test_a_head_that_a_rollback_took_back_is_gone_on_from(bench: Bench, shop: Shop) -> None:
    shop.is_broken = False
    run = bench.run(shop.flow, {}, run_id="run")
    run.rollback("begin")
    assert faults(bench) == []
    run.redo()
    run.rollback("begin")
    assert faults(bench) == []
    assert bench.resume("run", shop.flow).status is ExecutionStatus.COMPLETED
    assert faults(bench) == []


def test_names_that_are_no_texts_are_not_taken_for_damage(bench: Bench, shop: Shop) -> None:
    number: Any = 5
    shop.is_broken = False
    run = bench.run(shop.flow, {}, run_id="run")
    run.rollback("begin", created_by=number)
    assert run.rollbacks[0].created_by == "5"
    assert run.fork("begin", run_id="fork", created_by=number).execution.created_by == "5"
    batch(bench, quiz(), name=number)
    assert bench.get_batch("5").batch.name == "5"
    assert faults(bench) == []


CHANGES = {
    "a score": """UPDATE wtb_batch_jobs SET result = replace(result, '0.0', '1.0') WHERE number = 0
        AND batch_id = (SELECT id FROM wtb_batches WHERE name = 'quiz' ORDER BY created_at_us DESC LIMIT 1)""",
    "a status": """UPDATE wtb_batch_jobs SET status = 'skipped' WHERE number = 0
        AND batch_id = (SELECT id FROM wtb_batches WHERE name = 'quiz' ORDER BY created_at_us DESC LIMIT 1)""",
    "a plan": """UPDATE wtb_batches SET plan = replace(plan, 'exact_match', 'exact_matcg')
        WHERE id = (SELECT id FROM wtb_batches WHERE name = 'quiz' ORDER BY created_at_us DESC LIMIT 1)""",
    "a baseline": "UPDATE wtb_baselines SET combination = 'other'",
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_gate_does_not_decide_on_damaged_rows(bench: Bench, what: str) -> None:
    batch(bench, quiz())
    bench.set_baseline("main", "quiz")
    batch(bench, quiz(wrong=6))
    assert bench.gate("quiz", baseline="main", metric="exact_match").gate.outcome == "regression"
    assert faults(bench) == []
    change(bench, CHANGES[what])
    with pytest.raises(DamagedData, match="does not match its checksum"):
        bench.gate("quiz", baseline="main", metric="exact_match")
    assert len(faults(bench)) == 1


def test_a_database_from_before_there_were_seals_goes_on_and_is_sealed_on_the_way(tmp_path: Path, shop: Shop) -> None:
    with Bench(folder=tmp_path / "wtb") as bench:
        bench.run(shop.flow, {}, run_id="run")
        batch(bench, quiz())
        database: Any = bench.services.storage
        schema.downgrade(database.database, "0011")
    shop.is_broken = False
    with Bench(folder=tmp_path / "wtb") as bench:
        assert faults(bench) == []
        assert len(bench.get_batch("quiz").results) == 12
        assert bench.resume("run", shop.flow).status is ExecutionStatus.COMPLETED
        assert shop.charged == [5]
        assert faults(bench) == []
        change(bench, "UPDATE wtb_executions SET status = 'failed' WHERE id = 'run'")
        with pytest.raises(DamagedData, match="run 'run' is damaged"):
            bench.get("run")
