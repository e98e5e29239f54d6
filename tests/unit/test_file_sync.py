"""FileSync: both sides of a link end with the same files, and neither can reach out of the other's folder."""

from __future__ import annotations

import hashlib
import mmap
import os
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from wtb.domain.errors import EnvironmentFailed, UnsafePath
from wtb.infrastructure.environments.file_sync import PIECE_BYTES, FileSync

CONTENT = b"a key that nobody else may read"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
Message = Mapping[str, Any]


class Side:
    """One side of a link, with the messages that are on their way to it."""

    def __init__(self, place: Path, *, is_node: bool) -> None:
        self.folder = place / "workspace"
        self.folder.mkdir(parents=True)
        self.scratch = place / "scratch"
        self.outbox: deque[Iterable[Message]] = deque()
        self.sync = FileSync(self.outbox.append, self.scratch, keeps_own=is_node)
        self.sync.folder = self.folder
        self.received: list[Message] = []

    def say(self, text: str) -> None:
        self.outbox.append([self.sync.outgoing({"said": text})])

    def files(self) -> dict[str, bytes | None]:
        found = sorted(self.folder.rglob("*"))
        return {str(each.relative_to(self.folder)): each.read_bytes() if each.is_file() else None for each in found}


class Pair:
    """The side of a run and the side of its node."""

    def __init__(self, place: Path) -> None:
        self.run = Side(place / "run", is_node=False)
        self.node = Side(place / "node", is_node=True)
        self.longest = 0

    def deliver(self) -> None:
        """Pass on what either side sends, until both are silent."""
        while self.run.outbox or self.node.outbox:
            self.deliver_to(self.run)
            self.deliver_to(self.node)

    def deliver_to(self, side: Side) -> None:
        outbox = (self.node if side is self.run else self.run).outbox
        for _ in range(len(outbox)):
            for message in outbox.popleft():
                self.longest = max(self.longest, len(str(message)))
                side.received += side.sync.incoming(message, lambda: side.folder)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


def said(side: Side) -> list[str]:
    return [message["said"] for message in side.received]


def test_both_sides_have_the_same_files_after_a_message(pair: Pair) -> None:
    (pair.run.folder / "a").mkdir()
    (pair.run.folder / "a" / "one.txt").write_bytes(CONTENT)
    (pair.run.folder / "copy.txt").write_bytes(CONTENT)
    pair.run.say("here")
    pair.deliver()
    assert pair.node.files() == pair.run.files()
    assert pair.node.received == [{"said": "here"}]


def test_a_file_that_changes_before_it_was_fetched_does_not_fail_the_message(pair: Pair) -> None:
    (pair.node.folder / "data").write_bytes(b"first")
    pair.node.say("one")
    (pair.node.folder / "data").write_bytes(b"second, and longer")
    pair.node.say("two")
    pair.deliver()
    assert said(pair.run) == ["one", "two"]
    assert pair.run.files() == {"data": b"second, and longer"}


def test_a_file_that_is_removed_before_it_was_fetched_stays_removed(pair: Pair) -> None:
    (pair.node.folder / "data").write_bytes(b"first")
    pair.node.say("one")
    (pair.node.folder / "data").unlink()
    pair.node.say("two")
    pair.deliver()
    assert said(pair.run) == ["one", "two"]
    assert pair.run.files() == pair.node.files() == {}


def test_messages_arrive_in_the_order_in_which_they_were_sent(pair: Pair) -> None:
    (pair.node.folder / "data").write_bytes(b"first")
    pair.node.say("with a file")
    pair.node.say("without")
    pair.deliver()
    assert said(pair.run) == ["with a file", "without"]


def test_of_two_changes_at_the_same_time_that_of_the_node_stays_on_both_sides(pair: Pair) -> None:
    (pair.run.folder / "data").write_bytes(b"the tool's")
    (pair.run.folder / "gone").write_bytes(b"the tool's")
    pair.run.say("answer")
    (pair.node.folder / "data").write_bytes(b"the node's")
    pair.node.say("question")
    pair.deliver()
    assert pair.run.files() == pair.node.files() == {"data": b"the node's", "gone": b"the tool's"}


