"""Tokens over the API: shown once, audited with who, refused when revoked or expired."""

from __future__ import annotations

from tests.api.client import TestClient
from tests.api.conftest import Sign
from wtb.bootstrap import Services
from wtb.domain.access import Role


def test_a_token_is_shown_once_and_works(admin: TestClient, services: Services) -> None:
    made = admin.post("/api/v1/tokens", json={"name": "ci", "role": "operator", "expires_in_days": 30})
    assert made.status_code == 201
    token = made.json().pop("token")
    assert token.startswith("wtb_")
    listed = admin.get("/api/v1/tokens")
    assert token not in listed.text
    assert {each["name"]: each["status"] for each in listed.json()["items"]} == {"ci": "valid", "the admin": "valid"}
    mine = admin.get("/api/v1/session", headers={"Authorization": f"Bearer {token}"})
    assert mine.json() == {"name": "ci", "role": "operator", "kind": "token"}


def test_what_a_request_changes_carries_the_name_of_its_token(admin: TestClient, services: Services) -> None:
    admin.post("/api/v1/tokens", json={"name": "ci", "role": "viewer"})
    admin.delete("/api/v1/tokens/ci")
    told = [event for event in services.queries.event_page(limit=100).events if event.data["name"] == "ci"]
    assert [(event.type.value, event.data["by"]) for event in told] == [
        ("token.created", "the admin"),
        ("token.revoked", "the admin"),
    ]
    claimed = admin.post("/api/v1/tokens", json={"name": "other", "role": "viewer", "created_by": "somebody"})
    assert claimed.status_code == 422


def test_a_revoked_token_is_refused_at_once(admin: TestClient, client: Sign) -> None:
    viewer = client(Role.VIEWER)
    assert viewer.get("/api/v1/session").status_code == 200
    assert admin.delete("/api/v1/tokens/the viewer").json()["status"] == "revoked"
    assert viewer.get("/api/v1/session").status_code == 401


def test_problems_of_tokens_say_what_to_do(admin: TestClient) -> None:
    admin.post("/api/v1/tokens", json={"name": "ci", "role": "viewer"})
    again = admin.post("/api/v1/tokens", json={"name": "ci", "role": "viewer"})
    assert (again.status_code, again.json()["code"]) == (409, "already-exists")
    missing = admin.delete("/api/v1/tokens/nobody")
    assert (missing.status_code, missing.json()["code"]) == (404, "token-not-found")
    wrong = admin.post("/api/v1/tokens", json={"name": "", "role": "god", "expires_in_days": -1})
    assert wrong.status_code == 422
    assert len(wrong.json()["faults"]) == 3, wrong.json()


def test_a_token_has_no_session_to_end(viewer: TestClient) -> None:
    assert viewer.delete("/api/v1/session").status_code == 422
