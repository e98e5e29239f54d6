"""Every storage keeps the contract of EventFeed."""

from wtb.testing.event_feed import EventFeedContract


class TestEventFeed(EventFeedContract): ...
