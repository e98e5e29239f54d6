"""GrpcEnvironment: runs nodes on the machine of a `wtb environment-server`."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentAway, EnvironmentFailed
from wtb.infrastructure.environments.grpc_messages import (
    OPTIONS,
    SERVICE,
    TOKEN_VARIABLE,
    check_grpc,
    is_local,
    packed,
    unpacked,
)
from wtb.infrastructure.environments.grpc_token import TOKEN_RULE, is_token
from wtb.infrastructure.environments.remote import RemoteEnvironment
from wtb.infrastructure.environments.remote_link import OpenStream
from wtb.infrastructure.environments.subprocess import remote_config_data

_CREATED_WITHIN_S = 600.0
"""How long the server may take to start an environment; it may have to install packages."""
_ANSWERED_WITHIN_S = 60.0
_WORTH_WAITING_S = {"RESOURCE_EXHAUSTED": 600.0, "UNAVAILABLE": 30.0}
"""How long to wait for a server that is full, and for one that does not answer; it may be starting again."""
_CLIENT = uuid.uuid4().hex
"""Tells this process from others that wait for the same server."""
_CALLS = {"clean": "Clean", "kill": "Kill", "end": "Destroy"}


class GrpcEnvironment(RemoteEnvironment):
    """An environment on a server. Its life is that of the stream that created it."""

    def __init__(self, config: EnvironmentConfig, home: Path) -> None:
        check_grpc()
        assert config.address is not None, "refused when the workflow is checked"
        self._address = config.address
        self._metadata = _metadata(config)
        given = {
            "config": remote_config_data(config),
            "wtb": version("workflow-test-bench"),
            "client": _CLIENT,
        }
        self._channel = _channel(config.address, config.certificate)
        super().__init__()
        try:
            self._life = self._channel.unary_stream(_path("Create"), packed, unpacked)(given, metadata=self._metadata)
            self._id = self._first_answer()["environment"]
        except BaseException:
            self._release()
            self._scratch.close()
            raise
        self.name = f"grpc {self._id} on {config.address}"

    def is_alive(self) -> bool:
        return bool(self._life.is_active())

    def clean(self) -> None:
        if self._asked("clean").get("is_wanted"):
            raise EnvironmentAway(f"others wait for the room of {self.name}")

    def _new_stream(self) -> OpenStream:
        call = self._channel.stream_stream(_path("Execute"), packed, unpacked)
        metadata = (*self._metadata, ("environment", self._id))
        return lambda messages: _GrpcStream(call(messages, metadata=metadata))

    def _release(self) -> None:
        self._channel.close()  # this ends its streams, too

    def _ask(self, what: str) -> Any:
        return self._asked(what).get("killed")

    def _asked(self, what: str) -> dict[str, Any]:
        import grpc

        call = self._channel.unary_unary(_path(_CALLS[what]), packed, unpacked)
        try:
            found: dict[str, Any] = call({"environment": self._id}, timeout=_ANSWERED_WITHIN_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._failed(error) from error
        return found

    def _first_answer(self) -> dict[str, Any]:
        """Return the first message of the stream, which has no deadline itself; give up if none comes in time."""
        import grpc

        timer = threading.Timer(_CREATED_WITHIN_S, self._life.cancel)
        timer.daemon = True
        timer.start()
        try:
            found: dict[str, Any] = next(self._life)
        except (grpc.RpcError, StopIteration) as error:
            raise self._not_created(error) from error
        finally:
            timer.cancel()
        return found

    def _failed(self, error: Any) -> EnvironmentFailed:
        details = error.details() if hasattr(error, "details") else "it sent no answer"
        return EnvironmentFailed(f"the environment server at {self._address} failed: {details}")

    def _not_created(self, error: Any) -> EnvironmentFailed:
        """Return the error of a server that started no environment; if it is full or away, waiting may help."""
        wait_s = _WORTH_WAITING_S.get(error.code().name if hasattr(error, "code") else "")
        failed = self._failed(error)
        return failed if wait_s is None else EnvironmentAway(str(failed), wait_s)


def _path(call: str) -> str:
    return f"/{SERVICE}/{call}"


class _GrpcStream:
    """The answers of the server; an error of the connection ends them. A message that is too large is an error."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __next__(self) -> Mapping[str, Any]:
        import grpc

        try:
            found: Mapping[str, Any] = next(self._stream)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise EnvironmentFailed(
                    "the state, a result or the arguments of a call are too large for one message "
                    f"({error.details()}); put large data into files of the workspace"
                ) from error
            raise StopIteration from error
        return found

    def cancel(self) -> None:
        self._stream.cancel()


def _metadata(config: EnvironmentConfig) -> tuple[tuple[str, str], ...]:
    token = os.environ.get(TOKEN_VARIABLE) if config.token is None else config.token.reveal()
    if token is not None and not is_token(token):
        raise EnvironmentFailed(f"the token for {config.address} cannot be sent: {TOKEN_RULE}")
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
