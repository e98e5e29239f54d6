"""MemoryWebhookRepository and MemoryDeliveryRepository: webhooks and deliveries in dictionaries."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from wtb.domain.errors import DeliveryNotFound, WebhookNotFound
from wtb.domain.webhooks import Delivery, DeliveryStatus, Webhook, WebhookId
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryWebhookRepository:
    """Webhooks inside one transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, webhook: Webhook) -> None:
        self._transaction.put("webhooks", webhook.id, webhook)

    def get(self, webhook_id: WebhookId) -> Webhook:
        found: Webhook | None = self._transaction.find("webhooks", webhook_id)
        if found is None:
            raise WebhookNotFound(webhook_id)
        return found

    def list_webhooks(self) -> tuple[Webhook, ...]:
        return tuple(sorted(self._transaction.all("webhooks"), key=lambda webhook: webhook.id))

    def move(self, webhook_id: WebhookId, cursor: str, *, since: str | None) -> bool:
        found: Webhook | None = self._transaction.find("webhooks", webhook_id)
        if found is None or found.cursor != since:
            return False
        self.add(replace(found, cursor=cursor))
        return True

    def delete(self, webhook_id: WebhookId) -> None:
        self.get(webhook_id)
        self._transaction.drop("webhooks", webhook_id)
        for each in list(self._transaction.group("deliveries", 0, webhook_id)):
            self._transaction.drop("deliveries", (webhook_id, each.position))


class MemoryDeliveryRepository:
    """Deliveries inside one transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, *deliveries: Delivery) -> None:
        for each in deliveries:
            key = (each.webhook_id, each.position)
            if self._transaction.find("deliveries", key) is None:
                self._transaction.put("deliveries", key, each)

    def get(self, webhook_id: WebhookId, position: int) -> Delivery:
        found: Delivery | None = self._transaction.find("deliveries", (webhook_id, position))
        if found is None:
            raise DeliveryNotFound(position)
        return found

    def save(self, delivery: Delivery) -> bool:
        key = (delivery.webhook_id, delivery.position)
        if self._transaction.find("deliveries", key) is None:
            return False
        self._transaction.put("deliveries", key, delivery)
        return True

    def list_due(self, webhook_id: WebhookId, now: datetime, *, limit: int) -> tuple[Delivery, ...]:
        pending = self._of(webhook_id, DeliveryStatus.PENDING)
        return tuple(each for each in pending if each.next_at is not None and each.next_at <= now)[:limit]

    def list_deliveries(
        self, webhook_id: WebhookId, *, status: DeliveryStatus | None = None, before: int | None = None, limit: int
    ) -> tuple[Delivery, ...]:
        found = [each for each in self._of(webhook_id, status) if before is None or each.position < before]
        return tuple(reversed(found))[:limit]

    def count_pending(self, webhook_id: WebhookId) -> int:
        return len(self._of(webhook_id, DeliveryStatus.PENDING))

    def drop(self, status: DeliveryStatus, *, ended_before: datetime) -> int:
        old = [
            each
            for each in self._transaction.all("deliveries")
            if each.status is status and each.ended_at is not None and each.ended_at < ended_before
        ]
        for each in old:
            self._transaction.drop("deliveries", (each.webhook_id, each.position))
        return len(old)

    def _of(self, webhook_id: WebhookId, status: DeliveryStatus | None) -> list[Delivery]:
        found = [each for each in self._transaction.group("deliveries", 0, webhook_id) if status in (None, each.status)]
        return sorted(found, key=lambda each: each.position)
