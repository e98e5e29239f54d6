"""Webhooks and their deliveries."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from wtb.api.models.base import AnswerModel, RequestModel, example
from wtb.domain.webhooks import LONGEST_URL, Delivery, DeliveryStatus, Webhook

_EXAMPLE = {
    "id": "01a1f58c-03be-7000-bd64-bce76068cf09",
    "url": "https://example.org/hooks/wtb",
    "types": ["execution.failed"],
    "created_by": "ada",
    "created_at": "2026-11-18T12:00:00+00:00",
}


class NewWebhook(RequestModel):
    """A webhook to add."""

    url: str = Field(
        min_length=1, max_length=LONGEST_URL, description="Where events are sent: https, on the public internet."
    )
    types: list[str] = Field(
        default=[],
        max_length=200,
        description="The types of its events, or nouns for all their events; without any, those of runs and batches.",
    )

    model_config = example(url="https://example.org/hooks/wtb", types=["execution.failed", "batch.completed"])


class WebhookAnswer(AnswerModel):
    """A webhook, without its secret."""

    id: str
    url: str
    types: list[str]
    created_by: str | None
    created_at: datetime

    model_config = example(**_EXAMPLE)

    @classmethod
    def of(cls, webhook: Webhook) -> WebhookAnswer:
        """Return a webhook as admins see it."""
        return cls(**_facts(webhook))


class CreatedWebhookAnswer(WebhookAnswer):
    """A new webhook, with its secret."""

    secret: str = Field(description="Verifies signatures. It is shown this once.")

    model_config = example(**_EXAMPLE, secret="whsec_…")

    @classmethod
    def with_secret(cls, webhook: Webhook) -> CreatedWebhookAnswer:
        """Return a new webhook as its creator sees it."""
        return cls(secret=webhook.secret, **_facts(webhook))


class WebhookTrialAnswer(AnswerModel):
    """What became of a test request."""

    is_accepted: bool = Field(description="Whether the receiver answered with a status from 200 to 299.")
    status: int | None = Field(description="The status of its answer; null if there was none.")
    problem: str | None = Field(description="What went wrong.")

    model_config = example(is_accepted=False, status=500, problem="it answered 500")


class DeliveryAnswer(AnswerModel):
    """An event on its way to a webhook."""

    position: int = Field(description="The position of the event in the log.")
    type: str = Field(description="The type of the event.", examples=["execution.failed"])
    status: DeliveryStatus
    attempts: int
    next_at: datetime | None = Field(description="When it is tried again, if it is pending.")
    error: str | None = Field(description="Why the last attempt failed.")
    created_at: datetime
    ended_at: datetime | None = Field(description="When it was delivered, or given up.")

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryAnswer:
        """Return a delivery as admins see it."""
        return cls(**{name: getattr(delivery, name) for name in cls.model_fields})


def _facts(webhook: Webhook) -> dict[str, object]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "types": [type.value for type in webhook.types],
        "created_by": webhook.created_by,
        "created_at": webhook.created_at,
    }
