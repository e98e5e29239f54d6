"""Servers and their workers are killed; commands and runs go on: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.api.served_project import FLOW, serving
from tests.crash.server_process import ServerProcess, wait_until, worker_of
from wtb.bootstrap import Services, bootstrap
from wtb.domain.access import Role
from wtb.domain.commands import Command, CommandStatus
from wtb.domain.execution import ExecutionStatus
from wtb.infrastructure.runners.command_process import CommandProcess
from wtb.settings import Settings


class Project:
    """A folder with a workflow and a store, and the servers over it."""

    def __init__(self, folder: Path, settings: Settings, services: Services) -> None:
        self.folder, self.settings, self.services = folder, settings, services
        _, self._token = services.tokens.create("ci", Role.OPERATOR, by="tester")
        (folder / "agent.py").write_text(FLOW)

    def serve(self, **variables: str) -> ServerProcess:
        return ServerProcess(self.folder, self.settings, self._token, variables=variables)

    def world(self, run_id: str) -> list[str]:
        file = self.folder / "world.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line[0] for line in lines if run_id in line]

    def gate(self, topic: str) -> Path:
        gate = self.folder / f"gate-{topic}"
        gate.touch()
        return gate

    def start(self, server: ServerProcess, topic: str, wait_s: float = 0) -> Command:
        body = {"workflow": "agent", "input": {"topic": topic}}
        status, answer, _ = server.call("POST", f"/executions?wait_s={wait_s}", body)
        assert status in (201, 202), answer
        return self.services.commands.get(answer["command"]["id"])

    def ended(self, command: Command) -> Command:
        return self.services.commands.wait_for(command.id, 60)

    def status(self, command: Command) -> ExecutionStatus:
        return self.services.queries.execution(command.subject or "").status


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, empty_folder: Path) -> Iterator[Project]:
    """A project over each database in turn."""
    home = empty_folder / ".wtb"
    home.mkdir(mode=0o700)
    if request.param == "postgres":
        name = request.getfixturevalue("migrated_database")
        settings = Settings(url=request.getfixturevalue("postgres").url(name), folder=home)
    else:
        shutil.copyfile(request.getfixturevalue("sqlite_template"), home / "wtb.db")
        settings = Settings(folder=home)
    with bootstrap(settings) as services:
        yield Project(empty_folder, settings, services)


def test_a_killed_server_takes_its_workers_with_it_and_the_next_one_goes_on(project: Project) -> None:
    gate = project.gate("held")
    with project.serve() as first:
        run = project.start(first, "held")
        wait_until(lambda: project.world(run.subject or "") == ["+"], "the tool was not called")
        done = project.start(first, "done", wait_s=60)
        owner = project.services.commands.get(run.id).owner
        first.kill()
        wait_until(lambda: project.services.owners.is_gone(owner or "") is True, "the worker lives on")
    fork = {"run": done.subject}
    with project.serve() as second:
        gate.unlink()
        ended = project.ended(run)
        assert (ended.status, ended.attempts, ended.losses) == (CommandStatus.COMPLETED, 2, 0)
        assert project.status(run) is ExecutionStatus.COMPLETED
        assert project.world(run.subject or "") == ["+"]
        _, answer, _ = second.call("POST", f"/executions/{fork['run']}/fork?wait_s=0", {"target": 1})
        second.kill()  # right after it accepted
    with project.serve():
        forked = project.ended(project.services.commands.get(answer["command"]["id"]))
        assert forked.status is CommandStatus.COMPLETED
        runs = project.services.queries.list_runs(limit=99)
        assert sorted(str(row.execution.id) for row in runs) == sorted(
            str(each.subject) for each in (run, done, forked)
        )


def test_a_killed_worker_is_followed_by_another_that_goes_on_with_its_run(project: Project) -> None:
    gate = project.gate("held")
    with project.serve() as server:
        run = project.start(server, "held")
        wait_until(lambda: project.world(run.subject or "") == ["+"], "the tool was not called")
        os.kill(worker_of(project.services.commands.get(run.id).owner), signal.SIGKILL)
        gate.unlink()
        ended = project.ended(run)
        assert (ended.status, ended.attempts, ended.losses) == (CommandStatus.COMPLETED, 2, 1)
        assert project.status(run) is ExecutionStatus.COMPLETED
        assert project.world(run.subject or "") == ["+"]


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_rollback_that_is_killed_is_finished_and_undoes_nothing_twice(project: Project, victim: str) -> None:
    with ExitStack() as servers:
        server = servers.enter_context(project.serve(SLOW_REVERSE="2"))
        run = project.start(server, "back", wait_s=60)
        path = f"/executions/{run.subject}"
        _, _, headers = server.call("POST", f"{path}/rollback/plan", {"target": 1})
        named = {"If-Match": headers["etag"]}
        _, accepted, _ = server.call("POST", f"{path}/rollback?wait_s=0", {"target": 1}, **named)
        command = project.services.commands.get(accepted["command"]["id"])
        wait_until(lambda: project.status(run) is ExecutionStatus.ROLLING_BACK, "no rollback began")
        if victim == "worker":
            os.kill(worker_of(project.services.commands.get(command.id).owner), signal.SIGKILL)
        else:
            server.kill()
            server = servers.enter_context(project.serve())
        ended = project.ended(command)
        # It was killed before the reversal, or in it: then nobody knows whether it happened, and a person decides.
        if ended.status is CommandStatus.FAILED:
            assert project.status(run) is ExecutionStatus.ROLLING_BACK
            status, answer, _ = server.call("POST", f"{path}/rollback/continue", {"in_doubt": "again"})
            assert status == 200, answer
        assert project.status(run) is ExecutionStatus.PAUSED
        assert project.world(run.subject or "") == ["+", "-"]


def test_a_server_that_is_asked_to_end_lets_runs_finish_their_step_and_the_next_one_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, stop = project.gate("held"), CommandProcess.stop

    def stop_and_open(worker: CommandProcess) -> None:
        stop(worker)
        gate.unlink()  # only now, so that the step ends after the wish to stop has arrived

    monkeypatch.setattr(CommandProcess, "stop", stop_and_open)
    with serving(project.folder, project.settings) as first:
        body = {"workflow": "agent", "input": {"topic": "held"}}
        run = project.services.commands.get(
            first.operator.post("/api/v1/executions", json=body).json()["command"]["id"]
        )
        wait_until(lambda: project.world(run.subject or "") == ["+"], "the tool was not called")
    found = project.services.commands.get(run.id)
    assert (found.status, project.status(run)) == (CommandStatus.PENDING, ExecutionStatus.PAUSED)
    with serving(project.folder, project.settings):
        assert project.ended(run).status is CommandStatus.COMPLETED
    assert project.status(run) is ExecutionStatus.COMPLETED
    assert project.world(run.subject or "") == ["+"]


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_two_servers_on_one_database_share_the_work_and_one_goes_on_for_the_other(project: Project) -> None:
    gate = project.gate("shared")
    with project.serve() as one, project.serve() as two:
        held = [project.start(server, "shared") for server in (one, two, one)]
        for command in held:
            wait_until(lambda command=command: project.world(command.subject or "") == ["+"], "a run did not begin")  # type: ignore[misc]  # mypy infers no lambda with a default
        one.kill()
        more = project.start(two, "more")
        gate.unlink()
        for command in (*held, more):
            ended = project.ended(command)
            assert ended.status is CommandStatus.COMPLETED, ended.error
            assert project.world(command.subject or "") == ["+"]