def test_a_file_that_the_node_removes_while_a_tool_changes_it_stays_removed(pair: Pair) -> None:
    (pair.run.folder / "data").write_bytes(b"first")
    pair.run.say("begin")
    pair.deliver()
    (pair.node.folder / "data").unlink()
    pair.node.say("question")
    (pair.run.folder / "data").write_bytes(b"second, and longer")
    pair.run.say("answer")
    pair.deliver()
    assert pair.run.files() == pair.node.files() == {}


def test_a_file_in_a_folder_that_the_node_removes_meanwhile_arrives(pair: Pair) -> None:
    (pair.run.folder / "sub").mkdir()
    (pair.run.folder / "sub" / "old").write_bytes(b"old")
    pair.run.say("begin")
    pair.deliver()
    (pair.node.folder / "sub" / "old").unlink()
    (pair.node.folder / "sub").rmdir()
    pair.node.say("question")
    (pair.run.folder / "sub" / "new").write_bytes(b"new")
    pair.run.say("answer")
    pair.deliver()
    pair.run.say("last words")
    pair.deliver()
    assert pair.run.files() == pair.node.files() == {"sub": None, "sub/new": b"new"}


def test_a_second_write_within_a_tick_of_the_clock_is_noticed(pair: Pair) -> None:
    file = pair.node.folder / "data"
    file.write_bytes(b"first")
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as memory:
        memory[:] = b"first"
        facts = file.stat()
        pair.node.say("one")
        memory[:] = b"other"  # a write through memory leaves the times of the file as they are, as a tick does
        assert file.stat() == facts
    pair.node.say("two")
    pair.deliver()
    assert pair.run.files() == {"data": b"other"}


def test_a_large_file_travels_in_pieces_that_are_read_when_they_are_sent(pair: Pair) -> None:
    content = os.urandom(3 * PIECE_BYTES + 5)
    (pair.node.folder / "large").write_bytes(content)
    pair.node.say("here")
    pair.deliver_to(pair.run)
    pair.deliver_to(pair.node)
    (pieces,) = pair.node.outbox
    assert not isinstance(pieces, list)  # a generator: nothing of the file is in memory yet
    pair.deliver()
    assert pair.run.files() == {"large": content}
    assert pair.longest < 1.5 * PIECE_BYTES


def test_a_content_that_the_other_side_has_does_not_travel(pair: Pair) -> None:
    (pair.node.folder / "data").write_bytes(os.urandom(100_000))
    pair.node.say("here")
    pair.deliver()
    pair.longest = 0
    (pair.node.folder / "data").rename(pair.node.folder / "renamed")
    pair.node.say("renamed")
    pair.deliver()
    assert pair.run.files() == pair.node.files()
    assert pair.longest < 1_000


def test_nothing_is_left_in_the_scratch_folders(pair: Pair) -> None:
    for side in (pair.run, pair.node):
        (side.folder / side.folder.parent.name).write_bytes(CONTENT)
        side.say("here")
    pair.deliver()
    (pair.node.folder / "node").rename(pair.node.folder / "other")
    pair.node.say("renamed")
    pair.deliver()
    assert [each for side in (pair.run, pair.node) for each in side.scratch.rglob("*")] == []


def test_what_is_asked_for_after_the_node_has_ended_is_not_sent(pair: Pair) -> None:
    (pair.run.folder / "data").write_bytes(CONTENT)
    pair.run.say("late answer")
    pair.deliver_to(pair.node)
    pair.run.sync.begin()
    pair.deliver_to(pair.run)
    assert not pair.run.outbox
    assert not list(pair.run.scratch.rglob("*"))


def test_what_is_being_sent_when_the_node_ends_arrives_whole(pair: Pair) -> None:
    (pair.run.folder / "data").write_bytes(CONTENT)
    pair.run.say("late answer")
    pair.deliver_to(pair.node)
    pair.deliver_to(pair.run)
    pair.run.sync.begin()
    pair.deliver_to(pair.node)
    assert pair.node.files() == {"data": CONTENT}
    assert not list(pair.run.scratch.rglob("*"))


def test_a_link_that_the_node_puts_in_the_place_of_a_folder_meanwhile_stays(pair: Pair) -> None:
    (pair.run.folder / "sub").mkdir()
    pair.run.say("begin")
    pair.deliver()
    (pair.node.folder / "sub").rmdir()
    (pair.node.folder / "sub").symlink_to("elsewhere")
    pair.node.say("question")
    (pair.run.folder / "sub" / "new").write_bytes(b"new")
    pair.run.say("answer")
    pair.deliver()
    assert [each.name for each in pair.run.folder.iterdir() if each.is_symlink()] == ["sub"]
    assert [each.name for each in pair.node.folder.iterdir() if each.is_symlink()] == ["sub"]


