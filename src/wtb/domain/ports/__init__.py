"""Ports: what the services need from the outside; each docstring is the law for every implementation.

These laws hold for all ports: an implementation is safe to use from several threads; neither it nor the caller
changes a value after it was returned; foreign exceptions never pass through.
"""

from wtb.domain.ports.audit import AuditTrail
from wtb.domain.ports.background import BackgroundJobRepository
from wtb.domain.ports.batches import (
    BaselineRepository,
    BatchRepository,
    NodeCacheRepository,
    ObservationRepository,
)
from wtb.domain.ports.environments import Environment, MessageLink
from wtb.domain.ports.events import EventBus, EventFeed, EventLog, Subscription
from wtb.domain.ports.files import FileCommitRepository, Folders, FolderStore, ObjectStore, ScannedFolder, StoredObject
from wtb.domain.ports.limits import LimitRepository
from wtb.domain.ports.runs import (
    BranchRepository,
    CallAnchor,
    CheckpointStore,
    EvaluationRepository,
    ExecutionRepository,
    HeadMove,
    NodeRunRepository,
    RollbackRepository,
    RunPosition,
    ToolCallRepository,
    WorkflowRepository,
)
from wtb.domain.ports.server import SignInRepository, TokenRepository
from wtb.domain.ports.storage import CheckpointCounts, Pages, Storage, UnitOfWork, WorkflowUse
from wtb.domain.ports.system import Clock, Codec, Conditions, DependencyObserver, Ids, Owners
from wtb.domain.ports.telemetry import NO_TELEMETRY, Measure, Telemetry, measured
from wtb.domain.ports.upkeep import FolderCare, Garbage, Inspected, Inspection, SurveyedFolder, Swept
from wtb.domain.ports.webhooks import DeliveryRepository, SentRequest, WebhookRepository, WebhookSender

__all__ = [
    "NO_TELEMETRY",
    "AuditTrail",
    "BackgroundJobRepository",
    "BaselineRepository",
    "BatchRepository",
    "BranchRepository",
    "CallAnchor",
    "CheckpointCounts",
    "CheckpointStore",
    "Clock",
    "Codec",
    "Conditions",
    "DeliveryRepository",
    "DependencyObserver",
    "Environment",
    "EvaluationRepository",
    "EventBus",
    "EventFeed",
    "EventLog",
    "ExecutionRepository",
    "FileCommitRepository",
    "FolderCare",
    "FolderStore",
    "Folders",
    "Garbage",
    "HeadMove",
    "Ids",
    "Inspected",
    "Inspection",
    "LimitRepository",
    "Measure",
    "MessageLink",
    "NodeCacheRepository",
    "NodeRunRepository",
    "ObjectStore",
    "ObservationRepository",
    "Owners",
    "Pages",
    "RollbackRepository",
    "RunPosition",
    "ScannedFolder",
    "SentRequest",
    "SignInRepository",
    "Storage",
    "StoredObject",
    "Subscription",
    "SurveyedFolder",
    "Swept",
    "Telemetry",
    "TokenRepository",
    "ToolCallRepository",
    "UnitOfWork",
    "WebhookRepository",
    "WebhookSender",
    "WorkflowRepository",
    "WorkflowUse",
    "measured",
]
