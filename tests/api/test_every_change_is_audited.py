"""Every route that changes something leaves an event with the name of its token: a new route cannot be forgotten."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.api.openapi_client import OpenApiClient
from tests.api.served_project import ServedProject, serving
from wtb.api.openapi import role_of
from wtb.domain.access import Role
from wtb.domain.commands import CommandStatus
from wtb.domain.events import RecordedEvent
from wtb.settings import ServerSettings, Settings

WHO = "the admin"

CHANGES_NOTHING = {
    "batches_plan",
    "executions_plan_rollback",
    "upkeep_check",
    "webhooks_test",
    "workflows_check",
}
"""What needs more than a viewer's role although it only looks, or only sends a request of its own."""

TOLD_ELSEWHERE = {
    "executions_continue_rollback": "test_who_did_it.py: it takes a reversal that fails",
    "executions_abandon_rollback": "test_event_story.py",
    "upkeep_prune": "test_upkeep_api.py: it takes old checkpoints",
    "webhooks_retry_delivery": "test_event_story.py: it takes a receiver that fails for a day",
}


@pytest.fixture
def project(empty_folder: Path, sqlite_template: Path) -> Iterator[ServedProject]:
    home = empty_folder / ".wtb"
    home.mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, home / "wtb.db")
    server = ServerSettings(requests_per_minute=1_000_000, webhooks_to_private_addresses=True)
    with serving(empty_folder, Settings(folder=home, user="tester", server=server)) as project:
        yield project


class Story:
    """Calls routes as one admin, and looks after each which events name that admin."""

    def __init__(self, project: ServedProject) -> None:
        self.project = project
        self.api = OpenApiClient(project.admin, project.admin.get("/openapi.json").json())  # type: ignore[arg-type]
        self._seen = len(self._log())
        self.told = set[str]()

    def _log(self) -> tuple[RecordedEvent, ...]:
        return self.project.services.queries.event_page(limit=10_000).events

    def does(
        self, operation: str, event: str, body: Any = None, *, then: Callable[[], object] = int, **parameters: Any
    ) -> Any:
        """Call a route, and wait for its event, which carries the name of the token."""
        answer = self.api.call(operation, body, **parameters)
        assert answer.is_success, answer.text
        then()
        wait_until(lambda: event in self._events(), f"{operation} left no {event}")
        self._seen = len(self._log())
        self.told.add(operation)
        return answer

    def _events(self) -> set[str]:
        return {each.type.value for each in self._log()[self._seen :] if each.data.get("by") == WHO}

    def waits_in_a_node(self, topic: str) -> Path:
        """Let the runs about a topic wait until the file that this returns is deleted."""
        gate = self.project.folder / f"gate-{topic}"
        gate.touch()
        return gate

    def world_has(self, text: str) -> bool:
        world = self.project.folder / "world.txt"
        return world.exists() and text in world.read_text()


