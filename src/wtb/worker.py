"""A worker process: `python -m wtb.worker FD`. A runner starts it and talks to it over the socket FD.

When the runner's process is gone, the worker ends at once, like a crash, with every process that it started.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from wtb.application.batches.plan import BatchPlan, CarriedCode
from wtb.application.batches.worker import BatchWorker, with_inputs
from wtb.application.batches.worker_messages import error_data, report_data
from wtb.application.runs.mocks import tool_answers
from wtb.batches import load_batch
from wtb.bootstrap import Services, bootstrap
from wtb.domain.batch import Batch
from wtb.domain.cases import Case
from wtb.domain.errors import DatabaseAway, WTBError
from wtb.domain.job_attempt import RayIds
from wtb.domain.limits import Limit, read_limits
from wtb.domain.ports import NO_TELEMETRY
from wtb.domain.runner import Assignment, JobBroke, JobReport, ResultSettled
from wtb.domain.tool_answers import External
from wtb.domain.variants import parse_label
from wtb.domain.work_order import BatchCode, WorkOrder
from wtb.flow import Workflow
from wtb.infrastructure.codecs.types import REGISTERED
from wtb.infrastructure.evaluators.named import read_evaluators
from wtb.infrastructure.evaluators.outputs import read_output
from wtb.infrastructure.object_references import described
from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.process_family import kill_started
from wtb.infrastructure.runners.worker_process import channel_to_parent, end_at_once, print_at_once
from wtb.infrastructure.worker_telemetry import WorkerTelemetry
from wtb.loading import load_workflow, look_in
from wtb.settings import settings_from

_KEEP_CLAIMS_S = 5.0
_log = logging.getLogger("wtb.worker")


def join(
    services: Services,
    given: Assignment,
    *,
    folder: Path | None = None,
    carried: CarriedCode | None = None,
    ray: Callable[[], RayIds | None] = lambda: None,
) -> BatchWorker:
    """Join the batch of an assignment as a worker: load its code, and check that it is the planned code.

    `folder` is where the project folder lies here, if it was copied. `carried` is the code itself, if it cannot be
    imported. `ray` returns Ray's ids for the job that runs.
    """

    def plan_of(batch: Batch, order: WorkOrder, cases: Sequence[Case]) -> BatchPlan:
        here = order if folder is None else replace(order, code=order.code.moved_to(folder))
        return load_plan(services, batch, here, cases, carried)

    return services.batches.join(given, plan_of, ray)


def load_plan(
    services: Services,
    batch: Batch,
    order: WorkOrder,
    cases: Sequence[Case],
    carried: CarriedCode | None = None,
) -> BatchPlan:
    """Load the code of a batch, and return the same plan as in the process that planned it."""
    code = _load_code(order.code) if carried is None else _take_code(carried)
    _import_others(order.imports)
    definition = code.flow.definition()
    definition = replace(definition, tools={**definition.tools, **tool_answers(code.tools)})
    stored: Mapping[str, Mapping[str, Any]] = services.codec.decode(order.inputs)
    restored = definition.restored or dict
    evaluators, record = read_evaluators(code.evaluators), batch.record
    return BatchPlan(
        name=batch.name,
        definition=definition,
        source=record.source,
        combinations=[parse_label(each) for each in order.workflows],
        cases=with_inputs(cases, {case: restored(given) for case, given in stored.items()}),
        repeats=record.repeats,
        baseline=parse_label(record.baseline),
        selection=[parse_label(each) for each in record.combinations],
        evaluators=evaluators,
        output=read_output(code.output, evaluators),
        share=order.share,
        fresh=order.fresh,
        seed=order.seed,
        retries=order.retries,
        external=External(order.external),
        limits=_with_functions(record.limits, code.limits),
        carried=carried,
        known_digests=None if carried is None else (order.evaluator_digests, order.output_digest),
    )


def _import_others(modules: Iterable[str]) -> None:
    """Import the modules that register classes of states and that the code of the batch does not import itself."""
    for module in modules:
        if module not in sys.modules:
            with suppress(ImportError):  # the comparison of the code names what is missing
                importlib.import_module(module)


class _LoadedCode(NamedTuple):
    """The code of a batch."""

    flow: Workflow
    evaluators: Sequence[Any]
    output: Any
    tools: Mapping[str, Any]
    limits: Mapping[str, Any]


def _take_code(carried: CarriedCode) -> _LoadedCode:
    """Return the code that came with the assignment."""
    for name, cls, to, from_ in carried.state_types:
        REGISTERED.register(cls, name, to=to, from_=from_)
    return _LoadedCode(carried.flow, carried.evaluators, carried.output, carried.tools, carried.limits)


def _load_code(code: BatchCode) -> _LoadedCode:
    look_in(Path(code.folder))
    if code.is_batch:
        test = load_batch(code.reference)
        return _LoadedCode(test.flow, test.evaluators, test.output, test.tools, test.limits)
    return _LoadedCode(
        flow=load_workflow(code.reference),
        evaluators=[described(each) for each in code.evaluators],
        output=described(code.output),
        tools={name: described(each) for name, each in code.tools.items()},
        limits={name: described(each) for name, each in code.limits.items()},
    )


def _with_functions(planned: Mapping[str, Limit], loaded: Mapping[str, Any]) -> dict[str, Limit]:
    """Return the limits that were planned, with the functions of the code, which are not stored."""
    functions = {name: limit.overloaded for name, limit in read_limits(loaded).items()}
    return {name: replace(limit, overloaded=functions.get(name)) for name, limit in planned.items()}


class _Inbox:
    """Reads the driver's messages in a thread, so that the worker notices the driver's end while a job runs."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="wtb-driver", daemon=True).start()

    def next(self) -> Mapping[str, Any]:
        return self._messages.get()

    def _read(self) -> None:
        while (message := self._channel.receive()) is not None:
            self._messages.put(message)
        end_at_once()


