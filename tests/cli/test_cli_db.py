"""`wtb db`: what it prints, for people and for programs, and how it ends when something is wrong."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wtb.cli import main
from wtb.infrastructure.sql.schema import HEAD, revisions

pytestmark = pytest.mark.usefixtures("empty_folder")

URL = "sqlite:///own.db"


def wtb(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=answer)


def printed(result: Result) -> Any:
    """Return the JSON that a command printed, and nothing but JSON."""
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def is_one_sentence(text: str) -> bool:
    return text.startswith("wtb: ") and text.count("\n") == 1 and text.endswith("\n") and "Traceback" not in text


def test_a_new_database_is_empty_and_says_what_to_run() -> None:
    result = wtb("db", "current", "--url", URL)
    assert result.stdout == f"The database is at empty, this wtb needs {HEAD}: run `wtb db upgrade`.\n"
    assert result.exit_code == 0


def test_upgrading_says_from_where_to_where_and_then_that_nothing_is_left_to_do() -> None:
    assert wtb("db", "upgrade", "--url", URL).stdout == f"Upgraded from empty to {HEAD}.\n"
    assert wtb("db", "upgrade", "--url", URL).stdout == f"The database is already at {HEAD}.\n"
    assert (
        wtb("db", "current", "--url", URL).stdout == f"The database is at {HEAD}, this wtb needs {HEAD}: up to date.\n"
    )


def test_programs_get_json() -> None:
    assert printed(wtb("db", "current", "--url", URL, "--json")) == {
        "current": None,
        "head": HEAD,
        "known": revisions(),
    }
    assert printed(wtb("db", "upgrade", "--url", URL, "--json")) == {"before": None, "after": HEAD}
    assert printed(wtb("db", "upgrade", "--url", URL, "--json")) == {"before": HEAD, "after": HEAD}
    assert printed(wtb("db", "downgrade", "base", "--yes", "--url", URL, "--json")) == {"before": HEAD, "after": None}


def test_a_downgrade_asks_first_and_does_nothing_without_a_yes() -> None:
    wtb("db", "upgrade", "--url", URL)
    refused = wtb("db", "downgrade", "base", "--url", URL, answer="n\n")
    assert refused.exit_code == 1
    assert f"Downgrade {URL} from {HEAD} to base? Data may be lost." in refused.stderr
    assert printed(wtb("db", "current", "--url", URL, "--json"))["current"] == HEAD
    assert "Downgraded" in wtb("db", "downgrade", "base", "--url", URL, answer="y\n").stdout
    assert printed(wtb("db", "current", "--url", URL, "--json"))["current"] is None


def test_the_question_of_a_downgrade_does_not_get_into_the_json() -> None:
    wtb("db", "upgrade", "--url", URL)
    result = wtb("db", "downgrade", "base", "--url", URL, "--json", answer="y\n")
    assert json.loads(result.stdout) == {"before": HEAD, "after": None}


def test_without_an_address_the_folder_here_is_meant(empty_folder: Path) -> None:
    wtb("db", "upgrade")
    assert (empty_folder / ".wtb" / "wtb.db").exists()
    assert printed(wtb("db", "current", "--json"))["current"] == HEAD


def test_the_address_can_come_from_the_environment(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_URL", "sqlite:///from-variable.db")
    wtb("db", "upgrade")
    assert [path.name for path in empty_folder.iterdir()] == ["from-variable.db"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["current", "--url", "nonsense"], "'nonsense' is no database address"),
        (["current", "--url", "memory://"], "memory:// has no schema"),
        (["upgrade", "--to", "nowhere"], "cannot upgrade to 'nowhere'"),
        (["upgrade", "--to", ""], "cannot upgrade to an empty revision"),
        (["downgrade", "nowhere", "--yes"], "cannot downgrade to 'nowhere'"),
        (["downgrade", "", "--yes"], "cannot downgrade to an empty revision"),
        (["downgrade", HEAD, "--yes"], f"cannot downgrade to '{HEAD}'"),
    ],
)
def test_what_the_caller_can_put_right_is_one_sentence_and_exit_code_2(arguments: list[str], problem: str) -> None:
    result = wtb("db", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert is_one_sentence(result.stderr)
    assert problem in result.stderr


@pytest.mark.parametrize("arguments", [[], ["nope"], ["db", "nope"], ["db", "current", "--nope"], ["db", "downgrade"]])
def test_a_command_that_is_not_there_is_exit_code_2(arguments: list[str]) -> None:
    result = wtb(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite:///no/such/folder/x.db", "cannot be written: No such file or directory"),
        ("postgresql://me:secret@127.0.0.1:1/db", "postgresql://me:***@127.0.0.1:1/db: "),
        ("sqlite:///junk.db", "junk.db: file is not a database"),
    ],
)
def test_a_database_that_fails_is_one_sentence_and_exit_code_1(url: str, problem: str) -> None:
    Path("junk.db").write_bytes(b"no database" * 1000)
    result = wtb("db", "current", "--url", url)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert is_one_sentence(result.stderr)
    assert problem in result.stderr


def test_wrong_settings_are_one_sentence_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_POOL_SIZE", "many")
    result = wtb("db", "current")
    assert result.exit_code == 2
    assert is_one_sentence(result.stderr)
    assert "pool_size" in result.stderr


def from_the_future() -> None:
    wtb("db", "upgrade", "--url", URL)
    with sqlite3.connect("own.db") as connection:
        connection.execute("UPDATE wtb_schema SET version_num = '9999'")
    connection.close()


def test_a_database_of_a_newer_wtb_is_not_told_to_upgrade() -> None:
    from_the_future()
    result = wtb("db", "current", "--url", URL)
    assert "is at 9999" in result.stdout
    assert "newer wtb" in result.stdout
    assert "db upgrade" not in result.stdout


def test_a_database_of_a_newer_wtb_is_not_upgraded() -> None:
    from_the_future()
    result = wtb("db", "upgrade", "--url", URL)
    assert result.exit_code == 1
    assert is_one_sentence(result.stderr)
    assert "install the newer wtb" in result.stderr


@pytest.mark.parametrize("command", ["current", "upgrade", "downgrade"])
def test_every_command_explains_itself(command: str) -> None:
    result = wtb("db", command, "-h")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_the_module_is_the_command(empty_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wtb", "db", "current", "--json"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        cwd=empty_folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"current": None, "head": HEAD, "known": revisions()}
    assert done.stderr == ""
