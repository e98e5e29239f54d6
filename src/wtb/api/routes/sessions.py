"""Sessions: who is signed in, the link that signs a browser in, and signing out."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from wtb.api.access import Viewer, session_secret
from wtb.api.models.tokens import SessionAnswer
from wtb.api.parts import Parts
from wtb.application.server.sign_ins import SESSION_LASTS
from wtb.domain.errors import InvalidInput

router = APIRouter(tags=["access"])

_PAGE = "<!doctype html><html lang=en><meta charset=utf-8><title>WTB</title>{head}<p>{text}</p></html>"


@router.get("/api/v1/session", operation_id="session_get", summary="Show who you are")
def show_session(request: Request, parts: Parts, caller: Viewer) -> SessionAnswer:
    """Return the name and the role of the caller."""
    return SessionAnswer.of(caller, is_session=session_secret(request, parts) is not None)


@router.delete("/api/v1/session", status_code=204, operation_id="session_end", summary="Sign out")
def end_session(request: Request, response: Response, parts: Parts, caller: Viewer) -> None:
    """End the session of this browser. A token is not ended but revoked."""
    secret = session_secret(request, parts)
    if secret is None:
        raise InvalidInput("a token has no session to end; an admin can revoke it: DELETE /api/v1/tokens/NAME")
    parts.services.sign_ins.end(secret)
    response.delete_cookie(parts.cookie, httponly=True, samesite="strict", secure=parts.is_encrypted)


@router.get("/sign-in/{link}", include_in_schema=False)
def sign_in(link: str, parts: Parts) -> HTMLResponse:
    """Exchange a one-time link for the cookie of a session, and go to the first page.

    A page that sends the browser on, not a redirect: after a redirect from a link in a chat, a browser would not send
    the new cookie.
    """
    _, secret = parts.services.sign_ins.exchange(link)
    onwards = '<meta http-equiv=refresh content="0; url=/">'
    page = HTMLResponse(_PAGE.format(head=onwards, text='You are signed in. <a href="/">Go on.</a>'))
    page.set_cookie(
        parts.cookie,
        secret,
        max_age=int(SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=parts.is_encrypted,
    )
    return page


@router.get("/", include_in_schema=False)
def first_page(parts: Parts, caller: Viewer) -> HTMLResponse:
    """Say who is signed in, and where the description of the API is."""
    where = f"{escape(parts.services.where)}; its API: <a href='/openapi.json'>openapi.json</a>"
    return HTMLResponse(_PAGE.format(head="", text=f"{escape(caller.name)}, {caller.role} of {where}"))
