"""Built-in evaluators: the value that a key, a path or a function leads to, and what is expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

import wtb
import wtb.langgraph
from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import EvaluationContext, RunUsage
from wtb.infrastructure.evaluators.paths import value_at


class Place(NamedTuple):
    city: str
    country: str


class Found(BaseModel):
    score: float
    texts: list[str]


@dataclass
class Plan:
    steps: list[str]

    def length(self) -> int:
        return len(self.steps)


TALK = [
    HumanMessage("Is Paris the capital of France?"),
    AIMessage("", tool_calls=[{"name": "look_up", "args": {"q": "France"}, "id": "1"}]),
    ToolMessage("Paris", tool_call_id="1"),
    AIMessage("Yes, it is."),
]
STATE = {
    "answer": "Paris",
    "result": {"total": 3, 7: "seven", "parts": [{"name": "a"}, {"name": "b"}]},
    "a.b": "dotted",
    "place": Place("Paris", "France"),
    "found": Found(score=0.5, texts=["one", "two"]),
    "plan": Plan(["look", "answer"]),
    "messages": TALK,
    "nothing": [],
}


def context(expected: Any = None, **state: Any) -> EvaluationContext:
    return EvaluationContext(
        case=Case(id="c", input={}, expected=expected),
        state=state or STATE,
        latency_s=0.0,
        steps=1,
        usage=RunUsage({}),
        tool_errors=0,
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("answer", "Paris"),
        ("a.b", "dotted"),
        ("result.total", 3),
        ("result.7", "seven"),
        ("result.parts.-1.name", "b"),
        ("place.city", "Paris"),
        ("place.1", "France"),
        ("found.texts.0", "one"),
        ("plan.steps.1", "answer"),
        ("messages.-1.content", "Yes, it is."),
        ("messages.-1.text", "Yes, it is."),
        ("messages.1.tool_calls.0.args.q", "France"),
    ],
)
def test_a_path_leads_through_mappings_lists_and_objects(path: str, value: Any) -> None:
    assert value_at(path, STATE) == value


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("anser", "the state has no key 'anser'; it has a.b, answer, found"),
        ("result.totl", "'result.totl' leads nowhere: result has no key 'totl'; it has 7, parts, total"),
        ("result.parts.2", "'result.parts.2' leads nowhere: result.parts has no item 2; it has 2 items"),
        ("nothing.-1.x", "'nothing.-1.x' leads nowhere: nothing has no item -1; it has no items"),
        ("messages.last", "messages is a list, which has no 'last'; it has items that go by their number"),
        (
            "messages.-1.contents",
            "messages.-1 is an AIMessage, which has no 'contents'; it has additional_kwargs, ",
        ),
        ("plan.length", "plan is a Plan, which has no 'length'; it has steps"),
        ("place.town", "place is a Place, which has no 'town'"),
        ("answer.0", "answer is a str, which has no '0'; it has nothing inside"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends_and_what_there_is(path: str, told: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        value_at(path, STATE)
    assert told in str(raised.value)


def said_last(context: EvaluationContext) -> str:
    return str(context.state["messages"][-1].content)


@pytest.mark.parametrize("key", ["messages.-1.content", said_last, wtb.langgraph.last_message])
def test_every_evaluator_takes_a_path_or_a_function(key: Any) -> None:
    assert wtb.Contains(key).evaluate(context("yes")) == 1.0
    assert wtb.Contains(key).evaluate(context("Paris")) == 0.0, "the question is no part of the answer"
    assert wtb.ExactMatch(key).evaluate(context("Yes, it is.")) == 1.0
    assert wtb.TokenF1(key).evaluate(context("yes it is")) == 1.0
    assert wtb.RegexMatch(key, r"^Yes").evaluate(context()) == 1.0
    assert wtb.FitsSchema(key, {"type": "string"}).evaluate(context()) == 1.0


def test_a_number_is_found_by_a_path() -> None:
    assert wtb.NumericMatch("result.total").evaluate(context(3)) == 1.0
    assert wtb.NumericMatch(lambda context: context.state["found"].score).evaluate(context(0.5)) == 1.0


@pytest.mark.parametrize(
    "evaluator",
    [
        wtb.ExactMatch("messages"),
        wtb.Contains("messages"),
        wtb.RegexMatch("messages", "Paris"),
        wtb.TokenF1("messages"),
        wtb.FitsSchema("messages", {}),
        wtb.Contains(lambda context: context.state["messages"]),
    ],
)
def test_messages_are_refused_with_the_ways_to_say_which_one(evaluator: Any) -> None:
    with pytest.raises(InvalidInput, match=r"holds 4 messages; .*-1\.content' is .* wtb\.langgraph\.last_message"):
        evaluator.evaluate(context("Paris"))


def test_a_whole_message_is_refused_with_the_path_to_its_content() -> None:
    with pytest.raises(InvalidInput, match=r"'messages\.-1' is a whole message; .* as 'messages\.-1\.content'"):
        wtb.TokenF1("messages.-1").evaluate(context("Paris"))


def test_messages_that_are_mappings_are_refused_where_text_is_wanted() -> None:
    talk = [{"role": "user", "content": "Is it Paris?"}, {"role": "assistant", "content": "Yes"}]
    with pytest.raises(InvalidInput, match="'talk' holds 2 messages"):
        wtb.Contains("talk").evaluate(context("Paris", talk=talk))
    assert wtb.ExactMatch("talk").evaluate(context({"talk": talk}, talk=talk)) == 1.0
    assert wtb.Contains("talk.-1.content").evaluate(context("yes", talk=talk)) == 1.0


def test_the_last_message_is_that_of_the_ai_as_text() -> None:
    blocks: Any = [{"type": "text", "text": "It is "}, {"type": "image", "url": "x"}, {"type": "text", "text": "Paris"}]
    last = wtb.langgraph.last_message
    assert last(context(messages=[AIMessage(blocks), HumanMessage("thanks")])) == "It is Paris"
    assert last(context(talk=[AIMessage("yes")], n=1)) == "yes", "the only key that holds messages"
    assert wtb.Contains("messages.0.content").evaluate(context("is paris", messages=[AIMessage(blocks)])) == 1.0


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"messages": [HumanMessage("hello")]}, "'messages' holds no AI message; the types of its messages: human"),
        ({"messages": []}, "'messages' holds no AI message; the types of its messages: none"),
        ({"answer": "x"}, "no key of the state holds messages; it has answer"),
        (
            {"a": [AIMessage("1")], "b": [AIMessage("2")]},
            "a, b hold messages; choose one with a path, such as 'a.-1.content'",
        ),
    ],
)
def test_a_state_without_a_last_message_says_what_it_has(state: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        wtb.langgraph.last_message(context(**state))


def test_what_is_expected_is_the_value_or_found_by_the_same_way() -> None:
    assert wtb.ExactMatch("answer").wanted_of(Case(id="c", input={}, expected={"answer": "x", "b": 1})) == "x"
    assert wtb.ExactMatch("result.total").wanted_of(Case(id="c", input={}, expected={"result": {"total": 3}})) == 3
    by_name = Case(id="c", input={}, expected={"result.total": 4})
    assert wtb.ExactMatch("result.total").wanted_of(by_name) == 4
    answer = Case(id="c", input={}, expected={"answer": "x", "more": {"text": "y"}})
    assert wtb.Contains("messages.-1.content", expected_key="answer").wanted_of(answer) == "x"
    assert wtb.Contains(said_last, expected_key="more.text").wanted_of(answer) == "y"
    assert wtb.ExactMatch(said_last).wanted_of(answer) == answer.expected, "a mapping is compared as a whole"


@pytest.mark.parametrize(
    ("evaluator", "told"),
    [
        (wtb.ExactMatch("total"), "expected.total is missing; ExactMatch needs it"),
        (
            wtb.Contains("messages.-1.content"),
            "expected.messages.-1.content is missing; .* no key 'messages'",
        ),
        (wtb.TokenF1(said_last), "expected is a mapping; name the value that TokenF1 needs: expected_key='answer'"),
    ],
)
def test_a_case_that_does_not_say_what_is_expected_is_refused_before_anything_runs(evaluator: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        evaluator.check_case(Case(id="c", input={}, expected={"answer": "Paris"}))


async def later(context: EvaluationContext) -> str:
    return "later"


@pytest.mark.parametrize(
    ("key", "told"), [(3, "takes a key of the state, a path"), ("", "not ''"), (later, "give one that is not async")]
)
def test_what_leads_to_no_value_is_refused_when_it_is_written(key: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        wtb.Contains(key)
