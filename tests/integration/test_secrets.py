"""No secret reaches an event, a log, an error or a recorded argument, whoever says it."""

from __future__ import annotations

import logging
import sqlite3
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

import wtb
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.bench import Bench
from wtb.cli import main
from wtb.domain.tools import Tool, ToolSpec
from wtb.flow import Workflow

KEY = wtb.Secret("hunter2-and-more")


def leak(state: Any, ctx: Any) -> None:
    ctx.log.warning("logging in with %s", KEY.reveal())
    ctx.tool(Tool(spec=ToolSpec(name="login"), function=refuse), credential=KEY, plain=f"password={KEY.reveal()}")


def refuse(credential: wtb.Secret, plain: str) -> None:
    raise PermissionError(f"{credential.reveal()} was refused; api_key=zq-key-zq")


def everything(bench: Bench, run_id: Any) -> str:
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        events = uow.events.list_events(stream=run_id)
        execution = uow.executions.get(run_id)
        runs = uow.node_runs.list_runs(run_id)
        calls = [call.error for call in uow.tool_calls.list_calls(run_id)]
    return repr((events, execution, runs, calls))


def test_a_failing_node_leaks_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    flow = Workflow("leaking")
    flow.add_node("leak", leak, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    with caplog.at_level(logging.WARNING):
        run = bench.run(flow, {})
    assert run.error is not None
    assert run.error.message == "*** was refused; api_key=***"
    kept = everything(bench, run.id) + caplog.text
    assert "hunter2-and-more" not in kept
    assert "zq-key-zq" not in kept
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        (call,) = uow.tool_calls.list_calls(run.id)
    assert call.arguments["credential"] == "***"


PLANTED = "pl4nted/w0rd&more"
"""It is written in other ways in addresses and base64."""

FORMS = [PLANTED, quote(PLANTED, safe=""), quote(PLANTED), b64encode(f"ann:{PLANTED}".encode()).decode()]


def plant(where: str) -> str:
    """Return a text that holds a secret, which is gone before anybody records the text."""
    text = wtb.Secret(PLANTED).reveal()
    return f"{where}: {text} {quote(text, safe='')} {quote(text)} {b64encode(f'ann:{text}'.encode()).decode()}"


def unpay(call: Any) -> None:
    raise OSError(plant("a reversal's error"))


@wtb.tool(name="pay in the tests of secrets", reverse=unpay)
def pay() -> None:
    """It cannot be taken back."""


def failing(state: Any) -> None:
    raise ValueError(plant("a shared error"))


def planting() -> Workflow:
    """A workflow that puts a secret into every text about its runs, and never into its state."""
    flow = Workflow("planting")

    def login() -> None:
        raise PermissionError(plant("a tool's error"))

    def node(state: Any, ctx: Any) -> None:
        ctx.log.warning("%s", plant("a log"))
        ctx.checkpoint("mark", plant("a description"))
        with suppress(PermissionError):
            ctx.tool(Tool(spec=ToolSpec(name="login"), function=login))
        if state["how"] == "fail":
            raise ValueError(plant("an error")) from KeyError(plant("its cause"))
        ctx.tool(pay)

    flow.add_node("node", node, start=True, retry=wtb.RetryPolicy(times=2, wait_s=0))
    return flow


@dataclass(frozen=True)
class Leaking:
    name: str = "leaking"

    def evaluate(self, context: Any) -> float:
        raise ValueError(plant("an evaluator's error"))


def test_planted_words_are_in_no_row_no_log_no_report_and_no_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [{"id": how, "input": {"how": how}} for how in ("fail", "go")]
    with Bench(folder=tmp_path / ".wtb") as bench:
        flow = planting()
        failed = bench.run(flow, {"how": "fail"}, run_id="failed")
        done = bench.run(flow, {"how": "go"}, run_id="done")
        assert (failed.status, done.status) == ("failed", "completed")
        with pytest.raises(RollbackFailed) as told:
            done.rollback(0)
        result = bench.batch(flow, cases=cases, evaluators=[Leaking()], name="planted")
        shared = Workflow("shared")
        shared.add_node("failing", failing, start=True)
        bench.batch(shared, cases=cases, evaluators=[Leaking()], name="shared")
        result.report("report.html")
        result.report("report.md")
        result.to_csv("table.csv")
        texts = [str(told.value), repr(failed.error), repr(result.rows()), caplog.text]
        texts += [repr(run.all_events()) for run in (failed, done)]
        with bench.services.storage.unit_of_work(readonly=True) as uow:
            assert "an error: ***" in repr(uow.executions.get(failed.id))
    with sqlite3.connect(tmp_path / ".wtb" / "wtb.db") as database:
        failures = database.execute("SELECT value FROM wtb_node_cache WHERE status = 'failed'").fetchall()
        assert len(failures) == 2
        assert all(b"a shared error: ***" in failure for (failure,) in failures)
    for words in COMMANDS:
        said = CliRunner().invoke(main, words)
        assert said.exception is None or isinstance(said.exception, SystemExit)
        texts.append(said.stdout + said.stderr)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"wtb.db", "report.html", "report.md", "table.csv"} <= {path.name for path in files}
    texts += [path.read_bytes().decode("utf-8", "replace") for path in files]
    for text in texts:
        assert [form for form in FORMS if form in text] == []
    for where in WHERE:
        assert any(f"{where}: ***" in text for text in texts), where


