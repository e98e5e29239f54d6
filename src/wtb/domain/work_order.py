"""WorkOrder: everything that a worker in another process needs to run jobs of a batch; stored with the batch."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wtb.domain.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class BatchCode:
    """The place from which a worker loads the code of a batch.

    A batch test in a module includes its evaluators. For any other batch, the worker loads the workflow, and the
    evaluators, the output, the tools and the limits are described one by one.
    """

    reference: str
    """`file.py:name` or `package.module:name`; the name of the workflow if the code is carried."""
    is_batch: bool
    """Whether the reference names a batch test; otherwise it names a workflow."""
    folder: str
    """The project folder: modules are searched there, and relative paths begin there."""
    evaluators: tuple[Any, ...] = ()
    output: Any = None
    tools: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    """The limits that have a function; all others are in the record of the batch."""
    is_carried: bool = False
    """Whether no process can import it, as in a notebook, so that the runner carries it to its workers."""

    def moved_to(self, folder: Path) -> BatchCode:
        """Return where the code is in a copy of the project folder; raise InvalidInput if the copy lacks it."""
        if self.is_carried:
            return self
        place, _, name = self.reference.rpartition(":")
        if place.endswith(".py"):
            place = str(folder / _inside(Path(place), Path(self.folder)))
        return replace(self, reference=f"{place}:{name}", folder=str(folder))

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "reference": self.reference,
            "is_batch": self.is_batch,
            "folder": self.folder,
            "evaluators": list(self.evaluators),
            "output": self.output,
            "tools": dict(self.tools),
            "limits": dict(self.limits),
            "is_carried": self.is_carried,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> BatchCode:
        """Read it from plain JSON."""
        return cls(
            reference=data["reference"],
            is_batch=data["is_batch"],
            folder=data["folder"],
            evaluators=tuple(data["evaluators"]),
            output=data["output"],
            tools=data["tools"],
            limits=data.get("limits", {}),
            is_carried=data.get("is_carried", False),
        )


def _inside(file: Path, folder: Path) -> Path:
    try:
        return file.relative_to(folder)
    except ValueError:
        raise InvalidInput(
            f"{file} is not in {folder}, the folder that is copied to the workers; start the batch in the folder of "
            "the project, which holds the file"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions that a worker must share with the process that planned the batch."""

    wtb: str
    python: str

    def to_data(self) -> dict[str, str]:
        """Return it as plain JSON."""
        return {"wtb": self.wtb, "python": self.python}

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Versions:
        """Read it from plain JSON."""
        return cls(wtb=data["wtb"], python=data["python"])


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """The code of a batch, the inputs of its cases, and how its jobs run."""

    code: BatchCode
    versions: Versions
    workflows: Mapping[str, str]
    """The combinations that run now, each with the digest of its dependencies."""
    inputs: bytes
    """The input of each case, encoded."""
    evaluator_digests: Mapping[str, str]
    output_digest: str
    share: bool = True
    fresh: tuple[str, ...] = ()
    seed: int = 0
    retries: int = 0
    external: str = "run"
    imports: tuple[str, ...] = ()
    """Modules that register classes of states. The code of the batch need not import them, but states may hold them."""

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "code": self.code.to_data(),
            "versions": self.versions.to_data(),
            "workflows": dict(self.workflows),
            "inputs": b64encode(self.inputs).decode(),
            "evaluator_digests": dict(self.evaluator_digests),
            "output_digest": self.output_digest,
            "share": self.share,
            "fresh": list(self.fresh),
            "seed": self.seed,
            "retries": self.retries,
            "external": self.external,
            "imports": list(self.imports),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> WorkOrder:
        """Read it from plain JSON."""
        return cls(
            code=BatchCode.from_data(data["code"]),
            versions=Versions.from_data(data["versions"]),
            workflows=data["workflows"],
            inputs=b64decode(data["inputs"]),
            evaluator_digests=data["evaluator_digests"],
            output_digest=data["output_digest"],
            share=data["share"],
            fresh=tuple(data["fresh"]),
            seed=data["seed"],
            retries=data["retries"],
            external=data["external"],
            imports=tuple(data.get("imports", ())),
        )
