"""WTB, the Workflow Test Bench: run, rewind and compare agent workflows."""

from typing import TYPE_CHECKING, Any

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
    MissingLibrary,
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

if TYPE_CHECKING:
    from wtb.client import AsyncClient, Client

__all__ = [
    "DELETE",
    "END",
    "AlreadyExists",
    "AsyncClient",
    "BatchResult",
    "BatchTest",
    "Bench",
    "CheckpointNotFound",
    "CircuitOpen",
    "Client",
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


def __getattr__(name: str) -> Any:
    """Import the clients of a server when they are used: they need the libraries of the extra `client`."""
    if name not in ("AsyncClient", "Client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from wtb import client
    except ModuleNotFoundError as error:
        raise MissingLibrary(f"wtb.{name} needs {error.name}: pip install 'workflow-test-bench[client]'") from error
    return getattr(client, name)
