"""Context: the `ctx` that a node gets beside the state."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from wtb.application.runs.journal import Asked, CallJournal, InDoubt, Interruption, Unawaited, made
from wtb.application.runs.question_schema import check_schema
from wtb.domain.anchor import first_id
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import InvalidInput
from wtb.domain.event_catalogue import NodeInside
from wtb.domain.figures import Usage
from wtb.domain.history import check_name
from wtb.domain.secrets import Masker
from wtb.domain.tools import CallKind, CallStatus, Effects, Tool, ToolCall, ToolSpec
from wtb.domain.tools import InDoubt as WhenInDoubt
from wtb.domain.workflow import WorkflowDefinition

Price = Callable[[str, int, int], float | None]
"""The price of a model for input and output tokens, in dollars; None if it is unknown."""


CURRENT: ContextVar[Context] = ContextVar("wtb_context")
"""The context of the node that is running here, for code that does not get it as an argument."""


def current() -> Context:
    """Return the context of the node that is running here; raise InvalidInput if there is none."""
    found = CURRENT.get(None)
    if found is None:
        raise InvalidInput(
            "no node of a run of wtb is running here: start a graph with bench.run(graph, …), let a node of a "
            "wtb.Workflow take ctx, and start your own threads with contextvars.copy_context().run"
        )
    return found


class Context:
    """The tools, recorded steps, files, questions and random numbers of one node run."""

    def __init__(
        self,
        journal: CallJournal,
        *,
        find_tool: Callable[[str], Tool],
        workspace: Callable[[], Path],
        masker: Masker,
        price: Price,
        seed: int,
        config: Mapping[str, Any],
        workflow: WorkflowDefinition,
    ) -> None:
        self._journal = journal
        self._find_tool = find_tool
        self._workspace = workspace
        self._masker = masker
        self._price = price
        self._config = config
        self._workflow = workflow
        self.seed = seed
        self._under_way: set[Future[None]] = set()
        self.is_of_graph = False
        """Whether another engine runs the node; its tools are recorded wherever they are called."""
        self.inside: list[NodeInside] = []
        """Nodes that ran inside this one, each by its path and with its duration."""

    @property
    def run(self) -> NodeRun:
        """The current node run, with its `node`, `visit` and `attempt`."""
        return self._journal.run

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config of the node or of its variant."""
        return dict(self._config)

    @cached_property
    def log(self) -> logging.Logger:
        """The node's logger; secrets are masked in it."""
        logger = logging.getLogger(f"wtb.run.{self._workflow.name}.{self.run.node}")
        logger.addFilter(self._masker)
        return logger

    @cached_property
    def rng(self) -> random.Random:
        """A random number generator that gives the same numbers whenever this visit of the node is tried again."""
        return random.Random(self.seed)

    @property
    def workspace(self) -> Path:
        """The run's folder. Write files here: they are versioned with the checkpoints."""
        return self._workspace()

    def tool(self, tool: str | Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any) -> Any:
        """Call a tool, by name or directly. If the node is tried again, it gets the recorded result.

        Calls with equal arguments are told apart by their order, or by a `key`, which is not passed to the tool.
        """
        known = self._known(tool)
        if inspect.iscoroutinefunction(known.function):
            raise InvalidInput(f"tool {known.spec.name!r} is async: call it with `await ctx.atool(…)` in an async node")
        call = self._lookup(known, _bound(known, args, kwargs, key), key)
        return made(self._journal, call, lambda: self._function(known, call)(*args, **kwargs))

    async def atool(self, tool: str | Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any) -> Any:
        """Like `tool`, for async nodes. Sync tools run on a thread, so gathered calls run at the same time."""
        known = self._known(tool)
        call = await asyncio.to_thread(self._lookup, known, _bound(known, args, kwargs, key), key)
        return await self._called(call, partial(self._function(known, call), *args, **kwargs))

    def recorded(self, tool: Tool, arguments: Mapping[str, Any], function: Callable[[ToolCall], Any]) -> Any:
        """Call a tool of another library and record these arguments."""
        with self._waited_for():
            call = self._lookup(tool, arguments, None)
            return made(self._journal, call, lambda: function(call))

    async def arecorded(
        self, tool: Tool, arguments: Mapping[str, Any], function: Callable[[ToolCall], Awaitable[Any]]
    ) -> Any:
        """Like `recorded`, for a function that is awaited."""
        with self._waited_for():
            call = await asyncio.to_thread(self._lookup, tool, arguments, None)
            return await self._amade(call, lambda: function(call))

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
        """Wait for calls that run beside the one that failed or asks, so that they are recorded, too."""
        await asyncio.gather(*map(asyncio.wrap_future, tuple(self._under_way)))

    async def _called(self, call: ToolCall, function: Callable[[], Any]) -> Any:
        """Call a function that may be sync: then it runs on a thread, and the thread records its end.

        A thread continues when the node is cancelled, so the end of such a call is known and recorded all the same.
        """
        if inspect.iscoroutinefunction(function):
            return await self._amade(call, function)
        returned = await asyncio.to_thread(made, self._journal, call, function, is_awaited=True)
        if isinstance(returned, Unawaited):
            return await self._awaited(returned.call, lambda: returned.coroutine)
        return returned

    async def _amade(self, call: ToolCall, function: Callable[[], Awaitable[Any]]) -> Any:
        if call.status is CallStatus.SUCCEEDED:
            return call.result
        call = await asyncio.to_thread(self._journal.intend, call)
        return await self._awaited(call, function)

    async def _awaited(self, call: ToolCall, function: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call whose intent is recorded, and record its end; if it is cancelled, it stays in doubt."""
        with self._journal.flying(call):
            try:
                with self._journal.inside(call):
                    result = await function()
            except (Exception, Interruption) as error:
                await asyncio.to_thread(self._journal.fail, call, error)
                raise
            return await asyncio.to_thread(self._journal.settle, call, result)

    def saw_begin(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Record a call to a tool that does not ask us first; refuse it if an earlier attempt already made it."""
        call = self._journal.lookup(CallKind.TOOL, tool, Effects.EXTERNAL, arguments, None)
        if self._journal.is_recorded(call) and call.may_have_happened:
            raise InvalidInput(
                f"an earlier attempt of node {self.run.node!r} called {tool}, whose result cannot be given back; "
                "declare it with wtb.langgraph.recorded, or resume with rerun_node=True to begin the node afresh"
            )
        return self._journal.intend(call)

    def saw_end(self, call: ToolCall, result: Any) -> None:
        """Record the result of such a call."""
        self._journal.settle(call, result)

    def saw_failure(self, call: ToolCall, error: BaseException) -> None:
        """Record that such a call failed."""
        self._journal.fail(call, error)

    def step(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function whose result may differ each time, such as a model, and record its result under `key`."""
        if inspect.iscoroutinefunction(function):
            raise InvalidInput(f"what step {key!r} calls is async: use `await ctx.astep(…)` in an async node")
        call = self._journal.lookup(CallKind.STEP, key, Effects.NONE, {"args": list(args)}, None)
        return made(self._journal, call, lambda: function(*args))

    async def astep(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Like `step`, for async nodes. A sync function runs on a thread."""
        arguments = {"args": list(args)}
        call = await asyncio.to_thread(self._journal.lookup, CallKind.STEP, key, Effects.NONE, arguments, None)
        return await self._called(call, partial(function, *args))

    def ask(
        self, question: Any, *, schema: list[Any] | Mapping[str, Any] | None = None, inside: str | None = None
    ) -> Any:
        """Pause the run until a person answers, and return the answer.

        The question is a text, or plain data for a program that shows it. `schema` is a list of allowed answers, or a
        JSON schema. `inside` is for other engines, which give the answers themselves: it names who asks.
        """
        check_schema(schema)
        arguments = {"question": question, "schema": schema} | ({} if inside is None else {"inside": inside})
        call = self._journal.lookup(CallKind.ASK, "ask", Effects.NONE, arguments, None)
        if call.status is CallStatus.SUCCEEDED:
            return call.result
        raise Asked(self._journal.intend(call))

    def pass_questions(self) -> None:
        """Mark the answered questions of another engine as asked: the engine has the answers already."""
        for call in self._journal.answered():
            if "inside" in call.arguments:
                self.ask(**call.arguments)

    def answers(self, inside: str) -> list[Any]:
        """Return the answers to the questions of one asker in another engine, in the order it asked."""
        return [call.result for call in self._journal.answered() if call.arguments.get("inside") == inside]

    def checkpoint(self, name: str, description: str = "") -> None:
        """Make a checkpoint here with a name; if the name is taken, it becomes `name#2`.

        It holds the files as they are now, and the state that the node began with. A name that also means a step or a
        node is refused.
        """
        check_name(name, [node.name for node in self._workflow.nodes])
        self._journal.checkpoint(name, description)

    def usage(
        self,
        *,
        model: str | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_usd: float | None = None,
    ) -> None:
        """Report the tokens and the cost of a model call; runs show them, and batches compare them.

        Without `cost_usd`, the price comes from genai-prices if that is installed. A call without a known price is
        reported as such and never treated as free.
        """
        if input_tokens < 0 or output_tokens < 0 or (cost_usd is not None and cost_usd < 0):
            raise InvalidInput("usage is counted upwards: tokens and cost must not be negative")
        unpriced: tuple[str, ...] = ()
        if cost_usd is None and input_tokens + output_tokens:
            cost_usd = None if model is None else self._price(model, input_tokens, output_tokens)
            unpriced = () if cost_usd is not None else (model or "a model without a name",)
        used = Usage(
            input_tokens=int(input_tokens),
            output_tokens=int(output_tokens),
            cost_usd=float(cost_usd or 0.0),
            models=() if model is None else (model,),
            unpriced=unpriced,
        )
        self._journal.use(used)

    def _known(self, tool: str | Callable[..., Any]) -> Tool:
        if isinstance(tool, str):
            return self._find_tool(tool)
        if isinstance(tool, Tool):
            return tool
        name = getattr(tool, "__qualname__", type(tool).__qualname__)
        return Tool(spec=ToolSpec(name=name), function=tool)  # an unknown function counts as external

    def _lookup(self, tool: Tool, arguments: Mapping[str, Any], key: str | None) -> ToolCall:
        call = self._journal.lookup(CallKind.TOOL, tool.spec.name, tool.spec.effects, arguments, key)
        return self._resolved(tool, call) if call.status is CallStatus.INTENDED and call.ended_at is None else call

    def _resolved(self, tool: Tool, call: ToolCall) -> ToolCall:
        """Decide about a call that an earlier attempt began and did not finish."""
        if not self._journal.is_recorded(call):
            return call
        with self._journal.flying(call):  # a later attempt must not decide about it at the same time
            return self._decided(tool, call)

    def _decided(self, tool: Tool, call: ToolCall) -> ToolCall:
        match tool.spec.in_doubt:
            case WhenInDoubt.RUN_AGAIN:
                return call
            case WhenInDoubt.CONFIRM:
                assert tool.confirm is not None
                result = tool.confirm(call)
                return call if result is None else self._journal.settled(call, result)
            case WhenInDoubt.REVERSE:
                assert tool.reverse is not None
                tool.reverse(call)
                return call
            case WhenInDoubt.PAUSE:
                raise InDoubt(call)

    def _function(self, tool: Tool, call: ToolCall) -> Callable[..., Any]:
        if not tool.takes_key:
            return tool.function
        key = uuid.uuid5(uuid.NAMESPACE_OID, f"{call.execution_id}/{first_id(call.node_run_id)}/{call.identity}").hex

        def with_key(*args: Any, **kwargs: Any) -> Any:
            return tool.function(*args, idempotency_key=key, **kwargs)

        return with_key


def _bound(tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Return the arguments by name."""
    signature = inspect.signature(tool.function)
    bound = dict(signature.bind_partial(*args, **kwargs).arguments)
    if key is not None and "key" in signature.parameters and "key" not in bound:
        raise InvalidInput(
            f"key= names the call of {tool.spec.name!r} and is not passed on; give the tool's own `key` by position"
        )
    return bound
