"""The model of a checkpoint store: dictionaries of full copies, and values compared down to their types."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from wtb.domain.checkpoint import Checkpoint, Kind
from wtb.domain.state import Append, Change, DeleteKey, Merge, SetValue, Splice

Values = dict[str, Any]


def frozen(value: Any, *, ordered: bool = False) -> Any:
    """A hashable picture of a value that tells 1 from True and 1.0, and 0.0 from -0.0.

    `ordered` tells mappings apart that were filled in another order.
    """
    kind = type(value).__qualname__
    match value:
        case dict():
            pairs = [(frozen(key, ordered=ordered), frozen(item, ordered=ordered)) for key, item in value.items()]
            return kind, tuple(pairs) if ordered else frozenset(pairs)
        case list() | tuple():
            return kind, tuple([frozen(item, ordered=ordered) for item in value])
        case set() | frozenset():
            return kind, frozenset(frozen(item, ordered=ordered) for item in value)
        case float() | Decimal():
            return kind, repr(value)
        case datetime():
            return kind, value.isoformat(), str(value.tzinfo), value.fold
    return kind, value


def changed(values: Values, key: str, change: Change) -> None:
    """Do to a plain dictionary what a change says."""
    match change:
        case SetValue(value=value):
            values[key] = copy.deepcopy(value)
        case DeleteKey():
            values.pop(key, None)
        case Append(items=items):
            values[key] = [*values.get(key, []), *copy.deepcopy(items)]
        case Splice(start=start, delete=delete, items=items):
            old = values.get(key, [])
            values[key] = [*old[:start], *copy.deepcopy(items), *old[start + delete :]]
        case Merge(items=new, removed=removed):
            kept = {each: value for each, value in values.get(key, {}).items() if each not in removed}
            values[key] = {**kept, **copy.deepcopy(dict(new))}


@dataclass
class Kept:
    """A checkpoint, the whole state at it, and what nodes returned: what loading it must give."""

    info: Checkpoint
    values: Values
    returned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return not self.info.deleted


@dataclass
class Line:
    """A branch."""

    id: str
    execution_id: str
    head_id: str


@dataclass
class Model:
    """All executions of one example. What is deleted stays here, to be asked for."""

    kept: dict[str, Kept] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    executions: list[str] = field(default_factory=list)
    deleted_executions: list[str] = field(default_factory=list)

    def living(self, execution_id: str | None = None) -> list[Kept]:
        """Checkpoints that load, by step and id."""
        found = [kept for kept in self.kept.values() if kept.alive and execution_id in (None, kept.info.execution_id)]
        return sorted(found, key=lambda kept: (kept.info.step, kept.info.id))

    def deletable(self) -> list[Kept]:
        """Living checkpoints that are the head of no branch."""
        heads = {line.head_id for line in self.lines.values()}
        return [kept for kept in self.living() if kept.info.id not in heads]

    def prunable(self, execution_id: str, last: int) -> list[Kept]:
        """What a retention that keeps the last so many automatic checkpoints would delete."""
        automatic = [kept for kept in self.deletable() if kept.info.execution_id == execution_id]
        automatic = [kept for kept in automatic if kept.info.kind is Kind.AUTO]
        return automatic[: max(0, len(automatic) - last)]

    def names(self, execution_id: str) -> set[str]:
        """Names that are taken."""
        return {kept.info.name for kept in self.living(execution_id) if kept.info.name is not None}

    def bury(self, checkpoint_ids: Iterable[str]) -> None:
        """Mark checkpoints as deleted."""
        for checkpoint_id in checkpoint_ids:
            kept = self.kept[checkpoint_id]
            kept.info = dataclasses.replace(kept.info, deleted=True)

    def foreign_heads(self, execution_id: str) -> list[Line]:
        """Branches of other executions whose head lies in this one."""
        return [
            line
            for line in self.lines.values()
            if line.execution_id != execution_id and self.kept[line.head_id].info.execution_id == execution_id
        ]

    def delete_execution(self, execution_id: str) -> None:
        """Delete an execution with everything that is its own."""
        self.bury(kept.info.id for kept in self.living(execution_id))
        self.lines = {key: line for key, line in self.lines.items() if line.execution_id != execution_id}
        self.executions.remove(execution_id)
        self.deleted_executions.append(execution_id)

    def lineage(self, checkpoint_id: str | None) -> list[Checkpoint]:
        """The checkpoints from the start to this one, deleted ones included."""
        line: list[Checkpoint] = []
        while checkpoint_id is not None:
            line.append(self.kept[checkpoint_id].info)
            checkpoint_id = line[-1].parent_id
        return line[::-1]


def spread(items: Sequence[Kept], numbers: Collection[int]) -> list[Kept]:
    """The items at these places, whatever the numbers."""
    return list({items[number % len(items)].info.id: items[number % len(items)] for number in numbers}.values())
