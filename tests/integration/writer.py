"""One of many writers: `main(URL, NAME, THREADS, STEPS)` is what each process of the tests beside it runs.

Each thread writes a run of its own and, in turn with everybody else, the run called `shared`.
"""

from concurrent.futures import ThreadPoolExecutor

from tests.run_writer import RunWriter
from wtb.application.runs.steps import Position
from wtb.bootstrap import Services, bootstrap
from wtb.domain.errors import Conflict
from wtb.domain.ids import ExecutionId
from wtb.domain.state import Append, SetValue, StateDelta
from wtb.settings import Settings

SHARED = ExecutionId("shared")
WORKFLOW = {"name": "flow", "version": "1"}


def write_alone(services: Services, name: str, steps: int) -> None:
    """Write a run that nobody else touches: nothing may get in its way."""
    recorder = RunWriter(services.storage, services.clock, services.ids)
    at = recorder.start(WORKFLOW, {"items": []}, execution_id=name)
    for step in range(steps):
        delta = StateDelta.of(items=Append((f"{name} {step}",)), blob=SetValue(f"{step} " * 200))
        at = recorder.complete(at, recorder.node_run(at, "a", step + 1), delta)


def add_to_shared(services: Services, name: str) -> None:
    """Add one to the counter of the shared run, however often others are first."""
    recorder = RunWriter(services.storage, services.clock, services.ids)
    while True:
        at, number = _read_shared(services)
        delta = StateDelta.of(number=SetValue(number + 1), names=Append((name,)))
        try:
            recorder.complete(at, recorder.node_run(at, "add", at.head.step + 1), delta)
        except Conflict:
            continue
        return


def _read_shared(services: Services) -> tuple[Position, int]:
    with services.storage.unit_of_work(readonly=True) as uow:
        execution = uow.executions.get(SHARED)
        branch = uow.branches.get(execution.branch_id)
        assert branch.head_id is not None
        snapshot = uow.checkpoints.load(branch.head_id)
    return Position(execution=execution, branch=branch, head=snapshot.checkpoint), snapshot.state["number"]


def write(services: Services, name: str, steps: int) -> None:
    """Do both."""
    write_alone(services, name, steps)
    for _ in range(steps):
        add_to_shared(services, name)


def main(url: str, name: str, threads: str, steps: str) -> None:
    """Write from several threads of this process."""
    with bootstrap(Settings(url=url)) as services, ThreadPoolExecutor(int(threads)) as pool:
        jobs = [pool.submit(write, services, f"{name}-{number}", int(steps)) for number in range(int(threads))]
        for job in jobs:
            job.result()
