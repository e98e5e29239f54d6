"""`wtb serve --langgraph`, as typed: it is killed while a client follows a run, and another one takes over."""

from __future__ import annotations

import re
import threading
import warnings
from pathlib import Path
from typing import Any

from langgraph_sdk import get_sync_client

from tests.api.langgraph_project import AGENT, HELLO, serving_by_command, until
from tests.services import free_port
from tests.shell import Shell


def test_a_client_goes_on_after_its_server_was_killed_and_started_again(empty_folder: Path) -> None:
    shell, port = Shell(empty_folder, agent=AGENT), free_port()
    token = re.findall(r"wtb_\S+", shell.wtb("token", "create", "chat", "--role", "operator").stdout)[0]
    (empty_folder / "gate").touch()
    with get_sync_client(url=f"http://127.0.0.1:{port}/langgraph", api_key=token) as client:
        parts: list[Any] = []

        def listen() -> None:
            warnings.simplefilter("ignore")  # the SDK warns that it connects again
            parts.extend(client.runs.stream("t", "agent", input=HELLO, stream_mode="updates", if_not_exists="create"))

        def updated() -> list[str]:
            return [next(iter(each.data)) for each in parts if each.event == "updates"]

        with serving_by_command(shell, port) as first:
            listening = threading.Thread(target=listen)
            listening.start()
            until((empty_folder / "worker.pid").exists)
            until(lambda: updated() == ["plan", "talk"])  # what a killed server had not sent yet would be lost
            first.kill()
            first.wait()
        (empty_folder / "gate").unlink()
        with serving_by_command(shell, port):
            listening.join(60)
            assert not listening.is_alive()
            assert updated() == ["plan", "talk", "review"]
            assert parts[-1].event == "end"
            values: Any = client.threads.get_state("t")["values"]
            assert values["steps"] == ["plan", "talk", "review unasked"]
            assert next(iter(client.runs.list("t")))["status"] == "success"
    assert (empty_folder / "plans.txt").read_text() == "plan\n"
    shown = shell.json("show", "t")
    assert shown["status"] == "completed"
    assert "LangGraph thread" in shell.wtb("ls").stdout