def serve(channel: Channel) -> None:
    """Work on the assignment that comes over a channel until there is nothing left to do."""
    inbox = _Inbox(channel)
    begin = inbox.next()
    sys.path[:] = begin["path"]
    given = Assignment.from_data(begin["assignment"])
    measurements = WorkerTelemetry()
    try:
        telemetry = measurements if given.is_measured else NO_TELEMETRY
        services = bootstrap(settings_from(given.settings), telemetry=telemetry, is_worker=True)
    except WTBError as error:
        channel.send({"refused": error_data(error)})
        return
    with services:
        try:
            worker = join(services, given)
        except Exception as error:  # noqa: BLE001  the user's module may raise anything; the driver reports it
            _log.debug("this worker cannot work on the batch", exc_info=True)
            channel.send({"refused": error_data(error)})
            return
        ended = threading.Event()
        threading.Thread(target=keep_claims, args=(worker, ended), name="wtb-claims", daemon=True).start()
        stop_listening = worker.listen(lambda key: _tell(channel, key))
        channel.send({"ready": worker.name})
        _work(worker, inbox, channel, measurements)
        stop_listening()
        ended.set()


def _work(worker: BatchWorker, inbox: _Inbox, channel: Channel, measurements: WorkerTelemetry) -> None:
    while "run" in (message := inbox.next()):
        report = reported(worker, message["run"])
        if (measured := measurements.taken()) is not None:
            channel.send(report_data(measured))
        channel.send(report_data(report))
    channel.send(report_data(worker.end()))


def reported(worker: BatchWorker, number: int) -> JobReport:
    """Let a worker run a job; an error that is not the job's own becomes its report."""
    try:
        return worker.run(number)
    except DatabaseAway as error:  # the driver says this once; a traceback of each worker would hide it
        return JobBroke(number, error)
    except Exception as error:  # noqa: BLE001  the driver raises it
        _log.exception("job %d could not be run", number)
        return JobBroke(number, error)


def _tell(channel: Channel, key: bytes) -> None:
    channel.send(report_data(ResultSettled(key)))


def keep_claims(worker: BatchWorker, ended: threading.Event) -> None:
    """Extend what a worker has claimed every few seconds, until it has ended."""
    while not ended.wait(_KEEP_CLAIMS_S):
        try:
            worker.keep_claims()
        except DatabaseAway:
            continue  # the job says so
        except WTBError:
            _log.warning("what this worker has claimed could not be extended; it tries again", exc_info=True)


def _end_started(worker: int) -> None:
    if os.getpid() == worker:  # a forked child must not end its siblings
        kill_started(worker)


def main() -> None:
    """Serve the runner that started this process. What jobs have started and left running ends with it."""
    atexit.register(_end_started, os.getpid())  # first registered, last called: pools of the user close before it
    print_at_once()
    serve(channel_to_parent())


if __name__ == "__main__":
    main()
