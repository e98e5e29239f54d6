"""The process of a subprocess environment: a guard, and below it the process that runs nodes."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wtb.application.runs.function_caller import FunctionCaller
from wtb.application.runs.node_host import NodeHost
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.environments.guard import ProcessGuard
from wtb.infrastructure.observation import ProcessObserver
from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.worker_process import print_at_once
from wtb.loading import load_function


def main(number: int) -> None:
    """Guard the process of nodes for the process that has the other end of socket `number`."""
    os.set_inheritable(number, False)
    ready = {"wtb": version("workflow-test-bench"), "python": platform.python_version()}
    ProcessGuard(socket.socket(fileno=number), host_nodes).serve(ready)
    os._exit(0)  # there is nothing to clean up, and somebody may wait for the end


def host_nodes(end: socket.socket, facts: Mapping[str, Any]) -> None:
    """Run nodes until the other side is gone."""
    print_at_once()
    guard = os.getppid()
    observer = ProcessObserver(store=Path(facts["home"]))
    observer.start()
    link = Channel(end, lambda: os.getppid() == guard)
    host = NodeHost(link, MsgpackCodec(), FunctionCaller(sleep=time.sleep), observer, load_function)
    host.serve(lambda: os._exit(0))
