"""RemoteLink: a link to a process on another machine, which also keeps the workspace the same here and there."""

from __future__ import annotations

import queue
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.environments.file_sync import FileSync

Message = Mapping[str, Any]


class MessageStream(Protocol):
    """The messages that come from the other machine; it ends when the other side is gone."""

    def __next__(self) -> Message: ...

    def cancel(self) -> None:
        """End the stream. Any thread may call it."""
        ...


class RemoteLink:
    """The connection to one process. `call` sends the messages of an iterator, and returns those that come back."""

    def __init__(self, call: Callable[[Iterator[Message]], MessageStream], scratch: Path) -> None:
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._codec = MsgpackCodec()
        self._files = FileSync(self._outbox.put, scratch)
        self._lock = threading.Lock()
        self._workspace_asks: set[int] = set()
        self._is_gone = False
        self._stream = call(iter(self._outbox.get, None))

    def send(self, message: Message) -> bool:
        with self._lock:
            if "execute" in message:
                self._files.begin()
                # Names of files are relative to the project here and there.
                message = {"execute": {**message["execute"], "root": ""}}
            elif "answer" in message:
                message = self._with_files(message)
            self._outbox.put(message)
        return not self._is_gone

    def _with_files(self, message: Message) -> Message:
        if message["answer"] in self._workspace_asks and "returned" in message:
            self._workspace_asks.discard(message["answer"])
            self._files.folder = Path(self._codec.decode(b64decode(message["returned"])))
            message = {"answer": message["answer"], "workspace": True}
        return self._files.outgoing(message)

    def receive(self) -> Message | None:
        while not self._is_gone:
            try:
                message = next(self._stream)
            except StopIteration:
                break
            with self._lock:
                found = self._files.incoming(message, self._folder)
                if found is not None and found.get("what") == "workspace":
                    self._workspace_asks.add(found["ask"])
            if found is not None:
                return _without_variables(found)
        self._is_gone = True
        return None

    def _folder(self) -> Path:
        assert self._files.folder is not None
        return self._files.folder

    def close(self) -> None:
        """End the stream."""
        self._is_gone = True
        self._outbox.put(None)
        self._stream.cancel()


def _without_variables(message: Message) -> Message:
    """Leave out which variables of the other machine a node has read: this process cannot compare them."""
    if "observed" not in message:
        return message
    return {**message, "observed": [each for each in message["observed"] if each[1] != "variable"]}
