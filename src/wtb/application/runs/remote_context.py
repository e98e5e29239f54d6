"""RemoteContext: the `ctx` of a node that runs in another process than its run.

It asks the process of the run to record, store and answer. Functions that a node passes (`ctx.step`, and `ctx.tool`
with a plain function) are called here, where the node's packages are. Registered tools are called in the process of the
run.
"""

from __future__ import annotations

import inspect
import logging
import queue
import random
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from wtb.application.runs.journal import Interruption
from wtb.application.runs.node_messages import NodeLog
from wtb.application.runs.remote_errors import error_from_data, error_to_data
from wtb.application.runs.threads import in_thread
from wtb.domain.errors import InvalidInput
from wtb.domain.node_work import NodeFacts
from wtb.domain.ports import Codec, MessageLink
from wtb.domain.tools import Tool

_INSIDE: ContextVar[int | None] = ContextVar("wtb_remote_call", default=None)
"""The number of the call whose function runs here, so that what it reports is counted for that call."""


class NodeInterrupted(Interruption):
    """The run pauses or has lost its lease: the node ends without a result, and runs again later."""


class Requests:
    """Sends the requests of one node over a link, and hands each answer to the thread that waits for it."""

    def __init__(self, link: MessageLink, codec: Codec) -> None:
        self._link = link
        self.codec = codec
        self._lock = threading.Lock()
        self._last = 0
        self._waiting: dict[int, queue.SimpleQueue[Mapping[str, Any]]] = {}

    def deliver(self, message: Mapping[str, Any]) -> None:
        """Take an answer from the link. One that nobody waits for belongs to a node that has ended."""
        waiting = self._waiting.get(message["answer"])
        if waiting is not None:
            waiting.put(message)

    def ask(self, what: str, /, **arguments: Any) -> Any:
        """Ask the process of the run, and wait for its answer."""
        return self.ended(self.begun(what, arguments))

    def begun(self, what: str, arguments: Mapping[str, Any]) -> int:
        """Send a request and return its number."""
        data = self.encoded(dict(arguments), f"ctx.{what}()")
        with self._lock:
            self._last += 1
            number = self._last
            self._waiting[number] = queue.SimpleQueue()
        self._link.send({"ask": number, "what": what, "data": data, "inside": _INSIDE.get()})
        return number

    def must_call(self, number: int) -> bool:
        """Wait until it is known whether the function of a request has to be called here; if not, it has an answer."""
        message = self._waiting[number].get()
        if "call" not in message:
            self._waiting[number].put(message)
            return False
        return True

    def called(self, number: int, result: Any) -> None:
        """Send what the function of a request returned."""
        self._link.send({"ask": number, "returned": self.encoded(result, "the result of a call")})

    def failed(self, number: int, error: BaseException) -> None:
        """Send the error of the function of a request."""
        if isinstance(error, NodeInterrupted):
            self._link.send({"ask": number, "interrupted": True})
        else:
            self._link.send({"ask": number, "failed": error_to_data(error, self.codec)})

    def ended(self, number: int) -> Any:
        """Wait for the answer to a request, and return it or raise its error."""
        message = self._waiting[number].get()
        del self._waiting[number]
        if "interrupted" in message:
            raise NodeInterrupted
        if "failed" in message:
            raise error_from_data(message["failed"], self.codec)
        return self.codec.decode(b64decode(message["returned"]))

    def encoded(self, value: Any, path: str) -> str:
        """Return a value as text for a message."""
        return b64encode(self.codec.encode(value, path)[0]).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteNodeRun:
    """The part of a node run that `ctx.run` shows in another process."""

    id: str
    execution_id: str
    branch_id: str
    node: str
    visit: int
    attempt: int


