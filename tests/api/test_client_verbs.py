"""Every verb of the client against a real server: one run and one small batch, shared by the tests of this module."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.api.served_address import ServedAddress, served_address
from tests.webhook_receiver import WebhookReceiver
from wtb.api.models.batch_changes import BatchResultRow
from wtb.api.models.executions import ExecutionAnswer
from wtb.domain.errors import (
    BaselineNotFound,
    BatchNotFound,
    CaseNotFound,
    CheckpointNotFound,
    Conflict,
    InvalidInput,
    InvalidTransition,
    WebhookNotFound,
    WTBError,
)
from wtb.settings import ServerSettings, Settings

FLOW = """
import time
from pathlib import Path

import wtb

HERE = Path(__file__).parent
flow = wtb.Workflow("letters")


def unsend(call):
    if (HERE / "stuck").exists():
        raise RuntimeError("the letter box is stuck")


@wtb.tool(reverse=unsend, confirm=lambda call: "sent")
def send(text):
    return "sent"


@flow.node(start=True)
def write(state, ctx):
    while (HERE / "gate").exists():
        time.sleep(0.02)
    if (HERE / "broken").exists() and state["topic"] == "b":
        raise ValueError("broken")
    ctx.usage(model="m", input_tokens=3, output_tokens=2, cost_usd=0.5)
    (ctx.workspace / "letter one.txt").write_text(state["topic"])
    return {"text": state["topic"]}


@flow.variant("write", "loud")
def loud(state):
    return {"text": state["topic"].upper()}


@flow.node
def post(state, ctx):
    return {"sent": ctx.tool(send, text=state["text"])}


flow.edge("write", "post")
"""
CASES = [
    {"id": "c/a", "input": {"topic": "a"}, "expected": {"text": "a"}, "tags": ["short"]},
    {"id": "b", "input": {"topic": "b"}, "expected": {"text": "b"}},
]
EVALUATORS = [{"name": "exact_match", "key": "text"}]
LETTERS: dict[str, Any] = {"workflow": "letters", "cases": CASES, "evaluators": EVALUATORS}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[ServedAddress]:
    """A project whose server runs."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / ".wtb").mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, folder / ".wtb" / "wtb.db")
    server = ServerSettings.model_validate({"webhooks_to_private_addresses": True, "background": {"webhooks_s": 1}})
    settings = Settings(folder=folder / ".wtb", user="tester", server=server)
    with served_address(folder, settings, "letters.py", FLOW) as served, served.up():
        yield served


@pytest.fixture(scope="module")
def client(served: ServedAddress) -> Iterator[wtb.Client]:
    with wtb.Client(served.url, served.token) as client:
        yield client


@pytest.fixture(scope="module")
def run(client: wtb.Client) -> ExecutionAnswer:
    """A run that has ended."""
    return client.run("letters", {"topic": "hello"}, wait_s=60)


@pytest.fixture(scope="module")
def batch(client: wtb.Client) -> BatchResultRow:
    """A batch of two combinations and two cases that has ended."""
    return client.batch("nightly", **LETTERS, wait_s=60)


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def test_the_places_of_a_run(client: wtb.Client, run: ExecutionAnswer) -> None:
    steps = [row.step for row in client.history(run.id)]
    assert steps == sorted(steps, reverse=True)
    points = list(client.restore_points(run.id))
    assert {row.step for row in points} <= set(steps)
    counts = client.counts(run.id)
    assert (counts.checkpoints, counts.restore_points) == (len(steps), len(points) + 1)  # the head is one
    first = client.checkpoint_at(run.id, "write")
    assert (first.node, first.next_nodes, first.run) == ("write", ["post"], run.id)
    assert client.checkpoint_at(run.id, first.step).id == first.id
    with pytest.raises(CheckpointNotFound):
        client.checkpoint_at(run.id, "nowhere")
    assert client.get(run.id).status == "completed"
    with pytest.raises(InvalidInput, match="has not failed: it is completed"):
        client.explain(run.id)
    assert client.state(run.id, "write") == {"topic": "hello", "text": "hello"}
    assert [item.path for item in client.diff(run.id, "write").state] == ["state.sent"]
    (sent,) = client.diff_state(run.id, "write").children
    assert (sent.key, sent.change) == ("sent", "added")


