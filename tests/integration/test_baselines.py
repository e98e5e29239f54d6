"""Baselines have tables of their own: what used to be batches called `baseline/…` moves there, sound or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import wtb
from tests.integration.quiz import batch, quiz
from wtb.bench import Bench
from wtb.domain.batch import Baseline
from wtb.domain.errors import BatchNotFound, DamagedData, InvalidInput
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.database import Database
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database of each kind that has all tables."""
    address: str = f"sqlite:///{tmp_path}/own.db"
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_url")
    database = open_database(Settings(url=address))
    schema.upgrade(database)
    database.close()
    return address


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = open_database(Settings(url=url))
    yield opened
    opened.close()


def change(database: Database, statement: str) -> None:
    """Change one row behind the back of the bench."""
    with database.engine.begin() as connection:
        assert connection.exec_driver_sql(statement).rowcount == 1


def faults(bench: Bench) -> list[str]:
    return [fault.problem for fault in bench.services.integrity.check().faults]


def saved(bench: Bench) -> tuple[Baseline, Any, list[Any]]:
    """Return all that a baseline holds."""
    result = bench.get_baseline("main")
    return bench.list_baselines()[0], result.batch, [(job.case_id, job.scores, job.run_id) for job in result.results]


def test_a_batch_may_be_called_as_a_baseline_was_stored(bench: Bench) -> None:
    batch(bench, quiz())
    bench.set_baseline("main", "quiz")
    with pytest.raises(BatchNotFound):
        bench.get_batch("baseline/main")
    mine = batch(bench, quiz(wrong=6), name="baseline/main")
    bench.set_baseline("main", "quiz")
    assert bench.get_batch("baseline/main").id == mine.id
    assert len(bench.get_batch("baseline/main").results) == 12
    found = bench.gate("baseline/main", baseline="main", metric="exact_match")
    assert (found.gate.outcome, found.comparison.losses) == ("regression", 6)
    bench.delete_baseline("main")
    assert [each.name for each in bench.list_batches()] == ["baseline/main", "quiz"]


def test_the_results_of_a_baseline_are_found_by_its_id_and_stay_as_they_are(bench: Bench) -> None:
    batch(bench, quiz(wrong=3))
    baseline = bench.set_baseline("main", "quiz")
    batch(bench, quiz())
    kept = bench.get_batch(baseline.batch_id)
    assert sum(kept.table("exact_match").case_means("baseline").values()) == 9
    with pytest.raises(InvalidInput, match="its results do not change"):
        bench.evaluate(kept, [wtb.Steps()])
    for change_it in (bench.cancel_batch, bench.delete_batch):
        with pytest.raises(BatchNotFound):
            change_it(baseline.batch_id)


def test_a_baseline_moves_from_the_tables_of_batches_and_back(url: str, database: Database) -> None:
    with Bench(url) as bench:
        batch(bench, quiz(wrong=3))
        bench.set_baseline("main", "quiz")
        batch(bench, quiz(), name="baseline/mine")
        before = saved(bench)
    schema.downgrade(database, "0012")
    with database.engine.connect() as connection:
        names = {name for (name,) in connection.exec_driver_sql("SELECT name FROM wtb_batches")}
        count = "SELECT count(*) FROM wtb_batch_jobs WHERE batch_id = (SELECT batch_id FROM wtb_baselines)"
        assert (names, connection.exec_driver_sql(count).scalar()) == ({"quiz", "baseline/main", "baseline/mine"}, 12)
    schema.upgrade(database)
    with Bench(url) as bench:
        assert saved(bench) == before
        assert {each.name for each in bench.list_batches()} == {"quiz", "baseline/mine"}
        assert len(bench.get_batch("quiz").results) == len(bench.get_batch("baseline/mine").results) == 12
        assert faults(bench) == []
        with database.engine.connect() as connection:
            for table in ("wtb_baselines", "wtb_baseline_results"):
                assert list(connection.exec_driver_sql(f"SELECT 1 FROM {table} WHERE seal IS NULL")) == []


