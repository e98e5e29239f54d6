"""Migrations on SQLite and Postgres: the way up, the way down, at once, from the past and from the future."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.integration.race import GUN, race
from tests.run_writer import RunWriter
from wtb.bootstrap import bootstrap
from wtb.domain.errors import InvalidInput, SchemaOutdated, SchemaTooNew, StorageError
from wtb.domain.execution import ExecutionStatus
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId, WorkflowId
from wtb.domain.job_origin import JobOrigin, of_fork
from wtb.domain.state import Append, StateDelta
from wtb.infrastructure.json_text import json_text, workflow_id_of
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.database import Database
from wtb.infrastructure.sql.tables import metadata
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database

OLDER = schema.revisions()[:-1]
WORKFLOW = {"name": "flow", "version": "1"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/own.db"
    address: str = request.getfixturevalue("postgres_url")
    return address


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = open_database(Settings(url=url))
    yield database
    database.close()


def table_names(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names())


def described(database: Database) -> Any:
    """Return all that the database itself says of its tables, indexes, constraints and views."""
    texts = {
        "sqlite": [
            "SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'view') AND name LIKE 'wtb%' ORDER BY name",
            "SELECT t.name, t.wr, c.* FROM pragma_table_list t, pragma_table_info(t.name) c "
            "WHERE t.name LIKE 'wtb%' ORDER BY t.name, c.cid",
            "SELECT t.name, k.* FROM pragma_table_list t, pragma_foreign_key_list(t.name) k "
            "WHERE t.name LIKE 'wtb%' ORDER BY t.name, k.id",
        ],
        "postgresql": [
            "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2",
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
            "WHERE table_schema = 'public' ORDER BY 1, ordinal_position",
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
            "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1",
        ],
    }
    with database.engine.connect() as connection:
        return [[tuple(row) for row in connection.exec_driver_sql(text)] for text in texts[database.dialect]]


def without_version(description: Any) -> Any:
    return [[row for row in rows if schema.VERSION_TABLE not in str(row[0])] for rows in description]


def record(url: str) -> ExecutionHistory:
    """Write a run of a few steps and return its history."""
    with bootstrap(Settings(url=url)) as services:
        recorder = RunWriter(services.storage, services.clock, services.ids)
        at = recorder.start(WORKFLOW, {"items": []}, execution_id="run")
        for visit in range(1, 4):
            run = recorder.node_run(at, "a", visit)
            at = recorder.complete(at, run, StateDelta.of(items=Append(("x" * 3_000,))))
    return history(url)


def history(url: str) -> ExecutionHistory:
    with bootstrap(Settings(url=url)) as services, services.storage.unit_of_work(readonly=True) as uow:
        found = uow.checkpoints.load_history(ExecutionId("run"))
        for checkpoint in found.lineage():
            assert len(uow.checkpoints.load(checkpoint.id).state["items"]) == checkpoint.step
        return found


def test_the_head_that_is_written_down_is_the_head_of_the_scripts() -> None:
    scripts = ScriptDirectory(str(Path(schema.__file__).parent / "migrations"))
    assert scripts.get_heads() == [schema.HEAD]
    assert schema.revisions()[-1] == schema.HEAD


def test_upgrading_makes_exactly_the_tables_that_the_code_knows(database: Database) -> None:
    schema.upgrade(database)
    assert schema.current(database) == schema.HEAD
    options = {"compare_type": True, "compare_server_default": True, "version_table": schema.VERSION_TABLE}
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    assert table_names(database) == {*metadata.tables, schema.VERSION_TABLE}


def test_migrated_tables_are_to_the_letter_what_the_metadata_would_make(database: Database) -> None:
    schema.upgrade(database, schema.HEAD)
    migrated = without_version(described(database))
    schema.downgrade(database, "base")
    metadata.create_all(database.engine)
    assert without_version(described(database)) == migrated


def test_a_new_database_is_to_the_letter_what_all_migrations_make(tmp_path: Path) -> None:
    """Down to the texts of its tables, which migrations change. If it is not, run `make reference`."""

    def texts(name: str, *revisions: str) -> Any:
        database = open_database(Settings(url=f"sqlite:///{tmp_path}/{name}.db"))
        for revision in revisions:
            schema.upgrade(database, revision)
        with database.engine.connect() as connection:
            # SQLite's own table of sequences stays after the last one that used it is gone.
            text = "SELECT type, name, sql FROM sqlite_master WHERE name != 'sqlite_sequence' ORDER BY 1, 2"
            found = [tuple(row) for row in connection.exec_driver_sql(text)], schema.current(database)
        database.close()
        return found

    assert texts("created", schema.NEWEST) == texts("migrated", *schema.revisions())


def test_a_database_that_holds_other_tables_gets_ours_beside_them(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (id INTEGER)")
    schema.upgrade(database)
    assert table_names(database) == {"mine", *metadata.tables, schema.VERSION_TABLE}


def test_downgrading_to_base_removes_everything_and_upgrading_works_again(database: Database) -> None:
    schema.upgrade(database)
    before = described(database)
    schema.downgrade(database, "base")
    assert table_names(database) <= {schema.VERSION_TABLE}
    assert schema.current(database) is None
    schema.upgrade(database)
    assert described(database) == before


def test_every_single_step_can_be_taken_up_and_down(database: Database) -> None:
    for revision in schema.revisions():
        before = without_version(described(database))
        schema.upgrade(database, revision)
        assert schema.current(database) == revision
        schema.downgrade(database, "-1")
        assert without_version(described(database)) == before
        schema.upgrade(database, revision)
    assert schema.current(database) == schema.HEAD


def test_upgrading_again_changes_nothing(url: str, database: Database) -> None:
    schema.upgrade(database)
    before = record(url)
    schema.upgrade(database)
    assert history(url) == before


def test_an_empty_database_says_what_to_run(url: str) -> None:
    with pytest.raises(SchemaOutdated, match="has no wtb tables yet; run `wtb db upgrade`"):
        bootstrap(Settings(url=url))


def test_a_database_that_was_emptied_says_what_to_run(url: str, database: Database) -> None:
    schema.upgrade(database)
    schema.downgrade(database, "base")
    with pytest.raises(SchemaOutdated, match="run `wtb db upgrade`"):
        bootstrap(Settings(url=url))


@pytest.mark.parametrize("revision", OLDER)
def test_an_older_database_says_what_to_run(url: str, database: Database, revision: str) -> None:
    schema.upgrade(database, revision)
    with pytest.raises(SchemaOutdated, match=f"schema {revision}, this wtb needs {schema.HEAD}; run `wtb db upgrade`"):
        bootstrap(Settings(url=url))


def from_the_future(database: Database) -> None:
    schema.upgrade(database)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")


def test_a_database_of_a_newer_wtb_is_refused_and_left_alone(url: str, database: Database) -> None:
    from_the_future(database)
    before = described(database)
    for refused in (lambda: bootstrap(Settings(url=url)), lambda: schema.upgrade(database)):
        with pytest.raises(SchemaTooNew, match=r"schema 9999, which this wtb does not know.*install the newer wtb"):
            refused()
    with pytest.raises(InvalidInput, match="cannot downgrade to 'base'"):
        schema.downgrade(database, "base")
    assert (described(database), schema.current(database)) == (before, "9999")


def test_an_embedded_database_of_a_newer_wtb_is_refused_too(tmp_path: Path) -> None:
    settings = Settings(folder=tmp_path / ".wtb")
    database = open_database(settings)
    from_the_future(database)
    database.close()
    with pytest.raises(SchemaTooNew):
        bootstrap(settings)


@pytest.mark.parametrize("revision", [None, *OLDER])
def test_the_embedded_database_migrates_itself(tmp_path: Path, revision: str | None) -> None:
    settings = Settings(folder=tmp_path / ".wtb")
    database = open_database(settings)
    if revision is not None:
        schema.upgrade(database, revision)
    bootstrap(settings).close()
    assert schema.current(database) == schema.HEAD
    database.close()


@pytest.mark.parametrize("revision", schema.revisions())
def test_a_row_that_was_written_before_an_upgrade_is_there_afterwards(
    url: str, database: Database, revision: str
) -> None:
    schema.upgrade(database, revision)
    text = json_text(WORKFLOW, "the workflow")
    row = {"id": workflow_id_of(text), "name": "flow", "version": "1", "text": text}
    insert = "INSERT INTO wtb_workflows (id, name, version, definition) VALUES (:id, :name, :version, :text)"
    with database.engine.begin() as connection:
        connection.execute(sa.text(insert), row)
    schema.upgrade(database)
    with bootstrap(Settings(url=url)) as services, services.storage.unit_of_work(readonly=True) as uow:
        assert uow.workflows.get(WorkflowId(row["id"])) == WORKFLOW


@pytest.mark.parametrize("revision", OLDER)
def test_a_run_survives_the_way_down_to_an_older_schema_and_back(url: str, database: Database, revision: str) -> None:
    schema.upgrade(database)
    before = record(url)
    schema.downgrade(database, revision)
    schema.upgrade(database)
    assert history(url) == before


def test_the_seconds_of_a_batch_move_from_its_plan_to_a_column_and_back(url: str, database: Database) -> None:
    schema.upgrade(database, "0008")
    columns = "(id, name, workflow_name, status, plan, created_at_us, updated_at_us)"
    plan = {"combinations": ["baseline"], "baseline": "baseline", "repeats": 1, "metrics": []}
    rows = [("old", {**plan, "cases": ["ü"], "spent_s": 12.5}), ("new", {**plan, "cases": []})]
    with database.engine.begin() as connection:
        for id, kept in rows:
            insert = f"INSERT INTO wtb_batches {columns} VALUES (:id, 'qa', 'flow', 'running', :plan, 1, 2)"
            connection.execute(sa.text(insert), {"id": id, "plan": json_text(kept, "the plan")})
    schema.upgrade(database)
    with bootstrap(Settings(url=url)) as services, services.storage.unit_of_work(readonly=True) as uow:
        old, new = uow.batches.get("old"), uow.batches.get("new")
        assert (old.spent_s, old.record.cases) == (12.5, ("ü",))
        assert (new.spent_s, new.record.cases) == (0.0, ())
    schema.downgrade(database, "0008")
    with database.engine.connect() as connection:
        plans = dict(map(tuple, connection.exec_driver_sql("SELECT id, plan FROM wtb_batches")))
    assert json.loads(plans["old"]) == {**plan, "cases": ["ü"], "spent_s": 12.5}


def test_older_runs_learn_from_their_metadata_which_batch_made_them(url: str, database: Database) -> None:
    schema.upgrade(database, "0020")
    job = JobOrigin(batch_id="0199-b", combination='x, "fork":true', case_id="ü", repeat=0)
    kept = {
        "job": job.to_data(),
        "fork": of_fork(job.to_data()),
        "alone": {"about": {"batch": "0199-b"}},
        "none": {},
    }
    columns = "(id, workflow_id, workflow_name, status, version, branch_id, lease_token, metadata, created_at_us"
    insert = (
        f"INSERT INTO wtb_executions {columns}, updated_at_us) VALUES (:id, 'w', 'f', 'failed', 1, 'b', 0, :m, 1, 2)"
    )
    with database.engine.begin() as connection:
        for id, metadata in kept.items():
            connection.execute(sa.text(insert), {"id": id, "m": json_text(metadata, "metadata")})
        connection.execute(sa.text(insert), {"id": "damaged", "m": '{"batch":"'})
    schema.upgrade(database)
    with bootstrap(Settings(url=url)) as services, services.storage.unit_of_work(readonly=True) as uow:
        assert [run.id for run in uow.executions.list_executions(batch="0199-b")] == ["job"]
        assert uow.pages.count_runs(without_batches=True) == {ExecutionStatus.FAILED: 4}


def test_the_view_of_boundaries_shows_what_the_history_computes(url: str, database: Database) -> None:
    schema.upgrade(database)
    boundaries = record(url).boundaries()
    columns = "node_run_id, branch_id, node, visit, status, first_id, last_id, checkpoint_count, tool_count"
    with database.engine.connect() as connection:
        text = f"SELECT {columns} FROM wtb_node_boundaries ORDER BY node_run_id"
        rows = [tuple(row) for row in connection.exec_driver_sql(text)]
    assert rows == [tuple(getattr(boundary, name) for name in columns.split(", ")) for boundary in boundaries]


def test_a_migration_that_fails_leaves_the_database_as_it_was(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE wtb_events (mine INTEGER)")  # one of the last to be made
    with pytest.raises(StorageError, match="wtb_events"):
        schema.upgrade(database)
    assert table_names(database) == {"wtb_events"}
    assert schema.current(database) is None
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE wtb_events")
    schema.upgrade(database)
    assert schema.current(database) == schema.HEAD


UPGRADE = f"""
import sys
from wtb.storage_bootstrap import open_database
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
schema.revisions()
{GUN}
database = open_database(Settings(url=sys.argv[1]))
schema.upgrade(database)
print(schema.current(database))
"""

EMBEDDED = f"""
import sys
from wtb.bootstrap import bootstrap
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
schema.revisions()
{GUN}
with bootstrap(Settings(folder=sys.argv[1])) as services:
    with services.storage.unit_of_work() as uow:
        print(uow.workflows.save({json.dumps(WORKFLOW)}))
        uow.commit()
"""


def test_processes_that_upgrade_at_once_all_succeed(url: str, database: Database) -> None:
    assert race(UPGRADE, [[url]] * 4) == [f"{schema.HEAD}\n"] * 4
    assert table_names(database) == {*metadata.tables, schema.VERSION_TABLE}


def test_processes_that_open_a_new_folder_at_once_all_find_it_ready(tmp_path: Path) -> None:
    assert len(set(race(EMBEDDED, [[str(tmp_path / ".wtb")]] * 4))) == 1
