"""Webhooks over the API: an admin adds, tests and deletes them, and looks after deliveries; nobody else may."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.api.client import TestClient
from tests.webhook_receiver import WebhookReceiver, is_signed
from wtb.bootstrap import Services
from wtb.domain.event_catalogue import ExecutionDegraded
from wtb.domain.events import Event
from wtb.settings import ServerSettings, Settings

PATH = "/api/v1/webhooks"


@pytest.fixture
def server_settings(server_settings: Settings) -> Settings:
    """Settings of a server that may send to this machine, and looks for webhooks at once."""
    server = ServerSettings.model_validate({"webhooks_to_private_addresses": True, "background": {"webhooks_s": 1}})
    return server_settings.model_copy(update={"server": server})


def tell(services: Services, count: int = 1) -> None:
    with services.storage.unit_of_work() as uow:
        event = Event.of(ExecutionDegraded(error="slow"), stream="run", at=services.clock.now())
        uow.events.append(*[event] * count)
        uow.commit()


def until(is_so: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_a_running_server_sends_events_to_a_webhook_until_it_is_deleted(admin: TestClient, services: Services) -> None:
    with WebhookReceiver() as receiver:
        made = admin.post(PATH, json={"url": receiver.url, "types": ["execution.degraded"]})
        assert made.status_code == 201, made.text
        webhook, secret = made.json()["id"], made.json()["secret"]
        assert made.json()["created_by"] == "the admin"
        tell(services, 3)
        found = receiver.wait_for(lambda got: len(got) == 3)
        assert all(is_signed(each, secret) for each in found)
        deliveries = f"{PATH}/{webhook}/deliveries"
        until(lambda: [each["status"] for each in admin.get(deliveries).json()["items"]] == ["delivered"] * 3)
        first = admin.get(deliveries, params={"limit": 2}).json()
        rest = admin.get(deliveries, params={"limit": 2, "cursor": first["next"]}).json()
        positions = [each["position"] for each in (*first["items"], *rest["items"])]
        assert (positions, rest["next"]) == (sorted(receiver.positions, reverse=True), None)
        assert admin.get(deliveries, params={"status": "dead"}).json()["items"] == []
        again = admin.post(f"{deliveries}/{positions[0]}/retry")
        assert (again.status_code, again.json()["status"]) == (200, "pending")
        receiver.wait_for(lambda got: len(got) == 4)
        assert admin.delete(f"{PATH}/{webhook}").status_code == 204
        tell(services)
        assert admin.get(f"{PATH}/{webhook}").status_code == 404
        assert admin.get(PATH).json() == {"items": [], "next": None}


def test_a_test_request_says_what_the_receiver_answered(admin: TestClient) -> None:
    with WebhookReceiver(lambda handler, received: handler.reply(418, b"a teapot")) as receiver:
        webhook = admin.post(PATH, json={"url": receiver.url}).json()["id"]
        answer = admin.post(f"{PATH}/{webhook}/test").json()
    assert answer == {"is_accepted": False, "status": 418, "problem": "it answered 418: a teapot"}


def test_the_secret_is_shown_once(admin: TestClient) -> None:
    made = admin.post(PATH, json={"url": "http://127.0.0.1:9/hook"}).json()
    assert made["secret"].startswith("whsec_")
    for answer in (admin.get(PATH), admin.get(f"{PATH}/{made['id']}")):
        assert made["secret"] not in answer.text
        assert "secret" not in answer.text


def test_a_webhook_that_is_asked_for_again_with_its_key_is_added_once(admin: TestClient) -> None:
    body = {"url": "http://127.0.0.1:9/hook", "types": ["execution.failed"]}
    first, again = (admin.post(PATH, json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert len(admin.get(PATH).json()["items"]) == 1
    other = admin.post(PATH, json={**body, "types": []}, headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    run = admin.post("/api/v1/executions", json={"workflow": "agent"}, headers={"Idempotency-Key": "k"})
    assert run.json()["code"] == "idempotency-mismatch"


@pytest.mark.parametrize(
    "body",
    [
        {"url": "ftp://example.org"},
        {"url": "https://user:pass@example.org"},
        {"url": "https://example.org", "types": ["execution.exploded"]},
        {"url": "https://example.org", "types": ["webhook.failed"]},
        {"url": ""},
        {},
    ],
)
def test_a_wrong_webhook_is_refused(admin: TestClient, body: dict[str, object]) -> None:
    refused = admin.post(PATH, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input")


def test_unknown_webhooks_and_deliveries_are_problems(admin: TestClient) -> None:
    webhook = admin.post(PATH, json={"url": "http://127.0.0.1:9/hook"}).json()["id"]
    for method, path, code in (
        ("GET", f"{PATH}/none", "webhook-not-found"),
        ("DELETE", f"{PATH}/none", "webhook-not-found"),
        ("POST", f"{PATH}/none/test", "webhook-not-found"),
        ("GET", f"{PATH}/none/deliveries", "webhook-not-found"),
        ("POST", f"{PATH}/{webhook}/deliveries/1/retry", "delivery-not-found"),
    ):
        answer = admin.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, code)


@pytest.mark.parametrize("path", ["", "/1", "/1/deliveries"])
def test_webhooks_are_for_admins(operator: TestClient, path: str) -> None:
    assert operator.get(PATH + path).status_code == 403


class TestWithoutTheSetting:
    """A server as it is by default."""

    @pytest.fixture
    def server_settings(self, server_settings: Settings) -> Settings:
        return server_settings.model_copy(update={"server": ServerSettings()})

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1:9/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://169.254.169.254/",
            "https://[::1]/",
        ],
    )
    def test_a_webhook_at_a_private_address_is_refused(self, admin: TestClient, url: str) -> None:
        refused = admin.post(PATH, json={"url": url})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input")
