"""The composition root: settings in, services out.

Only this file and the two beside it name concrete classes: `storage_bootstrap` opens what is stored, and
`server_bootstrap` adds what only servers use.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from wtb.application.batches.baselines import Baselines
from wtb.application.batches.batch_editor import BatchEditor
from wtb.application.batches.batch_services import BatchServices
from wtb.application.batches.batch_test_runner import BatchTestRunner
from wtb.application.batches.job_reversals import JobReversals
from wtb.application.batches.planner import BatchPlanner
from wtb.application.batches.run_scoring import RunScoring
from wtb.application.batches.scoring import Scoring
from wtb.application.dependencies.traces import Traces
from wtb.application.evaluation_engine import EvaluationEngine
from wtb.application.judgements import Judgements
from wtb.application.limits import Limits
from wtb.application.node_cache import NodeCache
from wtb.application.queries.file_contents import FileContents
from wtb.application.queries.service import Queries
from wtb.application.runs.environments import Environments
from wtb.application.runs.execution_controller import ExecutionController
from wtb.application.runs.function_caller import FunctionCaller
from wtb.application.runs.head_editor import HeadEditor
from wtb.application.runs.heartbeat import Heartbeat
from wtb.application.runs.leases import Leases
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.reversals import Reversals
from wtb.application.runs.run_creator import RunCreator
from wtb.application.runs.run_limits import RunLimits
from wtb.application.server.commands import Commands
from wtb.application.server.feed import LiveFeed
from wtb.application.server.sign_ins import SignIns
from wtb.application.server.tokens import AccessTokens
from wtb.application.time_travel.comparison import CheckpointComparison
from wtb.application.time_travel.replay import Replayer
from wtb.application.time_travel.rollback_executor import RollbackExecutor
from wtb.application.time_travel.run_editor import RunEditor
from wtb.application.time_travel.take_back import TakeBack
from wtb.application.time_travel.time_travel import TimeTravel
from wtb.application.tool_registry import TOOLS
from wtb.application.upkeep.integrity import Integrity
from wtb.application.upkeep.retention import Retention
from wtb.application.upkeep.workspace_collection import WorkspaceCollection
from wtb.application.workspaces import Workspaces
from wtb.domain.engine import Engine
from wtb.domain.errors import WTBError
from wtb.domain.limits import read_limits
from wtb.domain.model_endpoint import ModelEndpoint
from wtb.domain.ports import (
    NO_TELEMETRY,
    CallAnchor,
    Clock,
    Codec,
    Conditions,
    DependencyObserver,
    EventBus,
    Ids,
    ObjectStore,
    Owners,
    Telemetry,
)
from wtb.domain.secrets import SECRET_KEYS, SECRET_PATTERNS, Masker, Secret
from wtb.domain.workflow import WorkflowDefinition
from wtb.infrastructure.codecs.foreign import live
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.codecs.types import REGISTERED
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.infrastructure.environments.named import make_environment
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.files.blocks import SMALL_OBJECTS
from wtb.infrastructure.files.folders import LocalFolders
from wtb.infrastructure.files.store import LocalFolderStore
from wtb.infrastructure.observation import ProcessObserver
from wtb.infrastructure.owners import ProcessOwners
from wtb.infrastructure.prices import price_usd
from wtb.infrastructure.runners.parallel_map import map_in_threads
from wtb.infrastructure.state_adapters.native import NativeEngine
from wtb.infrastructure.system import SystemClock, Uuid7Ids, login_name
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.infrastructure.upkeep.inspection import StoredInspection
from wtb.settings import Preset, Settings, load_settings, settings_data
from wtb.storage_bootstrap import open_anchor, open_objects, open_storage

if TYPE_CHECKING:
    from wtb.infrastructure.memory.unit_of_work import MemoryStorage
    from wtb.infrastructure.sql.unit_of_work import SqlStorage


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The parts that several services share."""

    settings: Settings
    user: str
    """The user: the name that runs, checkpoints and events carry."""
    clock: Clock
    ids: Ids
    owners: Owners
    codec: Codec
    conditions: Conditions
    bus: EventBus
    storage: MemoryStorage | SqlStorage
    anchor: CallAnchor
    objects: ObjectStore
    scratch: Path | None
    """A temporary folder for workspaces if everything else is in memory; it is removed with the services."""
    home: Path
    """The folder of workspaces and their indexes."""
    store: LocalFolderStore
    folders: LocalFolders
    workspaces: Workspaces
    masker: Masker
    creator: RunCreator
    recorder: Recorder
    head_editor: HeadEditor
    reversals: Reversals
    heartbeat: Heartbeat
    caller: FunctionCaller
    garbage: SweptGarbage
    observer: DependencyObserver
    telemetry: Telemetry
    limits: Limits
    run_limits: RunLimits
    """The limits of the settings, for all runs."""

    def engine_of(self, definition: WorkflowDefinition) -> Engine:
        """Return the engine that drives a workflow: its own, or WTB's."""
        if definition.engine is not None:
            return definition.engine(definition, self.caller)
        warns = self.settings.preset is Preset.TESTING
        return NativeEngine(definition, self.conditions, self.caller, warn_of_changes=warns)

    @property
    def grace(self) -> timedelta:
        """How long something must be unused before it is collected."""
        return timedelta(seconds=self.settings.sweep_grace_s)