def test_the_files_of_a_run(client: wtb.Client, run: ExecutionAnswer) -> None:
    (file,) = client.files(run.id)
    assert (file.path, file.size_bytes) == ("letter one.txt", 5)
    assert client.read_file(run.id, "letter one.txt") == b"hello"
    assert client.read_file(run.id, "letter one.txt", at="write") == b"hello"
    assert list(client.files(run.id, at=0)) == []
    with pytest.raises(wtb.NotFound):
        client.read_file(run.id, "letter one.txt", at=0)


def test_the_course_of_a_run(client: wtb.Client, run: ExecutionAnswer) -> None:
    (branch,) = client.branches(run.id)
    assert (branch.name, branch.is_active) == ("main", True)
    assert client.tree(run.id).run == run.id
    visits = client.timeline(run.id).items
    assert [(visit.node, visit.tool_calls) for visit in visits] == [("write", 0), ("post", 1)]
    assert [call.tool for call in client.calls(run.id)] == ["send"]
    used = {row.node: row.usage for row in client.usage(run.id)}
    assert used["write"].cost_usd == 0.5
    variants = client.variants(run.id)
    assert (variants.chosen, "loud" in variants.nodes["write"]) == ({}, True)
    assert [event.type for event in client.run_events(run.id, "execution.completed")] == ["execution.completed"]
    assert len(list(client.run_events(run.id))) > 4
    assert run.id in [row.id for row in client.list_runs(workflow="letters")]


def test_a_checkpoint_is_named_and_deleted(client: wtb.Client) -> None:
    run = client.run("letters", {"topic": "kept"}, break_before=["post"], wait_s=60)
    made = client.checkpoint(run.id, "before post")
    assert client.checkpoint_at(run.id, "before post").id == made.id
    client.resume(run.id, wait_s=60)
    client.delete_checkpoint(run.id, "before post")
    with pytest.raises(CheckpointNotFound):
        client.checkpoint_at(run.id, "before post")


def test_a_rollback_that_failed_is_continued_or_abandoned(client: wtb.Client, served: ServedAddress) -> None:
    run = client.run("letters", {"topic": "returned"}, wait_s=60)
    stuck = served.folder / "stuck"
    stuck.touch()
    with pytest.raises(WTBError):
        client.rollback(run.id, "write")
    assert client.get(run.id).status == "rolling_back"
    assert client.abandon_rollback(run.id).status == "paused"
    with pytest.raises(WTBError):
        client.rollback(run.id, "write")
    stuck.unlink()
    done = client.continue_rollback(run.id)
    assert (done.status, "sent" in client.state(run.id)) == ("paused", False)
    assert client.redo(run.id).status == "paused"
    assert client.state(run.id)["sent"] == "sent"
    fork = client.fork(run.id, "write")
    client.stop(fork.id)
    client.delete(fork.id)


def test_a_run_is_created_and_started_later(client: wtb.Client) -> None:
    run = client.create("letters", {"topic": "later"}, run_id="for-later")
    assert (run.id, run.status) == ("for-later", "pending")
    assert client.resume(run.id, wait_s=60).status == "completed"


def test_commands_are_listed_shown_and_awaited(client: wtb.Client) -> None:
    started = client.start("letters", {"topic": "later"}, break_before=["post"])
    ended = client.wait_for(started.id, wait_s=60)
    assert (ended.status, client.command(started.id)) == ("completed", ended)
    assert started.subject is not None
    assert [command.id for command in client.list_commands(subject=started.subject)] == [started.id]
    with pytest.raises(Conflict, match="has completed already"):
        client.cancel_command(started.id)
    with pytest.raises(InvalidTransition):
        client.pause(started.subject)


