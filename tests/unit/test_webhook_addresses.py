"""Which addresses webhooks may have, which are public, and when deliveries are tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from wtb.application.server.webhooks import sent_types
from wtb.domain.errors import InvalidInput
from wtb.domain.event_catalogue import EventType
from wtb.domain.webhooks import (
    MOST_ATTEMPTS,
    RETRIES,
    Delivery,
    DeliveryStatus,
    Webhook,
    WebhookId,
    checked_url,
    is_public,
)

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "::", "::1"),
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "fc00::1", "fec0::1"),  # private
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254"),  # link-local and metadata
        *("100.64.0.1", "100.100.100.200", "100.127.255.255"),  # shared by customers of one provider
        *("224.0.0.1", "239.1.1.1", "255.255.255.255", "ff02::1", "ff0e::1", "240.0.0.1"),  # multicast and reserved
        *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "192.0.0.1"),  # not in use
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe"),  # IPv4 inside IPv6
        *("::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1"),
        "2001:0:53aa:64c:0:7a2e:80ff:fffe",  # Teredo that ends at 127.0.0.1
        *("168.63.129.16", "192.88.99.1"),
    ],
)
def test_an_address_that_is_not_on_the_public_internet_is_known(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "172.15.0.1", "100.63.0.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://example.org/", "begin with https://"),
        ("ftp://example.org/", "begin with https://"),
        ("file:///etc/passwd", "begin with https://"),
        ("https:///path", "names no host"),
        ("https://user:secret@example.org/", "name or a password"),
        ("https://@example.org/", "name or a password"),
        ("https://example.org/#part", "fragment"),
        ("https://example.org:99999/", "out of range"),
        ("https://example.org:0/", "port is 0"),
        ("https://example.org/a b", "spaces"),
        ("https://example.org/\r\nHost: other", "spaces"),
        ("https://exämple.org/", "beyond ASCII"),
        (f"https://example.org/{'x' * 2_000}", "longer than"),
        ("https://[::1/", "Invalid IPv6"),
        ("", "begin with https://"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        checked_url(url, to_private=False)


def test_without_tls_an_address_needs_the_setting() -> None:
    assert checked_url("http://127.0.0.1:80/x?y=1", to_private=True) == "http://127.0.0.1:80/x?y=1"


def test_types_of_events_are_checked_and_sorted() -> None:
    found = sent_types(["execution.failed", "batch.completed", "execution.failed"])
    assert found == (EventType.BATCH_COMPLETED, EventType.EXECUTION_FAILED)
    with pytest.raises(InvalidInput, match=r"no event 'execution\.exploded'"):
        sent_types(["execution.exploded"])
    with pytest.raises(InvalidInput, match="for ever"):
        sent_types(["webhook.failed"])


def test_a_noun_stands_for_all_its_events_but_those_that_are_never_sent() -> None:
    assert sent_types(["checkpoint"]) == tuple(sorted(each for each in EventType if each.startswith("checkpoint.")))
    assert EventType.WEBHOOK_CREATED in sent_types(["webhook"])
    assert EventType.WEBHOOK_FAILED not in sent_types(["webhook"])


def test_without_types_a_webhook_gets_everything_of_runs_and_batches() -> None:
    webhook = Webhook(id=WebhookId("1"), url="https://example.org", secret="x", created_at=_NOON)
    assert {EventType.EXECUTION_FAILED, EventType.BATCH_COMPLETED} <= webhook.wanted
    assert not {EventType.BACKGROUND_COMPLETED, EventType.WEBHOOK_FAILED, EventType.WEBHOOK_CREATED} & webhook.wanted


def test_a_delivery_is_tried_again_later_and_later_and_then_is_dead() -> None:
    delivery = Delivery(webhook_id=WebhookId("1"), position=1, type="execution.failed", created_at=_NOON)
    waits = []
    for _ in range(MOST_ATTEMPTS - 1):
        delivery = delivery.failed(_NOON, "500", spread=0.5)
        assert delivery.next_at is not None
        waits.append(delivery.next_at - _NOON)
    assert waits == [wait * 1.1 for wait in RETRIES]
    assert sum(RETRIES, timedelta()) < timedelta(days=1)
    dead = delivery.failed(_NOON, "501", spread=0.5)
    assert (dead.status, dead.attempts, dead.next_at, dead.error) == (DeliveryStatus.DEAD, 10, None, "501")
    again = dead.again(_NOON)
    assert (again.status, again.attempts, again.next_at) == (DeliveryStatus.PENDING, 0, _NOON)
