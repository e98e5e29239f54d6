"""Diff: what changed between two checkpoints in the state, the files and the recorded calls."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from wtb.domain.alignment import align, ends, unified
from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.display import Display, Displayed, DisplayTable, masked
from wtb.domain.files import EntryKind, FileEntry, FileTree, diff
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import NodeRunId
from wtb.domain.sameness import content_function, same
from wtb.domain.state import MISSING
from wtb.domain.tools import CallKind, ToolCall
from wtb.domain.values import Legible, legible

LARGEST_TEXT_BYTES = 1_000_000
"""A larger file is compared like a binary file: by size and hash."""

_PLAIN_KEY = re.compile(r"\w[\w-]*")


class DiffKind(StrEnum):
    """How something differs; the last two are of files: its permissions only, and a link where a file was."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MODE_CHANGED = "mode changed"
    KIND_CHANGED = "kind changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiff:
    """One value that differs, by its path (`state.docs[3].title`); what is not there is MISSING.

    An item of a list has its place in the new list, one that was removed that in the old list.
    """

    path: str
    kind: DiffKind
    old: Any = MISSING
    new: Any = MISSING

    def to_dict(self) -> dict[str, Any]:
        """Return it as data; a value that is not there is left out."""
        facts = {"path": self.path, "change": self.kind.value, "old": self.old, "new": self.new}
        return {name: value for name, value in facts.items() if value is not MISSING}


def state_diffs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[StateDiff, ...]:
    """Return the changes from the old state to the new one, key by key; True, 1 and 1.0 are different values."""
    return tuple(_mapping("state", dict(old), dict(new)))


def _value(path: str, old: Any, new: Any) -> Iterator[StateDiff]:
    if old is MISSING:
        yield StateDiff(path=path, kind=DiffKind.ADDED, new=new)
    elif new is MISSING:
        yield StateDiff(path=path, kind=DiffKind.REMOVED, old=old)
    elif same(old, new):
        return
    elif isinstance(old, Legible) or isinstance(new, Legible):
        yield from _value(path, legible(old), legible(new))
    elif type(old) is type(new) and type(old) is dict:
        yield from _mapping(path, old, new)
    elif type(old) is type(new) and type(old) in (list, tuple):
        yield from _items(path, old, new)
    else:
        inside = list(_mapping(path, fields, _fields(new))) if (fields := _shared_fields(old, new)) else []
        yield from inside or [StateDiff(path=path, kind=DiffKind.CHANGED, old=old, new=new)]


