"""`wtb mcp`: gives editors and agents the bench of this folder over the Model Context Protocol."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path

import click

from wtb.bootstrap import bootstrap
from wtb.cli.output import echo, example, url
from wtb.domain.errors import InvalidInput, MissingLibrary
from wtb.settings import Settings, load_settings


@click.command()
@click.argument("workflows", nargs=-1, metavar="[REF…]")
@click.option("--http", "over_http", is_flag=True, help="Serve over HTTP at /mcp, instead of stdin and stdout.")
@click.option("--host", metavar="ADDRESS", help="With --http: the address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="With --http: the port; 0 takes a free one. Default: 8384."
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let editors that cannot ask you change runs and start batches, without a question.",
)
@click.option(
    "--project",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="The folder to work in, if it is not the current one.",
)
@url
@example("wtb mcp", "wtb mcp agent.py:flow batch.py", "wtb mcp --http --port 8384")
def mcp(
    *,
    workflows: tuple[str, ...],
    over_http: bool,
    host: str | None,
    port: int | None,
    allow_changes: bool,
    project: Path | None,
    url: str | None,
) -> None:
    """Let an editor work with this bench: look at runs, explain failures, roll back, fork, and run batches.

    Editors start this command, and talk to it over stdin and stdout in the Model Context Protocol. REF names a workflow
    or a batch that may be run, such as agent.py. Without one, the workflows of earlier runs in this folder may be.

    You are asked before anything is changed. An editor that cannot ask can only read, unless you give --allow-changes.
    With --http, callers need a token, made by `wtb token create`.
    """
    if not over_http and (host is not None or port is not None):
        raise InvalidInput("--host and --port go with --http")
    _enter(project)
    settings = load_settings(url=url)
    if settings.url == "memory://":
        raise InvalidInput("memory:// has nothing to show: each process has its own; name another database with --url")
    _check_installed()
    if over_http:
        _serve_http(_listening_at(settings, host, port), workflows, allow_changes=allow_changes)
    else:
        _serve_stdio(settings, workflows, allow_changes=allow_changes)


def _enter(project: Path | None) -> None:
    if project is None:
        return
    try:
        os.chdir(project)
    except OSError as error:
        raise InvalidInput(f"--project {project}: {error.strerror}; name the folder of your project") from error


def _check_installed() -> None:
    try:
        import wtb.api.mcp.server  # noqa: F401  says early, and in a sentence, what is missing
    except ImportError as error:
        raise MissingLibrary(f"wtb mcp needs: pip install 'workflow-test-bench[mcp]' ({error})") from error


def _listening_at(settings: Settings, host: str | None, port: int | None) -> Settings:
    """Return settings with the place of this server; `[server]` names that of `wtb serve`, which may run beside it."""
    place = {"host": host or "127.0.0.1", "port": 8384 if port is None else port}
    return settings.model_copy(update={"server": settings.server.model_copy(update=place)})


def _serve_stdio(settings: Settings, workflows: tuple[str, ...], *, allow_changes: bool) -> None:
    from wtb.api.mcp.server import serve_stdio
    from wtb.api.parts import ServerParts

    with bootstrap(settings) as services:
        serve_stdio(ServerParts(services=services, workflows=workflows), allow_changes=allow_changes)


def _serve_http(settings: Settings, workflows: tuple[str, ...], *, allow_changes: bool) -> None:
    from wtb.api import serving
    from wtb.api.mcp.server import PATH, create_mcp_app
    from wtb.api.parts import ServerParts

    serving.check_settings(settings.server)
    with ExitStack() as stack:
        listening = stack.enter_context(closing(serving.listen(settings.server)))
        place = _listening_at(settings, settings.server.host, listening.getsockname()[1])
        services = stack.enter_context(bootstrap(place))
        parts = ServerParts(services=services, workflows=workflows)
        if not services.tokens.has_valid():
            raise InvalidInput(
                "editors sign in with a token, and none is valid: wtb token create editor --role operator"
            )
        with serving.until_stopped():
            echo(f"Serving {services.where} to editors at {serving.address_of(parts.server)}{PATH}. Ctrl-C stops it.")
            serving.serve(parts, listening, create_mcp_app(parts, allow_changes=allow_changes))
        echo("Stopped.")
