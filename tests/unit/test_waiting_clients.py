"""Who comes next on an environment server that is full."""

from __future__ import annotations

from wtb.infrastructure.environments.waiting_clients import WaitingClients


def test_whoever_has_waited_longest_comes_first() -> None:
    waiting = WaitingClients(clock=lambda: 0.0)
    for client in ("a", "b", "a"):
        waiting.add(client)
    assert [waiting.count_before(client) for client in ("a", "b", "c")] == [0, 1, 2]
    assert waiting.has_others("a")
    waiting.remove("b")
    assert not waiting.has_others("a")


def test_a_client_that_asks_no_more_loses_its_place() -> None:
    now = 0.0
    waiting = WaitingClients(clock=lambda: now)
    waiting.add("a")
    now = 8.0
    waiting.add("b")
    now = 12.0
    assert [waiting.count_before(client) for client in ("a", "b")] == [1, 0]
