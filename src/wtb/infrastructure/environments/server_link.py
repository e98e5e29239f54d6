"""ServerLink: passes messages between a client of an environment server and the process that runs its nodes."""

from __future__ import annotations

import queue
import shutil
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wtb.application.runs.remote_errors import error_to_data
from wtb.domain.errors import EnvironmentFailed, WTBError
from wtb.domain.ports import MessageLink
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.environments.file_sync import FileSync

Message = Mapping[str, Any]


class ServerLink:
    """Two directions, each with a thread. The workspace of the node is a folder on this machine."""

    def __init__(self, process: MessageLink, folder: Path) -> None:
        self._process = process
        self._folder = folder / "workspace"
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._files = FileSync(self._outbox.put, folder / "contents")
        self._codec = MsgpackCodec()
        self._lock = threading.Lock()
        self._is_busy = False

    def is_busy(self) -> bool:
        """Whether a node runs."""
        return self._is_busy

    def pass_on(self, messages: Iterable[Message]) -> None:
        """Pass the client's messages on to the process, until the client is gone."""
        try:
            for message in messages:
                self.take(message)
        except (OSError, WTBError) as error:
            self._fail(error)
        except Exception:  # noqa: BLE001  gRPC ends the iteration with an error if the client is gone
            pass
        finally:
            self._outbox.put(None)

    def _fail(self, error: Exception) -> None:
        """Tell the client that its files cannot be kept the same here and there."""
        failed = EnvironmentFailed(f"the files of the node could not be copied between the machines: {error}")
        self._outbox.put({"failed": error_to_data(failed, self._codec)})

    def take(self, message: Message) -> None:
        """Pass a message of the client on to the process, once its files are here."""
        with self._lock:
            if "execute" in message:
                self._begin()
            found = self._files.incoming(message, self._made_folder)
            if found is not None and "workspace" in found:
                path = self._codec.encode(str(self._made_folder()), "workspace")[0]
                found = {"answer": found["answer"], "returned": b64encode(path).decode()}
        if found is not None:
            self._process.send(found)

    def _begin(self) -> None:
        self._is_busy = True
        self._files.begin()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _made_folder(self) -> Path:
        if self._files.folder is None:
            self._folder.mkdir(parents=True)
            self._files.folder = self._folder
        return self._folder

    def answers(self) -> Iterator[Message]:
        """Yield the messages for the client, until the process has ended or the client is gone."""
        threading.Thread(target=self._read, name="wtb-process", daemon=True).start()
        while (message := self._outbox.get()) is not None:
            yield message

    def _read(self) -> None:
        try:
            while (message := self._process.receive()) is not None:
                with self._lock:
                    self._is_busy = self._is_busy and "ask" in message
                    found = self._files.outgoing(message)
                self._outbox.put(found)
        except OSError as error:
            self._fail(error)
        finally:
            self._outbox.put(None)