def test_a_batch_is_planned_and_started(client: wtb.Client, served: ServedAddress) -> None:
    plan = client.plan("broken", **LETTERS)
    assert (plan.jobs, plan.run, plan.kept) == (4, 4, 0)
    broken = served.folder / "broken"
    broken.touch()
    command = client.start_batch("broken", **LETTERS)
    assert command.subject == "broken"
    client.wait_for(command, wait_s=60)
    status = client.batch_status("broken")
    assert (status.completed, status.failed) == (3, 1)
    assert [job.case for job in client.results("broken", failed=True)] == ["b"]
    broken.unlink()
    again = client.retry_batch("broken", wait_s=60)
    assert (again.completed, again.failed) == (4, 0)
    assert client.resume_batch("broken", wait_s=60).left == 0
    client.delete_batch("broken")
    with pytest.raises(BatchNotFound):
        client.batch_status("broken")


def test_the_configured_batches_are_listed(client: wtb.Client) -> None:
    assert client.list_batch_tests() == []


def test_a_batch_is_cancelled(client: wtb.Client, served: ServedAddress) -> None:
    gate = served.folder / "gate"
    gate.touch()
    try:
        started = client.start_batch("slow", **LETTERS, workers=1, share=False)
        wait_until(lambda: [row.status for row in client.list_batches(name="slow")] == ["running"])
        assert client.cancel_batch("slow").status == "cancelled"
    finally:
        gate.unlink()
    client.wait_for(started, wait_s=60)
    with pytest.raises(InvalidInput):
        client.cancel_batch("slow")


def test_the_results_of_a_batch(client: wtb.Client, batch: BatchResultRow) -> None:
    assert (batch.completed, batch.failed) == (4, 0)
    assert batch.id in [row.id for row in client.list_batches(name="nightly")]
    rows = {row.combination: row.metrics["exact_match"].mean for row in client.matrix(batch.id).matrix}
    assert (len(rows), set(rows.values())) == (2, {0, 1})
    assert client.matrix(batch.id, tags="short").jobs.total == 2
    grid = client.grid(batch.id, metric="exact_match", tags="short", limit=1)
    assert (grid.cases, grid.combinations, grid.items[0].scores) == (1, list(rows), list(rows.values()))
    (loud,) = (name for name, mean in rows.items() if mean == 0)
    assert {job.case for job in client.results(batch.id, combination=loud)} == {"c/a", "b"}
    case = client.case(batch.id, "c/a")
    assert (case.tags, len(case.results)) == (["short"], 2)
    with pytest.raises(CaseNotFound):
        client.case(batch.id, "absent")
    (compared,) = client.compare(batch.id, metrics="exact_match")
    assert (compared.combination, compared.losses) == (loud, 2)
    (effect,) = client.effects(batch.id, metrics="exact_match")
    assert [each.variant for each in effect.variants] == ["loud"]
    assert effect.difference == pytest.approx(-1)
    front = client.pareto(batch.id, metrics="exact_match")
    assert (front.metrics, front.combinations) == (["exact_match"], list(rows))
    assert "<html" in client.report(batch.id)
    assert client.report(batch.id, format="md", tags="short").startswith("#")


def test_baselines_and_scores(client: wtb.Client, batch: BatchResultRow, run: ExecutionAnswer) -> None:
    made = client.set_baseline("main", batch.id)
    assert (made.cases, made.metrics) == (2, ["exact_match"])
    assert client.get_baseline("main") == made
    assert [each.name for each in client.list_baselines()] == ["main"]
    assert client.gate("nightly", baseline="main", metric="exact_match").outcome == "fine"
    client.delete_baseline("main")
    with pytest.raises(BaselineNotFound):
        client.get_baseline("main")
    scores = client.evaluate(EVALUATORS, runs=run.id, expected={"text": "hello"})
    assert scores == {run.id: {"exact_match": 1.0}}
    assert [(score.metric, score.score) for score in client.scores(run.id)] == [("exact_match", 1.0)]
    scored = client.evaluate("latency_s", batch="nightly")
    assert [set(each) for each in scored.values()] == [{"exact_match", "latency_s"}] * 4


