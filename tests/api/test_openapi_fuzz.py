"""Schemathesis sends requests made from the OpenAPI file to every route: no server error, no undocumented answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis.engine import events, from_schema
from schemathesis.engine.run import PhaseName

from tests.api.running_server import running
from wtb.api.parts import ServerParts
from wtb.bench import Bench
from wtb.bootstrap import bootstrap
from wtb.domain.access import Role
from wtb.domain.commands import Command
from wtb.domain.secrets import Masker
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.webhook_sender import PinnedSender
from wtb.loading import load_workflow
from wtb.server_commands.context import CommandContext
from wtb.server_commands.workflows import answer
from wtb.server_worker import _carry_out
from wtb.settings import ServerSettings, Settings, settings_from

EXAMPLES = 2
"""Random requests for each route, beside those that schemathesis derives from examples and limits of the schema."""
STORIES = 20
"""Random series of requests, each of which uses what an answer before it named."""

CHECKS: dict[str, Any] = {
    # A cursor, an ETag, a name that is taken: what a server refuses for good reasons, a schema cannot describe.
    "positive_data_acceptance": {"enabled": False},
    # Pydantic takes `true` for 1 and "5" for 5, which harms nobody.
    "negative_data_rejection": {"enabled": False},
}

OPERATIONS = [
    # A batch may be called "plan": then GET and DELETE work there as well.
    {"include-path": "/api/v1/batches/plan", "checks": {"allow_header_conformance": {"enabled": False}}},
]


class ThreadWorker:
    """Carries out a command in the thread that waits for it: thousands of requests have no time for processes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.name = ProcessOwners().me()

    def carry_out(self, command: Command, reference: str | None, heard: Any = None) -> str | None:
        own = settings_from({**self._settings, "user": command.created_by})
        with Bench._over(bootstrap(own, is_worker=True)) as bench:
            _carry_out(CommandContext(bench=bench, reference=reference), command)
        return None

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer(question, Masker())

    def stop(self) -> None: ...

    def kill(self) -> None: ...


FLOW = """
import wtb

flow = wtb.Workflow("support")  # the name that the examples of the description have


@flow.node(start=True)
def plan(state):
    return {"plan": "so", "big": 1 << 70}


@flow.node
def answer(state, ctx):
    (ctx.workspace / "note.txt").write_text("note")
    return {"answer": ctx.ask("good?")}


flow.edge("plan", "answer")
"""


@pytest.fixture
def address(
    server_settings: Settings, monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The address of a server that has runs and serves a workflow, a token of an admin, and the OpenAPI file."""
    file = empty_folder / f"fuzzed_{empty_folder.parent.name.replace('-', '_')}.py"
    file.write_text(FLOW)
    flow = load_workflow(str(file))
    # Schemathesis tries wrong tokens as well; that the server slows such callers down is tested elsewhere.
    monkeypatch.setattr("wtb.api.access.FAILED_SIGN_INS_PER_MINUTE", 1_000_000)
    monkeypatch.setattr("wtb.server_bootstrap.CommandProcess", ThreadWorker)
    # No webhook of a test reaches another machine: every name leads here, which is refused.
    defaults = PinnedSender.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "resolve", lambda host, port: ["127.0.0.1"])
    server = ServerSettings(requests_per_minute=1_000_000)
    settings = server_settings.model_copy(update={"server": server})
    with bootstrap(settings) as services:
        bench = Bench._over(services)
        for number in range(3):
            bench.run(flow, {"topic": "x"}, run_id=f"run{number}")
        _, token = services.tokens.create("the admin", Role.ADMIN, by="tester")
        parts = ServerParts(services=services, workflows=(str(file),))
        with running(parts, token) as served, served.http() as http:
            yield served.url, token, http.get("/openapi.json").json()


def test_no_request_gets_a_server_error_or_an_undocumented_answer(
    address: tuple[str, str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url, token, description = address
    config = schemathesis.Config.from_dict(
        {
            "base-url": url,
            "seed": 1,
            "headers": {"Authorization": f"Bearer {token}"},
            "generation": {"max-examples": EXAMPLES, "database": "none"},
            "continue-on-failure": True,
            "phases": {"stateful": {"enabled": True, "generation": {"max-examples": STORIES}}},
            "checks": CHECKS,
            "operations": OPERATIONS,
        }
    )
    seen, succeeded, faults, stories = set(), set(), [], 0
    for event in from_schema(schemathesis.openapi.from_dict(description, config=config)).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            faults.append(f"{event}")
        if isinstance(event, events.ScenarioFinished):
            seen.add(event.recorder.label)
            answered = [each.response for each in event.recorder.interactions.values() if each.response is not None]
            succeeded |= {event.recorder.label for response in answered if response.status_code < 300}
            stories += event.phase is PhaseName.STATEFUL_TESTING
            faults += _faults(event)
    assert faults == []
    assert stories > 0
    assert {"POST /api/v1/executions", "POST /api/v1/batches"} <= succeeded  # by the examples of their bodies
    assert {f"{method.upper()} {path}" for path, item in description["paths"].items() for method in item} <= seen


def _faults(event: events.ScenarioFinished) -> list[str]:
    """Return what is wrong with the answers of one route; every refusal is a problem."""
    recorder, found = event.recorder, []
    for case, interaction in recorder.interactions.items():
        response = interaction.response
        if response is not None and response.status_code >= 400 and response.request.method != "HEAD":
            kind = response.headers.get("content-type", ["none"])[0]
            if kind != "application/problem+json":
                found.append(f"{recorder.label}: {response.status_code} with {kind} ({case})")
    for checks in recorder.checks.values():
        for check in checks:
            if check.failure_info is not None:
                failure = check.failure_info
                found.append(f"{recorder.label}: {check.name}: {failure.failure.message}\n{failure.code_sample}")
    return found
