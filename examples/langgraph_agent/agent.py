"""The agent: a model that calls tools until it has an answer, and a quote written to a file. Plain LangGraph.

`WTB_MODEL=openai:gpt-5-mini`, or any other that langchain's `init_chat_model` knows, takes a real model instead of the
scripted one.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module
from typing import Any

from langchain_core.messages import AIMessage, SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from scripted import ScriptedModel
from shop import exact, put_aside, tolerant

import wtb.langgraph

PLAIN = "You sell crockery. Look up prices with the tool `price`, and put aside what you are asked to. "
PLAIN += "End your answer with `Total: ` and the amount, or `unknown`."
CAREFUL = f"{PLAIN} Look up every product, in the singular, before you answer."


class Order(MessagesState):
    """A conversation, and what it comes to."""

    total: float | None


@cache
def chat_model() -> Any:
    """Return the model that answers: scripted, or the one that WTB_MODEL names."""
    name = os.environ.get("WTB_MODEL")
    if name is None:
        return ScriptedModel()
    models = import_module("langchain.chat_models")  # pip install langchain, and the package of the provider
    return models.init_chat_model(name).bind_tools([exact, put_aside])


def answering(prompt: str) -> Any:
    """Return a node that answers with this prompt."""

    def model(state: Order) -> dict[str, Any]:
        return {"messages": [chat_model().invoke([SystemMessage(prompt), *state["messages"]])]}

    return model


def is_done(state: Order) -> str:
    """Go on with the tools that the model asks for, or with the quote."""
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else "quote"


def quote(state: Order) -> dict[str, Any]:
    """Write the answer down for the customer."""
    text = str(state["messages"][-1].content)
    (wtb.workspace() / "quote.md").write_text(f"{text}\n")
    amount = re.search(r"Total: \D{0,2}([\d.]+\d)", text)
    return {"total": None if amount is None else float(amount[1])}


graph: StateGraph[Any] = StateGraph(Order)
graph.add_node("model", answering(PLAIN))
graph.add_node("tools", ToolNode([exact, put_aside]))
graph.add_node("quote", quote)
graph.add_edge(START, "model")
graph.add_conditional_edges("model", is_done, ["tools", "quote"])
graph.add_edge("tools", "model")
graph.add_edge("quote", END)

flow = wtb.langgraph.workflow(graph, name="crockery")
flow.add_variant("model", "careful", answering(CAREFUL))
flow.add_variant("tools", "tolerant", ToolNode([tolerant, put_aside]))
