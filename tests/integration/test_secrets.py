"""No secret reaches an event, a log, an error or a recorded argument, whoever says it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
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


def test_a_question_is_shown_masked_and_can_be_answered(bench: Bench) -> None:
    flow = Workflow("asking")
    flow.add_node("ask", lambda state, ctx: {"said": ctx.ask(f"Use {KEY.reveal()}?")}, start=True)
    run = bench.run(flow, {})
    assert run.waiting is not None
    assert run.waiting.question is not None
    assert run.waiting.question["question"] == "Use ***?"
    assert run.resume(answer="yes").state == {"said": "yes"}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "told"),
    [
        (["yes", "no"], "yes", "maybe", "say one of yes, no"),
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
