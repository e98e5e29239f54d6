"""Node output: converts what a node returns into mappings of channels, which every serialiser keeps in full.

A serialiser forgets which fields of a model were set, and turns pairs into lists, but LangGraph needs both. What a node
writes while it runs (`push_message`) becomes part of its output, so that a recorded result includes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langgraph.types import Command


class PushedWrites:
    """The writes of a node to channels while it runs."""

    def __init__(self) -> None:
        self._writes: list[tuple[str, Any]] = []

    def take(self, writes: Sequence[tuple[str, Any]]) -> None:
        """Receive writes in the place of LangGraph."""
        self._writes += [write for write in writes if not write[0].startswith("__")]  # answers are stored elsewhere

    def before(self, returned: Any) -> Any:
        """Return the writes so far, followed by what the node returned."""
        if not self._writes:
            return returned
        rest = returned if isinstance(returned, list) else [] if returned is None else [returned]
        return [Command(update={channel: value}) for channel, value in self._writes] + rest


def as_mappings(returned: Any) -> Any:
    """Return what a node returned with models and pairs as mappings, as LangGraph reads them."""
    if isinstance(returned, Command):
        return _command(returned)
    if isinstance(returned, list | tuple) and any(isinstance(each, Command) for each in returned):
        return [one for each in returned for one in _several(as_mappings(each))]
    if returned is None or isinstance(returned, dict | list):
        return returned
    update = Command(update=returned)._update_as_tuples()
    return returned if _is_whole(update) else dict(update)


def _command(command: Command[Any]) -> Any:
    """Return a command with a mapping as its update; several commands when it updates a channel several times."""
    update = command._update_as_tuples()
    if isinstance(command.update, dict | None) or _is_whole(update):
        return command
    if len(dict(update)) == len(update):
        return replace(command, update=dict(update))
    return [*(Command(update={key: value}) for key, value in update), replace(command, update=None)]


def _several(returned: Any) -> Sequence[Any]:
    return returned if isinstance(returned, list) else [returned]


def _is_whole(update: Sequence[tuple[str, Any]]) -> bool:
    """Whether LangGraph takes an update as one value, not as channels."""
    return [key for key, _ in update] == ["__root__"]
