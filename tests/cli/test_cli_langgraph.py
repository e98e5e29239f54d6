"""`wtb` on threads that the LangGraph saver wrote, as a person types it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.langgraph_graphs import chat_graph
from tests.shell import Shell
from wtb.langgraph import Saver


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with one thread, which has a branch."""
    with Saver(folder=tmp_path / ".wtb") as saver:
        graph = chat_graph().compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "my chat"}}
        graph.invoke({"messages": [HumanMessage("hi there", id="0")], "count": 0}, config)
        earlier = list(graph.get_state_history(config))[2]
        graph.invoke(None, graph.update_state(earlier.config, {"count": 100}))
    return Shell(tmp_path)


def test_threads_are_listed_as_runs(shell: Shell) -> None:
    rows = shell.json("ls")
    assert [(row["run"], row["workflow"]) for row in rows] == [("my chat", "LangGraph thread")]


def test_a_thread_is_completed_when_its_graph_has_finished_and_paused_while_it_waits(shell: Shell) -> None:
    assert [row["status"] for row in shell.json("ls", "--status", "completed")] == ["completed"]
    config: Any = {"configurable": {"thread_id": "my chat"}}
    with Saver(folder=shell.folder / ".wtb") as saver:
        stops = chat_graph().compile(checkpointer=saver, interrupt_before=["left"])
        stops.invoke({"messages": [HumanMessage("again", id="1")], "count": 0}, config)
    assert [row["status"] for row in shell.json("ls")] == ["paused"]
    with Saver(folder=shell.folder / ".wtb") as saver:
        chat_graph().compile(checkpointer=saver).invoke(None, config)
    assert [row["status"] for row in shell.json("ls")] == ["completed"]
    shell.wtb("rollback", "my chat", "ask", "--yes")
    assert [row["status"] for row in shell.json("ls")] == ["paused"]


def test_a_saver_is_closed_by_async_with(tmp_path: Path) -> None:
    async def chat() -> Any:
        async with Saver(folder=tmp_path / ".wtb") as saver:
            graph = chat_graph().compile(checkpointer=saver)
            config: Any = {"configurable": {"thread_id": "t"}}
            return (await graph.ainvoke({"messages": [HumanMessage("hi", id="0")], "count": 0}, config))["count"]

    assert asyncio.run(chat()) == 4


def test_a_thread_is_shown_with_its_messages_in_plain_words(shell: Shell) -> None:
    text = shell.wtb("show", "my chat").stdout
    assert "LangGraph thread" in text
    assert '"content": "hi there"' in text
    assert "thread_id 'my chat'" in text
    state = shell.json("show", "my chat")["state"]
    assert [message["content"] for message in state["messages"]][:2] == ["hi there", "ask"]
    assert state["count"] == 104


def test_the_history_has_nodes_and_branches(shell: Shell) -> None:
    rows = shell.json("history", "my chat")
    assert [row["node"] for row in rows] == ["", "", "ask", "", "left, right", "end"]
    assert rows[-1]["mark"] == "head"
    assert "← main" in shell.wtb("history", "my chat", "--tree").stdout


def test_a_diff_names_the_field_of_a_message(shell: Shell) -> None:
    assert "+ state.messages[1]  AIMessage 'ask'" in shell.wtb("diff", "my chat", "1", "ask").stdout
    changes = shell.json("diff", "my chat", "ask", "3")["state"]
    assert changes == [{"path": "state.count", "change": "changed", "old": 1, "new": 101}]


def test_a_thread_cannot_be_resumed_without_its_graph(shell: Shell) -> None:
    assert "is a LangGraph thread" in shell.wtb("resume", "my chat", code=2).stderr


GRAPHS = """
from langgraph.func import entrypoint
from langgraph.graph import MessagesState, StateGraph

def make_graph(config):
    return StateGraph(MessagesState)

@entrypoint()
def functional(given):
    return given
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("make_graph", "'make_graph' in graphs.py is a function: let flow = make_graph(…) there, and name that"),
        ("functional", "the functional API (@entrypoint) is not supported"),
    ],
)
def test_what_is_no_graph_is_refused_with_what_to_do(shell: Shell, name: str, said: str) -> None:
    (shell.folder / "graphs.py").write_text(GRAPHS)
    assert said in shell.wtb("run", f"graphs.py:{name}", code=2).stderr


def test_a_thread_is_deleted_pruned_and_looked_after(shell: Shell) -> None:
    assert shell.json("doctor")["faults"] == []
    shell.wtb("delete", "my chat", "--yes")
    assert shell.json("ls") == []


def test_a_database_of_langgraphs_own_saver_is_imported(shell: Shell) -> None:
    with SqliteSaver.from_conn_string(str(shell.folder / "theirs.db")) as theirs:
        graph = chat_graph().compile(checkpointer=theirs)
        graph.invoke({"messages": [HumanMessage("hi", id="0")], "count": 0}, {"configurable": {"thread_id": "other"}})

    assert shell.json("import", "langgraph", "theirs.db") == {"threads": 1, "checkpoints": 5, "present": []}
    assert "Not changed: other" in shell.wtb("import", "langgraph", "theirs.db").stdout
    assert shell.json("show", "other")["state"]["count"] == 4
    assert "is not a file" in shell.wtb("import", "langgraph", "missing.db", code=2).stderr
