"""Returned: what a node gives back, in the one form of which no serialiser loses anything: mappings of channels.

A serialiser forgets which fields of a model were set, and that a pair is no list; LangGraph asks for both. What a node
writes beside what it returns (`push_message`) would be missing wherever its result is taken from the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langgraph.types import Command


class Pushed:
    """What a node writes to channels while it runs."""

    def __init__(self) -> None:
        self._writes: list[tuple[str, Any]] = []

    def take(self, writes: Sequence[tuple[str, Any]]) -> None:
        """Take writes in the place of LangGraph."""
        self._writes += [write for write in writes if not write[0].startswith("__")]  # answers are kept elsewhere

    def before(self, returned: Any) -> Any:
        """Return what a node returned behind what it had written before."""
        if not self._writes:
            return returned
        rest = returned if isinstance(returned, list) else [] if returned is None else [returned]
        return [Command(update={channel: value}) for channel, value in self._writes] + rest


def spelled_out(returned: Any) -> Any:
    """Return what a node returned with mappings in place of models and of pairs, as LangGraph reads them."""
    if isinstance(returned, Command):
        return _command(returned)
    if isinstance(returned, list | tuple) and any(isinstance(each, Command) for each in returned):
        return [one for each in returned for one in _several(spelled_out(each))]
    if returned is None or isinstance(returned, dict | list):
        return returned
    update = Command(update=returned)._update_as_tuples()
    return returned if _is_whole(update) else dict(update)


def _command(command: Command[Any]) -> Any:
    """Return a command that updates by a mapping; several, when it updates a channel several times."""
    update = command._update_as_tuples()
    if isinstance(command.update, dict | None) or _is_whole(update):
        return command
    if len(dict(update)) == len(update):
        return replace(command, update=dict(update))
    return [*(Command(update={key: value}) for key, value in update), replace(command, update=None)]


def _several(returned: Any) -> Sequence[Any]:
    return returned if isinstance(returned, list) else [returned]


def _is_whole(update: Sequence[tuple[str, Any]]) -> bool:
    """Whether LangGraph sees no channels in an update, but one value."""
    return [key for key, _ in update] == ["__root__"]
