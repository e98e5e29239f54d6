"""Client and AsyncClient: the verbs of a Bench, for a server."""

from __future__ import annotations

import os
from pathlib import Path
from ssl import SSLContext, create_default_context
from types import TracebackType
from typing import Self, TypeVar

import httpx

from wtb.client.access import AccessVerbs
from wtb.client.audit import AuditVerbs
from wtb.client.batches import BatchVerbs
from wtb.client.blocking import blocking, finished, iterating
from wtb.client.events import EventVerbs
from wtb.client.run_changes import RunChangeVerbs
from wtb.client.transports import AwaitingTransport, BlockingTransport, PatientSender, Transport
from wtb.client.upkeep import UpkeepVerbs
from wtb.client.workflows import WorkflowVerbs
from wtb.domain.errors import InvalidInput

Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)

RETRIES = 6
"""How often a request is sent again; the pauses between add up to about eleven seconds."""


class AsyncClient(WorkflowVerbs, RunChangeVerbs, BatchVerbs, EventVerbs, AuditVerbs, UpkeepVerbs, AccessVerbs):
    """Use a WTB server from an async program, with the verbs of a Bench.

    `url` is the address that `wtb serve` prints, and `token` what `wtb token create` printed; without it, the variable
    WTB_TOKEN. `certificate` is a file with the certificate that the server is trusted by, if no authority is known for
    it. A request that nobody answers is sent again up to `retries` times. What a worker carries out, such as a run, is
    still done once. `http` is an `httpx.AsyncClient` of your own, for all but `events`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        certificate: Path | str | None = None,
        retries: int = RETRIES,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        trusted = _trusted(certificate)
        http = http or httpx.AsyncClient(verify=trusted or True)
        self._open(AwaitingTransport(_signed(http, url, token), trusted), url, retries)

    def _open(self, transport: Transport, url: str, retries: int) -> None:
        super().__init__(PatientSender(transport, url, retries))
        self.url = url

    async def close(self) -> None:
        """Close all connections."""
        await self._sender.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Client:
    """Use a WTB server, with the verbs of a Bench. AsyncClient has the same ones for async programs.

    `url` is the address that `wtb serve` prints, and `token` what `wtb token create` printed; without it, the variable
    WTB_TOKEN. `certificate` is a file with the certificate that the server is trusted by, if no authority is known for
    it. A request that nobody answers is sent again up to `retries` times. What a worker carries out, such as a run, is
    still done once. `http` is an `httpx.Client` of your own, for all but `events`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        certificate: Path | str | None = None,
        retries: int = RETRIES,
        http: httpx.Client | None = None,
    ) -> None:
        trusted = _trusted(certificate)
        http = http or httpx.Client(verify=trusted or True)
        self._verbs = AsyncClient.__new__(AsyncClient)
        self._verbs._open(BlockingTransport(_signed(http, url, token), trusted), url, retries)
        self.url = url

    def close(self) -> None:
        """Close all connections."""
        finished(self._verbs.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Workflows and runs
    list_workflows = blocking(AsyncClient.list_workflows)
    workflow = blocking(AsyncClient.workflow)
    graph = blocking(AsyncClient.graph)
    check = blocking(AsyncClient.check)
    run = blocking(AsyncClient.run)
    create = blocking(AsyncClient.create)
    start = blocking(AsyncClient.start)
    resume = blocking(AsyncClient.resume)
    pause = blocking(AsyncClient.pause)
    stop = blocking(AsyncClient.stop)
    rollback = blocking(AsyncClient.rollback)
    redo = blocking(AsyncClient.redo)
    continue_rollback = blocking(AsyncClient.continue_rollback)
    abandon_rollback = blocking(AsyncClient.abandon_rollback)
    fork = blocking(AsyncClient.fork)
    checkpoint = blocking(AsyncClient.checkpoint)
    delete = blocking(AsyncClient.delete)
    delete_checkpoint = blocking(AsyncClient.delete_checkpoint)
    command = blocking(AsyncClient.command)
    wait_for = blocking(AsyncClient.wait_for)
    cancel_command = blocking(AsyncClient.cancel_command)
    list_commands = iterating(AsyncClient.list_commands)
    list_runs = iterating(AsyncClient.list_runs)
    get = blocking(AsyncClient.get)
    explain = blocking(AsyncClient.explain)
    state = blocking(AsyncClient.state)
    checkpoint_at = blocking(AsyncClient.checkpoint_at)
    history = iterating(AsyncClient.history)
    restore_points = iterating(AsyncClient.restore_points)
    counts = blocking(AsyncClient.counts)
    diff = blocking(AsyncClient.diff)
    diff_state = blocking(AsyncClient.diff_state)
    files = iterating(AsyncClient.files)
    read_file = blocking(AsyncClient.read_file)
    branches = blocking(AsyncClient.branches)
    tree = blocking(AsyncClient.tree)
    timeline = blocking(AsyncClient.timeline)
    calls = iterating(AsyncClient.calls)
    usage = blocking(AsyncClient.usage)
    scores = blocking(AsyncClient.scores)
    run_events = iterating(AsyncClient.run_events)
    variants = blocking(AsyncClient.variants)

    # Batches
    batch = blocking(AsyncClient.batch)
    start_batch = blocking(AsyncClient.start_batch)
    plan = blocking(AsyncClient.plan)
    resume_batch = blocking(AsyncClient.resume_batch)
    retry_batch = blocking(AsyncClient.retry_batch)
    list_batch_tests = blocking(AsyncClient.list_batch_tests)
    list_batches = iterating(AsyncClient.list_batches)
    batch_status = blocking(AsyncClient.batch_status)
    matrix = blocking(AsyncClient.matrix)
    grid = blocking(AsyncClient.grid)
    results = iterating(AsyncClient.results)
    case = blocking(AsyncClient.case)
    compare = blocking(AsyncClient.compare)
    effects = blocking(AsyncClient.effects)
    pareto = blocking(AsyncClient.pareto)
    report = blocking(AsyncClient.report)
    cancel_batch = blocking(AsyncClient.cancel_batch)
    delete_batch = blocking(AsyncClient.delete_batch)
    set_baseline = blocking(AsyncClient.set_baseline)
    get_baseline = blocking(AsyncClient.get_baseline)
    list_baselines = blocking(AsyncClient.list_baselines)
    delete_baseline = blocking(AsyncClient.delete_baseline)
    gate = blocking(AsyncClient.gate)
    evaluate = blocking(AsyncClient.evaluate)

    # Events
    events = iterating(AsyncClient.events)
    read_events = blocking(AsyncClient.read_events)
    feed_health = blocking(AsyncClient.feed_health)
    audit = iterating(AsyncClient.audit)
    audit_summary = blocking(AsyncClient.audit_summary)
    tool_use = blocking(AsyncClient.tool_use)
    verify_log = blocking(AsyncClient.verify_log)

    # Upkeep
    prune = blocking(AsyncClient.prune)
    doctor = blocking(AsyncClient.doctor)
    check_store = blocking(AsyncClient.check_store)
    list_background_jobs = blocking(AsyncClient.list_background_jobs)
    run_background_job = blocking(AsyncClient.run_background_job)
    list_webhooks = blocking(AsyncClient.list_webhooks)
    webhook = blocking(AsyncClient.webhook)
    create_webhook = blocking(AsyncClient.create_webhook)
    delete_webhook = blocking(AsyncClient.delete_webhook)
    test_webhook = blocking(AsyncClient.test_webhook)
    deliveries = iterating(AsyncClient.deliveries)
    retry_delivery = blocking(AsyncClient.retry_delivery)

    # The server
    version = blocking(AsyncClient.version)
    ready = blocking(AsyncClient.ready)
    whoami = blocking(AsyncClient.whoami)
    list_tokens = blocking(AsyncClient.list_tokens)
    create_token = blocking(AsyncClient.create_token)
    revoke_token = blocking(AsyncClient.revoke_token)


def _trusted(certificate: Path | str | None) -> SSLContext | None:
    """Return what trusts a server with this certificate; None to trust whom the machine trusts."""
    if certificate is None:
        return None
    try:
        return create_default_context(cafile=certificate)
    except OSError as error:  # an SSLError is one, too
        raise InvalidInput(f"{certificate} cannot be used as a certificate: {error.strerror or error}") from error


def _signed(http: Http, url: str, token: str | None) -> Http:
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"{url!r} is not the address of a server, such as http://127.0.0.1:8383")
    http.base_url = httpx.URL(url.rstrip("/"))
    token = token or os.environ.get("WTB_TOKEN")
    if token:
        http.headers["Authorization"] = f"Bearer {token}"
    return http