WHERE = (
    "a log",
    "a description",
    "a tool's error",
    "an error",
    "its cause",
    "a reversal's error",
    "an evaluator's error",
    "a shared error",
)

COMMANDS = [
    ("show", "failed"),
    ("show", "failed", "--traceback"),
    ("show", "failed", "--events"),
    ("show", "failed", "--json"),
    ("show", "done", "--events", "--json"),
    ("show", "done"),
    ("history", "done"),
    ("diff", "failed", "0"),
    ("batch", "show", "planted", "--failed"),
    ("batch", "show", "planted", "--json"),
    ("doctor",),
]


def test_state_results_and_files_are_kept_as_they_are_though_they_hold_a_secret(bench: Bench) -> None:
    text = "planted-in-what-is-kept"
    secret = wtb.Secret(text)
    told = wtb.tool(name="told", effects="none")(lambda: f"its result: {text}")

    def keep(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / "note").write_text(f"a file: {secret.reveal()}")
        return {"said": [ctx.tool(told), secret.reveal()]}

    flow = Workflow("keeping")
    flow.add_node("keep", keep, start=True)
    flow.add_node("read", lambda state, ctx: {"read": [(ctx.workspace / "note").read_text(), *state["said"]]})
    flow.edge("keep", "read")
    run = bench.run(flow, {}, break_after=["keep"]).resume()
    kept = [f"its result: {text}", text]
    assert run.state == {"said": kept, "read": [f"a file: {text}", *kept]}
    assert run.calls[0].result == kept[0]


def test_a_question_is_shown_masked_and_can_be_answered(bench: Bench) -> None:
    flow = Workflow("asking")
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask(f"Use {KEY.reveal()}?")}, start=True)
    run = bench.run(flow, {})
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert run.waiting.question["question"] == "Use ***?"
    assert run.resume(answer="yes").state == {"said": "yes"}


def test_a_secret_that_occurs_in_the_identity_of_a_question_does_not_keep_it_from_being_answered(bench: Bench) -> None:
    flow = Workflow("asking")
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask("How many?", schema={"type": "integer"})}, start=True)
    first = bench.run(flow, {})
    assert first.waiting is not None
    assert first.waiting.question is not None
    secret = wtb.Secret(first.waiting.question["identity"][-12:])
    run = bench.run(flow, {})
    assert run.resume(answer=3).state == {"said": 3}
    assert secret.reveal()


@pytest.mark.parametrize(
    ("schema", "good", "bad", "told"),
    [
        (["yes", "no"], "yes", "maybe", "answer one of yes, no"),
        ({"type": "integer", "minimum": 1}, 3, "three", r"\$: 'three' is not of type 'integer'"),
        ({"type": "object", "required": ["name"]}, {"name": "x"}, {}, r"\$: 'name' is a required property"),
    ],
)
def test_an_answer_is_checked_against_its_schema(bench: Bench, schema: Any, good: Any, bad: Any, told: str) -> None:
    flow = Workflow("asking")
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask("How many?", schema=schema)}, start=True)
    run = bench.run(flow, {})
    with pytest.raises(wtb.InvalidInput, match=told):
        run.resume(answer=bad)
    assert run.status == "paused"
    assert run.resume(answer=good).state == {"said": good}


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, "yes"])
def test_a_schema_that_is_none_fails_the_node_before_anybody_is_asked(bench: Bench, schema: Any) -> None:
    flow = Workflow("asking")
    flow.add_node("ask", lambda state, ctx: ctx.ask("How many?", schema=schema), start=True)
    run = bench.run(flow, {})
    assert run.error is not None
    assert "the schema of a question is" in run.error.message


def test_a_schema_that_refers_to_an_address_fetches_nothing(bench: Bench) -> None:
    flow = Workflow("asking")
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask("How many?", schema=schema)}, start=True)
    run = bench.run(flow, {})
    with pytest.raises(wtb.InvalidInput, match="refers to http://127"):
        run.resume(answer=1)


def test_settings_add_to_what_is_masked_and_take_nothing_away() -> None:
    flow = Workflow("login")

    def login(state: Any) -> None:
        raise PermissionError("pin=1234 and password=hunter2 for card 9999")

    flow.add_node("login", login, start=True)
    with Bench("memory://", secret_keys=["pin"], secret_patterns=[r"\b\d{4}\b"]) as bench:
        error = bench.run(flow).error
    assert error is not None
    assert error.message == "pin=*** and password=*** for card ***"