def test_a_content_that_arrives_damaged_is_refused(tmp_path: Path, folder: Path) -> None:
    sync = FileSync(lambda messages: None, tmp_path / "scratch", keeps_own=True)
    *messages, last = given({"key": ["file", DIGEST, "384"]}, CONTENT[:-1])
    for message in messages:
        sync.incoming(message, lambda: folder)
    with pytest.raises(EnvironmentFailed, match="the content of a file did not arrive whole; run the node again"):
        sync.incoming(last, lambda: folder)


def given(files: Mapping[str, Any], content: bytes = CONTENT, number: int = 1) -> list[Message]:
    """Return the messages of another side that sends a content under DIGEST."""
    return [
        {"said": "", "files": files, "number": number, "seen": 0},
        {"blob": DIGEST, "data": ""},
        {"blob": DIGEST, "data": b64encode(content).decode()},
        {"given": number},
    ]


def test_a_link_in_the_place_of_a_folder_opens_no_file_behind_it(tmp_path: Path, folder: Path) -> None:
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "key").write_bytes(b"secret")
    sent: list[Message] = []
    sync = FileSync(sent.extend, tmp_path / "scratch", keeps_own=False)
    sync.folder = folder
    secret = hashlib.sha256(b"secret").hexdigest()
    for message in (
        *given({"a": ["folder"], "a/key": ["file", DIGEST, "384"]}),
        {"files": {"a": ["link", str(outside)]}, "number": 2, "seen": 0},
        {"files": {"b": ["file", secret, "384"]}, "number": 3, "seen": 0},
        {"need": [DIGEST, secret], "number": 1},
    ):
        sync.incoming(message, lambda: folder)
    sync.outgoing({"said": "nothing"})
    assert [b64decode(message["data"]) for message in sent if "blob" in message] == []
    assert sent[-1] == {"need": [secret], "number": 3}


@pytest.mark.parametrize("keeps_own", [True, False])
def test_nothing_is_written_through_a_link(tmp_path: Path, folder: Path, keeps_own: bool) -> None:
    outside = tmp_path / "home"
    outside.mkdir()
    (folder / "a").symlink_to(outside)
    sync = FileSync(lambda messages: None, tmp_path / "scratch", keeps_own=keeps_own)
    for message in given({"a/key": ["file", DIGEST, "384"]}):
        sync.incoming(message, lambda: folder)
    assert list(outside.iterdir()) == []
    assert (folder / "a").is_symlink() == keeps_own


@pytest.mark.parametrize("path", ["../key", "/etc/key", "a/../../key", "pipe/key"])
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, folder: Path, path: str) -> None:
    os.mkfifo(folder / "pipe")
    sync = FileSync(lambda messages: None, tmp_path / "scratch", keeps_own=True)
    *messages, last = given({path: ["file", DIGEST, "384"]})
    for message in messages:
        sync.incoming(message, lambda: folder)
    with pytest.raises(UnsafePath):
        sync.incoming(last, lambda: folder)


@pytest.mark.parametrize("path", ["../key", "a/key"])
def test_a_path_that_leads_out_of_the_folder_removes_nothing(tmp_path: Path, folder: Path, path: str) -> None:
    (tmp_path / "key").write_bytes(CONTENT)
    (folder / "a").symlink_to(tmp_path)
    sync = FileSync(lambda messages: None, tmp_path / "scratch", keeps_own=True)
    sync.incoming({"files": {path: None}, "number": 1, "seen": 0}, lambda: folder)
    assert (tmp_path / "key").exists()


@pytest.mark.parametrize("digest", ["../../key", "a" * 63, "/" * 64])
def test_a_hash_that_is_none_is_refused(tmp_path: Path, folder: Path, digest: str) -> None:
    sync = FileSync(lambda messages: None, tmp_path / "scratch", keeps_own=True)
    with pytest.raises(UnsafePath):
        sync.incoming({"blob": digest, "data": ""}, lambda: folder)