def _mapping(path: str, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[StateDiff]:
    for key, before, after in key_pairs(old, new):
        yield from _value(_at(path, key), before, after)


def key_pairs(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each key with its old and its new value, texts first; a value that is not there is MISSING."""
    mine, theirs = {_identity(key): key for key in old}, {_identity(key): key for key in new}
    for identity, key in sorted({**mine, **theirs}.items(), key=lambda item: (type(item[1]) is not str, repr(item[1]))):
        before = old[mine[identity]] if identity in mine else MISSING
        after = new[theirs[identity]] if identity in theirs else MISSING
        yield key, before, after


def _identity(key: Any) -> Any:
    """Return a value that identifies a key: for a dictionary, True, 1 and 1.0 would be the same key."""
    if type(key) is str:
        return key
    return type(key), tuple(sorted(map(repr, key))) if isinstance(key, frozenset) else repr(key)


def _at(path: str, key: Any) -> str:
    return f"{path}.{key}" if type(key) is str and _PLAIN_KEY.fullmatch(key) else f"{path}[{key!r}]"


def _items(path: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[StateDiff]:
    for pair in item_pairs(old, new):
        place = pair.old_at if pair.new_at is None else pair.new_at
        # Compare blocks that print equal, too: a value may not print everything that it holds.
        yield from _value(f"{path}[{place}]", pair.old, pair.new)


class ItemPair(NamedTuple):
    """Two items of lists that correspond, with their places; what is not there is MISSING, and has none."""

    old_at: int | None
    new_at: int | None
    old: Any
    new: Any


def item_pairs(old: Sequence[Any], new: Sequence[Any]) -> Iterator[ItemPair]:
    """Pair the items of two lists, but for those at both ends that are the same.

    An item that was added or removed does not make the items after it differ. Paired items may still be the same.
    """
    first, last = ends(old, new, same)
    mine, theirs = old[first : len(old) - last], new[first : len(new) - last]
    for block in align([repr(item) for item in mine], [repr(item) for item in theirs]):
        for offset in range(max(len(block.old), len(block.new))):
            old_at = block.old[offset] if offset < len(block.old) else None
            new_at = block.new[offset] if offset < len(block.new) else None
            yield ItemPair(
                None if old_at is None else first + old_at,
                None if new_at is None else first + new_at,
                MISSING if old_at is None else mine[old_at],
                MISSING if new_at is None else theirs[new_at],
            )


def _shared_fields(old: Any, new: Any) -> dict[str, Any]:
    return _fields(old) if type(old) is type(new) else {}


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of an object (a dataclass, a model); empty for a value without fields."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum) or content_function(type(value)) is not None:
        return {}
    return dict(getattr(value, "__dict__", {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One path that differs. `text` are the lines of a unified diff; None when it is binary, large or no file."""

    path: str
    kind: DiffKind
    old: FileEntry | None
    new: FileEntry | None
    text: tuple[str, ...] | None = None

    @property
    def may_be_text(self) -> bool:
        """Whether the contents should be read: they differ, and are not too large to show."""
        files = self.files
        return bool(files) and self.kind is not DiffKind.MODE_CHANGED and _fit(files)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The sides that are files, and so have a content."""
        return tuple(entry for entry in (self.old, self.new) if entry is not None and entry.kind is EntryKind.FILE)

    def with_contents(self, contents: Mapping[bytes, bytes]) -> FileDiff:
        """Return it with the lines that differ, unless a content is not text."""
        if any(not _is_text(contents[entry.digest]) for entry in self.files):
            return self
        before, after = (_decoded(entry, contents) for entry in (self.old, self.new))
        header = (f"--- {_label('a', self.old)}", f"+++ {_label('b', self.new)}")
        return dataclasses.replace(self, text=(*header, *unified(before, after)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as data, with the old and the new side if they exist."""
        facts = {
            "path": self.path,
            "change": self.kind.value,
            "old": _entry_dict(self.old),
            "new": _entry_dict(self.new),
            "diff": None if self.text is None else "\n".join(self.text),
        }
        return {name: value for name, value in facts.items() if value is not None}


def file_diffs(old: FileTree, new: FileTree) -> tuple[FileDiff, ...]:
    """Return the paths that differ, in order, without their contents."""
    delta = diff(old, new)
    paths = sorted(delta.removed.union(delta.put))
    return tuple(_file_diff(path, old.get(path), new.get(path)) for path in paths)


def _file_diff(path: str, old: FileEntry | None, new: FileEntry | None) -> FileDiff:
    if old is None or new is None:
        kind = DiffKind.ADDED if old is None else DiffKind.REMOVED
    elif old.kind is not new.kind:
        kind = DiffKind.KIND_CHANGED
    else:
        content_differs = (old.digest, old.target) != (new.digest, new.target)
        kind = DiffKind.CHANGED if content_differs else DiffKind.MODE_CHANGED
    return FileDiff(path=path, kind=kind, old=old, new=new)


def _fit(files: Iterable[FileEntry]) -> bool:
    return all(entry.size <= LARGEST_TEXT_BYTES for entry in files)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _decoded(entry: FileEntry | None, contents: Mapping[bytes, bytes]) -> str:
    return contents[entry.digest].decode() if entry is not None and entry.kind is EntryKind.FILE else ""


def _label(side: str, entry: FileEntry | None) -> str:
    return f"{side}/{entry.path}" if entry is not None and entry.kind is EntryKind.FILE else "/dev/null"


def _entry_dict(entry: FileEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    facts = {"kind": entry.kind.value, "mode": f"{entry.mode:04o}"}
    match entry.kind:
        case EntryKind.FILE:
            return {**facts, "size": entry.size, "sha256": entry.digest.hex()}
        case EntryKind.LINK:
            return {**facts, "target": entry.target}
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDiff:
    """A recorded call on the way to one of the two only: to the new one (added) or to the old one (removed)."""

    kind: DiffKind
    node: str
    visit: int
    call: ToolCall

    def to_dict(self) -> dict[str, Any]:
        """Return it as data."""
        return {
            "change": self.kind.value,
            "run": self.call.execution_id,
            "node": self.node,
            "visit": self.visit,
            "kind": self.call.kind.value,
            "tool": self.call.tool,
            "effects": self.call.effects.value,
            "arguments": dict(self.call.arguments),
            "status": self.call.status.value,
            "result": self.call.result,
            "error": self.call.error,
            "started": self.call.started_at,
        }


@dataclass(frozen=True)
class Way:
    """The checkpoints of one line after the point where two lines part (`start`; None for the very beginning)."""

    start: Checkpoint | None
    steps: tuple[Checkpoint, ...]

    def runs(self, node_runs: Iterable[NodeRun]) -> list[NodeRun]:
        """Return the node runs that made these checkpoints, or some of them, in the order of their starts."""
        ids = {checkpoint.id for checkpoint in self.steps}
        own = {checkpoint.node_run_id for checkpoint in self.steps}
        return sorted((run for run in node_runs if run.id in own or run.last_id in ids), key=lambda run: run.id)

    def holds(self, run: NodeRun, call: ToolCall, history: ExecutionHistory) -> bool:
        """Whether a call of one of these runs was made on this way; the run may have begun earlier or ended later."""
        if call.kind is CallKind.CHECKPOINT or history.is_inherited(call):
            return False
        start = None if self.start is None else history.original(self.start)
        if start is not None and start.node_run_id == run.id and call.had_happened_at(start.step, start.created_at):
            return False
        own = self._by_run.get(run.id, ())
        if not own or run.last_id in {checkpoint.id for checkpoint in own}:
            return True
        last = max(map(history.original, own), key=lambda checkpoint: checkpoint.step)
        return call.had_happened_at(last.step, last.created_at)

    @cached_property
    def _by_run(self) -> Mapping[NodeRunId, Sequence[Checkpoint]]:
        found: dict[NodeRunId, list[Checkpoint]] = {}
        for checkpoint in self.steps:
            if checkpoint.node_run_id is not None:
                found.setdefault(checkpoint.node_run_id, []).append(checkpoint)
        return found


def ways(old: Sequence[Checkpoint], new: Sequence[Checkpoint]) -> tuple[Way, Way]:
    """Return the part of each lineage after the last checkpoint that they share."""
    shared, _ = ends([checkpoint.id for checkpoint in old], [checkpoint.id for checkpoint in new])
    start = old[shared - 1] if shared else None
    return Way(start, tuple(old[shared:])), Way(start, tuple(new[shared:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDiff(Displayed):
    """What changed between two checkpoints."""

    old: Checkpoint
    new: Checkpoint
    state: tuple[StateDiff, ...] = ()
    files: tuple[FileDiff, ...] = ()
    calls: tuple[CallDiff, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.state or self.files or self.calls)

    def _display(self) -> Display:
        state = [
            (item.path, item.kind.value, _side(item.path, item.old), _side(item.path, item.new)) for item in self.state
        ]
        files = [(item.path, item.kind.value) for item in self.files]
        calls = [(f"{item.node}#{item.visit}", item.kind.value, item.call.tool) for item in self.calls]
        parts = (
            (("state", "change", "old", "new"), state),
            (("file", "change"), files),
            (("node", "change", "call"), calls),
        )
        return Display(
            title=f"From step {self.old.step} to step {self.new.step}" + ("" if self else ": nothing differs"),
            tables=tuple(DisplayTable.of(headings, rows) for headings, rows in parts if rows),
        )

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many values, files and calls differ, by kind; kinds that do not occur are left out."""
        parts: dict[str, Sequence[StateDiff | FileDiff | CallDiff]] = {
            "state": self.state,
            "files": self.files,
            "calls": self.calls,
        }
        return {
            name: {kind.value: count for kind in DiffKind if (count := sum(item.kind is kind for item in items))}
            for name, items in parts.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as data."""
        return {
            "old": _checkpoint_dict(self.old),
            "new": _checkpoint_dict(self.new),
            "counts": self.counts,
            "state": [item.to_dict() for item in self.state],
            "files": [item.to_dict() for item in self.files],
            "calls": [item.to_dict() for item in self.calls],
        }


def _side(path: str, value: Any) -> Any:
    return None if value is MISSING else repr(masked(path.rpartition(".")[2], legible(value)))


def _checkpoint_dict(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "run": checkpoint.execution_id,
        "checkpoint": checkpoint.id,
        "step": checkpoint.step,
        "node": checkpoint.node,
        "visit": checkpoint.visit,
        "name": checkpoint.name,
        "at": checkpoint.created_at,
    }
