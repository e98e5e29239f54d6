"""Runs or resumes a LangGraph thread with the saver, and is killed doing so; served as `engine_worker` is.

Its nodes note in a file what they have done.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from tests.crash import engine_worker as engine
from wtb.langgraph import Saver

ROUNDS = 60


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    left: Annotated[list[int], operator.add]
    right: Annotated[list[int], operator.add]


def graph(log: int) -> StateGraph[Any]:
    """Return say → (left, right) → say …, each of which notes in a file that it has run."""

    def noted(name: str, number: int) -> None:
        os.write(log, f"{name} {number}\n".encode())

    def say(state: State) -> dict[str, Any]:
        number = len(state["messages"])
        noted("say", number)
        return {"messages": [AIMessage(f"{number} " * 50, id=str(number))]}

    def side(name: str) -> Any:
        def run(state: State) -> dict[str, Any]:
            noted(name, len(state["messages"]))
            return {name: [len(state["messages"])]}

        return run

    made = StateGraph(State)
    made.add_node("say", say)
    made.add_node("left", side("left"))
    made.add_node("right", side("right"))
    made.add_node("join", lambda state: {})
    made.add_edge(START, "say")
    made.add_edge("say", "left")
    made.add_edge("say", "right")
    # Two edges, not one that waits for both: with any checkpointer LangGraph loses count of such a join on resuming.
    made.add_edge("left", "join")
    made.add_edge("right", "join")
    made.add_conditional_edges("join", lambda state: END if len(state["messages"]) >= ROUNDS else "say")
    return made


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Go on with the thread until it has ended, or somebody kills this process."""
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND)
    with Saver(job["url"], folder=job["folder"]) as saver:
        compiled = graph(log).compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": job["run"]}, "recursion_limit": 10_000}
        begun = saver.get_tuple(config) is not None
        given: Any = None if begun else {"messages": [], "left": [], "right": []}
        os.write(log, b"started\n")
        compiled.invoke(given, config, durability=job["durability"])
    return {"error": None}


def wait(job: Mapping[str, Any], pid: int) -> None:
    """Wait until the nodes have noted as many lines as the job says, or the child has ended."""
    log = Path(job["log"])
    while log.read_bytes().count(b"\n") < job["lines"] and not engine.has_ended(pid):
        time.sleep(0.002)


def serve() -> None:
    """Fork a child for every job."""
    engine.run = run
    engine.wait = wait
    engine.serve()
