"""GrpcEnvironment: runs nodes on the machine of a `wtb environment-server`."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.environments.file_sync import FileSync
from wtb.infrastructure.environments.grpc_messages import OPTIONS, SERVICE, TOKEN_VARIABLE, check_grpc, packed, unpacked
from wtb.infrastructure.environments.subprocess import PASSED, variables_of

_CREATED_WITHIN_S = 600.0
"""How long the server may take to start an environment; it may have to install packages."""
_ANSWERED_WITHIN_S = 60.0
_ALONE = frozenset({"kind", "address", "token", "certificate", "timeout_s"})
"""Options that are for the client only."""


class GrpcEnvironment:
    """An environment on a server. Its life is that of the stream that created it."""

    def __init__(self, config: EnvironmentConfig, home: Path) -> None:
        check_grpc()
        if config.address is None:
            raise EnvironmentFailed(
                "environment 'grpc' needs the address of a wtb environment-server: address='host:7878'"
            )
        self._address = config.address
        self._lock = threading.Lock()
        self._link: GrpcLink | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="wtb-grpc-"))
        self._channel = _channel(config.address, config.certificate)
        self._metadata = _metadata(config)
        try:
            self._life = self._stream("Create", one_request=True)(
                {"config": _config_data(config), "wtb": version("workflow-test-bench")}, metadata=self._metadata
            )
            self._id = self._first_answer()["environment"]
        except BaseException:
            self._release()
            raise
        self.name = f"grpc {self._id} on {config.address}"

    def start(self) -> GrpcLink:
        with self._lock:
            if self._link is None:
                call = self._stream("Execute", one_request=False)
                metadata = (*self._metadata, ("environment", self._id))
                self._link = GrpcLink(lambda messages: call(messages, metadata=metadata), self._scratch)
            return self._link

    def clean(self) -> None:
        self._ask("Clean")

    def kill(self) -> str:
        with self._lock:
            link, self._link = self._link, None
        how = str(self._ask("Kill")["killed"])
        if link is not None:
            link.close()
        return how

    def close(self) -> None:
        with self._lock:
            if self._link is not None:
                self._link.close()
        with suppress(EnvironmentFailed):
            self._ask("Destroy")
        self._life.cancel()
        self._release()

    def _release(self) -> None:
        self._channel.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _ask(self, method: str) -> dict[str, Any]:
        import grpc

        call = self._channel.unary_unary(f"/{SERVICE}/{method}", packed, unpacked)
        try:
            found: dict[str, Any] = call({"environment": self._id}, timeout=_ANSWERED_WITHIN_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._failed(error) from error
        return found

    def _stream(self, method: str, *, one_request: bool) -> Callable[..., Any]:
        make = self._channel.unary_stream if one_request else self._channel.stream_stream
        stream: Callable[..., Any] = make(f"/{SERVICE}/{method}", packed, unpacked)
        return stream

    def _first_answer(self) -> dict[str, Any]:
        """Return the first message of the stream, which has no deadline itself; give up if none comes in time."""
        import grpc

        timer = threading.Timer(_CREATED_WITHIN_S, self._life.cancel)
        timer.daemon = True
        timer.start()
        try:
            found: dict[str, Any] = next(self._life)
        except (grpc.RpcError, StopIteration) as error:
            raise self._failed(error) from error
        finally:
            timer.cancel()
        return found

    def _failed(self, error: Any) -> EnvironmentFailed:
        details = error.details() if hasattr(error, "details") else "it sent no answer"
        return EnvironmentFailed(f"the environment server at {self._address} failed: {details}")


class GrpcLink:
    """The stream of one process on the server. It also keeps the workspace the same here and there."""

    def __init__(self, call: Callable[[Iterator[Mapping[str, Any]]], Any], scratch: Path) -> None:
        self._outbox: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._codec = MsgpackCodec()
        self._files = FileSync(self._outbox.put, scratch)
        self._lock = threading.Lock()
        self._workspace_asks: set[int] = set()
        self._is_gone = False
        self._stream = call(iter(self._outbox.get, None))

    def send(self, message: Mapping[str, Any]) -> bool:
        with self._lock:
            if "execute" in message:
                self._files.begin()
                # Names of files are relative to the project here and there.
                message = {"execute": {**message["execute"], "root": ""}}
            elif "answer" in message:
                message = self._with_files(message)
            self._outbox.put(message)
        return not self._is_gone

    def _with_files(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if message["answer"] in self._workspace_asks and "returned" in message:
            self._files.folder = Path(self._codec.decode(b64decode(message["returned"])))
            message = {"answer": message["answer"], "workspace": True}
        return self._files.outgoing(message)

    def receive(self) -> Mapping[str, Any] | None:
        import grpc

        while not self._is_gone:
            try:
                message = next(self._stream)
            except (grpc.RpcError, StopIteration):
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


def _without_variables(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out which variables of the server a node has read: this process cannot compare them."""
    if "observed" not in message:
        return message
    return {**message, "observed": [each for each in message["observed"] if each[1] != "variable"]}


def _config_data(config: EnvironmentConfig) -> dict[str, Any]:
    """Return the config for the server, with the values of the variables."""
    data = {key: value for key, value in config.to_data().items() if key not in _ALONE}
    own = variables_of(config)
    data["variables"] = {name: value for name, value in own.items() if name in config.variables or name not in PASSED}
    return {**data, "kind": "subprocess"}


def _metadata(config: EnvironmentConfig) -> tuple[tuple[str, str], ...]:
    token = os.environ.get(TOKEN_VARIABLE) if config.token is None else config.token.reveal()
    return () if token is None else (("authorization", f"Bearer {token}"),)


def _channel(address: str, certificate: str | None) -> Any:
    import grpc

    if certificate is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    try:
        trusted = Path(certificate).read_bytes()
    except OSError as error:
        raise EnvironmentFailed(f"the certificate {certificate} cannot be read: {error.strerror}") from error
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options=OPTIONS)
