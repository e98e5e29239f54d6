"""A real server on a free port of this machine, in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from wtb.api.parts import ServerParts
from wtb.api.serving import address_of, listen, make_server


@contextmanager
def running(parts: ServerParts, **settings: Any) -> Iterator[str]:
    """Serve the parts with other settings of the server, and return the address."""
    server = parts.server.model_copy(update={"port": 0, **settings})
    with closing(listen(server)) as listening:
        server = server.model_copy(update={"port": listening.getsockname()[1]})
        services = replace(parts.services, settings=parts.settings.model_copy(update={"server": server}))
        made = make_server(replace(parts, services=services))
        thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]}, name="server")
        thread.start()
        try:
            _wait_until_started(made, thread)
            yield address_of(server)
        finally:
            made.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def _wait_until_started(server: Any, thread: threading.Thread) -> None:
    until = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the server ended before it began"
        assert time.monotonic() < until
        time.sleep(0.01)
