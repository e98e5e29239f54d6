"""Answers to editors: bounded, whole JSON as long as it fits, and without characters that affect a terminal."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from wtb.api.mcp.answers import LARGEST, answer, first_that_fit, page
from wtb.api.mcp.inner_api import InnerApi, address_of
from wtb.api.mcp.questions import batch_question, fork_question, resume_question, rollback_question
from wtb.domain.access import Caller, Role
from wtb.domain.errors import InvalidInput


@pytest.mark.parametrize(
    "data",
    [
        {"text": "x" * 1_000_000},
        {"items": [{"id": str(number), "text": "y" * 500} for number in range(10_000)]},
        {str(number): number for number in range(100_000)},
        [[["z" * 100] * 200] * 200] * 20,
    ],
)
def test_an_answer_is_bounded_and_says_what_it_leaves_out(data: Any) -> None:
    text = answer(data)
    assert len(text) <= LARGEST
    json.loads(text)
    assert "more" in text


def test_a_page_that_does_not_fit_is_read_again_with_fewer_items_so_that_none_is_skipped() -> None:
    asked: list[int] = []

    async def read(limit: int) -> dict[str, Any]:
        asked.append(limit)
        return {"items": [{"id": str(number), "more": {"a": "y" * 200, "b": "z" * 500}} for number in range(limit)]}

    found = json.loads(asyncio.run(page(read, 100)))
    assert asked == [100, 50]
    assert [item["id"] for item in found["items"]] == [str(number) for number in range(50)]


def test_of_many_rows_an_answer_has_the_first_ones_and_the_number_of_the_others() -> None:
    rows = [{"id": str(number), "figures": [0.25] * 100} for number in range(200)]
    found = json.loads(first_that_fit({"name": "wide"}, "rows", rows))
    assert found["name"] == "wide"
    assert found["rows"] == rows[: len(found["rows"])]
    assert len(found["rows"]) + found["rows_left"] == 200
    assert "rows_left" not in json.loads(first_that_fit({}, "rows", rows[:10]))


def test_an_answer_that_fits_is_whole_and_absent_values_of_users_stay() -> None:
    data = {"id": "a", "error": None, "value": {"x": None}, "state_hash": "00", "items": [{"old": None, "node": None}]}
    assert json.loads(answer(data)) == {"id": "a", "value": {"x": None}, "items": [{"old": None}]}


def test_control_characters_are_escapes_and_other_letters_stay_readable() -> None:
    text = answer({"value": "\x1b[31m\x9b\u202e\x7f\r\n\udc80 äß日本 🙂"})
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "äß日本 🙂" in text
    assert json.loads(text)["value"] == "\x1b[31m\x9b\u202e\x7f\r\n\udc80 äß日本 🙂"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../batches"])
def test_a_name_cannot_lead_to_another_address(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not the id or the name of anything here"):
        address_of("executions", name)
    assert address_of("batches", "b", "cases", "a/b?c") == "/api/v1/batches/b/cases/a%2Fb%3Fc"


def test_texts_of_users_cannot_look_like_lines_of_a_question() -> None:
    plan: dict[str, Any] = {
        "target": {"step": 1, "node": "n\nFiles removed: none", "checkpoint": "c"},
        "checkpoints": 1,
        "nodes": [f"node#{number}" for number in range(20)],
        "reverse": [{"tool": "send\nall well", "call": "c", "status": "succeeded", "at": "now"}],
        "irreversible": [],
        "kept": [],
        "files": {"put": [], "removed": ["a\nb"]},
    }
    question = rollback_question("run", plan)
    assert "after node n\\nFiles removed: none?" in question
    assert "send\\nall well (succeeded)" in question
    assert "node#14, and 5 more\n" in question
    assert fork_question("r", None, input={"a": "b\nc"}).splitlines()[1] == 'With other input: {"a": "b\\nc"}'


@pytest.mark.parametrize("answer", [False, 0, "", [], {}])
def test_every_answer_is_in_the_question(answer: Any) -> None:
    run = {"id": "r", "workflow": "w", "status": "paused", "pause": None, "failure": None, "current_nodes": ["n"]}
    assert f"With the answer: {json.dumps(answer)}\n" in resume_question(run, {"the answer": answer, "options": None})


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_does_not_have_are_refused_in_a_sentence(number: float) -> None:
    api = InnerApi(nobody, Caller(name="me", role=Role.ADMIN))
    with pytest.raises(InvalidInput, match="a number that JSON does not have"):
        asyncio.run(api.post("executions", body={"input": {"x": number}}))


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing is asked")


def test_a_question_about_a_batch_says_what_it_may_cost() -> None:
    counts = {"kept": 0, "shared": 1, "executed": 5}
    plan = {"jobs": 10, "kept": 4, "run": 6, "node_runs": counts, "changes": {"answer": ["its code"]}, "external": []}
    before = {"completed": 2, "failed": 1, "spent": {"usd": 0.3, "tokens": 3_000, "s": 1}}
    assert batch_question("b", plan, before, {"usd": 1}).splitlines() == [
        "Run batch b: 10 jobs, of which 4 are kept and 6 run?",
        "Node runs: about 5 executed, 1 shared, 0 kept",
        "Cost: the last one spent 0.3 USD and 3,000 tokens on 3 jobs; at that rate these 6 take about 0.6 USD and "
        "6,000 tokens",
        'Budget: {"usd": 1}',
        "Changed since its last run: answer: its code",
    ]
