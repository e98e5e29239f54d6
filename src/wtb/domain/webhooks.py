"""Webhooks: addresses that get events, the deliveries to them, and how a request is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NewType
from urllib.parse import urlsplit

from wtb.domain.errors import InvalidInput
from wtb.domain.event_catalogue import EventType
from wtb.domain.events import RecordedEvent

WebhookId = NewType("WebhookId", str)
Address = IPv4Address | IPv6Address

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
MOST_WEBHOOKS = 100
LONGEST_URL = 2_000

RETRIES = tuple(
    timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1_800, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600)
)
"""How long to wait after each failed attempt. After the last attempt, the delivery is dead."""
MOST_ATTEMPTS = len(RETRIES) + 1

UNASKED = frozenset(
    {
        EventType.BACKGROUND_COMPLETED,
        EventType.BACKGROUND_FAILED,
        EventType.WEBHOOK_CREATED,
        EventType.WEBHOOK_DELETED,
        EventType.WEBHOOK_RETRIED,
        EventType.TOKEN_CREATED,
        EventType.TOKEN_REVOKED,
        EventType.COMMAND_CANCELLED,
    }
)
"""Events that only webhooks get which name them: they tell of the server, not of runs and batches."""
NEVER_SENT = frozenset({EventType.WEBHOOK_FAILED})
"""Two webhooks that fail would tell each other of their failures for ever."""


class DeliveryStatus(StrEnum):
    """What became of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    """Every attempt has failed; somebody may send it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that gets the events of these types; without types, all events of runs and batches.

    `cursor` is the place in the log of events up to which deliveries have been noted.
    """

    id: WebhookId
    url: str
    secret: str = field(repr=False)
    types: tuple[EventType, ...] = ()
    cursor: str | None = None
    created_by: str | None = None
    created_at: datetime

    @property
    def place(self) -> str:
        """The server that it leads to, without the path, which is a secret at some services."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def wanted(self) -> frozenset[EventType]:
        """The types of events that it gets."""
        return (frozenset(self.types) or frozenset(EventType) - UNASKED) - NEVER_SENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event on its way to one webhook. `position` is that of the event in the log."""

    webhook_id: WebhookId
    position: int
    type: str
    status: DeliveryStatus = DeliveryStatus.PENDING
    attempts: int = 0
    next_at: datetime | None = None
    """When it is tried again, if it is pending."""
    error: str | None = None
    """Why the last attempt failed."""
    created_at: datetime
    ended_at: datetime | None = None
    """When it was delivered, or given up."""

    def delivered(self, now: datetime) -> Delivery:
        """Return it as delivered."""
        status = DeliveryStatus.DELIVERED
        return replace(self, status=status, attempts=self.attempts + 1, next_at=None, error=None, ended_at=now)

    def failed(self, now: datetime, error: str, spread: float) -> Delivery:
        """Return it after a failed attempt: to be tried later, or dead after the last one.

        `spread`, from 0 to 1, adds up to a fifth to the wait, so that not everything is tried at once.
        """
        attempts = self.attempts + 1
        if attempts >= MOST_ATTEMPTS:
            dead = DeliveryStatus.DEAD
            return replace(self, status=dead, attempts=attempts, next_at=None, error=error, ended_at=now)
        wait = RETRIES[attempts - 1] * (1 + spread / 5)
        return replace(self, attempts=attempts, next_at=now + wait, error=error)

    def again(self, now: datetime) -> Delivery:
        """Return it as due now, with all its attempts before it."""
        return replace(self, status=DeliveryStatus.PENDING, attempts=0, next_at=now, ended_at=None)


def message(event: RecordedEvent) -> bytes:
    """Return the body of the request that tells of an event: ASCII JSON."""
    data = {
        "type": event.type.value,
        "timestamp": event.at.isoformat(),
        "stream": event.stream,
        "position": event.position,
        "sequence": event.sequence,
        "severity": event.severity.value,
        "data": event.data,
    }
    return json.dumps(data, separators=(",", ":")).encode()


def trial_message(webhook: Webhook, now: datetime) -> bytes:
    """Return the body of a request that tells of nothing, so that somebody can see whether it arrives."""
    data = {"type": "webhook.test", "timestamp": now.isoformat(), "data": {"webhook": webhook.id}}
    return json.dumps(data, separators=(",", ":")).encode()


def signed_headers(secret: str, id: str, at: datetime, body: bytes) -> Mapping[str, str]:
    """Return the headers of a signed request, as Standard Webhooks says: HMAC-SHA256 over id, time and body."""
    timestamp = str(int(at.timestamp()))
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signature = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def new_secret(random: bytes) -> str:
    """Return a secret made of random bytes."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def checked_url(url: str, *, to_private: bool) -> str:
    """Return an address that webhooks may have, or raise InvalidInput that says what is wrong with it.

    Where its name leads is checked at each delivery. Without `to_private`, it must use TLS.
    """
    problem = _problem(url, ("http", "https") if to_private else ("https",))
    if problem is not None:
        raise InvalidInput(f"this address cannot be used for a webhook: {problem}")
    return url


def _problem(url: str, schemes: tuple[str, ...]) -> str | None:
    """Return the first fault of an address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return str(error)
    faults = {
        f"it is longer than {LONGEST_URL} characters": len(url) > LONGEST_URL,
        "it holds spaces or characters beyond ASCII; write them in their encoded form": not _is_plain(url),
        f"it must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}": parts.scheme not in schemes,
        "it holds a name or a password; requests are signed instead": "@" in parts.netloc,
        "it names no host": not parts.hostname,
        "its port is 0": port == 0,
        "it holds a #fragment, which is never sent": bool(parts.fragment),
    }
    return next((fault for fault, is_so in faults.items() if is_so), None)


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


_NAT64 = IPv6Network("64:ff9b::/96")
_INSIDE = (IPv4Network("168.63.129.16/32"), IPv4Network("192.88.99.0/24"), IPv6Network("64:ff9b:1::/48"))
"""Addresses that look public and are not: Azure's own services, relays of 6to4, and local translations of IPv4."""


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet: no loopback, private or shared network, nor anything special.

    An IPv6 address that carries an IPv4 address is as public as that one.
    """
    if isinstance(address, IPv6Address):
        carried = _carried(address)
        if carried is not None:
            return is_public(carried)
        if address.is_site_local or address.scope_id is not None:
            return False
    special = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
    special = special or address.is_reserved or address.is_unspecified
    inside = any(address.version == each.version and address in each for each in _INSIDE)
    return address.is_global and not special and not inside


def _carried(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address end up at, if there is one."""
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour
