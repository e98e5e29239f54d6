"""Finished: the state in the middle of a superstep, when some nodes have returned and others wait.

This state is not stored, because a superstep applies all results together. LangGraph's `get_state` shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langgraph.types import Command


def updates_in(returned: Any) -> Iterator[tuple[str, Any]]:
    """Yield the writes to channels in what a node returned, which `as_mappings` has converted."""
    if isinstance(returned, dict):
        yield from returned.items()
    elif isinstance(returned, Command):
        yield from returned._update_as_tuples()
    elif isinstance(returned, list):
        for each in returned:
            yield from updates_in(each)


def with_updates(
    channels: Mapping[str, Any], values: Mapping[str, Any], updates: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """Return the values of channels after these writes of one superstep."""
    written: dict[str, list[Any]] = {}
    for name, value in updates:
        written.setdefault(name, []).append(value)
    shown = dict(values)
    for name in {*values, *written} & channels.keys():
        channel = channels[name].from_checkpoint(values[name]) if name in values else channels[name].copy()
        channel.update(written.get(name, ()))
        shown.pop(name, None)
        if channel.is_available():
            shown[name] = channel.get()
    return shown
