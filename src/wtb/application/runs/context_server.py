"""ContextServer: answers the `ctx` of a node that runs in another process, with the real context of its run."""

from __future__ import annotations

import inspect
import queue
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any

from wtb.application.runs.context import Context
from wtb.application.runs.journal import Interruption
from wtb.application.runs.remote_errors import error_from_data, error_to_data
from wtb.application.runs.threads import in_background
from wtb.domain.engine import Runs
from wtb.domain.errors import LeaseLost, StorageReplaced
from wtb.domain.ports import Codec, MessageLink
from wtb.domain.tools import Tool, ToolSpec

Message = Mapping[str, Any]


class CallCutOff(BaseException):
    """The other process ended while it made a call. It is no Exception, so the call stays in doubt in the journal."""


class ContextServer:
    """Answers the requests of one node, each on a thread of its own, so that gathered calls run at the same time."""

    def __init__(self, context: Context, link: MessageLink, codec: Codec, caller: Runs) -> None:
        self._context = context
        self._link = link
        self._codec = codec
        self._caller = caller
        self._lock = threading.Lock()
        self._has_ended = False
        self._reports: dict[int, queue.SimpleQueue[Message | None]] = {}
        """Where the outcome of a call that the other process makes is waited for."""
        self._around: dict[int, Variables] = {}
        """The context variables of a call that the other process makes: what it reports is counted for the call."""
        self.interruption: BaseException | None = None
        """Why the node has to end without a result, if it has to."""

    def take(self, message: Message) -> None:
        """Take a request, or the outcome of a call that the other process made."""
        number = message["ask"]
        if "what" not in message:
            with self._lock:
                waiting = self._reports.get(number)
            if waiting is not None:
                waiting.put(message)
            return
        around = self._around.get(message["inside"])
        variables = copy_context() if around is None else around.copy()
        in_background(partial(variables.run, self._answer, number, message))

    def end(self) -> None:
        """Give up the calls that the other process has not finished: it has ended."""
        with self._lock:
            self._has_ended = True
            for waiting in self._reports.values():
                waiting.put(None)

    def _answer(self, number: int, message: Message) -> None:
        try:
            arguments = self._codec.decode(b64decode(message["data"]))
            result = _ANSWERS[message["what"]](self, number, **arguments)
            answer: dict[str, Any] = {
                "returned": b64encode(self._codec.encode(result, f"ctx.{message['what']}()")[0]).decode()
            }
        except CallCutOff:
            return
        except (Interruption, LeaseLost, StorageReplaced) as error:
            self.interruption = self.interruption or error
            answer = {"interrupted": True}
        except BaseException as error:  # noqa: BLE001  the node gets it, as if it had called the function itself
            answer = {"failed": error_to_data(error, self._codec)}
        self._link.send({"answer": number, **answer})

    def _called_there(self, number: int) -> Any:
        """Let the other process make the call, and return its result or raise its error."""
        with self._lock:
            if self._has_ended:
                raise CallCutOff
            waiting = self._reports[number] = queue.SimpleQueue()
            self._around[number] = copy_context()
        self._link.send({"answer": number, "call": True})
        message = waiting.get()
        with self._lock:
            del self._reports[number], self._around[number]
        if message is None:
            raise CallCutOff
        if "interrupted" in message:
            assert self.interruption is not None
            raise self.interruption
        if "failed" in message:
            raise error_from_data(message["failed"], self._codec)
        return self._codec.decode(b64decode(message["returned"]))

    # What a node may ask for

    def _tool(self, number: int, *, tool: str, args: list[Any], kwargs: Any, key: str | None) -> Any:
        return self._context.tool(tool, *args, key=key, **kwargs)

    def _atool(self, number: int, *, tool: str, args: list[Any], kwargs: Any, key: str | None) -> Any:
        return self._caller.run(tool, lambda: self._context.atool(tool, *args, key=key, **kwargs), None)

    def _function(
        self, number: int, *, name: str, parameters: list[Any], args: list[Any], kwargs: Any, key: str | None
    ) -> Any:
        stand_in = _with_parameters(lambda *args, **kwargs: self._called_there(number), parameters)
        tool = Tool(spec=ToolSpec(name=name), function=stand_in)  # an unknown function counts as external
        return self._context.tool(tool, *args, key=key, **kwargs)

    def _step(self, number: int, *, key: str, args: list[Any]) -> Any:
        return self._context.step(key, lambda *args: self._called_there(number), *args)

    def _limit(self, number: int, *, name: str) -> None:
        with self._context.limit(name):
            self._called_there(number)

    def _workspace(self, number: int) -> str:
        return str(self._context.workspace)

    def _usage(self, number: int, **used: Any) -> None:
        self._context.usage(**used)

    def _emit(self, number: int, *, data: Any) -> None:
        self._context.emit(data)

    def _log(self, number: int, *, level: int, text: str) -> None:
        self._context.log.log(level, "%s", text)

    def _ask(self, number: int, *, question: Any, schema: Any) -> Any:
        return self._context.ask(question, schema=schema)

    def _checkpoint(self, number: int, *, name: str, description: str) -> None:
        self._context.checkpoint(name, description)


_ANSWERS: Mapping[str, Callable[..., Any]] = {
    "tool": ContextServer._tool,
    "atool": ContextServer._atool,
    "function": ContextServer._function,
    "step": ContextServer._step,
    "limit": ContextServer._limit,
    "workspace": ContextServer._workspace,
    "usage": ContextServer._usage,
    "emit": ContextServer._emit,
    "log": ContextServer._log,
    "ask": ContextServer._ask,
    "checkpoint": ContextServer._checkpoint,
}


def _with_parameters(function: Callable[..., Any], parameters: list[Any]) -> Callable[..., Any]:
    """Give a function the parameters of another one, so that its arguments are recorded under their names."""
    kinds = [inspect.Parameter(name, getattr(inspect.Parameter, kind)) for name, kind in parameters]
    function.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
    return function
