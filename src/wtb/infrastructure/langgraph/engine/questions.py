"""Questions: `interrupt()` in a node, in a subgraph or in a tool, answered from the record.

LangGraph finds answers by the order of a task's questions, which tools that run at the same time, or whose results come
from the record, do not keep. Here a node and each call of a tool have a list of answers of their own.
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
"""Under which key of the configuration LangGraph keeps what is known of a task's questions."""
CHECKPOINTER = "__pregel_checkpointer"
"""Under which key it keeps the saver of the graph around: None in a node of ours, and in the graphs inside it."""
_ASKED_BY = "wtb:"
NODE = "interrupt"
"""Who asks when no tool does: the node itself, or a subgraph of it."""


def answering(config: RunnableConfig, answers: Sequence[Any], **more: Any) -> RunnableConfig:
    """Return a configuration in which `interrupt()` gives these answers one after the other, and then asks."""
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
    """Let a call of a tool ask, with the answers to what it asked before."""
    config = var_child_runnable_config.get()
    if not _is_asked_here(config):
        yield
        return
    token = var_child_runnable_config.set(answering(config, context.answers(inside=call.identity)))
    try:
        yield
    except GraphInterrupt as stop:
        for each in stop.args[0]:
            if asked_by(each) == NODE:  # by no call inside this one
                each.id = _ASKED_BY + call.identity  # which graphs around the tool pass on
        raise
    finally:
        var_child_runnable_config.reset(token)


def _is_asked_here(config: RunnableConfig | None) -> TypeGuard[RunnableConfig]:
    """Whether questions reach our node: outside of graphs nobody asks, and one with a saver is resumed by others."""
    around = {} if config is None else config.get("configurable", {})
    return _SCRATCHPAD in around and around.get(CHECKPOINTER) is None


def asked_by(question: Interrupt) -> str:
    """Return the call of a tool that asks, or NODE."""
    return question.id.removeprefix(_ASKED_BY) if question.id.startswith(_ASKED_BY) else NODE
