"""Tools and their recorded calls: effects, identity, and what to do if the outcome of a call is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wtb.domain.figures import NO_CALL_FIGURES, CallFigures, Usage
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.values import evolve

_MS = timedelta(milliseconds=1)


class Effects(StrEnum):
    """What a tool touches: nothing, files under the workspace, or the world outside."""

    NONE = "none"
    WORKSPACE = "workspace"
    EXTERNAL = "external"


class CallKind(StrEnum):
    """What was recorded: a tool call, a step of the node's own, a question to a person, or a named checkpoint."""

    TOOL = "tool"
    STEP = "step"
    ASK = "ask"
    CHECKPOINT = "checkpoint"


class CallStatus(StrEnum):
    """The status of a call. If its process is gone, `intended`, `reversing` or `redoing` mean an unknown outcome."""

    INTENDED = "intended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REVERSING = "reversing"
    REVERSED = "reversed"
    REDOING = "redoing"


class WhenInDoubt(StrEnum):
    """What to do about an external call whose result was never recorded."""

    RUN_AGAIN = "run_again"
    CONFIRM = "confirm"
    REVERSE = "reverse"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What the engine must know about a tool."""

    name: str
    effects: Effects = Effects.EXTERNAL
    reversible: bool = False
    reverse_in_doubt: bool = False
    idempotent: bool = False
    confirmable: bool = False

    @property
    def in_doubt(self) -> WhenInDoubt:
        """What to do about a call with an unknown outcome: the available way that is least likely to repeat it."""
        if self.effects is not Effects.EXTERNAL or self.idempotent:
            return WhenInDoubt.RUN_AGAIN
        if self.confirmable:
            return WhenInDoubt.CONFIRM
        return WhenInDoubt.REVERSE if self.reversible and self.reverse_in_doubt else WhenInDoubt.PAUSE


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function and the facts that the engine needs about it; called directly, it is just the function.

    `reverse(call)` undoes a call. `confirm(call)` finds out whether a call with an unknown outcome happened: it returns
    the result, or None if the call did not happen. `limit` is the name of the limit whose slots its calls hold. It is
    no part of `spec`, because results do not depend on it.
    """

    spec: ToolSpec
    function: Callable[..., Any]
    reverse: Callable[..., Any] | None = None
    confirm: Callable[..., Any] | None = None
    takes_key: bool = False
    limit: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One recorded call that a node made.

    `identity` is the tool with the caller's key, or with the hash of the arguments and the number of the call among
    equal ones. It is never the position, so concurrent calls may come in another order when the node is tried again.

    Clocks may be wrong, so steps tell what came first: `started_step` and `ended_step` are the steps of the first
    checkpoints after the start and the end, and `started_number` counts the starts within a step. Calls recorded before
    these fields existed have none of them, and are ordered by time.

    `reversible` says whether the tool of an external call had a `reverse`; None if nobody recorded that.
    """

    execution_id: ExecutionId
    node_run_id: NodeRunId
    identity: str
    sequence: int
    kind: CallKind
    tool: str
    effects: Effects
    arguments: Mapping[str, Any]
    status: CallStatus = CallStatus.INTENDED
    result: Any = None
    error: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    figures: CallFigures = NO_CALL_FIGURES
    reversible: bool | None = None
    started_step: int | None = None
    started_number: int | None = None
    ended_step: int | None = None

    @property
    def start_order(self) -> tuple[Any, ...]:
        """The sort key that puts the calls of a run in the order of their starts."""
        if self.started_step is None:
            return (0, self.started_at, self.node_run_id, self.sequence)
        return (1, self.started_step, self.started_number)

    def had_ended_at(self, step: int, moment: datetime) -> bool:
        """Whether it had ended when its node run made the checkpoint of this step, at this moment."""
        if self.ended_at is None:
            return False
        if self.started_step is None:
            return self.ended_at <= moment
        return self.ended_step is not None and self.ended_step <= step

    def had_happened_at(self, step: int, moment: datetime) -> bool:
        """Whether it had ended when its node run made the checkpoint of this step, at this moment.

        If the call has not ended, or was taken back, its start counts instead.
        """
        ended_at = None if self.status is CallStatus.REVERSED else self.ended_at
        if self.started_step is None:
            return (ended_at or self.started_at) <= moment
        ended_step = None if ended_at is None else self.ended_step
        return (self.started_step if ended_step is None else ended_step) <= step

    @property
    def may_have_happened(self) -> bool:
        """Whether it may have changed the world outside."""
        is_external = self.kind is CallKind.TOOL and self.effects is Effects.EXTERNAL
        return is_external and self.status not in (CallStatus.FAILED, CallStatus.REVERSED)

    @property
    def is_in_doubt(self) -> bool:
        """Whether it began and its end is not recorded; if its process is gone, nobody knows whether it happened."""
        return self.may_have_happened and self.status is CallStatus.INTENDED

    def succeeded(self, result: Any, now: datetime) -> ToolCall:
        """Return the call with its result."""
        return evolve(self, status=CallStatus.SUCCEEDED, result=result, ended_at=now)

    def failed(self, error: str, now: datetime) -> ToolCall:
        """Return the call as failed; a retry of the node makes a failed call again."""
        return evolve(self, status=CallStatus.FAILED, error=error, ended_at=now)

    def counted_failure(self) -> ToolCall:
        """Return the call, which has failed, with one more failed try in its figures."""
        figures = replace(
            self.figures, failures=self.figures.failures + 1, failed_ms=round(self.figures.failed_ms + self.ms, 3)
        )
        return evolve(self, figures=figures)

    def using(self, usage: Usage) -> ToolCall:
        """Return the call with the usage reported inside it."""
        return evolve(self, figures=replace(self.figures, usage=usage))

    @property
    def ms(self) -> float:
        """How long its last try took, in milliseconds; 0 while it runs, and for a question to a person."""
        if self.ended_at is None or self.kind is CallKind.ASK:
            return 0.0
        return round((self.ended_at - self.started_at) / _MS, 3)

    def reversing(self) -> ToolCall:
        """Return the call as about to be undone."""
        return evolve(self, status=CallStatus.REVERSING, error=None)

    def reversed(self) -> ToolCall:
        """Return the call as undone; its result is not used any more."""
        return evolve(self, status=CallStatus.REVERSED, error=None)

    def not_reversed(self, error: str) -> ToolCall:
        """Return the call as it was before a failed attempt to undo it."""
        status = CallStatus.INTENDED if self.ended_at is None else CallStatus.SUCCEEDED
        return evolve(self, status=status, error=error)

    def redoing(self) -> ToolCall:
        """Return the undone call as about to be made again."""
        return evolve(self, status=CallStatus.REDOING, error=None)

    def redone(self) -> ToolCall:
        """Return the call as in effect again, with its earlier result."""
        return evolve(self, status=CallStatus.SUCCEEDED, error=None)

    def diverged(self, error: str) -> ToolCall:
        """Return the call as in effect again, but not as before."""
        return evolve(self, status=CallStatus.SUCCEEDED, error=error)

    def again(self, now: datetime) -> ToolCall:
        """Return the call as intended once more."""
        return evolve(
            self, status=CallStatus.INTENDED, result=None, error=None, started_at=now, ended_at=None, ended_step=None
        )


def identity_of(tool: str, arguments_hash: str, occurrence: int, key: str | None) -> str:
    """Return the identity of a call within its node run."""
    return f"{tool}={key}" if key is not None else f"{tool}:{arguments_hash}#{occurrence}"
