"""NodeWork: everything that another process needs to run the function of a node once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What `ctx` tells a node about its run."""

    execution_id: str
    branch_id: str
    node_run_id: str
    visit: int
    attempt: int
    seed: int
    config: bytes
    """The node's config, encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """One call of a node's function: an import reference and encoded data, never a pickle."""

    node: str
    reference: str
    """`module:function`."""
    code: Mapping[str, str]
    """The digests of the function's code here, and of the user's functions that it calls. The other process refuses to
    run other code."""
    imports: tuple[str, ...]
    """Modules that register classes of states."""
    root: str
    """The folder to which the run's process names files; empty if the other process has its own copy of the project."""
    state: bytes
    """The part of the state that the node may see, encoded."""
    reads: tuple[str, ...] | None
    facts: NodeFacts | None
    """None if the function takes no context."""

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        data = asdict(self)
        data["state"] = b64encode(self.state).decode()
        if self.facts is not None:
            data["facts"]["config"] = b64encode(self.facts.config).decode()
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> NodeWork:
        """Read it from plain JSON."""
        facts, reads = data["facts"], data["reads"]
        return cls(
            node=data["node"],
            reference=data["reference"],
            code=data["code"],
            imports=tuple(data["imports"]),
            root=data["root"],
            state=b64decode(data["state"]),
            reads=None if reads is None else tuple(reads),
            facts=None if facts is None else NodeFacts(**{**facts, "config": b64decode(facts["config"])}),
        )
