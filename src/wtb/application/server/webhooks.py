"""Webhooks: adds, tests and deletes them, and sends deliveries that failed again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence

from wtb.application.server.keyed_requests import digest_of_request, find_request
from wtb.domain.commands import AcceptedRequest
from wtb.domain.errors import Conflict, InvalidInput
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import EventType, WebhookCreated, WebhookDeleted, WebhookRetried
from wtb.domain.events import Event
from wtb.domain.filters import event_types
from wtb.domain.ports import Clock, Ids, SentRequest, Storage, UnitOfWork, WebhookSender
from wtb.domain.webhooks import (
    MOST_WEBHOOKS,
    NEVER_SENT,
    SECRET_BYTES,
    Delivery,
    DeliveryStatus,
    Webhook,
    WebhookId,
    new_secret,
    signed_headers,
    trial_message,
)


class Webhooks:
    """What people do with webhooks. `WebhookOutbox` sends to them."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        sender: WebhookSender,
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._sender = sender
        self._random = random

    def create(self, url: str, types: Sequence[str] = (), *, by: str | None, key: str | None = None) -> Webhook:
        """Add a webhook, which gets the events from now on. Its secret is shown this once.

        The same caller's key with the same request returns the first webhook.
        """
        wanted = sent_types(types)
        refusal = self._sender.refusal(url)
        if refusal is not None:
            raise InvalidInput(refusal)
        now, digest = self._clock.now(), digest_of_request("webhook.create", url, sorted(wanted))
        with self._storage.unit_of_work() as uow:
            known = None if key is None else find_request(uow, by or "", key, digest, now)
            if known is not None:
                return uow.webhooks.get(WebhookId(known.made_id))
            if len(uow.webhooks.list_webhooks()) >= MOST_WEBHOOKS:
                raise Conflict(f"there are {MOST_WEBHOOKS} webhooks, and no more are allowed; delete one first")
            webhook = Webhook(
                id=WebhookId(self._ids.new()),
                url=url,
                secret=new_secret(self._random(SECRET_BYTES)),
                types=wanted,
                cursor=str(uow.feed.end()),
                created_by=by,
                created_at=now,
            )
            uow.webhooks.add(webhook)
            if key is not None:
                request = AcceptedRequest(caller=by or "", key=key, digest=digest, made_id=webhook.id, created_at=now)
                uow.commands.put_request(request)
            names = tuple(type.value for type in wanted)
            self._tell(uow, WebhookCreated(webhook=webhook.id, url=webhook.place, types=names, by=by))
            uow.commit()
        return webhook

    def list_webhooks(self) -> tuple[Webhook, ...]:
        """Return all webhooks, the oldest first."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.webhooks.list_webhooks()

    def get(self, webhook_id: str) -> Webhook:
        """Return one webhook."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.webhooks.get(WebhookId(webhook_id))

    def delete(self, webhook_id: str, *, by: str | None) -> None:
        """Delete a webhook. Nothing is sent to it any more, except for a request that is under way."""
        with self._storage.unit_of_work() as uow:
            webhook = uow.webhooks.get(WebhookId(webhook_id))
            uow.webhooks.delete(webhook.id)
            self._tell(uow, WebhookDeleted(webhook=webhook.id, url=webhook.place, by=by))
            uow.commit()

    def test(self, webhook_id: str) -> SentRequest:
        """Send a signed request of type `webhook.test` now, and return what became of it."""
        webhook = self.get(webhook_id)
        now = self._clock.now()
        body = trial_message(webhook, now)
        return self._sender.send(
            webhook.url, signed_headers(webhook.secret, f"test_{self._ids.new()}", now, body), body
        )

    def list_deliveries(
        self, webhook_id: str, *, status: DeliveryStatus | None = None, before: int | None = None, limit: int = 100
    ) -> tuple[Delivery, ...]:
        """Return deliveries of a webhook, the newest events first."""
        with self._storage.unit_of_work(readonly=True) as uow:
            webhook = uow.webhooks.get(WebhookId(webhook_id))
            return uow.deliveries.list_deliveries(webhook.id, status=status, before=before, limit=limit)

    def retry(self, webhook_id: str, position: int, *, by: str | None) -> Delivery:
        """Send an event again: now, and with all attempts before it."""
        with self._storage.unit_of_work() as uow:
            webhook = uow.webhooks.get(WebhookId(webhook_id))
            delivery = uow.deliveries.get(webhook.id, position).again(uow.now())
            uow.deliveries.save(delivery)
            self._tell(uow, WebhookRetried(webhook=webhook.id, position=position, by=by))
            uow.commit()
        return delivery

    def _tell(self, uow: UnitOfWork, body: EventBody) -> None:
        uow.events.append(Event.of(body, at=self._clock.now()))


def sent_types(names: Collection[str]) -> tuple[EventType, ...]:
    """Return the types that a webhook gets which names these types and nouns; refuse one that is never sent."""
    unsent = NEVER_SENT.intersection(names)
    if unsent:
        raise InvalidInput(f"{min(unsent)} is not sent to webhooks: two that fail would tell each other for ever")
    return tuple(sorted(set(event_types(names)) - NEVER_SENT))
