"""ToolAnswers: answers the tool calls of a run from mocks, recorded runs, or earlier calls of the batch."""

from __future__ import annotations

import inspect
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.application.dependencies.walk import fingerprint
from wtb.application.node_cache import AttemptRef, Busy, SharedFailure, SharedResult, Sharing
from wtb.application.runs.callers_loop import finished
from wtb.application.runs.threads import in_thread
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import InvalidInput, WTBError
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.ports import Codec
from wtb.domain.tool_answers import External, MockedTool, Recording, RunAnswers, ToolAnswer
from wtb.domain.tools import CallKind, Effects, Tool, ToolCall
from wtb.domain.values import evolve

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call to make, and the function that makes it."""

    call: ToolCall
    function: Callable[[], Any]
    is_answered: bool = False
    """Whether something else answers it, so that the tool itself is not called."""
    let_go: Callable[[], None] = lambda: None
    """Gives up what was claimed for the call, if it is not made after all."""


class ExternalRefused(WTBError):
    """A node wanted to call an external tool in a batch that refuses such calls."""


@dataclass(kw_only=True)
class ToolAnswers:
    """Decides who answers each call of a run: the tool itself, a mock, a recorded run, or an earlier call."""

    workflow: str
    answers: Mapping[str, ToolAnswer]
    codec: Codec
    sharing: Sharing | None = None
    _of_runs: dict[str, _RunIndex] = field(default_factory=dict)
    _tools: dict[str, Tool] = field(default_factory=dict)
    _fingerprints: dict[str, Fingerprint] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The tools that something else answers for."""
        return frozenset(self.answers)

    def mock_of(self, tool: str) -> Callable[..., Any] | None:
        """Return the mock of a tool; None if it has none."""
        answer = self.answers.get(tool)
        return answer.function if isinstance(answer, MockedTool) else None

    def effects(self, tool: Tool) -> Effects:
        """Return the effects that a call of this tool will have; only a recording may still call it."""
        answer = self.answers.get(tool.spec.name)
        self._tools[tool.spec.name] = tool
        return tool.spec.effects if answer is None or isinstance(answer, Recording) else Effects.NONE

    def check_seen(self, tool: str) -> None:
        """Refuse a call that WTB can neither answer nor hold back, because its tool does not ask WTB first."""
        if tool in self.answers:
            raise InvalidInput(
                f"{tool} cannot be mocked where this node calls it: WTB only sees the call. Declare the tool with "
                "wtb.langgraph.recorded, or call it with ctx.tool"
            )
        self._check_allowed(tool)

    def prepared(self, run: NodeRun, call: ToolCall, function: Callable[[], Any]) -> PreparedCall:
        """Return a call to make and the function that makes it; wait if another job is making an equal one."""
        if call.kind is not CallKind.TOOL:
            return PreparedCall(call, function)
        answer = self.answers.get(call.tool)
        if isinstance(answer, MockedTool):
            return PreparedCall(call, function, is_answered=True)
        if isinstance(answer, RunAnswers):
            return PreparedCall(call, lambda: self._of_run(run, call, answer), is_answered=True)
        if isinstance(answer, Recording) and self.sharing is not None:
            return self._recorded(run, call, function, self.sharing)
        if call.effects is Effects.EXTERNAL:
            self._check_allowed(call.tool)
        return PreparedCall(call, function)

    def _check_allowed(self, tool: str) -> None:
        if self.sharing is not None and self.sharing.external is External.REFUSE:
            raise ExternalRefused(
                f"{tool} is an external tool, and this batch refuses such calls (external='refuse'); mock it with "
                f"tools={{{tool!r}: …}}, or allow the calls with external='run'"
            )

    # A recorded run

    def _of_run(self, run: NodeRun, call: ToolCall, answer: RunAnswers) -> Any:
        if call.tool not in self._of_runs:
            self._of_runs[call.tool] = _RunIndex(answer, self._digest)
        return self._of_runs[call.tool].find(run, call)

    def _digest(self, call: ToolCall) -> str:
        return self.codec.digest(self.codec.encode(dict(call.arguments), f"{call.tool}()")[1]).hex()

    # Calls that are recorded once per case

    def _recorded(self, run: NodeRun, call: ToolCall, function: Callable[[], Any], sharing: Sharing) -> PreparedCall:
        key = self._key(run, call, sharing)
        left_by, found = sharing.cache.find_left(key), self._claim(key, run, call, sharing)
        while isinstance(found, Busy):
            time.sleep(_POLL_S)
            left_by, found = sharing.cache.find_left(key), self._claim(key, run, call, sharing)
        if isinstance(found, SharedResult):
            answer = found.returned["answer"]
            return PreparedCall(evolve(call, effects=Effects.NONE), lambda: answer, is_answered=True)
        sharing.claimed.add(key)
        known = self._confirmed(call, left_by)
        if known is not None:
            self.keep(key, call, known.result, sharing, by=_by(known))
            return PreparedCall(evolve(call, effects=Effects.NONE), lambda: known.result, is_answered=True)
        try:
            if call.effects is Effects.EXTERNAL:
                self._check_allowed(call.tool)
        except ExternalRefused:
            self._release(key, sharing)
            raise
        kept = _Kept(self, key, call, sharing, function)
        return PreparedCall(call, kept.made, let_go=lambda: self._release(key, sharing))

    def _confirmed(self, call: ToolCall, left_by: str | None) -> ToolCall | None:
        """Return the equal call of a process that was killed during it, if the tool confirms that it happened."""
        tool = self._tools[call.tool]
        if left_by is None or left_by == _by(call) or tool.confirm is None:
            return None
        execution_id, node_run_id, identity = left_by.split("/", 2)
        other = evolve(
            call, execution_id=ExecutionId(execution_id), node_run_id=NodeRunId(node_run_id), identity=identity
        )
        result = finished(call.tool, tool.confirm(other))
        return None if result is None else evolve(other, result=result)

    def _claim(
        self, key: bytes, run: NodeRun, call: ToolCall, sharing: Sharing
    ) -> SharedResult | SharedFailure | Busy | None:
        of_tool = self._fingerprint_of(call.tool)
        found = sharing.cache.claim(
            key, _attempt(call, sharing), {}, lambda result: sharing.is_current(result, run.node, of_tool)
        )
        if isinstance(found, SharedResult) and found.window is not None:
            sharing.traces.read_again(found.window, sharing.trace_id, of_tool)
        return found

    def _key(self, run: NodeRun, call: ToolCall, sharing: Sharing) -> bytes:
        """Return the key of an answer: the case, the tool's code, the arguments, and the number among equal calls.

        Equal calls are counted per visit of a node. A count over the whole run would depend on which nodes run at the
        same time, and on which results come from other jobs.
        """
        code, place = self._fingerprint_of(call.tool).digest, f"{run.node}#{run.visit}"
        facts = ["tool", self.workflow, sharing.case_id, code, place, call.identity, self._digest(call)]
        return self.codec.digest(*(self.codec.digest(each.encode()) for each in facts))

    def _fingerprint_of(self, tool: str) -> Fingerprint:
        """Return what the answers of a tool depend on.

        Of a value that calls may change, such as a counter, only the code that makes it counts: a call that is already
        recorded must not be made again because of another call.
        """
        if tool not in self._fingerprints:
            of_tool = fingerprint(self._tools[tool].function)
            self._fingerprints[tool] = of_tool.without(of_tool.mutable)
        return self._fingerprints[tool]

    def find_own(self, run: NodeRun, call: ToolCall) -> ToolCall | None:
        """Return an interrupted call with its result, if the result was recorded before the interruption."""
        if self.sharing is None or not isinstance(self.answers.get(call.tool), Recording):
            return None
        found = self.sharing.cache.find(self._key(run, call, self.sharing))
        if found is None or found.returned.get("by") != _by(call):
            return None
        return evolve(call, result=found.returned["answer"])

    def keep_own(self, run: NodeRun, call: ToolCall) -> None:
        """Record the result of an interrupted call, once it is known that the call happened."""
        if self.sharing is None or not isinstance(self.answers.get(call.tool), Recording):
            return
        key = self._key(run, call, self.sharing)
        if self._claim(key, run, call, self.sharing) is None:
            self.keep(key, call, call.result, self.sharing)

    def keep(
        self,
        key: bytes,
        call: ToolCall,
        result: Any,
        sharing: Sharing,
        *,
        by: str | None = None,
        begin: int | None = None,
    ) -> None:
        """Record the result of a real call for all later ones; `begin` is the place in the trace where it began."""
        answer = SharedResult(
            returned={"answer": result, "by": by or _by(call)},
            file_commit=None,
            usage={},
            ms=0.0,
            window=sharing.read_since(sharing.begin() if begin is None else begin),
        )
        sharing.cache.settle_now(key, _attempt(call, sharing), answer)
        sharing.claimed.discard(key)

    def _release(self, key: bytes, sharing: Sharing) -> None:
        sharing.cache.release(key)
        sharing.claimed.discard(key)


