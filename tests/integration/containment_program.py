"""A program as a user writes it, whose nodes do harm. It notes what came of them. test_containment.py runs it."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wtb
from tests.integration.environment_nodes import start_children, take_memory

MEMORY_GB = 0.4


def loop_for_ever(state: Any) -> Mapping[str, Any]:
    beat, next_beat = Path(state["folder"], "beat"), Path(state["folder"], "next")
    number = 0
    while True:
        number += 1
        next_beat.write_text(f"{os.getpid()} {number}")
        next_beat.rename(beat)


def share_memory(state: Any) -> Mapping[str, Any]:
    """Let three children take memory at the same time: each within the limit, together more."""
    begin, go = os.pipe()
    ready, say = os.pipe()
    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            taken = bytearray(int(state["gb"] * 1e9))
            os.write(say, b"1")
            os.close(go)
            os.read(begin, 1)
            os._exit(0 if taken else 1)
    os.close(say)
    held = 0
    while held < 3 and (found := os.read(ready, 3)):
        held += len(found)
    os.close(go)
    return {"ended": [os.waitpid(child, 0)[1] for child in children], "held": held}


def crash(state: Any) -> Mapping[str, Any]:
    marker = Path(state["folder"], "crashed")
    if not marker.exists():
        marker.touch()
        os.abort()
    return {"after": "the crash"}


def look_around(state: Any, ctx: Any) -> Mapping[str, Any]:
    folder = Path(state["folder"])
    (folder / "outside.txt").write_text(str(ctx.workspace))
    with socket.create_connection(("127.0.0.1", state["port"])) as connection:
        heard = connection.recv(5).decode()
    return {
        "variables": dict(os.environ),
        "secret": (folder / "secret").read_text(),
        "heard": heard,
        "processors": sorted(os.sched_getaffinity(0)),
    }


def run_all(kind: str, folder: Path, address: str | None) -> dict[str, Any]:
    where: dict[str, Any] = {} if address is None else {"address": address}
    limit = {} if kind == "in_process" else {"memory_gb": MEMORY_GB}
    found: dict[str, Any] = {}
    with wtb.Bench("memory://") as bench, socket.create_server(("127.0.0.1", 0)) as server:

        def run(function: Callable[..., Any], limits: Mapping[str, Any] = {}, **given: Any) -> Any:
            flow = wtb.Workflow(function.__name__)
            config = wtb.EnvironmentConfig(kind=kind, **where, **limits)
            flow.add_node("work", function, start=True, environment=config)
            done = bench.run(flow, {"folder": str(folder), **given})
            failure = done.execution.failure
            found[function.__name__] = {
                "status": str(done.status),
                "error": None if failure is None else [failure.type, failure.message],
                "state": dict(done.state),
            }
            return done

        os.environ["MY_SECRET"] = "s3cret-value"
        (folder / "secret").write_text("readable")
        (folder / "children").mkdir()
        server.listen()
        threading.Thread(target=_greet, args=(server,), daemon=True).start()
        run(look_around, port=server.getsockname()[1])
        run(take_memory, limit, gb=1)
        run(share_memory, limit, gb=MEMORY_GB * 0.6)
        run(start_children, folder=str(folder / "children"), count=50, hang=False)
        if kind != "in_process":
            run(crash)
        run(loop_for_ever, {"timeout_s": 0.5})
        found["beats"] = [_beat(folder), _later_beat(folder)] if kind == "in_process" else [_beat(folder)]
    return found


def _greet(server: socket.socket) -> None:
    connection, _ = server.accept()
    connection.sendall(b"hello")
    connection.close()


def _beat(folder: Path) -> list[int]:
    return [int(number) for number in (folder / "beat").read_text().split()]


def _later_beat(folder: Path) -> list[int]:
    """Wait until the node that was given up has gone on."""
    before = _beat(folder)
    while (now := _beat(folder)) == before:
        time.sleep(0.001)
    return now


def main(kind: str, folder: Path, address: str | None) -> None:
    if kind == "crash":
        with wtb.Bench(folder=folder / "store") as bench:
            flow = wtb.Workflow("crash")
            flow.add_node("work", crash, start=True)
            try:
                found = bench.resume((folder / "id").read_text(), flow).state["after"]
            except FileNotFoundError:
                run = bench.create(flow, {"folder": str(folder)})
                (folder / "id").write_text(run.id)
                run.resume()
                found = "no crash"
    else:
        found = run_all(kind, folder, address)
    (folder / "found.json").write_text(json.dumps(found, default=str))
    os._exit(0)  # a node that was given up would keep the process alive


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
