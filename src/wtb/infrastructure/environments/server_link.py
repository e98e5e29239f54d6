"""ServerLink: passes messages between a run on another machine and the process here that runs its nodes."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wtb.domain.errors import WTBError
from wtb.domain.ports import MessageLink
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.environments.file_sync import FileSync
from wtb.infrastructure.environments.remote_link import Outbox, each_message, not_copied

Message = Mapping[str, Any]


class ServerLink:
    """Two directions, each with a thread. The workspace of the node is a folder on this machine."""

    def __init__(self, process: MessageLink, folder: Path) -> None:
        self._process = process
        folder.mkdir(parents=True, exist_ok=True)
        self._place = Path(tempfile.mkdtemp(dir=folder))  # an earlier link may still be ending in another one
        self._folder = self._place / "workspace"
        self._outbox: Outbox = queue.SimpleQueue()
        self._files = FileSync(self._outbox.put, self._place / "contents", keeps_own=True)
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
        except Exception:  # noqa: BLE001  gRPC ends the iteration with an error if the client is gone
            pass
        finally:
            self._outbox.put(None)

    def take(self, message: Message) -> None:
        """Pass a message of the client on to the process, once its files are here."""
        with self._lock:
            if "execute" in message:
                self._begin()
            try:
                ready = [self._for_process(each) for each in self._files.incoming(message, self._made_folder)]
            except (OSError, WTBError) as error:
                self._fail(error)
                return
        for each in ready:
            self._process.send(each)

    def _for_process(self, message: Message) -> Message:
        if "workspace" not in message:
            return message
        path = self._codec.encode(str(self._made_folder()), "workspace")[0]
        return {"answer": message["answer"], "returned": b64encode(path).decode()}

    def _fail(self, error: Exception) -> None:
        """Fail the node that runs. A late message for one that has ended may be lost."""
        if self._is_busy:
            self._is_busy = False
            self._outbox.put([{"broken": str(not_copied(error))}])
            self._outbox.put(None)  # then the process is ended

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
        yield from each_message(self._outbox)

    def _read(self) -> None:
        try:
            while (message := self._process.receive()) is not None:
                with self._lock:
                    found = self._files.outgoing(message)
                    self._is_busy = self._is_busy and "ask" in message
                    self._outbox.put([found])
        except (OSError, WTBError) as error:
            self._fail(error)
        finally:
            self._outbox.put(None)

    def close(self) -> None:
        """Remove the files of the link."""
        shutil.rmtree(self._place, ignore_errors=True)
