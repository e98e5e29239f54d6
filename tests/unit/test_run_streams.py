"""What runs say while they run: followed live, again after an interruption, and never waited for."""

from __future__ import annotations

from typing import Any

import pytest

from wtb.application.server import run_streams
from wtb.application.server.run_streams import RunStreams


def say(streams: RunStreams, *texts: str, run: str = "r") -> None:
    for text in texts:
        streams.publish(run, {"event": "values", "data": text})


def texts(found: Any) -> list[str]:
    return [each.data for each in found]


def test_a_follower_hears_what_is_said_from_now_on_and_is_woken() -> None:
    streams, woken = RunStreams(), list[str]()
    say(streams, "before")
    follower = streams.follow("r", lambda: woken.append("!"))
    assert follower.take() == []
    say(streams, "a", "b")
    say(streams, "other", run="s")
    assert texts(follower.take()) == ["a", "b"]
    assert follower.take() == []
    assert woken == ["!", "!"]
    follower.close()
    say(streams, "c")
    assert woken == ["!", "!"]


def test_a_follower_goes_on_after_the_message_that_it_names() -> None:
    streams = RunStreams()
    say(streams, "a", "b", "c")
    everything = streams.follow("r", lambda: None, after="").take()
    assert everything is not None
    assert texts(everything) == ["a", "b", "c"]
    name = streams.name_of(everything[0])
    assert texts(streams.follow("r", lambda: None, after=name).take()) == ["b", "c"]
    for stranger in ("another-1", "x", f"{name}9999999999999999999", "-1"):
        assert texts(streams.follow("r", lambda: None, after=stranger).take()) == ["a", "b", "c"]


def test_a_follower_that_is_too_slow_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_streams, "MOST_BYTES", 10)
    streams = RunStreams()
    follower = streams.follow("r", lambda: None)
    say(streams, "aaaa")
    assert texts(follower.take()) == ["aaaa"]
    say(streams, "bbbb", "cccc", "dddd")
    assert follower.take() is None
    say(streams, "a message that is larger than the whole memory")
    assert texts(streams.follow("r", lambda: None, after="").take()) == [
        "a message that is larger than the whole memory"
    ]


def test_the_memory_of_an_old_run_that_nobody_follows_is_dropped() -> None:
    now = [0.0]
    streams = RunStreams(lambda: now[0])
    say(streams, "a")
    follower = streams.follow("followed", lambda: None)
    now[0] = 100.0
    say(streams, "x", run="new")
    assert set(streams._memories) == {"followed", "new"}
    follower.close()
    now[0] = 200.0
    say(streams, "x", run="newer")
    assert set(streams._memories) == {"newer"}


@pytest.mark.parametrize("message", [{}, {"event": 1, "data": "x"}, {"event": "values", "data": {}}])
def test_what_has_another_form_is_ignored(message: dict[str, Any]) -> None:
    streams = RunStreams()
    follower = streams.follow("r", lambda: None)
    streams.publish("r", message)
    assert follower.take() == []
