"""Commands about LangGraph threads: run a graph on one, or change its state. LangGraph is loaded when one comes.

What the graph streams goes to the server at once, and is not stored. What is stored is stored by the Saver, checkpoint
by checkpoint, so a run goes on after its worker was killed as any thread does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wtb.domain.commands import Command
from wtb.domain.errors import InvalidInput
from wtb.domain.ids import ExecutionId
from wtb.flow import Workflow
from wtb.server_commands.context import CommandContext

if TYPE_CHECKING:
    from wtb.langgraph import GraphWorkflow, Saver

Result = dict[str, Any]

_MODES = {"messages-tuple": "messages"}
"""Modes that LangGraph itself calls otherwise."""


def run(ctx: CommandContext, command: Command) -> Result:
    """Run a graph on a thread until it ends or asks; if a killed worker has begun, go on where it was."""
    from wtb.langgraph import Saver

    flow = _graph_of(ctx.flow())
    with Saver(ctx.bench) as saver:
        runner = _Runner(ctx, command, flow, saver)
        is_stopped = asyncio.run(runner.run())
    return {"stopped_by_server": True} if is_stopped else {"thread": command.subject}


def update(ctx: CommandContext, command: Command) -> Result:
    """Change the state of a thread as a node of its graph would."""
    from langgraph.errors import InvalidUpdateError

    from wtb.langgraph import Saver

    given = command.arguments
    flow = _graph_of(ctx.flow())
    with Saver(ctx.bench) as saver:
        if command.attempts > 1 and (made := _made_by(ctx, command)):
            return {"checkpoint_id": made}
        graph = flow.compiled_with(saver)
        config = _config(flow, command, given)
        try:
            stored = asyncio.run(graph.aupdate_state(config, given.get("values"), as_node=given.get("as_node")))
        except InvalidUpdateError as error:
            raise InvalidInput(f"thread {command.subject!r} cannot be updated like this: {error}") from error
    return {"checkpoint_id": stored["configurable"]["checkpoint_id"]}


def described_graph(flow: Workflow, *, xray: bool | int) -> Result:
    """Return a graph and its schemas, as LangGraph's clients read them."""
    graph = _graph_of(flow).compiled_with(None)
    drawn = graph.get_graph(xray=xray).to_json()
    makers: dict[str, Callable[[], Any]] = {
        "input_schema": graph.get_input_jsonschema,
        "output_schema": graph.get_output_jsonschema,
        "state_schema": lambda: _state_schema(graph),
        "config_schema": dict,
        "context_schema": graph.get_context_jsonschema,
    }
    schemas = {name: _schema(make) for name, make in makers.items()}
    return {"graph": json.loads(json.dumps(drawn, default=str)), "schemas": schemas}


def _schema(make: Callable[[], Any]) -> Any:
    """Return a schema, or None for types that pydantic cannot describe."""
    from pydantic import PydanticUserError

    try:
        return make()
    except (PydanticUserError, TypeError):
        return None


def _state_schema(graph: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(graph.builder.state_schema).json_schema()


def _graph_of(flow: Workflow) -> GraphWorkflow:
    from wtb.langgraph import GraphWorkflow

    if not isinstance(flow, GraphWorkflow):
        raise InvalidInput(f"the workflow {flow.name!r} is not a LangGraph graph; only graphs run on threads")
    return flow


class _Runner:
    """One run of a graph on a thread."""

    def __init__(self, ctx: CommandContext, command: Command, flow: GraphWorkflow, saver: Saver) -> None:
        self._ctx = ctx
        self._command = command
        self._given = command.arguments
        self._graph = flow.compiled_with(saver)
        self._context = self._given.get("context") or flow.default_context
        self._has_begun = command.attempts > 1 and _has_begun(ctx, saver, command)
        self._config = _config(flow, command, {} if self._has_begun else self._given)

    async def run(self) -> bool:
        """Run the graph; return whether it was left in the middle because the server stops."""
        wanted = {_MODES.get(mode, mode) for mode in self._given["stream_mode"]}
        subgraphs = bool(self._given.get("stream_subgraphs"))
        stream = self._graph.astream(
            None if self._has_begun else _input(self._given),
            self._config,
            context=self._context,
            stream_mode=sorted(wanted | {"values"}),  # values say when a step has ended
            subgraphs=subgraphs,
            **{name: self._given[name] for name in _HOW if self._given.get(name) is not None},
        )
        async for chunk in stream:
            namespace, mode, data = chunk if subgraphs else ((), *chunk)
            if mode in wanted:
                self._say(mode, namespace, data)
            if mode == "values" and not namespace and self._ctx.request.wanted == "pause":
                await stream.aclose()
                return True
        return False

    def _say(self, mode: str, namespace: Sequence[str], data: Any) -> None:
        from wtb.infrastructure.langgraph.clients.plain_json import plain

        shown = self._ctx.services.masker.data(plain(data))
        self._ctx.say({"event": "|".join((mode, *namespace)), "data": json.dumps(shown, separators=(",", ":"))})


_HOW = ("interrupt_before", "interrupt_after", "durability")


def _config(flow: GraphWorkflow, command: Command, given: Mapping[str, Any]) -> Any:
    """Return the configuration of a run: the graph's own, then the caller's, then ours."""
    from langchain_core.runnables.config import merge_configs

    asked: Any = command.arguments.get("config") or {}
    place = {"thread_id": command.subject, "checkpoint_ns": given.get("checkpoint_ns") or ""}
    if given.get("checkpoint_id"):
        place["checkpoint_id"] = given["checkpoint_id"]
    noted = {**(command.arguments.get("metadata") or {}), "run_id": command.id, "graph_id": flow.name}
    own: Any = {"configurable": place, "metadata": noted}
    default: Any = dict(flow.default_config)
    return merge_configs(default, asked, own)


def _input(given: Mapping[str, Any]) -> Any:
    from langgraph.types import Command as GraphCommand

    command = given.get("command")
    if command is None:
        return given.get("input")
    goto = command.get("goto") or ()
    return GraphCommand(
        resume=command.get("resume"),
        update=_pairs(command.get("update")),
        goto=[_target(each) for each in (goto if isinstance(goto, list) else [goto])] if goto else (),
    )


def _pairs(update: Any) -> Any:
    """Return an update; JSON has lists where LangGraph has pairs."""
    return [tuple(each) for each in update] if isinstance(update, list) else update


def _target(goto: Any) -> Any:
    from langgraph.types import Send

    return Send(goto["node"], goto.get("input")) if isinstance(goto, Mapping) else goto


def _has_begun(ctx: CommandContext, saver: Saver, command: Command) -> bool:
    """Whether a killed worker has stored the input or the answer of this run: it must not be given twice."""
    if _made_by(ctx, command) is not None:
        return True
    is_answer = "resume" in (command.arguments.get("command") or {})
    return is_answer and saver.answered_since(str(command.subject), command.created_at)


def _made_by(ctx: CommandContext, command: Command) -> str | None:
    """Return the last checkpoint that an earlier worker made for this command."""
    with ctx.services.storage.unit_of_work(readonly=True) as uow:
        rows = uow.checkpoints.list_infos(ExecutionId(str(command.subject)))
    return next((row.id for row in reversed(rows) if row.created_by == command.id), None)
