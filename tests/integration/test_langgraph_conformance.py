"""LangGraph's own conformance suite, base and extended, over each storage; and the same through the sync methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, Capability, DetectedCapabilities
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.conformance.validate import validate

from wtb.langgraph import Saver


class InSync(Saver):
    """The same saver, whose async methods call the sync ones where they are: the suite then tests those."""

    async def _aside(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """How to open a saver on each storage in turn."""
    match request.param:
        case "memory":
            yield {"where": "memory://"}
        case "sqlite":
            yield {"where": None, "folder": tmp_path / "wtb"}
        case _:
            url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
            yield {"where": url, "folder": tmp_path / "wtb"}


@pytest.mark.parametrize("kind", [Saver, InSync])
def test_passes_the_whole_conformance_suite(kind: type[Saver], address: dict[str, Any]) -> None:
    async def opened() -> AsyncIterator[Saver]:
        with kind(**address) as saver:
            yield saver

    report = asyncio.run(validate(RegisteredCheckpointer(name="wtb", factory=opened)))  # type: ignore[arg-type]

    assert set(report.results) == {capability.value for capability in Capability}
    for name, result in report.results.items():
        assert result.detected, name
        assert result.passed, (name, result.failures)
        assert result.tests_skipped == 0
    assert sum(result.tests_passed for result in report.results.values()) >= 81


def test_has_every_capability_that_the_suite_knows() -> None:
    with Saver("memory://") as saver:
        assert DetectedCapabilities.from_instance(saver).detected == ALL_CAPABILITIES
