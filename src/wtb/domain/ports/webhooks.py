"""Webhooks, their deliveries, and the sender that carries a request to the outside."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from wtb.domain.webhooks import Delivery, DeliveryStatus, Webhook, WebhookId


class WebhookRepository(Protocol):
    """Webhooks by id."""

    def add(self, webhook: Webhook) -> None:
        """Store a new webhook."""
        ...

    def get(self, webhook_id: WebhookId) -> Webhook:
        """Return a webhook; raise WebhookNotFound if there is none."""
        ...

    def list_webhooks(self) -> tuple[Webhook, ...]:
        """Return all webhooks, sorted by id, so the oldest first."""
        ...

    def move(self, webhook_id: WebhookId, cursor: str, *, since: str | None) -> bool:
        """Set the cursor of a webhook if it is still `since`; return whether it was."""
        ...

    def delete(self, webhook_id: WebhookId) -> None:
        """Delete a webhook with its deliveries; raise WebhookNotFound if there is none."""
        ...


class DeliveryRepository(Protocol):
    """Deliveries by webhook and position."""

    def add(self, *deliveries: Delivery) -> None:
        """Store new deliveries; one that is there already stays as it is."""
        ...

    def get(self, webhook_id: WebhookId, position: int) -> Delivery:
        """Return a delivery; raise DeliveryNotFound if there is none."""
        ...

    def save(self, delivery: Delivery) -> bool:
        """Replace a delivery; return False if it is gone, since its webhook was deleted."""
        ...

    def list_due(self, webhook_id: WebhookId, now: datetime, *, limit: int) -> tuple[Delivery, ...]:
        """Return the first pending deliveries that are due, by position."""
        ...

    def list_deliveries(
        self, webhook_id: WebhookId, *, status: DeliveryStatus | None = None, before: int | None = None, limit: int
    ) -> tuple[Delivery, ...]:
        """Return deliveries of a webhook, the highest position first; with `before`, only those below it."""
        ...

    def count_pending(self, webhook_id: WebhookId) -> int:
        """Return how many deliveries of a webhook are pending."""
        ...

    def drop(self, status: DeliveryStatus, *, ended_before: datetime) -> int:
        """Delete deliveries that ended with this status before a time; return how many."""
        ...


class SentRequest(NamedTuple):
    """What became of a request: the status of the answer, or the reason why there is none."""

    status: int | None
    problem: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the receiver has taken it."""
        return self.status is not None and 200 <= self.status < 300


class WebhookSender(Protocol):
    """Carries signed requests to the outside; never to an address that is not allowed, whatever its name leads to.

    It follows no redirect, takes a bounded time and reads a bounded answer. It raises nothing: what goes wrong is in
    the result.
    """

    def refusal(self, url: str) -> str | None:
        """Return why nothing is sent to this address now; None if it may be."""
        ...

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> SentRequest:
        """POST a body once, and return what became of it."""
        ...

    def abort(self) -> None:
        """End all requests under way; their results say that they failed."""
        ...
