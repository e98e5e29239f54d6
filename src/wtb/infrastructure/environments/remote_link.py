"""RemoteLink: a link to a process on another machine, which also keeps the workspace the same here and there."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from wtb.domain.errors import EnvironmentFailed, WTBError
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.environments.file_sync import FileSync

Message = Mapping[str, Any]
Outbox = queue.SimpleQueue[Iterable[Message] | None]


class MessageStream(Protocol):
    """The messages that come from the other machine; it ends when the other side is gone."""

    def __next__(self) -> Message: ...

    def cancel(self) -> None:
        """End the stream. Any thread may call it."""
        ...


OpenStream = Callable[[Iterator[Message]], MessageStream]
"""Sends the messages of an iterator to the other machine, and returns those that come back."""


class RemoteLink:
    """The connection to one process."""

    def __init__(self, open_stream: OpenStream, scratch: Path) -> None:
        self._scratch = Path(tempfile.mkdtemp(dir=scratch))
        self._outbox: Outbox = queue.SimpleQueue()
        self._codec = MsgpackCodec()
        self._files = FileSync(self._outbox.put, self._scratch, keeps_own=False)
        self._lock = threading.Lock()
        self._workspace_asks: set[int] = set()
        self._received: deque[Message] = deque()
        self._failure: EnvironmentFailed | None = None
        self.is_gone = False
        """Whether the connection has ended."""
        self._stream = open_stream(each_message(self._outbox))

    def send(self, message: Message) -> bool:
        with self._lock:
            if "execute" in message:
                self._files.begin()
                # Names of files are relative to the project here and there.
                message = {"execute": {**message["execute"], "root": ""}}
            elif "answer" in message:
                try:
                    message = self._with_files(message)
                except (OSError, WTBError) as error:
                    self._failure = not_copied(error)
                    self.close()
                    return False
            self._outbox.put([message])
        return not self.is_gone

    def _with_files(self, message: Message) -> Message:
        if message["answer"] in self._workspace_asks and "returned" in message:
            self._workspace_asks.discard(message["answer"])
            self._files.folder = Path(self._codec.decode(b64decode(message["returned"])))
            message = {"answer": message["answer"], "workspace": True}
        return self._files.outgoing(message)

    def receive(self) -> Message | None:
        """Wait for the next message. Raise EnvironmentFailed if files cannot be copied between the machines."""
        while not self._received and not self.is_gone:
            try:
                self._take(next(self._stream))
            except StopIteration:
                self.is_gone = True
            except OSError as error:
                raise not_copied(error) from error
        if self._received and not self.is_gone:
            return _without_variables(self._received.popleft())
        if self._failure is not None:
            raise self._failure
        return None

    def _take(self, message: Message) -> None:
        if "broken" in message:
            self._failure = EnvironmentFailed(message["broken"])
            self.is_gone = True
            return
        with self._lock:
            for found in self._files.incoming(message, self._folder):
                if found.get("what") == "workspace":
                    self._workspace_asks.add(found["ask"])
                self._received.append(found)

    def _folder(self) -> Path:
        if self._files.folder is None:
            raise EnvironmentFailed("the other machine sent files of a node that has no workspace")
        return self._files.folder

    def close(self) -> None:
        """End the connection."""
        self.is_gone = True
        self._outbox.put(None)
        self._stream.cancel()
        shutil.rmtree(self._scratch, ignore_errors=True)


def each_message(outbox: Outbox) -> Iterator[Message]:
    """Yield the messages of an outbox until it holds None. Contents of files are read only when they are sent."""
    for messages in iter(outbox.get, None):
        yield from messages


def not_copied(error: Exception) -> EnvironmentFailed:
    """Return the error of a node whose files cannot be kept the same here and there."""
    return EnvironmentFailed(f"the files of the node could not be copied between the machines: {error}")


def _without_variables(message: Message) -> Message:
    """Leave out which variables of the other machine a node has read: this process cannot compare them."""
    if "observed" not in message:
        return message
    return {**message, "observed": [each for each in message["observed"] if each[1] != "variable"]}
