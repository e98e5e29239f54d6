"""Context: nodes see what they may call, and nothing that is there for engines."""

from typing import Any

import pytest

from wtb.application.runs.context import Context
from wtb.application.runs.engine_context import current
from wtb.bench import Bench
from wtb.flow import Workflow
from wtb.tools import workspace

USERS = {
    "acheckpoint",
    "ask",
    "astep",
    "atool",
    "checkpoint",
    "config",
    "emit",
    "limit",
    "log",
    "rng",
    "run",
    "seed",
    "step",
    "tool",
    "usage",
    "workspace",
}


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_a_node_sees_only_what_users_call() -> None:
    seen: set[str] = set()

    def look(state: Any, ctx: Context) -> dict[str, Any]:
        seen.update(public(ctx))
        return {}

    flow = Workflow("flow")
    flow.add_node("look", look, start=True)
    with Bench("memory://") as bench:
        assert bench.run(flow, {}).status == "completed"
    assert seen == USERS


def test_a_question_takes_no_asker_of_an_engine() -> None:
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        return {"answer": ctx.ask("Well?", inside="somebody")}

    flow = Workflow("flow")
    flow.add_node("ask", ask, start=True)
    with Bench("memory://") as bench:
        error = bench.run(flow, {}).error
    assert error is not None
    assert "inside" in error.message


def test_code_without_the_context_at_hand_finds_the_workspace_of_its_node() -> None:
    flow = Workflow("flow")
    flow.add_node("work", lambda state, ctx: {"same": workspace() == ctx.workspace}, start=True)
    with Bench("memory://") as bench:
        assert bench.run(flow, {}).state == {"same": True}


def test_there_is_no_context_outside_a_node() -> None:
    with pytest.raises(ValueError, match="no node of a run of wtb is running here"):
        current()
