"""A ParallelMap on threads of this process."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


def map_in_threads(function: Callable[[Item], Found], items: Sequence[Item], workers: int) -> list[Found]:
    """Return the results in the order of the items; `workers` threads share the work."""
    with ThreadPoolExecutor(workers, thread_name_prefix="wtb-map") as pool:
        # Each call gets the caller's context variables: they name the event loop for async functions.
        around = [contextvars.copy_context() for _ in items]
        return list(pool.map(lambda item, context: context.run(function, item), items, around))
