"""EnvironmentServer: keeps a bounded number of subprocess environments for clients on other machines.

It keeps nothing on disk. If it ends, its environments end with it: their guards see to that. A client then loses the
attempts that were under way, and creates new environments.
"""

from __future__ import annotations

import shutil
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.domain.environment import LAST_PORT, EnvironmentConfig
from wtb.domain.errors import EnvironmentAway, InvalidInput, WTBError
from wtb.infrastructure.environments.grpc_messages import OPTIONS, SERVICE, check_grpc, is_local, packed, unpacked
from wtb.infrastructure.environments.grpc_token import TOKEN_RULE, is_token, token_checks
from wtb.infrastructure.environments.scratch_folder import ScratchFolder
from wtb.infrastructure.environments.server_link import ServerLink
from wtb.infrastructure.environments.subprocess import SubprocessEnvironment
from wtb.infrastructure.environments.waiting_clients import WaitingClients
from wtb.infrastructure.runners.channel import Channel

Message = Mapping[str, Any]

_TURN_S = 30.0
"""How long a client keeps its environment between nodes while others wait: starting one takes a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where a server listens, who may use it, and how many environments it keeps."""

    listen: str = "127.0.0.1:7878"
    token: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None
    most: int = 4

    def check(self) -> None:
        """Raise InvalidInput if other machines could use the server without a token, or read the token."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > LAST_PORT:
            raise InvalidInput(
                f"{self.listen!r} is no address to listen on: write HOST:PORT with a port from 0 to {LAST_PORT}, such "
                "as 127.0.0.1:7878"
            )
        if self.token is not None and not is_token(self.token):
            raise InvalidInput(f"the token cannot be sent: {TOKEN_RULE}")
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("TLS needs both a certificate and its key; give --tls-certificate and --tls-key")
        is_open = not is_local(self.listen)
        if is_open and (self.token is None or self.certificate is None):
            raise InvalidInput(
                f"{self.listen} can be reached from other machines, and whoever reaches it runs code here: give a "
                "token and a TLS certificate, or listen on 127.0.0.1"
            )


class _Served:
    """An environment of a client, and the link to it if the client has one."""

    def __init__(self, environment: SubprocessEnvironment, folder: Path, client: str, peer: str) -> None:
        self.environment = environment
        self.folder = folder
        self.client = client
        self.peer = peer
        self.began_s = time.monotonic()
        self.link: ServerLink | None = None
        self._lock = threading.Lock()

    def open(self) -> tuple[ServerLink, Channel]:
        """Start a process, and return the link to it. An earlier one, whose client has not said goodbye, ends."""
        with self._lock:
            if self.link is not None:
                self.environment.kill()
            process = self.environment.start()
            self.link = ServerLink(process, self.folder)
            return self.link, process

    def end(self, link: ServerLink, process: Channel) -> None:
        """End a link and its process. It may be late: another one may have taken their place."""
        with suppress(WTBError):
            self.environment.end(process)
        link.close()
        with self._lock:
            if self.link is link:
                self.link = None

    def is_busy(self) -> bool:
        """Whether a node runs."""
        link = self.link
        return link is not None and link.is_busy()


class EnvironmentServer:
    """Answers the calls of `environments.proto`."""

    def __init__(self, options: ServerOptions) -> None:
        check_grpc()
        options.check()
        self._options = options
        self._lock = threading.Lock()
        self._served: dict[str, _Served] = {}
        self._starting = 0
        self._waiting = WaitingClients()
        self._home = ScratchFolder()
        try:
            self._server = self._listening()
        except BaseException:
            self._home.close()
            raise

    def start(self) -> int:
        """Begin to serve; return the port."""
        self._server.start()
        return self.port

    def count(self) -> int:
        """Return how many environments there are."""
        with self._lock:
            return len(self._served)

    def wait(self) -> None:
        """Wait until the server has ended."""
        self._server.wait_for_termination()

    def close(self) -> None:
        """End all environments and stop."""
        self._server.stop(0).wait()
        for name in list(self._served):
            self._destroy(name)
        self._home.close()

    def _listening(self) -> Any:
        import grpc

        # A client holds two streams for each environment, and its other calls are short.
        threads = ThreadPoolExecutor(2 * self._options.most + 16)
        server = grpc.server(threads, options=OPTIONS, interceptors=token_checks(self._options.token))
        unary, streams = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers = {
            "Create": streams(self._create, unpacked, packed),
            "Execute": grpc.stream_stream_rpc_method_handler(self._execute, unpacked, packed),
            "Clean": unary(self._for_known(self._clean), unpacked, packed),
            "Kill": unary(self._for_known(self._kill), unpacked, packed),
            "Destroy": unary(self._for_known(self._ended), unpacked, packed),
            "Status": unary(self._status, unpacked, packed),
            "Health": unary(self._health, unpacked, packed),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            self.port = self._bound(server)
        except RuntimeError as error:
            raise InvalidInput(f"the server cannot listen on {self._options.listen}: {error}") from error
        return server

    def _bound(self, server: Any) -> int:
        import grpc

        certificate, key = self._options.certificate, self._options.key
        if certificate is None or key is None:
            return int(server.add_insecure_port(self._options.listen))
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=lambda: "")
            pair = (key.read_bytes(), certificate.read_bytes())
        except ssl.SSLError as error:  # gRPC would say that it cannot bind to the address
            raise InvalidInput(
                f"{certificate} and {key} are no certificate and its key, in PEM and without a password"
            ) from error
        except OSError as error:
            raise InvalidInput(f"the certificate or its key cannot be read: {error}") from error
        return int(server.add_secure_port(self._options.listen, grpc.ssl_server_credentials([pair])))

    # Calls

    def _create(self, message: Message, context: Any) -> Iterator[Message]:
        """Create an environment, and end it when the client is gone."""
        import grpc

        gone = threading.Event()
        context.add_callback(gone.set)
        if message["wtb"] != (ours := version("workflow-test-bench")):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"it has WTB {ours}, and the client {message['wtb']}")
        name = uuid.uuid4().hex[:12]
        try:
            self._start(name, message, context.peer())
        except EnvironmentAway as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except WTBError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        try:
            yield {"environment": name}
            gone.wait()
        finally:
            self._destroy(name)

    def _start(self, name: str, message: Message, peer: str) -> None:
        config, client = EnvironmentConfig.from_data(message["config"]), str(message["client"])
        if config.kind != "subprocess" or (faults := list(config.faults())):
            raise InvalidInput(f"the server starts no such environment: {config.kind}; {'; '.join(faults)}")
        with self._lock:
            if len(self._served) + self._starting + self._waiting.count_before(client) >= self._options.most:
                self._waiting.add(client)
                raise EnvironmentAway(f"it has {self._options.most} environments, as many as it may; try again later")
            self._waiting.remove(client)
            self._starting += 1
        try:
            environment = SubprocessEnvironment(config, self._home.path)
            with self._lock:
                self._served[name] = _Served(environment, self._home.path / name, client, peer)
        finally:
            with self._lock:
                self._starting -= 1

    def _destroy(self, name: str) -> None:
        with self._lock:
            served = self._served.pop(name, None)
        if served is not None:
            served.environment.close()
            shutil.rmtree(served.folder, ignore_errors=True)

    def _execute(self, messages: Iterable[Message], context: Any) -> Iterator[Message]:
        """Pass messages between a client and its process, until one of them is gone; then end the process."""
        served = self._found(dict(context.invocation_metadata()).get("environment", ""), context)
        link, process = served.open()
        threading.Thread(target=link.pass_on, args=(messages,), name="wtb-client", daemon=True).start()
        try:
            yield from link.answers()
        finally:
            served.end(link, process)

    def _for_known(self, call: Callable[[str, _Served], Message]) -> Callable[[Message, Any], Message]:
        """Return a call that finds the environment first."""

        def called(message: Message, context: Any) -> Message:
            name = message["environment"]
            return call(name, self._found(name, context))

        return called

    def _clean(self, name: str, served: _Served) -> Message:
        served.environment.clean()
        with self._lock:
            is_over = time.monotonic() - served.began_s >= _TURN_S
            is_wanted = is_over and self._waiting.has_others(served.client)
            if is_wanted:
                self._waiting.remove(served.client)  # if it waits with another node, it comes after the others now
        return {"is_wanted": is_wanted}

    def _kill(self, name: str, served: _Served) -> Message:
        return {"killed": served.environment.kill()}

    def _ended(self, name: str, served: _Served) -> Message:
        self._destroy(name)
        return {}

    def _status(self, message: Message, context: Any) -> Message:
        with self._lock:
            found = [
                {
                    "id": name,
                    "kind": "subprocess",
                    "client": each.peer,
                    "is_busy": each.is_busy(),
                }
                for name, each in self._served.items()
            ]
        return {"environments": found, "most": self._options.most}

    def _health(self, message: Message, context: Any) -> Message:
        return {"status": "serving", "wtb": version("workflow-test-bench")}

    def _found(self, name: str, context: Any) -> _Served:
        import grpc

        with self._lock:
            served = self._served.get(name)
        if served is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"it has no environment {name}; it may have been restarted")
        assert served is not None
        return served
