"""Connections of a real server: slow senders and readers, malformed requests, TLS."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import wtb
from tests.api.running_server import running
from wtb.api.connections import BoundedProtocol
from wtb.api.parts import ServerParts
from wtb.api.request_limits import BodyLimits
from wtb.api.serving import listen
from wtb.domain.access import Role
from wtb.domain.errors import ServerAway

pytestmark = pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)  # no database decides any of this

SOON_S = 0.3
LATE_S = 20
"""A busy machine may take long, but not until the limits that were shortened for a test would really end."""


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    assert parts.hostname is not None
    made = socket.create_connection((parts.hostname, parts.port or 80), timeout=LATE_S)
    made.settimeout(LATE_S)
    return made


def rest(connection: socket.socket) -> bytes:
    """Return everything that comes until the server closes the connection."""
    found = b""
    try:
        while data := connection.recv(65_536):
            found += data
    except ConnectionError:
        pass
    return found


def test_headers_that_come_too_slowly_end_the_connection(parts: ServerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "headers_timeout_s", SOON_S)
    with running(parts) as server, connected(server.url) as silent, connected(server.url) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        begun = time.monotonic()
        assert rest(slow) == b""
        assert rest(silent) == b""
        assert time.monotonic() - begun < LATE_S
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_second_request_may_not_come_slowly_either(parts: ServerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "headers_timeout_s", SOON_S)
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with running(parts) as server, connected(server.url) as slow:
        slow.sendall(request)
        assert b"200 OK" in slow.recv(65_536)
        slow.sendall(request[:20])
        rest(slow)


def test_a_body_that_comes_too_slowly_is_refused(parts: ServerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BodyLimits, "timeout_s", SOON_S)
    _, token = parts.services.tokens.create("ci", Role.ADMIN, by="tester")
    headers = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n"
    with running(parts) as server, connected(server.url) as slow:
        slow.sendall(f"POST /api/v1/tokens HTTP/1.1\r\n{headers}{{".encode())
        answer = rest(slow)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"request-timeout" in answer


def test_whoever_reads_nothing_of_an_answer_is_cut_off(parts: ServerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "write_timeout_s", SOON_S)
    _, token = parts.services.tokens.create("ci", Role.ADMIN, by="tester")
    head = f"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with running(parts) as server:
        parts_of = urlsplit(server.url)
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            greedy.settimeout(LATE_S)
            greedy.connect((parts_of.hostname, parts_of.port))
            with pytest.raises(ConnectionError):
                _ask_again_and_again(greedy, head)
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def _ask_again_and_again(connection: socket.socket, request: bytes) -> None:
    """Ask for megabytes and take none of them."""
    for _ in range(5_000):
        connection.sendall(request)
        time.sleep(0.002)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00",  # TLS to a port without
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000,  # goes on and on
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 10_000,
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"nonsense\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem(parts: ServerParts, request_bytes: bytes) -> None:
    with running(parts) as server, connected(server.url) as connection:
        connection.sendall(request_bytes)
        head, _, body = rest(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert json.loads(body)["code"] == "bad-request"


@pytest.mark.parametrize("line", [b"OPTIONS *", b"GET elsewhere", b"GET http:", b"GET ?"])
def test_an_address_without_a_path_is_refused_as_any_other(parts: ServerParts, line: bytes) -> None:
    with running(parts) as server, connected(server.url) as connection:
        connection.sendall(line + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        head, _, body = rest(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401")
        assert json.loads(body)["code"] == "unauthenticated"


def test_one_connection_too_many_gets_a_problem(parts: ServerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "most_connections", 1)
    with running(parts) as server, connected(server.url):
        answer = httpx.get(f"{server.url}/healthz")
        assert (answer.status_code, answer.json()["code"]) == (503, "service-unavailable")
        assert answer.headers["connection"] == "close"


def test_two_hosts_are_none(parts: ServerParts) -> None:
    with running(parts) as server, connected(server.url) as connection:
        connection.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        assert rest(connection).split(b" ")[1] in (b"400", b"403")


def test_the_rest_of_a_refused_upload_is_not_received(parts: ServerParts) -> None:
    with running(parts) as server:
        place = urlsplit(server.url)
        client = http.client.HTTPConnection(place.hostname or "", place.port, timeout=LATE_S)
        client.putrequest("POST", "/api/v1/tokens")
        client.putheader("Content-Length", str(10**12))
        client.endheaders()
        answer = client.getresponse()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        client.close()


def test_a_server_with_a_certificate_speaks_tls_and_marks_its_cookies(parts: ServerParts, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=certificate)
    with running(parts, certificate=certificate, certificate_key=key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        answer = httpx.get(f"{server.url}/healthz", verify=context)
        assert (answer.status_code, "strict-transport-security" in answer.headers) == (200, True)
        link = parts.services.sign_ins.create_link(parts.owner)
        assert "; Secure" in httpx.get(f"{server.url}/sign-in/{link}", verify=context).headers["set-cookie"]


def test_a_client_trusts_the_certificate_of_a_server_for_requests_and_for_events(
    parts: ServerParts, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    _, token = parts.services.tokens.create("ci", Role.VIEWER, by="tester")

    async def first_event(url: str) -> str:
        async with wtb.AsyncClient(url, token, certificate=str(certificate)) as client:
            assert (await client.whoami()).kind == "token"
            async for event in client.events(since="start"):
                return event.type
        raise AssertionError("the feed ended")

    with running(parts, certificate=certificate, certificate_key=key) as server:
        with wtb.Client(server.url, token, certificate=certificate) as client:
            assert client.whoami().kind == "token"
            assert next(client.events(since="start", patience_s=5)).type == "token.created"
        assert asyncio.run(first_event(server.url)) == "token.created"
        with wtb.Client(server.url, token, retries=0) as stranger, pytest.raises(ServerAway, match="certificate"):
            stranger.whoami()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *names, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return certificate, key


def test_the_body_of_an_answer_does_not_wait_for_an_acknowledgement_of_its_headers(parts: ServerParts) -> None:
    server = parts.server.model_copy(update={"port": 0})
    with listen(server) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
