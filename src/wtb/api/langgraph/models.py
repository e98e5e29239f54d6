"""Requests of LangGraph's clients. Fields that they may send and that are not offered are refused with a sentence.

Fields that are not known here are ignored: clients of later versions send more.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wtb.domain.errors import InvalidInput

MODES = ("values", "updates", "messages-tuple", "custom")
"""The modes of streams that are offered."""

_LARGEST_PAGE = 1_000
_REFUSED = {
    "webhook": "a webhook of a single run is not offered; `wtb webhook add` adds one for the whole bench",
    "after_seconds": "runs that begin later are not offered; start the run when it is due",
    "feedback_keys": "feedback keys are not offered; score the run with `wtb evaluate`",
    "langsmith_tracer": "LangSmith tracing is not offered",
}

_DURABILITY = "sync"
"""How runs are stored unless the client says otherwise: what a node returned is stored before the next one begins."""

Id = Annotated[str, Field(min_length=1, max_length=200)]
Nodes = Literal["*"] | list[str] | None
Text = Annotated[str, Field(max_length=500)]


class ClientRequest(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class CheckpointName(ClientRequest):
    """A checkpoint as clients name it."""

    thread_id: Id | None = None
    checkpoint_ns: Text | None = None
    checkpoint_id: Id | None = None

    def check_thread(self, thread_id: str) -> None:
        """Raise InvalidInput if it is of another thread."""
        if self.thread_id not in (None, thread_id):
            raise InvalidInput(f"the checkpoint is of thread {self.thread_id!r}, the request is about {thread_id!r}")


class GraphCommand(ClientRequest):
    """What a run begins with instead of an input: the answer to a question, an update, or another node."""

    resume: Any = None
    update: dict[str, Any] | list[tuple[str, Any]] | None = None
    goto: Any = None


class GraphConfig(ClientRequest):
    """The configuration of a run."""

    tags: list[str] | None = None
    recursion_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    configurable: dict[str, Any] | None = None


class ThreadRunRequest(ClientRequest):
    """A run of a graph."""

    assistant_id: Id
    input: Any = None
    command: GraphCommand | None = None
    config: GraphConfig | None = None
    context: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    stream_mode: list[str] | str | None = None
    stream_subgraphs: bool = False
    checkpoint: CheckpointName | None = None
    checkpoint_id: Id | None = None
    checkpoint_during: bool | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    interrupt_before: Nodes = None
    interrupt_after: Nodes = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Literal["keep", "delete"] | None = None
    multitask_strategy: str | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    webhook: Any = None
    after_seconds: Any = None
    feedback_keys: Any = None
    langsmith_tracer: Any = None

    @property
    def modes(self) -> list[str]:
        """The modes of the stream."""
        given = [self.stream_mode] if isinstance(self.stream_mode, str) else self.stream_mode
        return list(dict.fromkeys(given or ["values"]))

    @property
    def wanted_checkpoint(self) -> str | None:
        """The checkpoint that the run begins at; None for the current one."""
        return (self.checkpoint.checkpoint_id if self.checkpoint is not None else None) or self.checkpoint_id

    def check(self) -> None:
        """Raise InvalidInput with what is not offered."""
        for name, sentence in _REFUSED.items():
            if getattr(self, name) is not None:
                raise InvalidInput(sentence)
        check_modes(self.modes)
        if self.multitask_strategy not in (None, "reject"):
            raise InvalidInput(
                f"the multitask strategy {self.multitask_strategy!r} is not offered, only 'reject': wait for the run "
                "of a thread or cancel it before you start another"
            )
        if self.on_completion == "delete":
            raise InvalidInput("on_completion 'delete' is not offered: a bench keeps every run; `wtb delete` deletes")
        if self.command is not None and self.input is not None:
            raise InvalidInput("a run has an input or a command, not both")
        if self.checkpoint is not None and self.checkpoint.checkpoint_ns:
            raise InvalidInput(
                "a run cannot begin in a subgraph; name a checkpoint of the graph itself, whose checkpoint_ns is empty"
            )
        hidden = [key for key in (self.config and self.config.configurable) or {} if key.startswith("__")]
        if hidden:
            raise InvalidInput(
                f"config.configurable holds {', '.join(hidden)}; names that begin with __ are LangGraph's"
            )

    def arguments(self) -> dict[str, Any]:
        """Return what the worker needs, as plain JSON."""
        config = None if self.config is None else self.config.model_dump(exclude_none=True)
        during = {True: "async", False: "exit", None: _DURABILITY}[self.checkpoint_during]
        found = {
            "input": self.input,
            "command": None if self.command is None else self.command.model_dump(mode="json", exclude_unset=True),
            "config": config,
            "context": self.context,
            "metadata": self.metadata,
            "stream_mode": self.modes,
            "stream_subgraphs": self.stream_subgraphs,
            "checkpoint_id": self.wanted_checkpoint,
            "durability": self.durability or during,
            "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
        }
        return {name: value for name, value in found.items() if value is not None}


def check_modes(modes: list[str]) -> None:
    """Raise InvalidInput for a mode of streams that is not offered."""
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        hint = "; messages-tuple streams messages token by token" if "messages" in unknown else ""
        raise InvalidInput(f"the stream mode {', '.join(unknown)} is not offered, only {', '.join(MODES)}{hint}")


class ThreadRequest(ClientRequest):
    """A new thread."""

    thread_id: Id | None = None
    metadata: dict[str, Any] | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    supersteps: Any = None
    ttl: Any = None

    def check(self) -> None:
        """Raise InvalidInput with what is not offered."""
        if self.supersteps is not None:
            raise InvalidInput("a thread with given supersteps is not offered; update its state once it exists")
        check_ttl(self.ttl)


class ThreadPatch(ClientRequest):
    """What is added to the metadata of a thread."""

    metadata: dict[str, Any] | None = None
    ttl: Any = None


def check_ttl(ttl: Any) -> None:
    """Raise InvalidInput: threads do not expire by themselves."""
    if ttl is not None:
        raise InvalidInput("ttl is not offered; the retention rules of the bench say what `wtb prune` deletes")


class ThreadFilter(ClientRequest):
    """Which threads are searched or counted."""

    metadata: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    ids: list[str] | None = None
    status: Literal["idle", "busy", "interrupted", "error"] | None = None


class ThreadSearch(ThreadFilter):
    """A page of threads."""

    limit: Annotated[int, Field(ge=1, le=_LARGEST_PAGE)] = 10
    offset: Annotated[int, Field(ge=0)] = 0
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None
    extract: Any = None


class StateRequest(ClientRequest):
    """A state to read."""

    checkpoint: CheckpointName
    subgraphs: bool | None = None


class StateUpdate(ClientRequest):
    """A change of a thread's state, as one of its nodes would make it."""

    values: Any = None
    as_node: Text | None = None
    checkpoint: CheckpointName | None = None
    checkpoint_id: Id | None = None

    @property
    def wanted(self) -> CheckpointName:
        """The checkpoint that is changed."""
        return self.checkpoint or CheckpointName(checkpoint_id=self.checkpoint_id)


class HistoryRequest(ClientRequest):
    """A page of a history."""

    limit: Annotated[int, Field(ge=1, le=_LARGEST_PAGE)] = 10
    before: str | dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    checkpoint: CheckpointName | None = None

    @property
    def end(self) -> str | None:
        """The checkpoint before which the page begins."""
        if not isinstance(self.before, dict):
            return self.before
        place = self.before.get("configurable", self.before)
        found = place.get("checkpoint_id") if isinstance(place, dict) else None
        return found if isinstance(found, str) else None


class AssistantSearch(ClientRequest):
    """Which assistants are searched or counted."""

    graph_id: str | None = None
    metadata: dict[str, Any] | None = None
    name: str | None = None
    limit: Annotated[int, Field(ge=1, le=_LARGEST_PAGE)] = 10
    offset: Annotated[int, Field(ge=0)] = 0
