"""EngineContext: the hooks that an engine has for the node run it is making; nodes get the Context in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from wtb.application.runs.context import Context
from wtb.application.runs.node_calls import NodeCalls
from wtb.application.runs.question_schema import check_schema
from wtb.application.runs.threads import in_thread
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import InvalidInput
from wtb.domain.event_catalogue import NodeInside
from wtb.domain.ports import Measure
from wtb.domain.tools import CallKind, Effects, Tool, ToolCall

CURRENT: ContextVar[EngineContext | None] = ContextVar("wtb_context")
"""The context of the node that is running here, for code that does not get it as an argument."""


RUNS_HERE: set[object] = set()
"""The drivers that run nodes in this process."""


def may_be_in_node() -> bool:
    """Whether this code may belong to a node: it has a node's context, or may be on a node's thread without one."""
    try:
        CURRENT.get()
    except LookupError:
        return bool(RUNS_HERE)
    return True


def current() -> Context:
    """Return the context of the node that is running here; raise InvalidInput if there is none."""
    found = CURRENT.get(None)
    if found is None:
        raise InvalidInput(
            "no node of a run of wtb is running here: start a graph with bench.run(graph, …), let a node of a "
            "wtb.Workflow take ctx, and start your own threads with contextvars.copy_context().run"
        )
    return found.context


class EngineContext:
    """Hooks for an engine of another library: they report its calls, questions and inner nodes to WTB."""

    def __init__(self, context: Context, calls: NodeCalls) -> None:
        self.context = context
        """The context that the node itself gets."""
        self._calls = calls
        self._under_way: set[Future[None]] = set()
        self.is_of_graph = False
        """Whether another engine runs the node; its tools are recorded wherever they are called."""
        self.inside: list[NodeInside] = []
        """Nodes that ran inside this one, each by its path and with its duration."""

    @property
    def run(self) -> NodeRun:
        """The current node run."""
        return self.context.run

    def mock_of(self, tool: str) -> Callable[..., Any] | None:
        """Return the mock of a tool; None if it has none."""
        return self._calls.answers.mock_of(tool)

    def recorded(self, tool: Tool, arguments: Mapping[str, Any], function: Callable[[ToolCall], Any]) -> Any:
        """Call a tool of another library and record these arguments."""
        with self._waited_for():
            call = self._calls.tool(tool, arguments)
            return self._calls.make(call, lambda: function(call), tool.limit)

    async def arecorded(
        self, tool: Tool, arguments: Mapping[str, Any], function: Callable[[ToolCall], Awaitable[Any]]
    ) -> Any:
        """Like `recorded`, for a function that is awaited."""
        with self._waited_for():
            call = await in_thread(self._calls.tool, tool, arguments)
            return await self._calls.amake(call, lambda: function(call), tool.limit)

    @contextmanager
    def _waited_for(self) -> Iterator[None]:
        """Make `let_calls_end` wait for the end of the block."""
        end: Future[None] = Future()
        self._under_way.add(end)
        try:
            yield
        finally:
            self._under_way.discard(end)
            end.set_result(None)

    async def let_calls_end(self) -> None:
        """Wait for calls that run in parallel with the one that failed or asks, so that they are recorded, too."""
        await asyncio.gather(*map(asyncio.wrap_future, tuple(self._under_way)))

    def saw_begin(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Record a call to a tool that does not ask us first; refuse it if an earlier attempt already made it."""
        self._calls.answers.check_seen(tool)
        journal = self._calls.journal
        call = journal.lookup(CallKind.TOOL, tool, Effects.EXTERNAL, arguments, None)
        if journal.is_recorded(call) and call.may_have_happened:
            raise InvalidInput(
                f"an earlier attempt of node {self.run.node!r} called {tool}, whose result cannot be given back; "
                "declare it with wtb.langgraph.recorded, or resume with rerun_node=True to begin the node afresh"
            )
        if self._calls.telemetry.is_on:
            self._calls.telemetry.count(Measure.CALL, tool)
        return journal.intend(call)

    def saw_end(self, call: ToolCall, result: Any) -> None:
        """Record the result of such a call."""
        self._calls.journal.settle(call, result)

    def saw_failure(self, call: ToolCall, error: BaseException) -> None:
        """Record that such a call failed."""
        self._calls.journal.fail(call, error)

    def ask(self, question: Any, *, schema: list[Any] | Mapping[str, Any] | None = None, inside: str) -> Any:
        """Pause the run for another engine's question. That engine passes on the answer; `inside` names who asks."""
        check_schema(schema)
        return self._calls.ask({"question": question, "schema": schema, "inside": inside})

    def pass_questions(self) -> None:
        """Mark the answered questions of another engine as asked: the engine has the answers already."""
        for call in self._calls.journal.answered():
            if "inside" in call.arguments:
                self.ask(**call.arguments)

    def answers(self, inside: str) -> list[Any]:
        """Return the answers to the questions of one asker in another engine, in the order it asked."""
        return [call.result for call in self._calls.journal.answered() if call.arguments.get("inside") == inside]
