"""GrpcEnvironment: runs nodes on the machine of a `wtb environment-server`."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed
from wtb.infrastructure.environments.grpc_messages import (
    OPTIONS,
    SERVICE,
    TOKEN_VARIABLE,
    check_grpc,
    is_local,
    packed,
    unpacked,
)
from wtb.infrastructure.environments.remote_link import RemoteLink
from wtb.infrastructure.environments.subprocess import remote_config_data

_CREATED_WITHIN_S = 600.0
"""How long the server may take to start an environment; it may have to install packages."""
_ANSWERED_WITHIN_S = 60.0


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
        self._link: RemoteLink | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="wtb-grpc-"))
        self._channel = _channel(config.address, config.certificate)
        self._metadata = _metadata(config)
        try:
            self._life = self._stream("Create", one_request=True)(
                {"config": remote_config_data(config), "wtb": version("workflow-test-bench")}, metadata=self._metadata
            )
            self._id = self._first_answer()["environment"]
        except BaseException:
            self._release()
            raise
        self.name = f"grpc {self._id} on {config.address}"

    def start(self) -> RemoteLink:
        with self._lock:
            if self._link is None:
                call = self._stream("Execute", one_request=False)
                metadata = (*self._metadata, ("environment", self._id))
                self._link = RemoteLink(lambda messages: _GrpcStream(call(messages, metadata=metadata)), self._scratch)
            return self._link

    def clean(self) -> None:
        self._ask("Clean")

    def kill(self) -> str:
        with self._lock:
            link, self._link = self._link, None
        try:
            return str(self._ask("Kill")["killed"])
        finally:
            if link is not None:
                link.close()

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


class _GrpcStream:
    """The answers of the server; an error of the connection ends them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __next__(self) -> Mapping[str, Any]:
        import grpc

        try:
            found: Mapping[str, Any] = next(self._stream)
        except grpc.RpcError as error:
            raise StopIteration from error
        return found

    def cancel(self) -> None:
        self._stream.cancel()


def _metadata(config: EnvironmentConfig) -> tuple[tuple[str, str], ...]:
    token = os.environ.get(TOKEN_VARIABLE) if config.token is None else config.token.reveal()
    return () if token is None else (("authorization", f"Bearer {token}"),)


def _channel(address: str, certificate: str | None) -> Any:
    import grpc

    if certificate is None and not is_local(address):
        raise EnvironmentFailed(
            f"without certificate= the token and the data would travel to {address} unencrypted; give the server's "
            "certificate"
        )
    if certificate is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    try:
        trusted = Path(certificate).read_bytes()
    except OSError as error:
        raise EnvironmentFailed(f"the certificate {certificate} cannot be read: {error.strerror}") from error
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options=OPTIONS)