def _attempt(call: ToolCall, sharing: Sharing) -> AttemptRef:
    """Return an attempt named after the call: if its process is killed, the next one asks whether it happened."""
    return replace(sharing.attempt, id=_by(call))


def _by(call: ToolCall) -> str:
    return f"{call.execution_id}/{call.node_run_id}/{call.identity}"


@dataclass(frozen=True, slots=True)
class _Kept:
    """Makes a real call, and stores its result for later ones. If the call fails, the next one makes it again."""

    answers: ToolAnswers
    key: bytes
    call: ToolCall
    sharing: Sharing
    function: Callable[[], Any]

    def made(self) -> Any:
        begin = self.sharing.begin()
        try:
            result = self.function()
        except BaseException:
            self.answers._release(self.key, self.sharing)
            raise
        if inspect.isawaitable(result):
            return self._awaited(result, begin)
        self.answers.keep(self.key, self.call, result, self.sharing, begin=begin)
        return result

    async def _awaited(self, result: Any, begin: int) -> Any:
        try:
            result = await result
        except BaseException:
            self.answers._release(self.key, self.sharing)
            raise
        # On a thread: an event loop must not wait for the store.
        await in_thread(self.answers.keep, self.key, self.call, result, self.sharing, begin=begin)
        return result


class _RunIndex:
    """Finds answers in a recorded run: those of the same visit of the same node if there are any, else of any node."""

    def __init__(self, answer: RunAnswers, digest: Callable[[ToolCall], str]) -> None:
        self._run_id = answer.run_id
        self._digest = digest
        self._at: dict[tuple[str, int, str], list[Any]] = defaultdict(list)
        self._anywhere: dict[str, list[Any]] = defaultdict(list)
        for node, visit, call in answer.calls:
            self._at[node, visit, digest(call)].append(call.result)
            self._anywhere[digest(call)].append(call.result)

    def find(self, run: NodeRun, call: ToolCall) -> Any:
        number = _occurrence(call)
        same = self._digest(call)
        for results in (self._at.get((run.node, run.visit, same), []), self._anywhere.get(same, [])):
            if number <= len(results):
                return results[number - 1]
        raise InvalidInput(
            f"run {self._run_id} has no answer to call {number} of {call.tool} with {dict(call.arguments)!r}; mock "
            f"{call.tool} with a function, or record a run that makes this call"
        )


def _occurrence(call: ToolCall) -> int:
    number = call.identity.rpartition("#")[2]
    return int(number) if number.isdigit() else 1
