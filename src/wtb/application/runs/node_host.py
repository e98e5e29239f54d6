"""NodeHost: runs the functions of nodes in another process, as messages of the run's process say."""

from __future__ import annotations

import importlib
import queue
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from wtb.application.dependencies.own_code import path_of, project_root
from wtb.application.runs.code_digests import code_digests, other_code
from wtb.application.runs.engine_context import CURRENT, EngineContext
from wtb.application.runs.function_caller import FunctionCaller
from wtb.application.runs.remote_context import NodeInterrupted, RemoteContext, Requests
from wtb.application.runs.remote_errors import error_to_data
from wtb.application.runs.state_view import StateView
from wtb.domain.node_work import NodeWork
from wtb.domain.observation import Observation, SourceKind
from wtb.domain.ports import Codec, DependencyObserver, MessageLink
from wtb.domain.state import State
from wtb.domain.workflow import Node

_PASSED = frozenset({"PATH", "HOME", "LANG"})
"""The variables that have the same value here as in the process of the run."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """Gives code that does not get `ctx` as an argument the context of the node, as `wtb.workspace()` needs it."""

    context: RemoteContext


class NodeHost:
    """Takes work over a link, one node at a time, until the other side is gone."""

    def __init__(
        self,
        link: MessageLink,
        codec: Codec,
        caller: FunctionCaller,
        observer: DependencyObserver,
        load: Callable[[str], Callable[..., Any]],
    ) -> None:
        self._link = link
        self._codec = codec
        self._caller = caller
        self._observer = observer
        self._load = load
        self._sent = 0
        self._work: queue.SimpleQueue[NodeWork | None] = queue.SimpleQueue()
        self._requests = Requests(link, codec)

    def serve(self, on_end: Callable[[], None]) -> None:
        """Run nodes in this thread; `on_end` is called in another one as soon as the other side is gone."""
        threading.Thread(target=self._read, args=(on_end,), name="wtb-link", daemon=True).start()
        while (work := self._work.get()) is not None:
            ended = self._made(work)
            with suppress(Exception):  # the node may have closed them
                sys.stdout.flush()  # the process may be killed before its next node
                sys.stderr.flush()
            self._link.send(ended)

    def _read(self, on_end: Callable[[], None]) -> None:
        while (message := self._link.receive()) is not None:
            if "execute" in message:
                self._work.put(NodeWork.from_data(message["execute"]))
            else:
                self._requests.deliver(message)
        self._work.put(None)
        on_end()

    def _made(self, work: NodeWork) -> dict[str, Any]:
        """Run a node, and return the message about its end."""
        try:
            for module in work.imports:
                if module not in sys.modules:
                    with suppress(ImportError):  # the codec names a class that it does not know
                        importlib.import_module(module)
            function = self._load(work.reference)
            if different := other_code(work.code, code_digests(function)):
                return {"other_code": different}
            view = StateView(State(self._codec.decode(work.state)), work.node, work.reads)
            context = None if work.facts is None else RemoteContext(work.node, work.facts, self._requests)
            node = Node(name=work.node, function=function, reads=work.reads)
            CURRENT.set(None if context is None else cast("EngineContext", Hosted(context)))
            returned = dict(self._caller.call(node, view, context, None))
            data = b64encode(self._codec.encode(returned, work.node)[0]).decode()
        except NodeInterrupted:
            return {"interrupted": True}
        except BaseException as error:  # noqa: BLE001  also `exit()` in a node: it is the node's failure
            return {"failed": error_to_data(error, self._codec), "observed": self._observed(work)}
        return {"returned": data, "assigned": sorted(view.assigned), "observed": self._observed(work)}

    def _observed(self, work: NodeWork) -> list[list[str]]:
        """Return what was read since the last node; variables only if they are the same in the run's process."""
        seen = self._observer.seen(self._sent)
        self._sent += len(seen)
        root = Path(work.root) if work.root else None
        return observations_to_data([_renamed(each, root) for each in seen if _is_the_same_there(each)])


def _is_the_same_there(observation: Observation) -> bool:
    source = observation.source
    return source.kind is not SourceKind.VARIABLE or source.name in _PASSED


def _renamed(observation: Observation, root: Path | None) -> Observation:
    """Name files relative to the project of the run's process, which may work in another folder."""
    if root is None or root == project_root():
        return observation
    source, (file, _, function) = observation.source, observation.reader.rpartition(":")
    is_file = source.kind in (SourceKind.FILE, SourceKind.FOLDER, SourceKind.MODULE)
    name = _relative(source.name, root) if is_file else source.name
    reader = f"{_relative(file, root)}:{function}" if file else observation.reader
    return Observation(reader, replace(source, name=name), observation.digest)


def _relative(name: str, root: Path) -> str:
    path = path_of(name)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def observations_to_data(observations: Sequence[Observation]) -> list[list[str]]:
    """Return observations as plain JSON."""
    return [[each.reader, each.source.kind.value, each.source.name, each.digest] for each in observations]


def is_message_about_end(message: Mapping[str, Any]) -> bool:
    """Whether a message says that a node has ended."""
    return "ask" not in message
