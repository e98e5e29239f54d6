"""A ticket desk on loopback that counts what reaches it, tools that call it, and a workflow that uses them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

import wtb
from wtb.flow import Workflow

CASES = [{"id": name, "input": {"subject": name}, "expected": {"answer": "x"}} for name in ("ada", "bob", "eve")]
STEPS: list[Any] = ["steps"]


class TicketServer(ThreadingHTTPServer):
    """Counts requests by their path, and answers each with a new number."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.seen: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Desk(BaseHTTPRequestHandler):
    server: TicketServer

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.seen[self.path] += 1
            number = self.server.seen.total()
        body = json.dumps(number).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Address:
    """Where the tickets go; another port is no reason to run anything again."""

    url = ""

    def __wtb_fingerprint__(self) -> str:
        return "the address"


DESK = Address()


@wtb.tool(name="desk_open_ticket")
def open_ticket(subject: str) -> int:
    """Open a ticket at the desk."""
    with urlopen(f"{DESK.url}/open/{subject}") as reply:
        return int(json.load(reply))


@wtb.tool(name="desk_close_ticket", reverse=lambda call: None)
async def close_ticket(subject: str) -> int:
    with urlopen(f"{DESK.url}/close/{subject}") as reply:  # noqa: ASYNC210  loopback
        return int(json.load(reply))


def desk(url: str, variants: int = 3) -> Workflow:
    """A node that opens a ticket, and one with variants that opens two more."""
    DESK.url = url
    flow = Workflow("desk")
    flow.add_node("first", lambda state, ctx: {"ticket": ctx.tool(open_ticket, state["subject"])}, start=True)

    def more(state: Any, ctx: Any) -> dict[str, Any]:
        return {"more": [ctx.tool("desk_open_ticket", subject="more"), ctx.tool("desk_open_ticket", subject="more")]}

    flow.add_node("more", more)
    for number in range(variants):
        flow.add_variant("more", f"v{number}", config={"number": number})
    return flow.edge("first", "more")
