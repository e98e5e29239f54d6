"""WTB, the Workflow Test Bench: run, rewind and compare agent workflows."""

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
from wtb.domain.state import DELETE, add, append, merge
from wtb.domain.workflow import END
from wtb.infrastructure.codecs.types import serialisable
from wtb.settings import Settings

__all__ = [
    "DELETE",
    "END",
    "AlreadyExists",
    "CheckpointNotFound",
    "Conflict",
    "DamagedData",
    "InvalidInput",
    "InvalidWorkflow",
    "NotFound",
    "Settings",
    "StateNotSerialisable",
    "StorageError",
    "WTBError",
    "add",
    "append",
    "merge",
    "serialisable",
]
