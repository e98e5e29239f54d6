"""SqlWebhookRepository and SqlDeliveryRepository: webhooks, and the events on their way to them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from wtb.domain.errors import DeliveryNotFound, WebhookNotFound
from wtb.domain.event_catalogue import EventType
from wtb.domain.webhooks import Delivery, DeliveryStatus, Webhook, WebhookId
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.timestamps import from_us, from_us_or_none, to_us, to_us_or_none

_WEBHOOK = "id, url, secret, types, cursor, created_by, created_at_us"
_DELIVERY = "webhook_id, position, type, status, attempts, next_at_us, error, created_at_us, ended_at_us"
_ADD_WEBHOOK = f"INSERT INTO wtb_webhooks ({_WEBHOOK}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD_DELIVERY = (
    f"INSERT INTO wtb_deliveries ({_DELIVERY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (webhook_id, position) DO NOTHING"
)
_SAVE_DELIVERY = (
    "UPDATE wtb_deliveries SET status = ?, attempts = ?, next_at_us = ?, error = ?, ended_at_us = ? "
    "WHERE webhook_id = ? AND position = ?"
)
_DUE = (
    f"SELECT {_DELIVERY} FROM wtb_deliveries WHERE webhook_id = ? AND status = 'pending' AND next_at_us <= ? "
    "ORDER BY position LIMIT ?"
)
_PENDING = "SELECT count(*) FROM wtb_deliveries WHERE webhook_id = ? AND status = 'pending'"


class SqlWebhookRepository:
    """Webhooks inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, webhook: Webhook) -> None:
        types = json.dumps([type.value for type in webhook.types])
        made = (webhook.created_by, to_us(webhook.created_at))
        row = (webhook.id, webhook.url, webhook.secret, types, webhook.cursor, *made)
        self._transaction.run(_ADD_WEBHOOK, row)

    def get(self, webhook_id: WebhookId) -> Webhook:
        row = self._transaction.row(f"SELECT {_WEBHOOK} FROM wtb_webhooks WHERE id = ?", (webhook_id,))
        if row is None:
            raise WebhookNotFound(webhook_id)
        return _webhook(row)

    def list_webhooks(self) -> tuple[Webhook, ...]:
        found = map(_webhook, self._transaction.rows(f"SELECT {_WEBHOOK} FROM wtb_webhooks"))
        return tuple(sorted(found, key=lambda webhook: webhook.id))  # databases sort texts in different ways

    def move(self, webhook_id: WebhookId, cursor: str, *, since: str | None) -> bool:
        statement = "UPDATE wtb_webhooks SET cursor = ? WHERE id = ? AND coalesce(cursor, '') = ?"
        return self._transaction.change(statement, (cursor, webhook_id, since or "")) > 0

    def delete(self, webhook_id: WebhookId) -> None:
        # The webhook first: this waits for a transaction that adds deliveries, and the next statement finds them.
        if not self._transaction.change("DELETE FROM wtb_webhooks WHERE id = ?", (webhook_id,)):
            raise WebhookNotFound(webhook_id)
        self._transaction.run("DELETE FROM wtb_deliveries WHERE webhook_id = ?", (webhook_id,))


class SqlDeliveryRepository:
    """Deliveries inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, *deliveries: Delivery) -> None:
        for each in deliveries:
            what = (each.webhook_id, each.position, each.type, each.status.value, each.attempts)
            times = (to_us(each.created_at), to_us_or_none(each.ended_at))
            self._transaction.run(_ADD_DELIVERY, (*what, to_us_or_none(each.next_at), each.error, *times))

    def get(self, webhook_id: WebhookId, position: int) -> Delivery:
        statement = f"SELECT {_DELIVERY} FROM wtb_deliveries WHERE webhook_id = ? AND position = ?"
        row = self._transaction.row(statement, (webhook_id, position))
        if row is None:
            raise DeliveryNotFound(position)
        return _delivery(row)

    def save(self, delivery: Delivery) -> bool:
        times = (to_us_or_none(delivery.next_at), delivery.error, to_us_or_none(delivery.ended_at))
        key = (delivery.webhook_id, delivery.position)
        return self._transaction.change(_SAVE_DELIVERY, (delivery.status.value, delivery.attempts, *times, *key)) > 0

    def list_due(self, webhook_id: WebhookId, now: datetime, *, limit: int) -> tuple[Delivery, ...]:
        return tuple(map(_delivery, self._transaction.rows(_DUE, (webhook_id, to_us(now), limit))))

    def list_deliveries(
        self, webhook_id: WebhookId, *, status: DeliveryStatus | None = None, before: int | None = None, limit: int
    ) -> tuple[Delivery, ...]:
        wheres, values = ["webhook_id = ?"], list[Any]((webhook_id,))
        if status is not None:
            wheres.append("status = ?")
            values.append(status.value)
        if before is not None:
            wheres.append("position < ?")
            values.append(before)
        statement = f"SELECT {_DELIVERY} FROM wtb_deliveries WHERE {' AND '.join(wheres)} ORDER BY position DESC"
        return tuple(map(_delivery, self._transaction.rows(f"{statement} LIMIT ?", (*values, limit))))

    def count_pending(self, webhook_id: WebhookId) -> int:
        row = self._transaction.row(_PENDING, (webhook_id,))
        return 0 if row is None else int(row[0])

    def drop(self, status: DeliveryStatus, *, ended_before: datetime) -> int:
        statement = "DELETE FROM wtb_deliveries WHERE status = ? AND ended_at_us < ?"
        return self._transaction.change(statement, (status.value, to_us(ended_before)))


@mapping("webhook")
def _webhook(row: Any) -> Webhook:
    return Webhook(
        id=row[0],
        url=row[1],
        secret=row[2],
        types=tuple(EventType(name) for name in json.loads(row[3])),
        cursor=row[4],
        created_by=row[5],
        created_at=from_us(row[6]),
    )


@mapping("delivery")
def _delivery(row: Any) -> Delivery:
    return Delivery(
        webhook_id=row[0],
        position=int(row[1]),
        type=row[2],
        status=DeliveryStatus(row[3]),
        attempts=int(row[4]),
        next_at=from_us_or_none(row[5]),
        error=row[6],
        created_at=from_us(row[7]),
        ended_at=from_us_or_none(row[8]),
    )
