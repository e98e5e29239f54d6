"""Asks the person before something is changed. Where the editor cannot ask, changes are off unless they are allowed."""

from __future__ import annotations

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult
from pydantic import BaseModel, Field

from wtb.api.mcp.editor_access import Asking, access_of, caller_of
from wtb.domain.access import Role
from wtb.domain.errors import InvalidInput
from wtb.domain.printable import printable_lines

NOTHING = "Nothing was changed: the person did not confirm it. Do not try again unless they ask for it."


class Confirmation(BaseModel):
    """What the person decides."""

    confirm: bool = Field(default=False, title="Do this", description="Without it, nothing is changed.")


Decision = ElicitationResult[Confirmation]


def check_may_change(ctx: Asking) -> None:
    """Raise AccessDenied if the caller may not, and InvalidInput if nobody can be asked and changes are not allowed."""
    caller_of(ctx).require(Role.OPERATOR)
    if not _can_ask(ctx) and not access_of(ctx).allow_changes:
        raise InvalidInput(
            "this editor cannot ask you to confirm a change, so changes are off; to let it change runs and start "
            "batches without a question, start the server as `wtb mcp --allow-changes`"
        )


def asked(ctx: Asking, question: str) -> Confirmation | Elicit[Confirmation]:
    """Return a question to the person; where nobody can be asked and changes are allowed, a yes."""
    check_may_change(ctx)
    return Elicit(printable_lines(question), Confirmation) if _can_ask(ctx) else Confirmation(confirm=True)


def is_confirmed(decision: Decision) -> bool:
    """Whether the person has said yes: the form was sent, and ticked."""
    return isinstance(decision, AcceptedElicitation) and decision.data.confirm


def _can_ask(ctx: Asking) -> bool:
    """Whether the editor shows forms; one that only opens addresses does not."""
    found = None if ctx.client_capabilities is None else ctx.client_capabilities.elicitation
    return found is not None and (found.form is not None or found.url is None)