class RemoteContext:
    """Has the functions of `Context` that work from another process."""

    def __init__(self, node: str, facts: NodeFacts, requests: Requests) -> None:
        self._facts = facts
        self._requests = requests
        self.seed = facts.seed
        self.run = RemoteNodeRun(
            id=facts.node_run_id,
            execution_id=facts.execution_id,
            branch_id=facts.branch_id,
            node=node,
            visit=facts.visit,
            attempt=facts.attempt,
        )

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(each for each in dir(type(self)) if not each.startswith("_"))
        raise AttributeError(f"a node in another process has no ctx.{name}; it has {', '.join(known)}, run and seed")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config of the node or of its variant."""
        return dict(self._requests.codec.decode(self._facts.config))

    @cached_property
    def rng(self) -> random.Random:
        """A random number generator that gives the same numbers whenever this visit of the node is tried again."""
        return random.Random(self.seed)

    @cached_property
    def log(self) -> NodeLog:
        """The node's log. The process of the run writes it."""
        silent = logging.getLogger("wtb.remote")
        silent.propagate = False
        return NodeLog(silent, lambda level, text: self._requests.ask("log", level=level, text=text))

    @property
    def workspace(self) -> Path:
        """The run's folder."""
        return Path(self._requests.ask("workspace"))

    def emit(self, data: Any) -> None:
        """Report something while the node runs."""
        self._requests.ask("emit", data=data)

    def usage(self, **used: Any) -> None:
        """Report the tokens and the cost of a model call."""
        self._requests.ask("usage", **used)

    def ask(self, question: Any, *, schema: list[Any] | Mapping[str, Any] | None = None) -> Any:
        """Pause the run until a person answers, and return the answer."""
        return self._requests.ask("ask", question=question, schema=schema)

    def checkpoint(self, name: str, description: str = "") -> None:
        """Make a checkpoint here with a name."""
        self._requests.ask("checkpoint", name=name, description=description)

    async def acheckpoint(self, name: str, description: str = "") -> None:
        """Like `checkpoint`, for async nodes."""
        await in_thread(self.checkpoint, name, description)

    def tool(self, tool: str | Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any) -> Any:
        """Call a tool, by name or directly."""
        name = _registered(tool)
        if name is not None:
            return self._requests.ask("tool", tool=name, args=list(args), kwargs=kwargs, key=key)
        assert callable(tool)
        if inspect.iscoroutinefunction(tool):
            raise InvalidInput(f"tool {_name(tool)!r} is async: call it with `await ctx.atool(…)` in an async node")
        return self._called("function", _described(tool, args, kwargs, key), lambda: tool(*args, **kwargs))

    async def atool(self, tool: str | Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any) -> Any:
        """Like `tool`, for async nodes."""
        name = _registered(tool)
        if name is not None:
            return await in_thread(self._requests.ask, "atool", tool=name, args=list(args), kwargs=kwargs, key=key)
        assert callable(tool)
        return await self._acalled("function", _described(tool, args, kwargs, key), lambda: tool(*args, **kwargs), tool)

    def limit(self, name: str) -> RemoteLimitBlock:
        """Hold a slot of a limit in a block: `with ctx.limit("openai"):`, or `async with` in async nodes."""
        return RemoteLimitBlock(self._requests, name)

    def step(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function whose result may differ each time, and record its result under `key`."""
        if inspect.iscoroutinefunction(function):
            raise InvalidInput(f"what step {key!r} calls is async: use `await ctx.astep(…)` in an async node")
        return self._called("step", {"key": key, "args": list(args)}, lambda: function(*args))

    async def astep(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Like `step`, for async nodes."""
        given = {"key": key, "args": list(args)}
        return await self._acalled("step", given, lambda: function(*args), function)

    def _called(self, what: str, arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
        """Let the process of the run record a call that is made here, unless it knows the result already."""
        number = self._requests.begun(what, arguments)
        if self._requests.must_call(number):
            token = _INSIDE.set(number)
            try:
                self._requests.called(number, call())
            except BaseException as error:  # noqa: BLE001  the process of the run records it, and it is raised below
                self._requests.failed(number, error)
            finally:
                _INSIDE.reset(token)
        return self._requests.ended(number)

    async def _acalled(
        self, what: str, arguments: Mapping[str, Any], call: Callable[[], Any], function: Callable[..., Any]
    ) -> Any:
        """Like `_called`; a sync function runs on a thread."""
        if not inspect.iscoroutinefunction(function):
            return await in_thread(self._called, what, arguments, call)
        number = await in_thread(self._requests.begun, what, arguments)
        if await in_thread(self._requests.must_call, number):
            token = _INSIDE.set(number)
            try:
                self._requests.called(number, await call())
            except BaseException as error:  # noqa: BLE001  as above
                self._requests.failed(number, error)
            finally:
                _INSIDE.reset(token)
        return await in_thread(self._requests.ended, number)


class RemoteLimitBlock:
    """Lets the process of the run hold a slot while a block runs here; that process also hears how the block ended."""

    def __init__(self, requests: Requests, name: str) -> None:
        self._requests = requests
        self._name = name

    def __enter__(self) -> None:
        self._token = _INSIDE.set(self._begun())

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _INSIDE.reset(self._token)
        self._end(error)

    async def __aenter__(self) -> None:
        self._token = _INSIDE.set(await in_thread(self._begun))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _INSIDE.reset(self._token)
        await in_thread(self._end, error)

    def _begun(self) -> int:
        self._number = self._requests.begun("limit", {"name": self._name})
        if not self._requests.must_call(self._number):
            self._requests.ended(self._number)  # raises why there is no slot
        return self._number

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self._requests.called(self._number, None)
            self._requests.ended(self._number)
            return
        self._requests.failed(self._number, error)
        with suppress(Exception, Interruption):  # it is the same error, which goes on from here
            self._requests.ended(self._number)


def _registered(tool: str | Callable[..., Any]) -> str | None:
    """Return the name of a tool that the process of the run knows; None for a plain function."""
    if isinstance(tool, Tool):
        return tool.spec.name
    return tool if isinstance(tool, str) else None


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _described(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None
) -> dict[str, Any]:
    """Return a call of a plain function, with its parameters, so that its arguments are recorded by name."""
    parameters = [[each.name, each.kind.name] for each in inspect.signature(function).parameters.values()]
    return {
        "name": _name(function),
        "parameters": parameters,
        "args": list(args),
        "kwargs": dict(kwargs),
        "key": key,
    }
