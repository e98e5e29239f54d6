"""PinnedSender: POSTs to addresses that it has checked itself, so that a name cannot lead elsewhere meanwhile.

A name is resolved once for each request. Every address that it leads to is checked, and the connection goes to exactly
one of these, with the name in the Host header and in TLS. `http.client` knows no proxies and follows no redirects.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from wtb.domain.errors import InvalidInput
from wtb.domain.ports import SentRequest
from wtb.domain.webhooks import Address, checked_url, is_public

TIMEOUT_S = 10.0
"""How long one request may take, from the connection to the end of the answer's head."""
_SHOWN_BYTES = 500
"""How much of a refusing answer is read and shown."""

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses that a name leads to, as texts."""


def resolved(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, as this machine resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class _Refused(Exception):
    """Nothing may be sent there."""


class PinnedSender:
    """Sends requests; unless `to_private`, to public addresses and with TLS only."""

    def __init__(
        self,
        *,
        to_private: bool,
        timeout_s: float = TIMEOUT_S,
        resolve: Resolve = resolved,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._to_private = to_private
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._tls = tls
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def refusal(self, url: str) -> str | None:
        try:
            self._addresses(urlsplit(checked_url(url, to_private=self._to_private)))
        except (_Refused, ValueError) as error:
            return str(error)
        except OSError:
            return None  # a name that leads nowhere yet may lead somewhere later, and is checked again then
        return None

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> SentRequest:
        try:
            parts = urlsplit(checked_url(url, to_private=self._to_private))
            return self._posted(parts, self._addresses(parts), headers, body)
        except (_Refused, InvalidInput) as error:
            return SentRequest(None, str(error))
        except TimeoutError:
            return SentRequest(None, f"no answer within {self._timeout_s:g} seconds")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return SentRequest(None, f"{type(error).__name__}: {error}"[:_SHOWN_BYTES])

    def abort(self) -> None:
        with self._lock:
            sockets = list(self._open)
        for each in sockets:
            _shut(each)

    def _addresses(self, parts: SplitResult) -> list[Address]:
        """Resolve the name once, and refuse it if any of its addresses is not allowed."""
        assert parts.hostname is not None
        found = [ip_address(text) for text in self._resolve(parts.hostname, _port(parts))]
        if not found:
            raise OSError(f"{parts.hostname} leads to no address")
        for address in found if not self._to_private else ():
            if not is_public(address):
                raise _Refused(
                    f"{parts.hostname} leads to {address}, which is not on the public internet; set "
                    "server.webhooks_to_private_addresses if webhooks may go there"
                )
        return found

    def _posted(
        self, parts: SplitResult, addresses: Sequence[Address], headers: Mapping[str, str], body: bytes
    ) -> SentRequest:
        deadline = time.monotonic() + self._timeout_s
        with self._connected(parts, addresses, deadline) as used:
            try:
                if isinstance(used, ssl.SSLSocket):
                    used.do_handshake()
                connection = http.client.HTTPConnection(parts.hostname or "", _port(parts))
                connection.sock = used
                connection.request("POST", _target(parts), body, {"Host": parts.netloc, **headers})
                answer = connection.getresponse()
                said = b"" if 200 <= answer.status < 300 else answer.read(_SHOWN_BYTES)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() >= deadline:
                    raise TimeoutError from error
                raise
        if time.monotonic() >= deadline:  # the head of an answer that was cut off looks like a whole one
            raise TimeoutError
        return _result(answer.status, said)

    @contextlib.contextmanager
    def _connected(self, parts: SplitResult, addresses: Sequence[Address], deadline: float) -> Iterator[socket.socket]:
        """Connect to the first of the checked addresses that takes it, until the deadline or an abort at the latest.

        A receiver may send a byte now and then for ever: each of them would begin the socket's own timeout anew.
        """
        used = self._any_of(addresses, _port(parts), deadline)
        if parts.scheme == "https":
            used = self._context.wrap_socket(used, server_hostname=parts.hostname, do_handshake_on_connect=False)
        end = threading.Timer(max(deadline - time.monotonic(), 0.0), _shut, [used])
        end.daemon = True
        end.start()
        try:
            with self._lock:
                self._open.add(used)
            yield used
        finally:
            end.cancel()
            with self._lock:
                self._open.discard(used)
            used.close()

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self._tls()

    def _any_of(self, addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
        problem: OSError = TimeoutError()
        for address in addresses:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                return socket.create_connection((str(address), port), timeout=left_s)
            except OSError as error:
                problem = error
        raise problem


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _shut(open_socket: socket.socket) -> None:
    """End a connection that another thread uses; the method of a TLS socket itself is only for its own thread."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(open_socket, socket.SHUT_RDWR)


def _result(status: int, said: bytes) -> SentRequest:
    if 200 <= status < 300:
        return SentRequest(status)
    if 300 <= status < 400:
        return SentRequest(status, f"it answered {status}; redirects are not followed, so give the final address")
    text = "".join(char if char.isprintable() else " " for char in said.decode(errors="replace")).strip()
    return SentRequest(status, f"it answered {status}{f': {text}' if text else ''}")
