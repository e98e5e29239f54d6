"""Context: the `ctx` that a node gets beside the state."""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from wtb.application.runs.node_calls import NodeCalls, with_idempotency_key
from wtb.application.runs.node_messages import NodeLog
from wtb.application.runs.question_schema import check_schema
from wtb.application.runs.run_limits import LimitBlock
from wtb.application.runs.threads import in_thread
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import InvalidInput
from wtb.domain.figures import Price, Usage
from wtb.domain.history import check_name
from wtb.domain.secrets import Masker
from wtb.domain.tools import Effects, Tool, ToolSpec
from wtb.domain.workflow import WorkflowDefinition


class Context:
    """The tools, recorded steps, files, questions and random numbers of one node run."""

    def __init__(
        self,
        calls: NodeCalls,
        *,
        find_tool: Callable[[str], Tool],
        workspace: Callable[[], Path],
        masker: Masker,
        price: Price,
        seed: int,
        config: Mapping[str, Any],
        workflow: WorkflowDefinition,
    ) -> None:
        self._calls = calls
        self._find_tool = find_tool
        self._workspace = workspace
        self._masker = masker
        self._price = price
        self._config = config
        self._workflow = workflow
        self.seed = seed

    @property
    def run(self) -> NodeRun:
        """The current node run, with its `node`, `visit` and `attempt`."""
        return self._calls.journal.run

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config of the node or of its variant."""
        return dict(self._config)

    @cached_property
    def log(self) -> NodeLog:
        """The node's log: `ctx.log("…")`, `ctx.log.warning("…")`. Lines from `info` up are kept with the run.

        It is a logger of Python's, too. Secrets are masked in it.
        """
        logger = logging.getLogger(f"wtb.run.{self._workflow.name}.{self.run.node}")
        logger.addFilter(self._masker)
        return NodeLog(logger, self._calls.journal.messages.log)

    def emit(self, data: Any) -> None:
        """Report something while the node runs, such as progress: an event `node.emitted` of the run.

        `data` is a text, a number, a list or a dict of such; about 16,000 characters of it are kept, without secrets.
        Another thread stores it at once, so the node does not wait, and an async node does not block its event loop.
        Of one attempt, 10,000 messages are kept.
        """
        self._calls.journal.messages.emit(data)

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
        mock = self._calls.answers.mock_of(known.spec.name)
        if inspect.iscoroutinefunction(mock or known.function):
            raise InvalidInput(f"tool {known.spec.name!r} is async: call it with `await ctx.atool(…)` in an async node")
        call = self._calls.tool(known, _bound(known, args, kwargs, key), key)
        function = mock or with_idempotency_key(known, call)
        return self._calls.make(call, lambda: function(*args, **kwargs), known.limit)

    async def atool(self, tool: str | Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any) -> Any:
        """Like `tool`, for async nodes. Sync tools run on a thread, so gathered calls run at the same time."""
        known = self._known(tool)
        mock = self._calls.answers.mock_of(known.spec.name)
        call = await in_thread(self._calls.tool, known, _bound(known, args, kwargs, key), key)
        function = mock or with_idempotency_key(known, call)
        return await self._calls.make_either(call, partial(function, *args, **kwargs), known.limit)

    def limit(self, name: str) -> LimitBlock:
        """Hold a slot of a limit in a block: `with ctx.limit("openai"):`, or `async with` in async nodes.

        The block waits until a slot is free. Use it around calls of models; tools name their limit themselves. If the
        bench and the batch set no limit of this name, it has no effect. A second block of the same limit inside it
        needs no second slot.
        """
        return LimitBlock(self._calls.limits, name, self._calls.journal.check_current)

    def step(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function whose result may differ each time, such as a model, and record its result under `key`."""
        if inspect.iscoroutinefunction(function):
            raise InvalidInput(f"what step {key!r} calls is async: use `await ctx.astep(…)` in an async node")
        return self._calls.make(self._calls.step(key, args), lambda: function(*args))

    async def astep(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Like `step`, for async nodes. A sync function runs on a thread."""
        call = await in_thread(self._calls.step, key, args)
        return await self._calls.make_either(call, partial(function, *args))

    def ask(self, question: Any, *, schema: list[Any] | Mapping[str, Any] | None = None) -> Any:
        """Pause the run until a person answers, and return the answer.

        The question is a text, or plain data for a program that shows it. `schema` is a list of allowed answers, or a
        JSON schema.
        """
        check_schema(schema)
        return self._calls.ask({"question": question, "schema": schema})

    def checkpoint(self, name: str, description: str = "") -> None:
        """Make a checkpoint here with a name; if the name is taken, it becomes `name#2`.

        It holds the files as they are now, and the state that the node began with. A name that also means a step or a
        node is refused.
        """
        check_name(name, [node.name for node in self._workflow.nodes])
        self._calls.journal.checkpoint(name, description)

    async def acheckpoint(self, name: str, description: str = "") -> None:
        """Like `checkpoint`, for async nodes: it is written on a thread."""
        await in_thread(self.checkpoint, name, description)

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
        used = Usage.reported(
            self._price, model=model, input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd
        )
        self._calls.journal.use(used)

    def _known(self, tool: str | Callable[..., Any]) -> Tool:
        if isinstance(tool, str):
            mock = self._calls.answers.mock_of(tool)
            try:
                return self._find_tool(tool)
            except InvalidInput:
                if mock is None:
                    raise
                return Tool(spec=ToolSpec(name=tool, effects=Effects.NONE), function=mock)
        if isinstance(tool, Tool):
            return tool
        name = getattr(tool, "__qualname__", type(tool).__qualname__)
        return Tool(spec=ToolSpec(name=name), function=tool)  # an unknown function counts as external


def _bound(tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Return the arguments by name."""
    signature = inspect.signature(tool.function)
    bound = dict(signature.bind_partial(*args, **kwargs).arguments)
    if key is not None and "key" in signature.parameters and "key" not in bound:
        raise InvalidInput(
            f"key= names the call of {tool.spec.name!r} and is not passed on; give the tool's own `key` by position"
        )
    return bound
