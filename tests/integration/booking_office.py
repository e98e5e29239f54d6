"""A booking office on loopback: what stands there, what was cancelled, and tools that book, cancel and ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

import wtb
from tests.integration.ticket_desk import Address
from wtb.domain.tools import ToolCall
from wtb.flow import Workflow

OFFICE = Address()


class BookingOffice(ThreadingHTTPServer):
    """Keeps every request in order, and the rooms that are booked now with the number of bookings."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.log: list[str] = []
        self.booked: dict[str, int] = {}
        self.lock = threading.Lock()
        self.refuses_to_cancel: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, verb: str, room: str) -> Any:
        with self.lock:
            self.log.append(f"{verb} {room}")
            if verb == "book":
                self.booked[room] = self.booked.get(room, 0) + 1
            elif verb == "hold":  # to hold it twice is to hold it once
                self.booked[room] = 1
            elif verb == "release":
                self.booked.pop(room, None)
            elif verb == "cancel" and room not in self.refuses_to_cancel:
                self.booked[room] -= 1
                if not self.booked[room]:
                    del self.booked[room]
            elif verb == "cancel":
                return None
            return self.booked.get(room, 0)


class _Requests(BaseHTTPRequestHandler):
    server: BookingOffice

    def do_GET(self) -> None:
        _, verb, room = self.path.split("/")
        found = self.server.answer(verb, room)
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def open_office() -> Iterator[BookingOffice]:
    """Serve until the block ends."""
    with BookingOffice() as office:
        thread = threading.Thread(target=office.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        OFFICE.url = office.url
        yield office
        office.shutdown()
        thread.join()


def ask(verb: str, room: str) -> int:
    """Send a request to the office."""
    with urlopen(f"{OFFICE.url}/{verb}/{room}") as reply:
        answer = json.load(reply)
    if answer is None:
        raise PermissionError(f"the office does not {verb} {room}")
    return int(answer)


def cancel(call: ToolCall) -> None:
    """Cancel a booking."""
    ask("cancel", call.arguments["room"])


def is_booked(call: ToolCall) -> str | None:
    """Say whether a booking stands."""
    return "booked" if ask("find", call.arguments["room"]) else None


@wtb.tool(name="office_book", reverse=cancel, confirm=is_booked)
def book(room: str) -> str:
    """Book a room."""
    ask("book", room)
    return "booked"


@wtb.tool(name="office_mail")
def mail(room: str) -> str:
    """Do something that nobody can take back."""
    ask("mail", room)
    return "sent"


def trip() -> Workflow:
    """Book two rooms, one after the other; each run has rooms of its own."""
    flow = Workflow("trip")

    def there(state: Any, ctx: Any) -> dict[str, Any]:
        return {"run": ctx.run.execution_id, "there": ctx.tool(book, f"{ctx.run.execution_id}.there")}

    def back(state: Any, ctx: Any) -> dict[str, Any]:
        return {"back": ctx.tool(book, f"{ctx.run.execution_id}.back")}

    flow.add_node("there", there, start=True)
    flow.add_node("back", back)
    flow.add_variant("back", "late", back)
    return flow.edge("there", "back")
