"""`wtb environment-server`: runs nodes of other machines here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from wtb.cli.output import echo, example
from wtb.domain.errors import InvalidInput
from wtb.loading import look_in

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
TOKEN_VARIABLE = "WTB_ENVIRONMENT_TOKEN"


def _read(file: Path) -> str:
    return file.read_text(errors="replace").strip()  # the server refuses what is no text


@click.command("environment-server")
@click.option(
    "--listen", default="127.0.0.1:7878", show_default=True, metavar="HOST:PORT", help="The address to listen on."
)
@click.option(
    "--most", type=click.IntRange(1, 1_000), default=4, show_default=True, help="The most environments at a time."
)
@click.option("--token-file", type=_FILE, help=f"The file with the token. Default: the variable {TOKEN_VARIABLE}.")
@click.option("--tls-certificate", type=_FILE, help="The server's certificate, in PEM.")
@click.option("--tls-key", type=_FILE, help="The key of the certificate, in PEM.")
@example(
    "wtb environment-server",
    "wtb environment-server --listen 0.0.0.0:7878 --token-file token --tls-certificate cert.pem --tls-key key.pem",
)
def environment_server(
    *, listen: str, most: int, token_file: Path | None, tls_certificate: Path | None, tls_key: Path | None
) -> None:
    """Run the nodes of other machines here, each environment in a process of its own.

    Start it in a folder with the same code as the clients have. Nodes with `environment="grpc"` and this address
    then run here. When a client is gone, its environments are ended. Whoever has the token can run any code here.
    """
    from wtb.infrastructure.environments.grpc_server import EnvironmentServer, ServerOptions

    look_in(Path.cwd())
    token = os.environ.get(TOKEN_VARIABLE) if token_file is None else _read(token_file)
    if token == "":
        raise InvalidInput("the token is empty; write a long random text into its file")
    options = ServerOptions(listen=listen, token=token, certificate=tls_certificate, key=tls_key, most=most)
    server = EnvironmentServer(options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        port = server.start()
        echo(
            f"Serving up to {most} environments on {listen.rpartition(':')[0]}:{port}. Ctrl-C ends them and the server."
        )
        server.wait()
    except KeyboardInterrupt:
        echo("Ending all environments.")
    finally:
        server.close()
