"""Sessions: who is signed in, the link that signs a browser in, and signing out."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from wtb.api.access import Viewer, bearer_token, session_secret
from wtb.api.models.tokens import SessionAnswer
from wtb.api.parts import Parts, ServerParts
from wtb.application.server.sign_ins import SESSION_LASTS
from wtb.domain.errors import InvalidInput, Unauthenticated

router = APIRouter(tags=["access"])

_ELSEWHERE = 'If you are signed in already, or have a token, <a href="/">open the page</a>.'
_PAGE = "<!doctype html><html lang=en><meta charset=utf-8><title>WTB</title>{head}<p>{text}</p></html>"


@router.get("/api/v1/session", operation_id="session_get", summary="Show who you are")
def show_session(request: Request, parts: Parts, caller: Viewer) -> SessionAnswer:
    """Return the name and the role of the caller."""
    return SessionAnswer.of(caller, is_session=session_secret(request, parts) is not None)


@router.post(
    "/api/v1/session", status_code=201, operation_id="session_create", summary="Sign a browser in with a token"
)
def start_session(request: Request, response: Response, parts: Parts, caller: Viewer) -> SessionAnswer:
    """Keep the token of this request as the cookie of a browser, for a week or until the token ends."""
    token = bearer_token(request)
    if token is None:
        raise InvalidInput("you are signed in already; to sign in as somebody else, send a token in Authorization")
    _keep(token, response, parts)
    return SessionAnswer.of(caller, is_session=True)


@router.delete("/api/v1/session", status_code=204, operation_id="session_end", summary="Sign out")
def end_session(request: Request, response: Response, parts: Parts, caller: Viewer) -> None:
    """End the session of this browser. A token is not ended but revoked."""
    secret = session_secret(request, parts)
    if secret is None:
        raise InvalidInput("a token has no session to end; an admin can revoke it: DELETE /api/v1/tokens/NAME")
    parts.services.sign_ins.end(secret)
    response.delete_cookie(parts.cookie, httponly=True, samesite="strict", secure=parts.is_encrypted)


@router.get("/sign-in/{link}", include_in_schema=False)
def sign_in(link: str, request: Request, parts: Parts) -> HTMLResponse:
    """Exchange a one-time link for the cookie of a session, and go to the first page.

    A page that sends the browser on, not a redirect: after a redirect from a link in a chat, a browser would not send
    the new cookie.
    """
    try:
        _, secret = parts.services.sign_ins.exchange(link)
    except Unauthenticated as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return HTMLResponse(_PAGE.format(head="", text=f"{escape(str(error))}. {_ELSEWHERE}"), 401)
    onwards = '<meta http-equiv=refresh content="0; url=/">'
    page = HTMLResponse(_PAGE.format(head=onwards, text='You are signed in. <a href="/">Go on.</a>'))
    _keep(secret, page, parts)
    return page


def _keep(secret: str, response: Response, parts: ServerParts) -> None:
    """Give the browser the cookie of its session."""
    response.set_cookie(
        parts.cookie,
        secret,
        max_age=int(SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=parts.is_encrypted,
    )
