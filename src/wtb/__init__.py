"""WTB, the Workflow Test Bench: run, rewind and compare agent workflows."""

from wtb.application.runs.context import Context
from wtb.batch_results import BatchResult
from wtb.batches import BatchTest
from wtb.bench import Bench
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import (
    AlreadyExists,
    CheckpointNotFound,
    CircuitOpen,
    Conflict,
    DamagedData,
    EnvironmentFailed,
    InvalidInput,
    InvalidWorkflow,
    NotFound,
    OutOfMemory,
    StateNotSerialisable,
    StorageError,
    WTBError,
)
from wtb.domain.evaluation import EvaluationContext
from wtb.domain.job_limits import Resources
from wtb.domain.limits import Limit
from wtb.domain.secrets import Secret
from wtb.domain.state import DELETE, add, append, merge
from wtb.domain.workflow import END, RetryPolicy
from wtb.flow import Workflow
from wtb.infrastructure.codecs.types import serialisable
from wtb.infrastructure.evaluators.builtin import (
    Contains,
    Cost,
    ExactMatch,
    FitsSchema,
    Latency,
    NumericMatch,
    RegexMatch,
    Steps,
    TokenF1,
    Tokens,
    ToolErrors,
)
from wtb.infrastructure.evaluators.functions import evaluator
from wtb.infrastructure.evaluators.judge import Judge
from wtb.runs import Run
from wtb.settings import Settings
from wtb.tools import reversible, tool, workspace

__all__ = [
    "DELETE",
    "END",
    "AlreadyExists",
    "BatchResult",
    "BatchTest",
    "Bench",
    "CheckpointNotFound",
    "CircuitOpen",
    "Conflict",
    "Contains",
    "Context",
    "Cost",
    "DamagedData",
    "EnvironmentConfig",
    "EnvironmentFailed",
    "EvaluationContext",
    "ExactMatch",
    "FitsSchema",
    "InvalidInput",
    "InvalidWorkflow",
    "Judge",
    "Latency",
    "Limit",
    "NotFound",
    "NumericMatch",
    "OutOfMemory",
    "RegexMatch",
    "Resources",
    "RetryPolicy",
    "Run",
    "Secret",
    "Settings",
    "StateNotSerialisable",
    "Steps",
    "StorageError",
    "TokenF1",
    "Tokens",
    "ToolErrors",
    "WTBError",
    "Workflow",
    "add",
    "append",
    "evaluator",
    "merge",
    "reversible",
    "serialisable",
    "tool",
    "workspace",
]
