"""JobOrigin: the batch job that made a run, as stored in the run's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrigin:
    """The batch, combination, case and repeat of a run. A fork keeps those of its source run."""

    batch_id: str
    combination: str
    case_id: str
    repeat: int
    is_fork: bool = False

    def to_data(self) -> dict[str, Any]:
        """Return it as metadata of a run."""
        fork = {"fork": True} if self.is_fork else {}
        return {
            "batch": self.batch_id,
            "combination": self.combination,
            "case": self.case_id,
            "repeat": self.repeat,
            **fork,
        }

    @classmethod
    def find(cls, metadata: Mapping[str, Any]) -> JobOrigin | None:
        """Return the origin of a run with this metadata; None if no batch made it."""
        if not {"batch", "combination", "case", "repeat"} <= metadata.keys():
            return None
        return cls(
            batch_id=metadata["batch"],
            combination=metadata["combination"],
            case_id=metadata["case"],
            repeat=metadata["repeat"],
            is_fork=metadata.get("fork", False),
        )


def of_fork(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a fork from those of its source, marked as a fork because no batch made it."""
    return metadata if JobOrigin.find(metadata) is None else {**metadata, "fork": True}
