"""Verbs of upkeep: pruning, checks, background jobs and webhooks. Most need the role admin."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from wtb.api.models.background_jobs import BackgroundJobAnswer
from wtb.api.models.base import ListAnswer
from wtb.api.models.upkeep import DoctorAnswer, LightCheckAnswer, LightCheckRequest, PruneAnswer, PruneRequest
from wtb.api.models.webhooks import (
    CreatedWebhookAnswer,
    DeliveryAnswer,
    NewWebhook,
    WebhookAnswer,
    WebhookTrialAnswer,
)
from wtb.client.connection import Connection, made, path_of
from wtb.client.requests import Names, delete, each_of, get, post


class UpkeepVerbs(Connection):
    """What a client does to keep a store small and sound, and to tell others of events."""

    async def prune(
        self, *, dry_run: bool = True, workflow: str | None = None, run: str | None = None, seconds: float = 20
    ) -> PruneAnswer:
        """Count what `wtb prune` would delete; with `dry_run=False`, delete it.

        It works for so many seconds; if the answer is not `is_complete`, call it again.
        """
        body = made(PruneRequest, dry_run=dry_run, workflow=workflow, run=run, seconds=seconds)
        return await self._ask(PruneAnswer, post(path_of("upkeep", "prune"), body, patience_s=seconds))

    async def doctor(self) -> DoctorAnswer:
        """Return the faults that the checks in the background have found."""
        return await self._ask(DoctorAnswer, get(path_of("upkeep", "doctor")))

    async def check_store(self, *, seconds: float = 5) -> LightCheckAnswer:
        """Verify events and runs for some seconds; nothing is changed."""
        body = made(LightCheckRequest, seconds=seconds)
        return await self._ask(LightCheckAnswer, post(path_of("upkeep", "doctor"), body, patience_s=seconds))

    async def list_background_jobs(self) -> list[BackgroundJobAnswer]:
        """Return the background jobs of the server by name: when they ran, and when they run next."""
        return (await self._ask(ListAnswer[BackgroundJobAnswer], get(path_of("background-jobs")))).items

    async def run_background_job(self, name: str) -> BackgroundJobAnswer:
        """Ask for a run of a background job now."""
        return await self._ask(BackgroundJobAnswer, post(path_of("background-jobs", name, "run")))

    async def list_webhooks(self) -> list[WebhookAnswer]:
        """Return all webhooks, the oldest first."""
        return (await self._ask(ListAnswer[WebhookAnswer], get(path_of("webhooks")))).items

    async def create_webhook(self, url: str, types: Names = ()) -> CreatedWebhookAnswer:
        """Send the events of these types to an address from now on, and return the secret of the signatures."""
        body = made(NewWebhook, url=url, types=each_of(types))
        return await self._ask(CreatedWebhookAnswer, post(path_of("webhooks"), body))

    async def webhook(self, webhook: str) -> WebhookAnswer:
        """Return a webhook by its id, without its secret."""
        return await self._ask(WebhookAnswer, get(path_of("webhooks", webhook)))

    async def delete_webhook(self, webhook: str) -> None:
        """Delete a webhook, by its id."""
        await self._send(delete(path_of("webhooks", webhook)))

    async def test_webhook(self, webhook: str) -> WebhookTrialAnswer:
        """Send a test request now, and return what became of it."""
        return await self._ask(WebhookTrialAnswer, post(path_of("webhooks", webhook, "test")))

    async def deliveries(self, webhook: str, *, status: str | None = None) -> AsyncGenerator[DeliveryAnswer]:
        """Return the deliveries of a webhook one by one, the newest events first."""
        path = path_of("webhooks", webhook, "deliveries")
        async for each in self._each(DeliveryAnswer, path, status=status, limit=500):
            yield each

    async def retry_delivery(self, webhook: str, position: int) -> DeliveryAnswer:
        """Send an event again, by its position."""
        path = path_of("webhooks", webhook, "deliveries", position, "retry")
        return await self._ask(DeliveryAnswer, post(path))
