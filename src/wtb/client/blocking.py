"""Verbs without an event loop: the body of an AsyncClient's verb, driven to its end by the calling thread.

A verb is written once, as a coroutine function of AsyncClient. Over `BlockingTransport` its coroutine never suspends.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")
Owner = TypeVar("Owner")


class Driver(Protocol):
    """A client that has an AsyncClient over a transport that blocks."""

    @property
    def _verbs(self) -> Any: ...


def blocking(
    body: Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Found]],
) -> Callable[Concatenate[Driver, Given], Found]:
    """Return a method that does what a coroutine method does, and returns when it is done."""

    @functools.wraps(body)
    def method(self: Driver, /, *given: Given.args, **named: Given.kwargs) -> Found:
        return finished(body(self._verbs, *given, **named))

    return method


def iterating(
    body: Callable[Concatenate[Owner, Given], AsyncIterator[Found]],
) -> Callable[Concatenate[Driver, Given], Iterator[Found]]:
    """Return a method that gives what an async generator method gives, one by one."""

    @functools.wraps(body)
    def method(self: Driver, /, *given: Given.args, **named: Given.kwargs) -> Iterator[Found]:
        found = body(self._verbs, *given, **named)
        assert isinstance(found, AsyncGenerator)
        try:
            while True:
                try:
                    item = finished(found.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            finished(found.aclose())

    signature = inspect.signature(body)
    shown = str(signature.return_annotation).replace("AsyncGenerator", "Iterator")
    vars(method)["__signature__"] = signature.replace(return_annotation=shown)  # for `help` and the reference
    return method


def finished(body: Coroutine[Any, Any, Found]) -> Found:
    """Drive a coroutine that never suspends to its end, and return its result."""
    try:
        body.send(None)
    except StopIteration as end:
        result: Found = end.value
        return result
    raise AssertionError("a transport that blocks has suspended")
