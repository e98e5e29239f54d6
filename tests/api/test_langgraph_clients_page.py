"""The examples of docs/langgraph-clients.md run as they stand: a graph, `wtb serve --langgraph`, a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.api.langgraph_project import serving_by_command
from tests.services import free_port
from tests.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs" / "langgraph-clients.md").read_text()


def test_the_examples_of_the_page_run_as_they_stand(empty_folder: Path) -> None:
    graph, program = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    shell, port = Shell(empty_folder, agent=graph), free_port()
    (empty_folder / "program.py").write_text(program.replace("8383", str(port)))
    assert "wtb token create chat --role operator" in PAGE
    assert "wtb serve --langgraph agent.py:agent" in PAGE
    token = shell.wtb("token", "create", "chat", "--role", "operator").stdout.strip()
    with serving_by_command(shell, port):
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=empty_folder,
            env={**os.environ, "WTB_TOKEN": token},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    thread = done.stdout.split()[-1]
    assert "messages " in done.stdout
    assert thread in shell.wtb("ls", "--json").stdout
    assert shell.json("show", thread)["status"] == "completed"
    assert "main ~2" in shell.wtb("history", thread, "--tree").stdout
    shell.wtb("rollback", thread, "talk", "--yes")
    assert shell.json("show", thread)["status"] == "paused"