DAMAGE = {
    "its row": "UPDATE wtb_baselines SET combination = 'x'",
    "its batch": "UPDATE wtb_batches SET plan = replace(plan, 'exact_match', 'exact_matcg') WHERE name LIKE 'base%%'",
    "a result": """UPDATE wtb_batch_jobs SET result = replace(result, '1.0', '0.0') WHERE number = 7
        AND batch_id = (SELECT batch_id FROM wtb_baselines)""",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_baseline_that_was_damaged_before_it_moved_counts_as_damaged(url: str, database: Database, what: str) -> None:
    with Bench(url) as bench:
        batch(bench, quiz())
        bench.set_baseline("main", "quiz")
    schema.downgrade(database, "0012")
    change(database, DAMAGE[what])
    schema.upgrade(database)
    with Bench(url) as bench:
        assert len(faults(bench)) == 1
        with pytest.raises(DamagedData, match="does not match its checksum"):
            bench.gate("quiz", baseline="main", metric="exact_match")
        bench.set_baseline("main", "quiz")
        assert faults(bench) == []


def test_a_baseline_whose_text_cannot_be_decoded_stops_no_upgrade(tmp_path: Path) -> None:
    with Bench(folder=tmp_path) as bench:
        batch(bench, quiz())
        for name in ("main", "other"):
            bench.set_baseline(name, "quiz")
        storage: Any = bench.services.storage
        schema.downgrade(storage.database, "0012")
        change(
            storage.database, "UPDATE wtb_batches SET plan = CAST(X'ff' || plan AS TEXT) WHERE name = 'baseline/main'"
        )
    with Bench(folder=tmp_path) as bench:
        assert bench.gate("quiz", baseline="other", metric="exact_match").gate.outcome == "fine"
        with pytest.raises(DamagedData, match="baseline 'main' is damaged"):
            bench.gate("quiz", baseline="main", metric="exact_match")
        assert len(faults(bench)) == 1


def test_a_baseline_from_before_there_were_seals_moves_without_them(url: str, database: Database) -> None:
    with Bench(url) as bench:
        batch(bench, quiz())
        bench.set_baseline("main", "quiz")
        before = saved(bench)
    schema.downgrade(database, "0011")
    schema.upgrade(database)
    with Bench(url) as bench:
        assert saved(bench) == before
        assert faults(bench) == []


def test_a_baseline_whose_batch_was_deleted_is_gone(url: str, database: Database) -> None:
    with Bench(url) as bench:
        batch(bench, quiz())
        bench.set_baseline("main", "quiz")
    schema.downgrade(database, "0012")
    with database.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM wtb_batch_jobs WHERE batch_id = (SELECT batch_id FROM wtb_baselines)"))
        connection.execute(sa.text("DELETE FROM wtb_batches WHERE name = 'baseline/main'"))
    schema.upgrade(database)
    with Bench(url) as bench:
        assert bench.list_baselines() == ()
        assert faults(bench) == []


def test_a_lost_result_of_a_baseline_is_noticed(url: str, database: Database) -> None:
    with Bench(url) as bench:
        batch(bench, quiz())
        bench.set_baseline("main", "quiz")
        change(database, "DELETE FROM wtb_baseline_results WHERE number = 7")
        assert faults(bench) == ["baseline 'main' is damaged: it was saved with 12 results and has 11"]
        with pytest.raises(DamagedData, match="saved with 12 results and has 11; `wtb doctor` shows more"):
            bench.gate("quiz", baseline="main", metric="exact_match")
        change(database, "DELETE FROM wtb_baselines")
        (problem,) = faults(bench)
        assert problem.startswith("the baseline of 11 saved results (")
        bench.set_baseline("main", "quiz")
        assert faults(bench) == []
