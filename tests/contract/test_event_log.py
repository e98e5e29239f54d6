"""Every storage keeps the contract of EventLog."""

from wtb.testing.event_log import EventLogContract


class TestEventLog(EventLogContract): ...
