"""Every storage keeps the contracts of the repositories."""

from wtb.testing.access import SignInRepositoryContract, TokenRepositoryContract
from wtb.testing.background_jobs import BackgroundJobRepositoryContract
from wtb.testing.baselines import BaselineRepositoryContract
from wtb.testing.batches import BatchRepositoryContract
from wtb.testing.commands import CommandRepositoryContract
from wtb.testing.evaluations import EvaluationRepositoryContract
from wtb.testing.execution_repository import ExecutionRepositoryContract
from wtb.testing.limits import LimitRepositoryContract
from wtb.testing.node_cache import NodeCacheRepositoryContract
from wtb.testing.observations import ObservationRepositoryContract
from wtb.testing.pending_writes import PendingWriteRepositoryContract
from wtb.testing.repositories import (
    BranchRepositoryContract,
    NodeRunRepositoryContract,
    RollbackRepositoryContract,
    WorkflowRepositoryContract,
)
from wtb.testing.tool_calls import ToolCallRepositoryContract
from wtb.testing.webhooks import DeliveryRepositoryContract, WebhookRepositoryContract


class TestWorkflowRepository(WorkflowRepositoryContract): ...


class TestExecutionRepository(ExecutionRepositoryContract): ...


class TestBranchRepository(BranchRepositoryContract): ...


class TestNodeRunRepository(NodeRunRepositoryContract): ...


class TestRollbackRepository(RollbackRepositoryContract): ...


class TestEvaluationRepository(EvaluationRepositoryContract): ...


class TestToolCallRepository(ToolCallRepositoryContract): ...


class TestBatchRepository(BatchRepositoryContract): ...


class TestBaselineRepository(BaselineRepositoryContract): ...


class TestNodeCacheRepository(NodeCacheRepositoryContract): ...


class TestObservationRepository(ObservationRepositoryContract): ...


class TestLimitRepository(LimitRepositoryContract): ...


class TestTokenRepository(TokenRepositoryContract): ...


class TestSignInRepository(SignInRepositoryContract): ...


class TestPendingWriteRepository(PendingWriteRepositoryContract): ...


class TestBackgroundJobRepository(BackgroundJobRepositoryContract): ...


class TestWebhookRepository(WebhookRepositoryContract): ...


class TestDeliveryRepository(DeliveryRepositoryContract): ...


class TestCommandRepository(CommandRepositoryContract): ...