def test_a_batch_that_makes_no_sense_is_not_sent(client: wtb.Client) -> None:
    with pytest.raises(InvalidInput, match="workflow"):
        client.batch("nightly", cases=CASES)
    with pytest.raises(InvalidInput, match="either"):
        client.plan("nightly", repeats=2)


def test_the_workflows_and_the_server(client: wtb.Client, run: ExecutionAnswer) -> None:
    assert [(flow.name, flow.served) for flow in client.list_workflows()] == [("letters", True)]
    assert client.workflow("letters").definition["name"] == "letters"
    assert [node.name for node in client.graph("letters").nodes] == ["write", "post"]
    assert client.check("letters").faults == []
    assert client.version().version == metadata.version("workflow-test-bench")
    assert client.ready().status == "ready"
    assert client.whoami().role == "admin"
    made = client.create_token("reader", "viewer", expires_in_days=1)
    assert {token.name for token in client.list_tokens()} >= {"the admin", "reader"}
    assert client.revoke_token("reader").name == made.name


def test_events_and_the_audit_trail(client: wtb.Client, run: ExecutionAnswer) -> None:
    page = client.read_events(types="execution.created", limit=1)
    assert [event.type for event in page.items] == ["execution.created"]
    event = next(iter(client.events(since="start", types="execution.completed", run=run.id)))
    assert event.stream == run.id
    assert client.feed_health().dropped == 0
    found = list(client.audit(by="the admin", types="execution.created"))
    assert run.id in {entry.stream for entry in found}
    assert client.audit_summary().people["the admin"] >= len(found)
    assert [(use.tool, use.failures) for use in client.tool_use()] == [("send", 0)]
    assert client.verify_log() == []
    assert client.verify_log(stream=run.id) == []


def test_upkeep(client: wtb.Client, run: ExecutionAnswer) -> None:
    counted = client.prune(run=run.id, seconds=5)
    assert (counted.dry_run, counted.is_complete) == (True, True)
    assert client.prune(dry_run=False, run=run.id, seconds=5).dry_run is False
    checked = client.check_store(seconds=5)
    assert (checked.faults, checked.runs > 0) == ([], True)
    assert client.doctor().faults == []
    asked = client.run_background_job("expired")
    assert asked.name == "expired"
    wait_until(lambda: {job.name: job.last_ended_at for job in client.list_background_jobs()}["expired"])


def test_webhooks(client: wtb.Client) -> None:
    with WebhookReceiver() as receiver:
        made = client.create_webhook(receiver.url, "token.created")
        assert client.webhook(made.id).types == ["token.created"]
        assert [each.id for each in client.list_webhooks()] == [made.id]
        assert client.test_webhook(made.id).is_accepted
        client.create_token("hooked", "viewer")
        wait_until(lambda: [each.status for each in client.deliveries(made.id)] == ["delivered"])
        (delivery,) = client.deliveries(made.id, status="delivered")
        assert client.retry_delivery(made.id, delivery.position).status == "pending"
        client.revoke_token("hooked")
        client.delete_webhook(made.id)
    with pytest.raises(WebhookNotFound):
        client.webhook(made.id)


def test_the_async_client_has_the_same_verbs(served: ServedAddress, run: ExecutionAnswer) -> None:
    async def ask() -> None:
        async with asyncio.timeout(60), wtb.AsyncClient(served.url, served.token) as client:
            assert await client.read_file(run.id, "letter one.txt") == b"hello"
            assert [file.path async for file in client.files(run.id)] == ["letter one.txt"]
            assert (await client.plan("never run", **LETTERS)).jobs == 4
            assert (await client.run("letters", {"topic": "async"}, wait_s=60)).status == "completed"

    asyncio.run(ask())
