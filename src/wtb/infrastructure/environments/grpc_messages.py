"""The wire of `environments.proto`: names of calls, and JSON messages in BytesValue."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from wtb.domain.errors import MissingLibrary

SERVICE = "wtb.environments.v1.Environments"
TOKEN_VARIABLE = "WTB_ENVIRONMENT_TOKEN"
OPTIONS = [
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.max_send_message_length", 256 * 1024 * 1024),
    # A side that says nothing for this long is asked whether it lives; one that does not answer is gone.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


def check_grpc() -> None:
    """Raise MissingLibrary if gRPC is not installed."""
    if importlib.util.find_spec("grpc") is None:
        raise MissingLibrary('gRPC is not installed: pip install "workflow-test-bench[grpc]"')


def packed(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes for the wire."""
    from google.protobuf.wrappers_pb2 import BytesValue

    data: bytes = BytesValue(value=json.dumps(message, separators=(",", ":")).encode()).SerializeToString()
    return data


def unpacked(data: bytes) -> dict[str, Any]:
    """Read a message from the wire."""
    from google.protobuf.wrappers_pb2 import BytesValue

    value = BytesValue()
    value.ParseFromString(data)
    found: dict[str, Any] = json.loads(value.value)
    return found


def is_local(address: str) -> bool:
    """Whether only this machine reaches an address, HOST:PORT."""
    return address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")
