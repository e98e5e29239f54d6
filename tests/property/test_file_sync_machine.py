"""FileSync: whatever both sides change, and whenever messages arrive, both end with the same files."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wtb.infrastructure.environments.file_sync import FileSync

Message = Mapping[str, Any]
PATHS = ["a", "b", "sub", "sub/a", "sub/b", "sub/deep", "sub/deep/a"]

_changes = st.tuples(
    st.sampled_from(["write", "remove", "folder", "link"]), st.sampled_from(PATHS), st.binary(max_size=3)
)
_steps = st.tuples(st.sampled_from([0, 1]), st.one_of(_changes, st.just("say"), st.just("hear")))


class SyncedSide:
    """A folder with its half of the link."""

    def __init__(self, place: Path, *, is_node: bool) -> None:
        self.folder = place / "folder"
        self.folder.mkdir(parents=True)
        self.scratch = place / "scratch"
        self.sent: deque[Iterator[Message]] = deque()
        self.sync = FileSync(self._send, self.scratch, keeps_own=is_node)
        self.sync.folder = self.folder
        self.said = 0
        self.heard: list[int] = []

    def _send(self, messages: Iterable[Message]) -> None:
        self.sent.append(iter(messages))

    def say(self) -> None:
        self.said += 1
        self._send([self.sync.outgoing({"said": self.said})])

    def hear(self, other: SyncedSide) -> bool:
        """Take the next message that the other side has sent, if there is one."""
        while other.sent:
            message = next(other.sent[0], None)
            if message is not None:
                self.heard += [each["said"] for each in self.sync.incoming(message, lambda: self.folder)]
                return True
            other.sent.popleft()
        return False

    def change(self, what: str, path: str, content: bytes) -> None:
        place = self.folder / path
        above = [each for each in place.parents if each.is_relative_to(self.folder)]
        if any(each.is_symlink() or not each.is_dir() for each in above):
            return
        if place.is_dir() and not place.is_symlink():
            if what == "folder":
                return
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        if what == "write":
            place.write_bytes(content)
        elif what == "folder":
            place.mkdir()
        elif what == "link":
            place.symlink_to(f"target-{len(content)}")

    def state(self) -> dict[str, Any]:
        return {str(each.relative_to(self.folder)): _content(each) for each in sorted(self.folder.rglob("*"))}


def _content(place: Path) -> Any:
    if place.is_symlink():
        return str(place.readlink())
    return place.read_bytes() if place.is_file() else None


def _talk(side: SyncedSide, sides: list[SyncedSide]) -> None:
    """Let a side say something, and both hear all that is on its way."""
    side.say()
    while sides[0].hear(sides[1]) or sides[1].hear(sides[0]):
        pass


@given(st.lists(_steps, max_size=30))
def test_both_sides_end_with_the_same_files_and_hear_every_message_in_order(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        sides = [SyncedSide(Path(temporary, name), is_node=name == "node") for name in ("run", "node")]
        for path in ("sub", "sub/deep"):
            sides[0].change("folder", path, b"")
        for path in ("a", "sub/a", "sub/deep/a"):
            sides[0].change("write", path, b"begin")
        _talk(sides[0], sides)
        for number, step in steps:
            side, other = sides[number], sides[1 - number]
            if step == "say":
                side.say()
            elif step == "hear":
                side.hear(other)
            else:
                side.change(*step)
        for side in (*reversed(sides), *sides):  # the last words of each
            _talk(side, sides)
        assert sides[0].state() == sides[1].state()
        for side, other in (sides, sides[::-1]):
            assert side.heard == list(range(1, other.said + 1))
            assert [each for each in side.scratch.rglob("*") if each.is_file()] == []
