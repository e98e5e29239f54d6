"""Signing in with a one-time link, and what pages of other origins cannot do with the session."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.websockets import WebSocketDisconnect

from tests.api.client import ADDRESS, TestClient
from wtb.api.parts import ServerParts

pytestmark = pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)  # no database decides any of this

COOKIE = "wtb_session_8383"


@pytest.fixture
def browser(stranger: TestClient, parts: ServerParts) -> TestClient:
    """A browser that is signed in."""
    assert stranger.get(f"/sign-in/{parts.services.sign_ins.create_link(parts.owner)}").status_code == 200
    return stranger


def test_a_link_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(
    stranger: TestClient, parts: ServerParts
) -> None:
    link = parts.services.sign_ins.create_link(parts.owner)
    page = stranger.get(f"/sign-in/{link}")
    assert (page.status_code, page.headers["referrer-policy"]) == (200, "no-referrer")
    name, _, rest = page.headers["set-cookie"].partition("=")
    assert name == COOKIE
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(rest.split("; "))
    assert stranger.get("/api/v1/session").json() == {"name": "tester", "role": "admin", "kind": "session"}


def test_a_browser_signs_in_with_a_token_and_is_out_when_the_token_is_revoked(
    app: FastAPI, admin: TestClient, parts: ServerParts
) -> None:
    token = admin.post("/api/v1/tokens", json={"name": "ann", "role": "viewer"}).json()["token"]
    browser = TestClient(app, base_url=ADDRESS, headers={"Origin": ADDRESS})
    signed = browser.post("/api/v1/session", headers={"Authorization": f"Bearer {token}"})
    assert (signed.status_code, signed.json()["name"]) == (201, "ann")
    assert {"HttpOnly", "SameSite=strict"} <= set(signed.headers["set-cookie"].split("; "))
    assert browser.get("/api/v1/session").json() == {"name": "ann", "role": "viewer", "kind": "session"}
    without_origin = TestClient(app, base_url=ADDRESS, cookies=browser.cookies)
    assert without_origin.delete("/api/v1/session").status_code == 403  # a cookie is checked as a link's cookie is
    assert admin.delete("/api/v1/tokens/ann").status_code == 200
    assert browser.get("/api/v1/session").status_code == 401


def test_signing_in_needs_a_token_that_is_valid(app: FastAPI, browser: TestClient) -> None:
    other = TestClient(app, base_url=ADDRESS, headers={"Origin": ADDRESS})
    assert other.post("/api/v1/session").status_code == 401
    assert other.post("/api/v1/session", headers={"Authorization": "Bearer wtb_made_up"}).status_code == 401
    assert browser.post("/api/v1/session", headers={"Origin": ADDRESS}).status_code == 422


def test_a_link_works_once_and_no_made_up_link_works(
    client: object, app: FastAPI, browser: TestClient, parts: ServerParts
) -> None:
    link = parts.services.sign_ins.create_link(parts.owner)
    other = TestClient(app, base_url=ADDRESS)
    assert other.get(f"/sign-in/{link}").status_code == 200
    again = TestClient(app, base_url=ADDRESS).get(f"/sign-in/{link}")
    assert (again.status_code, "wtb serve --link" in again.json()["detail"]) == (401, True)
    assert other.get("/sign-in/made-up").status_code == 401
    seen = other.get(f"/sign-in/{link}", headers={"Accept": "text/html,*/*;q=0.8"})  # what a browser shows to a person
    assert (seen.status_code, seen.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "this link was used before" in seen.text
    assert other.head(f"/sign-in/{link}").status_code == 405  # what looks at a link does not use it up


def test_signing_out_ends_the_session_for_whoever_copied_the_cookie(browser: TestClient) -> None:
    copied = browser.cookies[COOKIE]
    assert browser.delete("/api/v1/session", headers={"Origin": ADDRESS}).status_code == 204
    assert COOKIE not in browser.cookies
    assert browser.get("/api/v1/session", headers={"Cookie": f"{COOKIE}={copied}"}).status_code == 401


def test_a_session_changes_nothing_for_another_page(browser: TestClient) -> None:
    body = {"name": "mine", "role": "admin"}
    for headers in (
        {},  # an old browser, or a form that hides where it comes from
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},  # another port of this machine counts as the same site
        {"Origin": "https://127.0.0.1:8383"},
        {"Origin": ADDRESS, "Sec-Fetch-Site": "same-site"},
        {"Origin": ADDRESS, "Sec-Fetch-Site": "cross-site"},
    ):
        refused = browser.post("/api/v1/tokens", json=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), headers
    own = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    assert browser.post("/api/v1/tokens", json=body, headers=own).status_code == 201


def test_a_session_reads_nothing_for_another_page(browser: TestClient) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert browser.get("/api/v1/session", headers=headers).status_code == 403
    answer = browser.get("/api/v1/session", headers={"Origin": ADDRESS})
    assert "access-control-allow-origin" not in answer.headers


def test_a_session_opens_no_websocket_for_another_page(browser: TestClient) -> None:
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:9999"}):
        with pytest.raises(WebSocketDisconnect), browser.websocket_connect("/api/v1/events", headers=headers):
            pass


def test_a_preflight_of_another_origin_is_refused(browser: TestClient) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert browser.options("/api/v1/tokens", headers=asked).status_code == 403


def test_a_wrong_token_is_not_made_good_by_a_session(browser: TestClient) -> None:
    assert browser.get("/api/v1/session", headers={"Authorization": "Bearer wtb_wrong"}).status_code == 401
    assert browser.get("/api/v1/session", headers={"Authorization": "Basic YTpi"}).status_code == 401
