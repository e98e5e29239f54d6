"""`wtb token`: creates, lists and revokes the tokens with which programs call a server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from wtb.bootstrap import bootstrap
from wtb.cli.output import as_json, echo, echo_secret, example, moment, print_json, show, show_rows, url
from wtb.cli.times import span
from wtb.domain.access import Role, Token
from wtb.settings import load_settings


@click.group("token")
def token_group() -> None:
    """Create, list and revoke the tokens with which programs call `wtb serve`."""


@token_group.command("create")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help="viewer reads; operator also changes runs and batches; admin also deletes, prunes, and keeps tokens and "
    "webhooks.",
)
@click.option("--expires", metavar="TIME", help="How long it is valid, such as 12h, 30d or 8w. Default: no end.")
@url
@as_json
@example("wtb token create ci --role operator --expires 30d", "TOKEN=$(wtb token create ci --role viewer)")
def create(*, name: str, role: str, expires: str | None, url: str | None, as_json: bool) -> None:
    """Create a token and print it this once.

    The store keeps only its digest. Whatever is done with the token carries NAME. The token alone goes to standard
    output, so that a script can read it.
    """
    lasts = None if expires is None else span(expires, "--expires")
    with bootstrap(load_settings(url=url)) as services:
        token, secret = services.tokens.create(name, Role(role), by=services.user, lasts=lasts)
        if as_json:
            print_json({"token": secret, **_facts(token, services.clock.now())})
            return
    end = "does not expire" if token.expires_at is None else f"expires on {moment(token.expires_at)}"
    echo(f"Token {name!r} ({role}) {end}. It is not shown again:", err=True)
    echo_secret(secret)


@token_group.command("ls")
@url
@as_json
@example("wtb token ls")
def list_tokens(*, url: str | None, as_json: bool) -> None:
    """List all tokens, revoked and expired ones included."""
    with bootstrap(load_settings(url=url)) as services:
        now = services.clock.now()
        rows = [_facts(token, now) for token in services.tokens.list_tokens()]
    if not as_json:
        rows = [{**row, "expires_at": row["expires_at"] or "never"} for row in rows]
        rows = [{name: value for name, value in row.items() if name != "revoked_at"} for row in rows]
    show_rows(rows, as_json=as_json, empty="There is no token yet; `wtb token create NAME --role viewer` makes one.")


@token_group.command("revoke")
@click.argument("name")
@url
@as_json
@example("wtb token revoke ci")
def revoke(*, name: str, url: str | None, as_json: bool) -> None:
    """Revoke a token: servers refuse it within a second. Its name can then be used again."""
    with bootstrap(load_settings(url=url)) as services:
        token = services.tokens.revoke(name, by=services.user)
        now = services.clock.now()
    show(_facts(token, now), f"Revoked token {name!r}; servers refuse it within a second.", as_json=as_json)


def _facts(token: Token, now: datetime) -> Mapping[str, Any]:
    return {
        "name": token.name,
        "role": token.role.value,
        "status": token.status(now),
        "created_by": token.created_by,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }
