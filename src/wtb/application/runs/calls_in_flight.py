"""Tracks the external calls that threads of this process are making, even if their node was given up."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field

from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.tools import ToolCall


@dataclass(eq=False, slots=True)
class CallInFlight:
    """One call that a thread is making; `ended` is set when it is over."""

    call: ToolCall
    ended: Future[None] = field(default_factory=Future)
    unrecorded: ToolCall | None = None
    """The ended call, if the attempt that made it had lost the lease and could not record it."""


_IN_FLIGHT: defaultdict[tuple[ExecutionId, NodeRunId], list[CallInFlight]] = defaultdict(list)
"""The calls of all benches: another bench may resume a run while one of its calls continues."""
_LOCK = threading.Lock()


@contextmanager
def in_flight(call: ToolCall) -> Iterator[CallInFlight]:
    """List this call as being made during the block."""
    flight, key = CallInFlight(call), (call.execution_id, call.node_run_id)
    with _LOCK:
        _IN_FLIGHT[key].append(flight)
    try:
        yield flight
    finally:
        with _LOCK:
            _IN_FLIGHT[key].remove(flight)
            if not _IN_FLIGHT[key]:
                del _IN_FLIGHT[key]
        flight.ended.set_result(None)


def list_in_flight(execution_id: ExecutionId, node_run_id: NodeRunId) -> tuple[CallInFlight, ...]:
    """Return the calls of a node run that are being made, in the order in which they began."""
    with _LOCK:
        return tuple(_IN_FLIGHT.get((execution_id, node_run_id), ()))


def is_in_flight(call: ToolCall) -> bool:
    """Whether this very call is being made."""
    flights = list_in_flight(call.execution_id, call.node_run_id)
    return any(flight.call.identity == call.identity for flight in flights)


def wait_for(flights: Sequence[CallInFlight], timeout_s: float) -> tuple[CallInFlight, ...]:
    """Wait until these calls have ended, at most `timeout_s` seconds; return those that have not."""
    wait([flight.ended for flight in flights], timeout_s)
    return tuple(flight for flight in flights if not flight.ended.done())