@dataclass(frozen=True, kw_only=True)
class Services(_Parts):
    """All services, put together; close them, or use `with`."""

    controller: ExecutionController
    travel: TimeTravel
    run_editor: RunEditor
    batches: BatchTestRunner
    batch_editor: BatchEditor
    baselines: Baselines
    scoring: Scoring
    run_scoring: RunScoring
    replay: Replayer
    comparison: CheckpointComparison
    retention: Retention
    collection: WorkspaceCollection
    integrity: Integrity
    queries: Queries
    file_contents: FileContents
    feed: LiveFeed
    commands: Commands
    tokens: AccessTokens
    sign_ins: SignIns

    @property
    def where(self) -> str:
        """Where everything is stored, without a password."""
        database = getattr(self.storage, "database", None)
        return "memory" if database is None else str(database.where)

    def check_schema(self) -> str | None:
        """Return the revision of the tables; None in memory. Raise if they are no longer what this version needs."""
        database = getattr(self.storage, "database", None)
        if database is None:
            return None
        from wtb.infrastructure.sql import schema

        schema.check(database)
        return schema.HEAD

    def close(self) -> None:
        """Deliver queued events and close connections."""
        self.feed.close()
        self.heartbeat.close()
        self.limits.close()
        self.controller.close()
        self.bus.close()
        self.anchor.close()
        self.storage.close()
        if self.scratch is not None:
            with suppress(WTBError):
                LocalFolderStore(self.scratch.parent).remove(self.scratch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def bootstrap(
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    is_worker: bool = False,
) -> Services:
    """Build all services as the settings say. A worker waits if the database is away, since another process uses it."""
    settings = settings or load_settings()
    parts = _parts(settings, clock or SystemClock(), ids or Uuid7Ids(), telemetry, is_worker=is_worker)
    controller = _controller(parts)
    cache = NodeCache(parts.storage, parts.clock, parts.owners, parts.masker)
    evaluation = EvaluationEngine(
        parts.storage,
        parts.masker,
        parts.caller,
        live,
        judgements=Judgements(parts.storage, parts.codec, cache),
        price=price_usd,
        endpoint=_judge_endpoint(parts.settings),
        limits=parts.run_limits,
    )
    scoring = Scoring(parts.storage, parts.clock, parts.codec, evaluation, map_in_threads, user=parts.user)
    return Services(
        **vars(parts),
        controller=controller,
        travel=_travel(parts),
        run_editor=_run_editor(parts),
        replay=Replayer(parts.storage, parts.conditions, parts.codec, parts.engine_of),
        comparison=CheckpointComparison(parts.storage, parts.objects),
        batches=_batches(parts, controller, evaluation, scoring, cache),
        batch_editor=BatchEditor(parts.storage, parts.clock, parts.owners, user=parts.user),
        baselines=Baselines(parts.storage, parts.clock, parts.ids, user=parts.user),
        scoring=scoring,
        run_scoring=RunScoring(parts.storage, parts.clock, parts.ids, parts.codec, evaluation, user=parts.user),
        retention=_retention(parts),
        collection=_collection(parts),
        integrity=_integrity(parts),
        queries=Queries(parts.storage, parts.clock, parts.owners),
        file_contents=FileContents(parts.storage, parts.objects),
        feed=LiveFeed(parts.storage, parts.bus),
        commands=Commands(parts.storage, parts.clock, parts.ids, parts.owners, parts.masker),
        tokens=AccessTokens(parts.storage, parts.clock),
        sign_ins=SignIns(parts.storage, parts.clock),
    )


def _parts(settings: Settings, clock: Clock, ids: Ids, telemetry: Telemetry, *, is_worker: bool) -> _Parts:
    masker = Masker((*SECRET_KEYS, *settings.secret_keys), (*SECRET_PATTERNS, *settings.secret_patterns))
    codec, bus = MsgpackCodec(), QueueEventBus()
    storage = open_storage(settings, codec, clock, bus, telemetry, is_worker=is_worker)
    objects = open_objects(settings, clock, storage)
    scratch = Path(tempfile.gettempdir()) / f"wtb-{uuid4()}" if settings.url == "memory://" else None
    home = (scratch or settings.folder).absolute()
    store = LocalFolderStore(home / "workspaces")
    anchor = open_anchor(storage)
    user = settings.user or login_name()
    folders = LocalFolders(objects, home / "indexes", store)
    owners = ProcessOwners()
    limits = Limits(storage, clock, ids, owners, masker)
    observer = ProcessObserver(store=home, is_secret=masker.is_secret_key)
    return _Parts(
        settings=settings,
        user=user,
        clock=clock,
        ids=ids,
        owners=owners,
        codec=codec,
        conditions=CelConditions(),
        bus=bus,
        storage=storage,
        anchor=anchor,
        objects=objects,
        scratch=scratch,
        home=home,
        store=store,
        folders=folders,
        workspaces=Workspaces(storage, folders, store),
        masker=masker,
        creator=RunCreator(storage, clock, ids, user=user),
        recorder=Recorder(storage, clock, ids, masker, user=user),
        head_editor=HeadEditor(storage, clock, ids, user=user),
        reversals=Reversals(storage, clock, codec, TOOLS.get, masker, anchor=anchor, user=user),
        heartbeat=Heartbeat(storage),
        caller=FunctionCaller(
            sleep=time.sleep,
            environments=Environments(
                storage,
                clock,
                codec,
                observer,
                make=lambda config: make_environment(config, home),
                imports=_modules_of_states,
            ),
        ),
        garbage=SweptGarbage(storage, objects, codec=codec, clock=clock, sizes=SMALL_OBJECTS, telemetry=telemetry),
        observer=observer,
        telemetry=telemetry,
        limits=limits,
        run_limits=RunLimits.of_settings(limits, read_limits(settings.limits)),
    )


def _modules_of_states() -> set[str]:
    """Return the modules that register classes of states; another process has to import them to read a state."""
    return {kind.__module__ for kind in REGISTERED.types()}


def _controller(parts: _Parts) -> ExecutionController:
    return ExecutionController(
        storage=parts.storage,
        anchor=parts.anchor,
        clock=parts.clock,
        codec=parts.codec,
        conditions=parts.conditions,
        owners=parts.owners,
        workspaces=parts.workspaces,
        creator=parts.creator,
        recorder=parts.recorder,
        head_editor=parts.head_editor,
        reversals=parts.reversals,
        heartbeat=parts.heartbeat,
        find_tool=TOOLS.get,
        masker=parts.masker,
        limits=parts.run_limits,
        price=price_usd,
        caller=parts.caller,
        engine_of=parts.engine_of,
        telemetry=parts.telemetry,
        user=parts.user,
    )


def _travel(parts: _Parts) -> TimeTravel:
    return TimeTravel(
        storage=parts.storage,
        clock=parts.clock,
        ids=parts.ids,
        owners=parts.owners,
        workspaces=parts.workspaces,
        recorder=parts.recorder,
        head_editor=parts.head_editor,
        reversals=parts.reversals,
        heartbeat=parts.heartbeat,
        masker=parts.masker,
        telemetry=parts.telemetry,
        user=parts.user,
    )


def _take_back(parts: _Parts) -> TakeBack:
    return TakeBack(
        storage=parts.storage,
        clock=parts.clock,
        ids=parts.ids,
        recorder=parts.recorder,
        leases=Leases(parts.storage, parts.clock, parts.owners, user=parts.user),
        heartbeat=parts.heartbeat,
        reversals=parts.reversals,
        executor=RollbackExecutor(
            parts.storage,
            parts.clock,
            parts.workspaces,
            parts.reversals,
            parts.masker,
            telemetry=parts.telemetry,
            user=parts.user,
        ),
        user=parts.user,
    )


def _run_editor(parts: _Parts) -> RunEditor:
    return RunEditor(
        storage=parts.storage,
        clock=parts.clock,
        owners=parts.owners,
        creator=parts.creator,
        recorder=parts.recorder,
        head_editor=parts.head_editor,
        workspaces=parts.workspaces,
        user=parts.user,
    )


def _batches(
    parts: _Parts,
    controller: ExecutionController,
    evaluation: EvaluationEngine,
    scoring: Scoring,
    cache: NodeCache,
) -> BatchTestRunner:
    traces = Traces(parts.storage, parts.observer)
    services = BatchServices(
        storage=parts.storage,
        clock=parts.clock,
        ids=parts.ids,
        codec=parts.codec,
        controller=controller,
        cache=cache,
        evaluation=evaluation,
        scoring=scoring,
        masker=parts.masker,
        planner=BatchPlanner(
            parts.codec,
            parts.ids,
            traces,
            TOOLS.get,
            state_types=REGISTERED.types,
            state_functions=REGISTERED.functions,
        ),
        traces=traces,
        reversals=JobReversals(_take_back(parts), parts.masker),
        telemetry=parts.telemetry,
        user=parts.user,
        owners=parts.owners,
        objects=parts.objects,
        limits=parts.run_limits,
        settings=settings_data(parts.settings),
        job_timeout_s=parts.settings.job_timeout_s,
    )
    return BatchTestRunner(services)


def _judge_endpoint(settings: Settings) -> ModelEndpoint:
    key = settings.judge_key
    return ModelEndpoint(url=settings.judge_url, key=None if key is None else Secret(key.get_secret_value()))


def _retention(parts: _Parts) -> Retention:
    policy_for = parts.settings.retention.policy
    return Retention(
        parts.storage, parts.clock, parts.garbage, policy_for=policy_for, grace=parts.grace, user=parts.user
    )


def _collection(parts: _Parts) -> WorkspaceCollection:
    return WorkspaceCollection(
        parts.storage,
        parts.clock,
        parts.owners,
        parts.store,
        parts.folders,
        policy_for=parts.settings.retention.policy,
    )


def _integrity(parts: _Parts) -> Integrity:
    return Integrity(
        storage=parts.storage,
        clock=parts.clock,
        owners=parts.owners,
        anchor=parts.anchor,
        inspection=_inspection(parts),
        garbage=parts.garbage,
        workspaces=parts.workspaces,
        folders=parts.folders,
        grace=parts.grace,
        user=parts.user,
    )


def _inspection(parts: _Parts) -> StoredInspection:
    # Looks for blocks of all files that any store keeps in blocks: a store may hold files that came from another.
    places = parts.home / "workspaces"
    return StoredInspection(parts.storage, parts.objects, places, codec=parts.codec, sizes=SMALL_OBJECTS)
