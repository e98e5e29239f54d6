"""Questions: answers `interrupt()` in a node, a subgraph or a tool from the record.

LangGraph finds answers by the order in which a task asks. Tools that run at the same time, or whose results come from
the record, do not keep that order. So the node and each tool call have their own list of answers here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, TypeGuard

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from wtb.application.runs.engine_context import EngineContext
from wtb.domain.tools import ToolCall

_SCRATCHPAD = "__pregel_scratchpad"
"""LangGraph's key in the configuration for the questions and answers of a task."""
CHECKPOINTER = "__pregel_checkpointer"
"""LangGraph's key for the saver of the surrounding graph: None in our nodes, and in graphs inside them."""
_ASKED_BY = "wtb:"
NODE = "interrupt"
"""The asker of a question that no tool asks: the node itself, or a subgraph in it."""


def answering(config: RunnableConfig, answers: Sequence[Any], **more: Any) -> RunnableConfig:
    """Return a configuration in which `interrupt()` returns these answers in order, and then asks."""
    around, left = config["configurable"], iter(answers)
    own = replace(
        around[_SCRATCHPAD],
        interrupt_counter=count().__next__,
        resume=[],
        get_null_resume=lambda consume=False: next(left, None),
    )
    return {**config, "configurable": {**around, _SCRATCHPAD: own, **more}}


@contextmanager
def questions_of(call: ToolCall, context: EngineContext) -> Iterator[None]:
    """Let a tool call ask, and get the answers to its earlier questions."""
    config = var_child_runnable_config.get()
    if not _is_asked_here(config):
        yield
        return
    token = var_child_runnable_config.set(answering(config, context.answers(inside=call.identity)))
    try:
        yield
    except GraphInterrupt as stop:
        for each in stop.args[0]:
            if asked_by(each) == NODE:  # not asked by a call inside this one
                each.id = _ASKED_BY + call.identity  # surrounding graphs pass the id on
        raise
    finally:
        var_child_runnable_config.reset(token)


def _is_asked_here(config: RunnableConfig | None) -> TypeGuard[RunnableConfig]:
    """Whether questions reach our node: not outside of graphs, nor in a graph with a saver, which others resume."""
    around = {} if config is None else config.get("configurable", {})
    return _SCRATCHPAD in around and around.get(CHECKPOINTER) is None


def asked_by(question: Interrupt) -> str:
    """Return the tool call that asks, or NODE."""
    return question.id.removeprefix(_ASKED_BY) if question.id.startswith(_ASKED_BY) else NODE
