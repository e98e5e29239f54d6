"""The catalogue of events: typed facts that become JSON and back, and that read what earlier versions wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import pytest

from scripts.reference import events as page
from wtb.domain.event_body import EventBody, Severity, described
from wtb.domain.event_catalogue import CATALOGUE, EventType, NodeCompleted, NodeFailed, RollbackCompleted
from wtb.domain.events import Event, bodies

NOW = datetime(2026, 1, 2, tzinfo=UTC)

EARLIER = [
    ("execution.created", {"workflow": "chat", "checkpoint": "c0"}),
    ("execution.started", {"checkpoint": "c0"}),
    ("execution.resumed", {"checkpoint": "c1", "changed": ["node `answer` has changed"]}),
    ("execution.paused", {"reason": "break before answer"}),
    ("execution.completed", {}),
    ("execution.completed", {"notes": ["no edge applied"]}),
    ("execution.failed", {"error": "ValueError: no", "node": "answer"}),
    ("execution.failed", {"error": "StepLimitReached: 5", "node": None}),
    ("execution.cancelled", {}),
    ("execution.abandoned", {"reason": "host:1 is gone"}),
    ("execution.degraded", {"error": "disk full"}),
    ("execution.deleted", {"workflow": "chat"}),
    ("node.completed", {"node": "a", "visit": 1, "checkpoint": "c1", "ms": 0.5}),
    ("node.completed", {"node": "a", "visit": 1, "checkpoint": None, "ms": 0.5}),
    ("node.completed", {"node": "a", "visit": 2, "checkpoint": "c2", "ms": 3.0, "usage": {"cost_usd": 0.1}}),
    (
        "node.completed",
        {"node": "a", "visit": 1, "checkpoint": "c", "ms": 1.0, "shared": True, "tool_errors": 2, "trace": ["t", 1, 2]},
    ),
    ("node.failed", {"node": "a", "visit": 1, "error": "ValueError: no"}),
    ("node.retried", {"node": "a", "visit": 1, "attempt": 1, "error": "ValueError: no"}),
    ("node.skipped", {"node": "a", "visit": 1}),
    ("node.replaced", {"node": "a", "from": "baseline", "to": "long"}),
    ("node.inside", {"node": "outer/inner", "ms": 2.0}),
    ("node.inside", {"node": "a", "model": "gpt", "input_tokens": 3, "output_tokens": 0, "ms": 2.0}),
    ("checkpoint.created", {"checkpoint": "c1", "name": "good"}),
    ("checkpoint.created", {"node": "a", "visit": 1, "checkpoint": "c1", "name": None}),
    ("checkpoint.restored", {"checkpoint": "c0", "step": 0, "node": None}),
    ("checkpoint.deleted", {"count": 3, "reason": "checkpoints=on_error"}),
    ("checkpoint.deleted", {"checkpoint": "c1", "name": "good", "count": 1}),
    ("checkpoint.failed", {"error": "disk full"}),
    ("branch.created", {"branch": "main#2", "checkpoint": "c1"}),
    ("branch.created", {"branch": "main", "checkpoint": "c1", "run": "r2", "from": "r1"}),
    ("rollback.started", {"direction": "rollback", "from": "c2", "to": "c1"}),
    ("rollback.completed", {"direction": "redo", "status": "abandoned", "error": "gone"}),
    ("rollback.completed", {"direction": "rollback", "status": "completed", "error": None}),
    ("rollback.failed", {"direction": "rollback", "error": "no network"}),
    ("tool.started", {"node": "a", "visit": 1, "tool": "mail", "call": "mail:1"}),
    ("tool.started", {"tool": "mail", "call": "mail:1"}),
    ("tool.completed", {"node": "a", "visit": 1, "tool": "mail", "call": "mail:1"}),
    ("tool.failed", {"node": "a", "visit": 1, "tool": "mail", "call": "mail:1", "error": "OSError: no"}),
    ("tool.reversed", {"tool": "mail", "call": "mail:1"}),
    ("tool.awaited", {"node": "a", "visit": 1, "attempt": 2, "tool": "mail", "call": "mail:1"}),
    ("batch.started", {"name": "nightly", "jobs": 6}),
    ("batch.completed", {"executed": 3, "shared": 0, "failed": 0, "usd": 0.0}),
    ("batch.cancelled", {"executed": 3, "shared": 0, "failed": 0, "usd": 0.0}),
]
"""Data as version 1 of each event was written before there was a catalogue. Users read it: it stays as it is."""


def filled(cls: type[EventBody]) -> EventBody:
    """Return a body of which no field has its default."""
    examples = {"str": "text", "int": 7, "float": 1.5, "bool": True, "tuple": ("one", "two"), "Any": {"a": [1]}}
    examples |= {"Mapping": {"key": "value"}, "Sequence": ["t", 1]}
    values: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        kind = str(field.type).partition("[")[0].partition(" ")[0]
        values[field.name] = examples[kind]
    return cls(**values)


def test_every_type_has_its_facts_and_no_class_stands_for_two() -> None:
    assert list(CATALOGUE) == list(EventType)
    assert len(set(CATALOGUE.values())) == len(CATALOGUE)
    assert [body.TYPE for body in CATALOGUE.values()] == list(EventType)


@pytest.mark.parametrize("cls", CATALOGUE.values())
def test_a_body_becomes_json_and_back(cls: type[EventBody]) -> None:
    body = filled(cls)
    event = Event.of(body, stream="run", at=NOW)
    read = Event(type=event.type, stream="run", at=NOW, data=json.loads(json.dumps(event.data)))
    assert read.data == event.data
    assert read.body == body
    assert len(read.data) == len(fields(cls))  # type: ignore[arg-type]


@pytest.mark.parametrize(("type", "data"), EARLIER)
def test_what_earlier_versions_wrote_is_read_and_written_in_the_same_way(type: str, data: dict[str, Any]) -> None:
    body = Event(type=EventType(type), at=NOW, data=data).body
    assert body.to_data() == data


@pytest.mark.parametrize("cls", CATALOGUE.values())
def test_fields_that_a_log_lacks_take_neutral_values_and_unknown_ones_are_ignored(cls: type[EventBody]) -> None:
    assert cls.from_data({"of the future": 1}) == cls.from_data({})


def test_a_missing_field_takes_its_default() -> None:
    assert NodeFailed.from_data({"node": "a"}) == NodeFailed(node="a", visit=0, error="", attempt=1)


@pytest.mark.parametrize(
    "body",
    [
        NodeCompleted(node="a", visit=1, checkpoint=None, ms=0.0),
        NodeCompleted(node="a", visit=1, checkpoint="c", ms=0.0, usage={}, trace=[]),
        filled(NodeCompleted),
    ],
)
def test_the_body_of_a_step_is_written_by_hand_as_the_others_are_in_a_loop(body: NodeCompleted) -> None:
    assert body.to_data() == EventBody.to_data(body)
    assert list(body.to_data()) == list(EventBody.to_data(body))


def test_a_version_above_the_first_is_written() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Second(EventBody):
        node: str

    described(Second, EventType.NODE_SKIPPED, Severity.INFO, 2)
    assert Second(node="a").to_data() == {"node": "a", "version": 2}
    assert Second.from_data({"node": "a", "version": 3}) == Second(node="a")


def test_events_of_one_kind_are_read_with_their_types() -> None:
    failed = NodeFailed(node="b", visit=1, error="no")
    done = NodeCompleted(node="a", visit=1, checkpoint="c", ms=0.1)
    events = [Event.of(each, at=NOW) for each in (done, failed, done)]
    assert list(bodies(events, NodeFailed)) == [failed]


@pytest.mark.parametrize(
    ("type", "severity"),
    [
        ("rollback.started", "warning"),
        ("rollback.completed", "warning"),
        ("rollback.failed", "error"),
        ("node.retried", "warning"),
        ("node.completed", "info"),
        ("batch.failed", "error"),
    ],
)
def test_the_severity_follows_from_the_type(type: str, severity: str) -> None:
    assert Event(type=EventType(type), at=NOW).severity == severity


def test_everything_that_failed_is_an_error() -> None:
    failed = [type for type in EventType if type.endswith(".failed")]
    assert failed
    assert {CATALOGUE[type].SEVERITY for type in failed} == {Severity.ERROR}


def test_a_redo_is_as_notable_as_a_rollback() -> None:
    redo = RollbackCompleted(direction="redo", status="completed", error=None)
    assert Event.of(redo, at=NOW).severity is Severity.WARNING


@pytest.mark.parametrize("cls", CATALOGUE.values())
def test_every_event_and_every_field_says_what_it_means(cls: type[EventBody]) -> None:
    assert cls.__doc__
    assert [name for name, text in page.fields_of(cls).items() if not text] == []
