"""WTB, the Workflow Test Bench: run, rewind and compare agent workflows."""

from wtb.bench import Bench, Run
from wtb.domain.errors import (
    AlreadyExists,
    CheckpointNotFound,
    Conflict,
    DamagedData,
    InvalidInput,
    InvalidWorkflow,
    NotFound,
    StateNotSerialisable,
    StorageError,
    WTBError,
)
from wtb.domain.secrets import Secret
from wtb.domain.state import DELETE, add, append, merge
from wtb.domain.workflow import END, RetryPolicy
from wtb.flow import Workflow, tool
from wtb.infrastructure.codecs.types import serialisable
from wtb.settings import Settings

__all__ = [
    "DELETE",
    "END",
    "AlreadyExists",
    "Bench",
    "CheckpointNotFound",
    "Conflict",
    "DamagedData",
    "InvalidInput",
    "InvalidWorkflow",
    "NotFound",
    "RetryPolicy",
    "Run",
    "Secret",
    "Settings",
    "StateNotSerialisable",
    "StorageError",
    "WTBError",
    "Workflow",
    "add",
    "append",
    "merge",
    "serialisable",
    "tool",
]
