"""Requests that mean harm: other hosts, too much, too deep, too often, malformed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.api.client import ADDRESS, TestClient
from wtb.api.app import create_app
from wtb.api.parts import ServerParts
from wtb.api.rate_limits import FAILED_SIGN_INS_PER_MINUTE
from wtb.bootstrap import Services
from wtb.domain.access import Role
from wtb.settings import ServerSettings

pytestmark = pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)  # no database decides any of this


def served(services: Services, **settings: object) -> ServerParts:
    """Return the parts of a server with other settings."""
    server = ServerSettings(**settings)
    return ServerParts(services=replace(services, settings=services.settings.model_copy(update={"server": server})))


@pytest.fixture
def token(services: Services) -> str:
    return services.tokens.create("ci", Role.ADMIN, by="tester")[1]


def signed(parts: ServerParts, token: str, **more: str) -> TestClient:
    return TestClient(create_app(parts), base_url=ADDRESS, headers={"Authorization": f"Bearer {token}", **more})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8383",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8383",
        "",
        "[::1",
        "a@127.0.0.1",
    ],
)
def test_a_name_that_points_here_for_the_moment_is_refused(admin: TestClient, host: str) -> None:
    refused = admin.get("/healthz", headers={"Host": host})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "[::1]:8383", "LOCALHOST", "10.1.2.3:80"])
def test_this_machine_and_addresses_in_digits_are_ours(admin: TestClient, host: str) -> None:
    assert admin.get("/healthz", headers={"Host": host}).status_code == 200


def test_a_host_of_the_settings_is_ours(services: Services, token: str) -> None:
    client = signed(served(services, allowed_hosts=("Bench.Example",)), token)
    assert client.get("/healthz", headers={"Host": "bench.example:443"}).status_code == 200
    own, foreign = (
        {"Host": "bench.example", "Origin": "http://bench.example"},
        {"Host": "bench.example", "Origin": ADDRESS},
    )
    assert client.get("/api/v1/session", headers=own).status_code == 200
    assert client.get("/api/v1/session", headers=foreign).status_code == 403


def test_a_body_that_is_too_large_is_not_read(services: Services, token: str) -> None:
    client = signed(served(services, largest_body_bytes=2_000), token)
    declared = client.post("/api/v1/tokens", content=b"{}", headers={"Content-Length": "99999999999999999999999"})
    assert (declared.status_code, declared.json()["code"]) == (413, "body-too-large")
    assert declared.headers["connection"] == "close"
    read = []

    def endless() -> Iterator[bytes]:
        for number in range(1_000):
            read.append(number)
            yield b" " * 1_000

    assert client.post("/api/v1/tokens", content=endless()).status_code == 413
    assert client.post("/api/v1/tokens", json={"name": "x" * 100, "role": "viewer"}).status_code == 201


def test_the_body_of_a_stranger_is_not_read(stranger: TestClient) -> None:
    assert stranger.post("/api/v1/tokens", content=b"[" * 1_000_000).status_code == 401


@pytest.mark.parametrize("body", [b"[" * 101, b'{"a":' * 101 + b"1" + b"}" * 101, b"[" * 1_000_000])
def test_a_deep_body_is_refused(admin: TestClient, body: bytes) -> None:
    refused = admin.post("/api/v1/tokens", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input")
    assert "100 levels" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"),
        (b'{"name": "\xff"}', "application/json"),
        (b"\x00", "application/json"),
        (b"NaN", "application/json"),
        (b"null", "application/json"),
        (b'{"name": "a", "role": "viewer"}', "text/plain"),
        (b'{"name": "a", "role": "viewer"}', "application/x-www-form-urlencoded"),
        (b'{"name": "a", "role": "viewer"}', ""),
        (b'{"name": "\\ud800", "role": "viewer"}', "application/json"),
        (b'{"name": "a", "role": "viewer", "expires_in_days": 1e999}', "application/json"),
        (b"", "application/json"),
    ],
)
def test_a_body_that_is_no_good_json_is_a_problem_and_no_failure(admin: TestClient, body: bytes, kind: str) -> None:
    refused = admin.post("/api/v1/tokens", content=body, headers={"Content-Type": kind})
    assert refused.status_code in (400, 422), refused.text
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_body_that_is_no_json_object_is_told_in_plain_words(admin: TestClient) -> None:
    def fault(**request: Any) -> str:
        (found,) = admin.post("/api/v1/tokens", **request).json()["faults"]
        return str(found)

    kind = {"Content-Type": "application/json"}
    assert fault(content=b'{"name": x}', headers=kind) == "body: this is no JSON: Expecting value (character 9)"
    for request in ({}, {"json": [1]}, {"content": b'{"name": "a"}', "headers": {"Content-Type": "text/plain"}}):
        assert fault(**request) == "body: send a JSON object, with the header Content-Type: application/json"


@pytest.mark.parametrize(
    "path", ["/api/v1/tokens/../tokens", "/api/v1//tokens", "/%2e%2e/", "/api/v1/tokens%00", "/healthz/"]
)
def test_tricks_with_paths_find_nothing(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code in (401, 404)


def test_a_name_cannot_add_a_header(admin: TestClient) -> None:
    made = admin.post("/api/v1/tokens", json={"name": "a\r\nSet-Cookie: x=y", "role": "viewer"})
    assert made.status_code == 422
    missing = admin.delete("/api/v1/tokens/a%0d%0aSet-Cookie:%20x=y")
    assert missing.status_code == 404
    assert "set-cookie" not in missing.headers


def test_a_token_may_not_send_too_much(services: Services, token: str) -> None:
    client = signed(served(services, requests_per_minute=3), token)
    assert [client.get("/api/v1/session").status_code for _ in range(3)] == [200] * 3
    refused = client.get("/api/v1/session")
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert int(refused.headers["retry-after"]) <= 20
    other = services.tokens.create("other", Role.VIEWER, by="tester")[1]
    assert client.get("/api/v1/session", headers={"Authorization": f"Bearer {other}"}).status_code == 200


def test_whoever_guesses_is_stopped_and_whoever_is_known_is_not(services: Services, token: str) -> None:
    client = signed(served(services), token)
    assert client.get("/api/v1/session").status_code == 200
    late = services.tokens.create("late", Role.VIEWER, by="tester")[1]
    guesses = [
        client.get("/api/v1/session", headers={"Authorization": f"Bearer wtb_{number}"}).status_code
        for number in range(FAILED_SIGN_INS_PER_MINUTE + 2)
    ]
    assert guesses == [401] * FAILED_SIGN_INS_PER_MINUTE + [429, 429]
    assert client.get("/api/v1/session").status_code == 200
    assert client.get("/api/v1/session", headers={"Authorization": f"Bearer {late}"}).status_code == 429
    assert client.get("/sign-in/guess").status_code == 429


def test_only_the_trusted_proxy_connects_and_only_it_says_who_calls(services: Services, token: str) -> None:
    app = create_app(served(services, host="0.0.0.0", trusted_proxy="10.0.0.5", allowed_hosts=("bench.example",)))
    headers = {"Authorization": f"Bearer {token}", "Host": "bench.example"}
    direct = TestClient(app, headers=headers, client=("10.0.0.6", 1))
    assert direct.get("/api/v1/session").status_code == 403
    assert direct.get("/readyz").status_code == 200
    proxy = TestClient(app, headers=headers, client=("10.0.0.5", 1))
    through = proxy.get("/api/v1/session", headers={"Origin": "https://bench.example", "X-Forwarded-Proto": "https"})
    assert through.status_code == 200
    assert "strict-transport-security" in through.headers
    assert proxy.get("/api/v1/session", headers={"X-Forwarded-Proto": "http"}).status_code == 403
    for number in range(
        FAILED_SIGN_INS_PER_MINUTE
    ):  # each claims to be another, before the address that the proxy adds
        claimed = {"Authorization": "Bearer wtb_no", "X-Forwarded-For": f"1.1.1.{number}, 9.9.9.9"}
        assert proxy.get("/api/v1/session", headers=claimed).status_code == 401
    last = {"Authorization": "Bearer wtb_no", "X-Forwarded-For": "1.1.1.99, 9.9.9.9"}
    assert proxy.get("/api/v1/session", headers=last).status_code == 429


def test_forwarded_headers_of_anybody_else_are_ignored(services: Services) -> None:
    client = TestClient(create_app(served(services)), base_url=ADDRESS)
    answers = [
        client.get("/api/v1/session", headers={"Authorization": "Bearer wtb_no", "X-Forwarded-For": f"1.1.1.{number}"})
        for number in range(FAILED_SIGN_INS_PER_MINUTE + 1)
    ]
    assert answers[-1].status_code == 429


def test_every_answer_carries_the_headers_of_safety(admin: TestClient, stranger: TestClient) -> None:
    for answer in (
        admin.get("/api/v1/session"),
        stranger.get("/api/v1/session"),
        admin.get("/nothing"),
        stranger.get("/healthz"),
        admin.get("/healthz", headers={"Host": "evil.example"}),
        admin.post("/api/v1/tokens", content=b"[" * 1_000),
    ):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_an_unexpected_error_shows_nothing_of_itself(
    services: Services, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(services.tokens, "list_tokens", broken)
    client = TestClient(create_app(served(services)), base_url=ADDRESS, raise_server_exceptions=False)
    failed = client.get("/api/v1/tokens", headers={"Authorization": f"Bearer {token}"})
    assert (failed.status_code, failed.json()["code"]) == (500, "internal-error")
    assert "hunter2" not in failed.text
    assert "Traceback" not in failed.text
    assert "RuntimeError" in caplog.text


def test_the_description_of_the_api_is_for_those_who_may_read_and_no_page_shows_it(
    viewer: TestClient, stranger: TestClient
) -> None:
    assert viewer.get("/openapi.json").json()["openapi"].startswith("3.")
    assert stranger.get("/openapi.json").status_code == 401
    assert viewer.get("/docs").status_code == 404
    assert viewer.get("/redoc").status_code == 404
