"""`wtb serve`: serves the bench of this folder over HTTP."""

from __future__ import annotations

import os
import threading
import webbrowser
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from wtb.application.server.served_workflows import file_of
from wtb.bootstrap import bootstrap
from wtb.cli.output import echo, example, url
from wtb.domain.access import Caller
from wtb.domain.errors import Conflict, InvalidInput, MissingLibrary
from wtb.server_bootstrap import running_servers, server_file
from wtb.settings import Settings, load_settings

if TYPE_CHECKING:
    from wtb.api.parts import ServerParts

_ONCE = "works once, within five minutes"
_RECORDED = "It runs the workflows that have runs here. To add others, name them: wtb serve agent.py"
_NOTHING = "It runs no workflow until you name one: wtb serve agent.py"


@click.command()
@click.argument("workflows", nargs=-1, metavar="[REF…]")
@click.option(
    "--host", metavar="ADDRESS", help="The address to listen on. Default: server.host in wtb.toml, else 127.0.0.1."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="The port; 0 takes a free one. Default: server.port in wtb.toml, else 8383.",
)
@click.option(
    "--langgraph",
    "has_langgraph",
    is_flag=True,
    help="Let LangGraph's SDKs and chat front ends connect, at /langgraph. Default: server.langgraph in wtb.toml.",
)
@click.option("--open", "is_opening", is_flag=True, help="Open the browser, signed in.")
@click.option("--link", "is_linking", is_flag=True, help="Print a new link for the running server of this folder.")
@url
@example("wtb serve agent.py", "wtb serve --open", "wtb serve --link")
def serve(
    *,
    workflows: tuple[str, ...],
    host: str | None,
    port: int | None,
    has_langgraph: bool,
    is_opening: bool,
    is_linking: bool,
    url: str | None,
) -> None:
    """Serve the bench of this folder: a page for browsers, and an HTTP API for programs.

    REF names a workflow or a batch test that the server may run, such as agent.py:flow or checks.py:batch; a file
    without a name serves both. Runs of other workflows can be looked at, paused and stopped.

    On this machine a browser signs in with the link that is printed; it works once, within five minutes. Programs
    use a token, made by `wtb token create`. To be reached from other machines, the server needs TLS and a token.
    """
    settings = _settings(url, host=host, port=port, langgraph=has_langgraph or None)
    if is_linking:
        _print_link(settings)
        return
    _serve(settings, workflows, is_opening=is_opening)


def _settings(url: str | None, **server: Any) -> Settings:
    settings = load_settings(url=url)
    if settings.url == "memory://":
        raise InvalidInput("memory:// cannot be served: workers are other processes; name another database with --url")
    return _with(settings, **{name: value for name, value in server.items() if value is not None})


def _with(settings: Settings, **server: Any) -> Settings:
    return settings.model_copy(update={"server": settings.server.model_copy(update=server)})


def _serve(settings: Settings, workflows: tuple[str, ...], *, is_opening: bool) -> None:
    try:
        from wtb.api import serving
    except ImportError as error:
        raise MissingLibrary(f"wtb serve needs: pip install 'workflow-test-bench[server]' ({error})") from error
    from wtb.api.parts import ServerParts
    from wtb.infrastructure.server_file import RunningServer

    serving.check_settings(settings.server)
    _check_files(workflows)
    with ExitStack() as stack:
        file = stack.enter_context(closing(server_file(settings)))
        file.lock()
        listening = stack.enter_context(closing(serving.listen(settings.server)))
        services = stack.enter_context(bootstrap(_with(settings, port=listening.getsockname()[1])))
        parts = ServerParts(services=services, workflows=workflows)
        serving.check_tokens(parts)
        address = serving.address_of(parts.server)
        file.write(RunningServer(url=address, pid=os.getpid(), is_private=parts.is_private))
        with serving.until_stopped():  # from the first line on: whoever reads it may stop the server
            echo(f"Serving {services.where} at {address}. Ctrl-C stops the server.")
            if parts.server.langgraph:
                echo(f"LangGraph clients connect to {address}/langgraph, with a token as their API key.")
            if parts.is_private:
                _offer_link(parts, address, is_opening=is_opening)
            else:
                echo("Callers sign in with a token, which `wtb token create` makes.")
            if not (workflows or parts.server.workflows):
                echo(_RECORDED if parts.serves_recorded else _NOTHING)
            serving.serve(parts, listening)
        echo("Stopped.")


def _check_files(references: tuple[str, ...]) -> None:
    """Refuse a file that is not there; whether the others can be loaded, only a worker can say."""
    for each in references:
        file = file_of(each)
        if file is not None and not file.is_file():
            raise InvalidInput(f"there is no file {file}, so {each!r} cannot be served")


def _offer_link(parts: ServerParts, address: str, *, is_opening: bool) -> None:
    link = f"{address}/sign-in/{parts.services.sign_ins.create_link(parts.owner)}"
    echo(f"Sign in: {link}")
    echo(f"The link {_ONCE}; `wtb serve --link` prints another.")
    if is_opening:  # in a thread: some browsers return only when they are closed
        threading.Thread(target=_open, args=(link,), daemon=True).start()


def _open(link: str) -> None:
    if not webbrowser.open(link):
        echo("No browser was found; open the link yourself.", err=True)


def _print_link(settings: Settings) -> None:
    found = running_servers(settings)
    if not found:
        raise Conflict("no server runs for this folder; `wtb serve` starts one")
    if not found[-1].is_private:
        raise InvalidInput(
            f"the server at {found[-1].url} takes tokens, not links: wtb token create NAME --role viewer"
        )
    with bootstrap(settings) as services:
        owner = Caller(name=services.user, role=settings.server.loopback_role)
        echo(f"{found[-1].url}/sign-in/{services.sign_ins.create_link(owner)}")
    echo(f"This link {_ONCE}.", err=True)
