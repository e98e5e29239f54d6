"""CallbackObserver: learns from LangChain's callbacks which models, inner nodes and undeclared tools a node uses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from wtb.application.runs.engine_context import EngineContext
from wtb.domain.event_catalogue import NodeInside
from wtb.domain.tools import ToolCall
from wtb.infrastructure.langgraph.engine.tools import RECORDED, stored_or_text

_NAMESPACE = "langgraph_checkpoint_ns"
_STEP = "graph:step:"


class CallbackObserver(BaseCallbackHandler):
    """Reports what happens inside one node run to its context."""

    raise_error = True
    run_inline = True

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._calls: dict[UUID, ToolCall] = {}
        self._began: dict[UUID, tuple[str, float]] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        path = _path(metadata)
        if "/" in path and any(tag.startswith(_STEP) for tag in tags or ()):
            self._begin(run_id, path)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._began.pop(run_id, None)

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, metadata: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._begin(run_id, _path(metadata))

    def on_llm_start(
        self, serialized: Any, prompts: Any, *, run_id: UUID, metadata: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._begin(run_id, _path(metadata))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        used: dict[str, int] = {}
        model = None
        for generations in response.generations:
            message = getattr(generations[0], "message", None) if generations else None
            about: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
            model = model or about.get("model_name") or about.get("model")
            for key in ("input_tokens", "output_tokens"):
                used[key] = used.get(key, 0) + ((getattr(message, "usage_metadata", None) or {}).get(key) or 0)
        self._end(run_id, model=model or "a model", **used)
        if any(used.values()):
            self._context.context.usage(model=model, **used)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._began.pop(run_id, None)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not (metadata or {}).get(RECORDED):
            name = serialized.get("name", "tool")
            arguments = {key: stored_or_text(value, name) for key, value in (inputs or {"input": input_str}).items()}
            self._calls[run_id] = self._context.saw_begin(name, arguments)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if (call := self._calls.pop(run_id, None)) is not None:
            self._context.saw_end(call, stored_or_text(output, call.tool))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if (call := self._calls.pop(run_id, None)) is not None:
            self._context.saw_failure(call, error)

    def _begin(self, run_id: UUID, path: str) -> None:
        self._began[run_id] = (path, time.perf_counter())

    def _end(self, run_id: UUID, **more: Any) -> None:
        if (began := self._began.pop(run_id, None)) is not None:
            path, since = began
            ms = round((time.perf_counter() - since) * 1e3, 3)
            self._context.inside.append(NodeInside(node=path or self._context.run.node, ms=ms, **more))


def _path(metadata: Mapping[str, Any] | None) -> str:
    """Return the path of a node in the graph: `outer/inner` for a node of a subgraph."""
    namespace = str((metadata or {}).get(_NAMESPACE, ""))
    return "/".join(part.partition(":")[0] for part in namespace.split("|"))
