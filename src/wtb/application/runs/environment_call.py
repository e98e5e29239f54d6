"""EnvironmentCall: one call of a node's function in an environment, within its time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from wtb.application.dependencies.workflow_code import listed
from wtb.application.runs.context import Context
from wtb.application.runs.context_server import ContextServer
from wtb.application.runs.function_caller import NodeTimeout
from wtb.application.runs.node_host import is_message_about_end
from wtb.domain.engine import Runs
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed, OutOfMemory
from wtb.domain.node_work import NodeWork
from wtb.domain.ports import Codec, Environment, MessageLink
from wtb.domain.workflow import Node


class EnvironmentCall:
    """One call of a node's function in an environment."""

    def __init__(
        self, node: Node, config: EnvironmentConfig, environment: Environment, timeout_s: float | None
    ) -> None:
        self._node = node
        self.config = config
        self.environment = environment
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._is_late = False
        self.has_ended_well = False
        """Whether the process has said that the node has ended, so that it can run another one."""

    def made(self, work: NodeWork, context: Context | None, codec: Codec, caller: Runs) -> Mapping[str, Any]:
        """Make the call, answer what the node asks for, and return the message about its end."""
        ended: Mapping[str, Any] = {}
        for _ in range(2):
            ended = self._talked(self.environment.start(), work, context, codec, caller)
            if "other_code" not in ended:
                return ended
            self.has_ended_well = False
            self.environment.kill()  # it may have loaded the file before it was edited; a new process has not
        raise EnvironmentFailed(
            f"node {self._node.name!r} cannot run in {self.environment.name}, which has other code than this process: "
            f"{listed(ended['other_code'])}. Start your program again if you have edited it; else copy the code there"
        )

    def _talked(
        self, link: MessageLink, work: NodeWork, context: Context | None, codec: Codec, caller: Runs
    ) -> Mapping[str, Any]:
        server = None if context is None else ContextServer(context, link, codec, caller)
        timer = self._timer()
        try:
            link.send({"execute": work.to_data()})
            ended = _converse(link, server)
            with self._lock:
                self.has_ended_well = ended is not None and not self._is_late
        finally:
            if timer is not None:
                timer.cancel()
                if not self.has_ended_well:
                    timer.join()  # its kill must not hit the next node of this environment
            if server is not None:
                server.end()
        if server is not None and server.interruption is not None:
            raise server.interruption
        if self._is_late:
            raise NodeTimeout(f"node {self._node.name!r} took longer than its {self._timeout_s:g} s, and was ended")
        if ended is None:
            self._lost()
        return ended

    def _timer(self) -> threading.Timer | None:
        if self._timeout_s is None:
            return None
        timer = threading.Timer(self._timeout_s, self._end_late)
        timer.daemon = True
        timer.start()
        return timer

    def _end_late(self) -> None:
        with self._lock:
            if self.has_ended_well:
                return  # the environment may run another node by now
            self._is_late = True
        with suppress(EnvironmentFailed):  # it does not answer; its link is closed, so the node has ended for us
            self.environment.kill()

    def _lost(self) -> NoReturn:
        """Raise the error of a node whose process ended by itself."""
        how = self.environment.kill()
        limit = self.config.memory_limit_gb
        hint = "" if limit is None else f" (it may take {limit:g} GB)"
        raise EnvironmentFailed(f"node {self._node.name!r} was ended: its process {how}{hint}")

    def out_of_memory(self) -> OutOfMemory:
        """Return the error of a node that took too much memory."""
        return OutOfMemory(f"node {self._node.name!r} was ended: it took more than {self.config.memory_limit_gb:g} GB")


def _converse(link: MessageLink, server: ContextServer | None) -> Mapping[str, Any] | None:
    """Answer requests until the node has ended; return the message about that, or None if the process has ended."""
    while (message := link.receive()) is not None:
        if is_message_about_end(message):
            return message
        assert server is not None
        server.take(message)
    return None
