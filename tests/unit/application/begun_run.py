"""BegunRun: a run on memory storage that is recorded and leased, for tests of the parts that drive it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from wtb.application.runs.journal import CallJournal
from wtb.application.runs.node_files import NodeFiles
from wtb.application.runs.node_runner import Equipment, NodeRunner
from wtb.application.runs.progress import RunProgress
from wtb.application.runs.recovery import Recovery, Standing
from wtb.application.runs.run_driver import RunDriver
from wtb.application.tool_registry import TOOLS
from wtb.bootstrap import Services, bootstrap
from wtb.domain.anchor import AnchoredCall
from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.engine import Engine
from wtb.domain.execution import Execution
from wtb.domain.options import RunOptions
from wtb.domain.tools import ToolCall
from wtb.domain.workflow import WorkflowDefinition
from wtb.flow import Workflow
from wtb.settings import load_settings
from wtb.testing.fakes import FakeClock, SequentialIds


def open_services() -> Services:
    """Open services on memory storage with a clock and ids that repeat."""
    return bootstrap(load_settings(url="memory://"), clock=FakeClock(), ids=SequentialIds())


class BegunRun:
    """A run that this process holds; nothing of it has run yet."""

    def __init__(self, services: Services, flow: Workflow, state: Mapping[str, Any] | None = None) -> None:
        self.services = services
        self.definition: WorkflowDefinition = flow.definition()
        self.engine: Engine = services.engine_of(self.definition)
        begun = self.engine.begin(state or {})
        created = services.creator.create(self.definition.to_dict(), begun.state, next_nodes=begun.next_nodes)
        self.at = services.recorder.begin(created, services.owners.me())
        self._standing = Standing.at_the_beginning(begun)
        self._places = count(1)

    @property
    def execution(self) -> Execution:
        """The record of the run."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            return uow.executions.get(self.at.execution.id)

    def driver(self, **options: Any) -> RunDriver:
        """Return a driver of the run as it begins."""
        return self._driver(RunOptions(**options))

    def next_driver(self, **options: Any) -> RunDriver:
        """Return a driver that goes on from what is stored, as another process would after a crash."""
        services = self.services
        loaded = services.recorder.load(self.at.execution.id)
        self.at = services.recorder.begin(loaded, services.owners.me())
        self._standing = Recovery(services.storage, services.clock, services.recorder, services.masker).standing(
            self.at
        )
        return self._driver(RunOptions(**options))

    def _driver(self, options: RunOptions) -> RunDriver:
        standing, equipment = self._standing, self._equipment()
        progress = RunProgress(
            self.services.recorder,
            self.at,
            state=standing.state,
            memory=standing.memory,
            visits=standing.visits,
            steps=standing.steps,
            fatal=False,
        )
        nodes = NodeRunner(equipment, self.definition, options, progress, bases=standing.bases)
        return RunDriver(
            equipment,
            self.definition,
            options,
            progress,
            engine=self.engine,
            node_runner=nodes,
            open_runs=standing.open_runs,
            bases=standing.bases,
        )

    def _equipment(self) -> Equipment:
        services = self.services
        return Equipment(
            storage=services.storage,
            anchor=services.anchor,
            clock=services.clock,
            codec=services.codec,
            recorder=services.recorder,
            caller=services.caller,
            workspaces=services.workspaces,
            find_tool=TOOLS.get,
            masker=services.masker,
            price=lambda model, input_tokens, output_tokens: None,
            limits=services.run_limits,
        )

    def node_run(self, node: str = "work", visit: int = 1) -> NodeRun:
        """Return a new run of a node, which begins here."""
        return self.services.recorder.node_run(self.at, node, visit)

    def journal(self, run: NodeRun, **facts: Any) -> CallJournal:
        """Return the journal of one attempt of a node run; a later attempt has what earlier ones recorded."""
        services = self.services
        files = NodeFiles(services.workspaces, run.execution_id, self.at.branch.id, None, "")
        given: dict[str, Any] = {
            "token": self.at.token,
            "masker": services.masker,
            "files": files,
            "place": lambda: (1, next(self._places)),
            "note": lambda run, call: None,
            "lost": {},
        }
        journal = CallJournal(services.storage, services.clock, services.codec, run, **given | facts)
        if run.attempt > 1:
            journal.load()
        return journal

    def calls(self, run: NodeRun) -> tuple[ToolCall, ...]:
        """Return what is stored of the calls of a node run."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            return uow.tool_calls.list_calls(run.execution_id, run.id)

    def line(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the run, oldest first."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.load_history(self.at.execution.id).lineage()

    @property
    def state(self) -> dict[str, Any]:
        """The state that is stored last."""
        with self.services.storage.unit_of_work(readonly=True) as uow:
            return dict(uow.checkpoints.load(self.line()[-1].id).state)

    def lost_call(self, run: NodeRun, call: ToolCall) -> AnchoredCall:
        """Return the note of a call that the store has lost."""
        return AnchoredCall.of(self.at.execution, run, call)
