"""WTB's own threads, for work that must not block an event loop.

The threads of `asyncio.to_thread` are too few, and belong to the loop. If all of them waited for nodes, the calls of
those nodes would wait for a thread for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")

_MOST = 10_000
"""The most threads. One is only started if none is idle, so this limit should never be reached."""


class _Threads:
    """The pool of this process. A forked process does not have its threads, so it starts a new pool."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.pool = ThreadPoolExecutor(_MOST, thread_name_prefix="wtb-call")


_THREADS = _Threads()


async def in_thread(function: Callable[Given, Found], *args: Given.args, **kwargs: Given.kwargs) -> Found:
    """Call a function on a thread, with the context variables of the caller, and await its result."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS.pool, call)


def in_background(function: Callable[[], Any]) -> None:
    """Call a function on a thread and do not wait for it."""
    _THREADS.pool.submit(function)
