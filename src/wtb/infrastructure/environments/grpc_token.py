"""Checks the token of a call before the server reads anything else of it."""

from __future__ import annotations

import hmac
from typing import Any

from wtb.infrastructure.environments.grpc_messages import SERVICE

_OPEN = f"/{SERVICE}/Health"
"""The call that needs no token."""


TOKEN_RULE = "it may only have printable ASCII characters, and no spaces"


def is_token(text: str) -> bool:
    """Whether a text can travel as a token: in a header, where a line break or an umlaut cannot stand."""
    return text.isascii() and text.isprintable() and " " not in text


def token_checks(token: str | None) -> tuple[Any, ...]:
    """Return the interceptors of a server: one that refuses calls without its token, or none if it has no token."""
    if token is None:
        return ()
    import grpc

    def refuse(messages: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is wrong or missing; set the same one here and there")

    # As a stream of requests, none of which is asked for: gRPC would first read the message of a single request.
    refused = grpc.stream_stream_rpc_method_handler(refuse)

    class TokenCheck(grpc.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
        """Passes a call on if it carries the token."""

        def intercept_service(self, continuation: Any, details: Any) -> Any:
            """Return the handler of the call, or one that refuses it."""
            given = str(dict(details.invocation_metadata).get("authorization", ""))
            if details.method == _OPEN or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return continuation(details)
            return refused

    return (TokenCheck(),)