def wait_until(check: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not check():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def change_runs(story: Story) -> str:
    start = {"workflow": "agent", "input": {"topic": "asked"}, "options": {"break_before": ["deliver"]}}
    created = story.does("executions_create", "execution.created", start, wait_s=60)
    at: dict[str, Any] = {"execution_id": created.json()["run"]["id"]}
    edit = {"update": {"set": [{"path": ["plan"], "value": "edited"}]}}
    tag = created.headers["etag"]
    story.does("executions_resume", "state.updated", edit, **at, wait_s=60, if_match=tag)
    story.does("executions_resume", "question.answered", {"answer": "yes"}, **at, wait_s=60)
    story.does("checkpoints_create", "checkpoint.created", {"name": "here"}, **at, wait_s=60)
    planned = story.api.call("executions_plan_rollback", {"target": 1}, **at, wait_s=60)
    tag = planned.headers["etag"]
    back = story.does("executions_rollback", "rollback.started", {"target": 1}, **at, wait_s=60, if_match=tag)
    story.does("executions_redo", "rollback.started", **at, wait_s=60, if_match=back.headers["etag"])
    fork = story.does("executions_fork", "branch.created", {"target": 1}, **at, wait_s=60).json()["run"]["id"]
    story.does("executions_stop", "execution.cancelled", execution_id=fork)
    story.does("checkpoints_delete", "checkpoint.deleted", **at, target="2")
    story.does("executions_delete", "execution.deleted", execution_id=fork)
    story.api.done("executions_resume", {}, **at, wait_s=60)
    return str(at["execution_id"])


def end_what_runs(story: Story) -> None:
    for operation, event in (("executions_pause", "execution.paused"), ("commands_cancel", "command.cancelled")):
        gate = story.waits_in_a_node(operation)
        accepted = story.api.done("executions_create", {"workflow": "agent", "input": {"topic": operation}})["command"]
        wait_until(lambda run=accepted["subject"]: story.world_has(run), "the run does not begin")  # type: ignore[misc]
        named = {"command_id": accepted["id"]} if event.startswith("command") else {"execution_id": accepted["subject"]}
        story.does(operation, event, then=gate.unlink, **named)


def change_batches(story: Story, run: str) -> None:
    body: dict[str, Any] = {
        "workflow": "agent",
        "name": "audited",
        "cases": [{"id": "fine", "input": {"topic": "t"}}, {"id": "fails", "input": {}}],
        "evaluators": ["steps"],
        "options": {"external": "run"},
    }
    at: dict[str, Any] = {"batch_id": "audited"}
    story.does("batches_create", "batch.started", body, wait_s=60)
    story.does("batches_resume", "batch.started", **at, wait_s=60)
    story.does("batches_retry", "batch.started", **at, wait_s=60)
    story.does("evaluations_create", "batch.scored", {"evaluators": ["tokens"], "batch": "audited"}, wait_s=60)
    story.does("evaluations_create", "evaluation.completed", {"evaluators": ["tokens"], "runs": [run]}, wait_s=60)
    story.does("baselines_set", "baseline.kept", {"name": "main", "batches": ["audited"]})
    story.does("baselines_delete", "baseline.deleted", name="main")
    gate = story.waits_in_a_node("batch")
    cases = [{"id": f"c{number}", "input": {"topic": "batch"}} for number in range(3)]
    story.api.done("batches_create", {**body, "cases": cases, "options": {"external": "run", "workers": 1}})
    began = len((story.project.folder / "world.txt").read_text().splitlines())
    world = story.project.folder / "world.txt"
    wait_until(lambda: len(world.read_text().splitlines()) > began, "the batch does not begin")
    story.does("batches_cancel", "batch.cancelled", then=gate.unlink, **at)
    wait_until(
        lambda: not story.project.services.commands.list_commands(statuses=[CommandStatus.RUNNING]), "it does not end"
    )
    story.does("batches_delete", "batch.deleted", **at)


def change_the_server(story: Story) -> None:
    story.does("tokens_create", "token.created", {"name": "other", "role": "viewer"})
    story.does("tokens_revoke", "token.revoked", name="other")
    hook = {"url": "http://127.0.0.1:9/", "types": ["baseline.kept"]}
    made = story.does("webhooks_create", "webhook.created", hook).json()["id"]
    story.does("webhooks_delete", "webhook.deleted", webhook_id=made)
    story.does("background_jobs_run", "background.completed", name="expired")


def test_every_route_that_changes_something_leaves_an_event_with_the_name_of_its_token(project: ServedProject) -> None:
    story = Story(project)
    run = change_runs(story)
    end_what_runs(story)
    change_batches(story, run)
    change_the_server(story)
    assert changing(project.admin.app) == story.told | CHANGES_NOTHING | TOLD_ELSEWHERE.keys()  # type: ignore[arg-type]


def changing(app: FastAPI) -> set[str]:
    """Return the operations that viewers may not call; those that they may call change nothing."""
    routes = [route for route in app.routes if isinstance(route, APIRoute) and "GET" not in (route.methods or ())]
    return {str(route.operation_id) for route in routes if role_of(route) in (Role.OPERATOR, Role.ADMIN)}
