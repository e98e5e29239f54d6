"""`wtb webhook`: adds, lists and deletes webhooks, and looks after their deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from wtb.bootstrap import bootstrap
from wtb.cli.output import as_json, echo, echo_secret, example, moment, print_json, show, show_rows, url
from wtb.domain.webhooks import Delivery, DeliveryStatus, Webhook
from wtb.server_bootstrap import ServerServices
from wtb.settings import load_settings


@click.group("webhook")
def webhook_group() -> None:
    """Send events to an address of yours; a running `wtb serve` does it."""


@webhook_group.command("add")
@click.argument("address", metavar="URL")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="EVENT",
    help="Only events of this type, or of this group, such as `batch`; repeatable.",
)
@url
@as_json
@example("wtb webhook add https://example.org/hooks/wtb --type execution.failed --type batch.completed")
def add(*, address: str, types: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Add a webhook, and print its secret this once.

    It gets the events from now on, signed with the secret. The secret alone goes to standard output, so that a script
    can read it. Without --type, it gets all events of runs and batches.
    """
    with bootstrap(load_settings(url=url)) as services:
        webhook = ServerServices(services=services).webhooks.create(address, types, by=services.user)
    if as_json:
        print_json({"secret": webhook.secret, **_facts(webhook)})
        return
    echo(f"Webhook {webhook.id} gets events while `wtb serve` runs. Its secret is not shown again:", err=True)
    echo_secret(webhook.secret)


@webhook_group.command("ls")
@url
@as_json
@example("wtb webhook ls")
def list_webhooks(*, url: str | None, as_json: bool) -> None:
    """List all webhooks."""
    with bootstrap(load_settings(url=url)) as services:
        rows = [_facts(webhook) for webhook in ServerServices(services=services).webhooks.list_webhooks()]
    if not as_json:
        rows = [{**row, "types": ", ".join(row["types"]) or "all of runs and batches"} for row in rows]
    show_rows(rows, as_json=as_json, empty="There is no webhook yet; `wtb webhook add URL` adds one.")


@webhook_group.command("rm")
@click.argument("webhook_id", metavar="ID")
@url
@as_json
@example("wtb webhook rm 01920000-0000-7000-8000-000000000000")
def remove(*, webhook_id: str, url: str | None, as_json: bool) -> None:
    """Delete a webhook with its deliveries. Nothing more is sent to it."""
    with bootstrap(load_settings(url=url)) as services:
        ServerServices(services=services).webhooks.delete(webhook_id, by=services.user)
    show({"deleted": webhook_id}, f"Deleted webhook {webhook_id}.", as_json=as_json)


@webhook_group.command("deliveries")
@click.argument("webhook_id", metavar="ID")
@click.option(
    "--status", type=click.Choice([status.value for status in DeliveryStatus]), help="Only deliveries with this status."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@url
@as_json
@example("wtb webhook deliveries 01920000-0000-7000-8000-000000000000 --status dead")
def deliveries(*, webhook_id: str, status: str | None, limit: int, url: str | None, as_json: bool) -> None:
    """List the deliveries of a webhook, the newest events first.

    Delivered ones are kept for a day, dead ones for 30 days.
    """
    wanted = None if status is None else DeliveryStatus(status)
    with bootstrap(load_settings(url=url)) as services:
        found = ServerServices(services=services).webhooks.list_deliveries(webhook_id, status=wanted, limit=limit)
    rows = [_delivery(each, as_json=as_json) for each in found]
    show_rows(rows, as_json=as_json, empty="There is no such delivery.")


@webhook_group.command("retry")
@click.argument("webhook_id", metavar="ID")
@click.argument("position", type=int)
@url
@as_json
@example("wtb webhook retry 01920000-0000-7000-8000-000000000000 4711")
def retry(*, webhook_id: str, position: int, url: str | None, as_json: bool) -> None:
    """Send an event again: POSITION is its number in `wtb webhook deliveries`."""
    with bootstrap(load_settings(url=url)) as services:
        delivery = ServerServices(services=services).webhooks.retry(webhook_id, position, by=services.user)
    show(_delivery(delivery, as_json=True), f"A running `wtb serve` sends event {position} again.", as_json=as_json)


def _facts(webhook: Webhook) -> Mapping[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "types": [type.value for type in webhook.types],
        "created_by": webhook.created_by,
        "created_at": webhook.created_at,
    }


def _delivery(delivery: Delivery, *, as_json: bool) -> Mapping[str, Any]:
    facts = {
        "position": delivery.position,
        "type": delivery.type,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "next_at": delivery.next_at,
        "error": delivery.error,
    }
    if as_json:
        return {**facts, "created_at": delivery.created_at, "ended_at": delivery.ended_at}
    return {
        **facts,
        "next_at": "" if delivery.next_at is None else moment(delivery.next_at),
        "error": delivery.error or "",
    }
