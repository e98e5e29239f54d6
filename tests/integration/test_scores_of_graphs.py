"""Scores of LangGraph graphs: evaluators see the messages and objects that the graph's own nodes see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import wtb
import wtb.langgraph
from tests.langgraph_graphs import judging
from tests.shell import Shell

CASES = [
    {"id": "france", "input": {"messages": [("user", "Is Paris the capital of France?")]}, "expected": "yes"},
    {"id": "spain", "input": {"messages": [HumanMessage("Is Paris the capital of Spain?")]}, "expected": "no"},
]


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as bench:
        yield bench


def chat(state: MessagesState) -> dict[str, Any]:
    asked = state["messages"][-1].content
    return {"messages": [AIMessage("Yes" if "France" in asked else "No")]}


def chat_graph() -> Any:
    graph: StateGraph[Any] = StateGraph(MessagesState)
    graph.add_node("chat", chat)
    graph.add_edge(START, "chat")
    graph.add_edge("chat", END)
    return graph


def answered(context: wtb.EvaluationContext) -> bool:
    return bool(context.state["messages"][-1].content.lower() == context.expected)


def asked(context: wtb.EvaluationContext) -> float:
    """Read the question of the case, which a batch has kept as the first state of its run."""
    first = context.case.input["messages"][0]
    return len(first[1] if isinstance(first, tuple) else first.content)


def scores(result: wtb.BatchResult, metric: str) -> dict[str, Any]:
    return {job.case_id: job.scores[metric] for job in result.results}


def test_an_evaluator_of_a_batch_reads_messages_as_the_nodes_do(bench: wtb.Bench) -> None:
    evaluators = [answered, wtb.Contains("messages.-1.content"), wtb.TokenF1(wtb.langgraph.last_message)]
    result = bench.batch(chat_graph(), cases=CASES, evaluators=evaluators)
    assert result.status == "completed"
    for metric in ("answered", "contains", "token_f1"):
        assert scores(result, metric) == {"france": 1.0, "spain": 1.0}


def test_evaluators_that_come_later_read_messages_too(bench: wtb.Bench) -> None:
    result = bench.batch(chat_graph(), cases=CASES, evaluators=["steps"])
    later = bench.evaluate("graph", [answered, asked])
    assert scores(later, "answered") == {"france": 1.0, "spain": 1.0}
    assert scores(later, "asked") == {"france": 31.0, "spain": 30.0}
    again = bench.batch(chat_graph(), cases=CASES, evaluators=["steps", wtb.ExactMatch(wtb.langgraph.last_message)])
    assert scores(again, "exact_match") == {"france": 0.0, "spain": 0.0}, "Yes is not yes"
    assert {job.run_id for job in again.results} == {job.run_id for job in result.results}


def test_a_run_of_a_graph_is_scored_alone(bench: wtb.Bench) -> None:
    run = bench.run(chat_graph(), CASES[0]["input"])
    assert bench.evaluate(run, [answered], expected="yes") == {"answered": 1.0}
    assert bench.evaluate(run.id, [answered], expected="no") == {"answered": 0.0}


def test_a_diff_and_what_nodes_returned_hold_messages_as_the_nodes_see_them(bench: wtb.Bench) -> None:
    run = bench.run(chat_graph(), CASES[0]["input"])
    (added,) = run.diff(0).state
    assert (type(added.new), added.new.content) == (AIMessage, "Yes")
    assert run.returned["chat"][0]["messages"][0].content == "Yes"
    (known_elsewhere,) = bench.get(run.id).diff(0).state
    assert known_elsewhere == added


def test_a_diff_without_objects_shows_what_a_message_says_without_its_empty_fields(bench: wtb.Bench) -> None:
    (added,) = bench.run(chat_graph(), CASES[0]["input"]).diff(0, objects=False).state
    data = added.new.legible()
    assert data.pop("id")
    assert data == {"class": "langchain_core.messages.ai.AIMessage", "content": "Yes", "type": "ai"}


def test_another_function_of_an_evaluator_scores_again(bench: wtb.Bench) -> None:
    def first(context: wtb.EvaluationContext) -> str:
        return str(context.state["messages"][0].content)

    bench.batch(chat_graph(), cases=CASES, evaluators=[wtb.Contains(first)])
    again = bench.batch(chat_graph(), cases=CASES, evaluators=[wtb.Contains(wtb.langgraph.last_message)])
    assert scores(again, "contains") == {"france": 1.0, "spain": 1.0}


def test_a_key_that_holds_messages_is_no_score_and_says_how_to_write_it(bench: wtb.Bench) -> None:
    result = bench.batch(chat_graph(), cases=CASES, evaluators=[wtb.Contains("messages"), wtb.TokenF1("messages")])
    assert result.status == "completed_with_errors"
    for metric in ("contains", "token_f1"):
        for score in scores(result, metric).values():
            assert "'messages' holds 2 messages" in score["error"]
            assert "wtb.langgraph.last_message" in score["error"]


def test_objects_of_the_graph_come_as_its_nodes_see_them(bench: wtb.Bench) -> None:
    cases = [{"id": "1", "input": {"question": "?"}, "expected": {"verdict": {"text": "yes", "sure": 0.75}}}]
    evaluators = [
        wtb.ExactMatch("verdict.text"),
        wtb.NumericMatch("verdict.sure"),
        wtb.NumericMatch("pair.1.sure", expected_key="verdict.sure", name="paired"),
    ]
    result = bench.batch(judging(), cases=cases, evaluators=evaluators)
    assert result.results[0].scores == {"exact_match": 1.0, "numeric_match": 1.0, "paired": 1.0}


STRICT = """
import sys
sys.path.insert(0, {tests!r})
import wtb
from tests.langgraph_graphs import judging

def sure(context):
    return context.state["verdict"].sure

with wtb.Bench("memory://") as bench:
    run = bench.run(judging(), {{"question": "?"}})
    print(type(run.state["verdict"]).__name__, type(run.returned["judge"][0]["verdict"]).__name__)
    print(bench.evaluate(run, [sure]))
    result = bench.batch(judging(), cases=[{{"id": "1", "input": {{"question": "?"}}}}], evaluators=[sure])
    print(result.results[0].scores)
"""


def test_objects_come_also_where_langgraph_builds_only_what_the_schema_names(tmp_path: Path) -> None:
    program = STRICT.format(tests=str(Path(__file__).parents[2]))
    env = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["Verdict Verdict", "{'sure': 0.75}", "{'sure': 0.75}"]


BATCH = """
import wtb
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

def answer(state):
    return {"messages": [AIMessage("Paris")]}

graph = StateGraph(MessagesState)
graph.add_node("answer", answer)
graph.add_edge(START, "answer")

def is_paris(context):
    return context.state["messages"][-1].content == "Paris"

cases = [{"id": "1", "input": {"messages": [["user", "Capital of France?"]]}, "expected": "Paris"}]
batch = wtb.BatchTest(graph, name="chat", cases=cases, evaluators=[is_paris, wtb.Contains("messages")])
"""


def test_on_the_command_line_a_graph_is_scored_and_a_vague_key_is_told(tmp_path: Path) -> None:
    done = Shell(tmp_path, chat=BATCH).wtb("batch", "run", "chat.py", code=3).stdout
    assert "Evaluator contains failed on 1 of 1 run; the first, baseline on 1:" in done
    assert "choose one: 'messages.-1.content' is the last one" in done
    assert "is_paris failed" not in done
