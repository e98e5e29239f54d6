"""Webhooks: add, test and delete them, look at their deliveries, and send dead ones again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from wtb.api.access import Admin
from wtb.api.models.base import ListAnswer
from wtb.api.models.parameters import IdempotencyKey, Limit
from wtb.api.models.webhooks import CreatedWebhookAnswer, DeliveryAnswer, NewWebhook, WebhookAnswer, WebhookTrialAnswer
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.errors import Conflict, DeliveryNotFound, IdempotencyMismatch, InvalidInput, WebhookNotFound
from wtb.domain.webhooks import DeliveryStatus

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])

Id = Annotated[str, Path(max_length=200, description="The id of the webhook.")]
Position = Annotated[int, Path(ge=1, le=(1 << 63) - 1, description="The position of the event.", examples=[4711])]


@router.get("", operation_id="webhooks_list", summary="List all webhooks")
def list_webhooks(parts: Parts, caller: Admin) -> ListAnswer[WebhookAnswer]:
    """Return all webhooks, the oldest first, in one page."""
    return ListAnswer(items=[WebhookAnswer.of(each) for each in parts.server_services.webhooks.list_webhooks()])


@router.post(
    "",
    status_code=201,
    operation_id="webhooks_create",
    summary="Add a webhook",
    responses=answers(Conflict, InvalidInput, IdempotencyMismatch, WebhookNotFound),
)
def create_webhook(
    parts: Parts, caller: Admin, body: NewWebhook, idempotency_key: IdempotencyKey = None
) -> CreatedWebhookAnswer:
    """Add a webhook, which gets the events from now on, and return its secret this once."""
    webhook = parts.server_services.webhooks.create(body.url, body.types, by=caller.name, key=idempotency_key)
    return CreatedWebhookAnswer.with_secret(webhook)


@router.get("/{webhook_id}", operation_id="webhooks_get", summary="Show a webhook", responses=answers(WebhookNotFound))
def get_webhook(parts: Parts, caller: Admin, webhook_id: Id) -> WebhookAnswer:
    """Return one webhook, without its secret."""
    return WebhookAnswer.of(parts.server_services.webhooks.get(webhook_id))


@router.delete(
    "/{webhook_id}",
    status_code=204,
    operation_id="webhooks_delete",
    summary="Delete a webhook",
    responses=answers(WebhookNotFound),
)
def delete_webhook(parts: Parts, caller: Admin, webhook_id: Id) -> None:
    """Delete a webhook with its deliveries. Nothing more is sent to it, except for a request that is under way."""
    parts.server_services.webhooks.delete(webhook_id, by=caller.name)


@router.post(
    "/{webhook_id}/test",
    operation_id="webhooks_test",
    summary="Send a test request",
    responses=answers(WebhookNotFound),
)
def test_webhook(parts: Parts, caller: Admin, webhook_id: Id) -> WebhookTrialAnswer:
    """Send a signed request of type `webhook.test` now, once, and return what became of it."""
    sent = parts.server_services.webhooks.test(webhook_id)
    return WebhookTrialAnswer(is_accepted=sent.is_accepted, status=sent.status, problem=sent.problem)


@router.get(
    "/{webhook_id}/deliveries",
    operation_id="webhooks_list_deliveries",
    summary="List the deliveries of a webhook",
    responses=answers(WebhookNotFound),
)
def list_deliveries(
    parts: Parts,
    caller: Admin,
    webhook_id: Id,
    *,
    status: Annotated[DeliveryStatus | None, Query(description="Only deliveries with this status.")] = None,
    limit: Limit = 100,
    cursor: Annotated[int | None, Query(ge=1, le=(1 << 63) - 1, description="`next` of the page before.")] = None,
) -> ListAnswer[DeliveryAnswer]:
    """Return deliveries, the newest events first: pending ones, those of the last day, and dead ones of 30 days."""
    found = parts.server_services.webhooks.list_deliveries(webhook_id, status=status, before=cursor, limit=limit + 1)
    items = [DeliveryAnswer.of(each) for each in found[:limit]]
    return ListAnswer(items=items, next=str(items[-1].position) if len(found) > limit else None)


@router.post(
    "/{webhook_id}/deliveries/{position}/retry",
    operation_id="webhooks_retry_delivery",
    summary="Send an event again",
    responses=answers(WebhookNotFound, DeliveryNotFound),
)
def retry_delivery(parts: Parts, caller: Admin, webhook_id: Id, position: Position) -> DeliveryAnswer:
    """Make a delivery due now, with all attempts before it, whether it is dead, pending or was delivered."""
    return DeliveryAnswer.of(parts.server_services.webhooks.retry(webhook_id, position, by=caller.name))
