"""`wtb mcp` as a process: what it prints, when it ends, and whom it serves over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.editor_project import Editor, EditorProject, children_of, is_alive, made_in, told
from tests.shell import Shell, environment

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def project(empty_folder: Path) -> EditorProject:
    return made_in(empty_folder)


@pytest.fixture
def shell(empty_folder: Path) -> Shell:
    return Shell(empty_folder)


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def started(project: EditorProject, *arguments: str) -> subprocess.Popen[str]:
    """Start `wtb mcp` with pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "wtb", "mcp", *arguments],
        cwd=project.folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def test_stdout_has_nothing_but_the_protocol_whatever_the_users_code_prints(project: EditorProject) -> None:
    process = started(project, "--allow-changes", "agent.py:flow")
    said(process, HELLO)
    assert heard(process)["result"]["serverInfo"]["name"] == "wtb"
    said(process, READY)
    said(process, tool_call("start_run", workflow="agent", input={"topic": "x"}))
    answer = heard(process)
    assert json.loads(answer["result"]["content"][0]["text"])["run"]["status"] == "completed"
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert "planning" in errors


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_although_stdin_stays_open(project: EditorProject, how: signal.Signals) -> None:
    process = started(project)
    said(process, HELLO)
    heard(process)
    process.send_signal(how)
    assert process.wait(60) == 0
    process.communicate()


EDITOR = """
import subprocess, sys
server = subprocess.Popen([sys.executable, "-m", "wtb", "mcp", "--allow-changes", "agent.py:flow"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in sys.argv[1:]:
    server.stdin.write(line.encode() + b"\\n")
    server.stdin.flush()
print(server.pid, flush=True)
server.wait()
"""


def test_a_killed_editor_ends_the_server_and_its_workers_and_the_run_can_go_on(project: EditorProject) -> None:
    code = (project.folder / "agent.py").read_text()
    slow = code.replace('print("planning")', "import time, os; time.sleep(0 if os.path.exists('go') else 600)")
    (project.folder / "agent.py").write_text(slow)
    lines = [
        json.dumps(each) for each in (HELLO, READY, tool_call("start_run", workflow="agent", input={"topic": "x"}))
    ]
    editor = subprocess.Popen(
        [sys.executable, "-c", EDITOR, *lines],
        cwd=project.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert editor.stdout is not None
    server = int(editor.stdout.readline())
    wait_until(lambda: '"running"' in project.wtb("ls", "--json"))
    workers = children_of(server)
    assert workers
    editor.kill()
    editor.communicate()
    wait_until(lambda: not any(map(is_alive, [server, *workers])))
    (row,) = json.loads(project.wtb("ls", "--json"))
    (project.folder / "go").touch()
    project.wtb("resume", row["run"])
    assert [row["status"] for row in json.loads(project.wtb("ls", "--json"))] == ["completed"]


def test_a_batch_goes_on_with_the_next_editor(project: EditorProject) -> None:
    code = (project.folder / "tiny.py").read_text()
    wait = "import time, os\n    while not os.path.exists('go'): time.sleep(0.05)\n    ctx.usage"
    (project.folder / "tiny.py").write_text(code.replace("ctx.usage", wait))

    async def story() -> None:
        async with project.editor() as editor:
            assert (await editor.call("start_batch", batch="small"))["batch"]["name"] == "small"
            while not (await editor.call("list_runs", batch="small") if await begun(editor) else {"items": []})[
                "items"
            ]:
                pass
        (project.folder / "go").touch()
        async with project.editor() as editor:
            while (await editor.call("show_batch", batch="small"))["status"] != "completed":
                pass

    async def begun(editor: Editor) -> bool:
        return bool((await editor.call("list_batches"))["items"])

    told(story)


def test_editors_work_beside_a_server_and_beside_each_other(project: EditorProject, shell: Shell) -> None:
    server = shell.start("serve", "--port", "0", "agent.py:flow", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("Serving ")

        async def story() -> None:
            async with project.editor() as one, project.editor() as other:
                first = (await one.call("start_run", workflow="agent", input={"topic": "x"}))["run"]
                second = (await other.call("start_run", workflow="agent", input={"topic": "y"}))["run"]
                assert (first["status"], second["status"]) == ("completed", "completed")
                assert len((await one.call("list_runs"))["items"]) == 2
                await other.call("rollback", run=first["id"], to="plan")
                assert (await one.call("show_run", run=first["id"]))["status"] == "paused"

        told(story)
    finally:
        server.kill()
        server.communicate()
    assert project.world() == ["+about x", "+about y", "-about x"]


def test_over_http_a_stranger_and_a_page_of_another_site_are_refused(project: EditorProject) -> None:
    (project.folder / "wtb.toml").write_text('[server]\nallowed_hosts = ["bench.test"]\n')
    token = project.token("operator")
    accepts = {"Accept": "application/json, text/event-stream"}
    with project.over_http() as address, httpx.Client(headers=accepts) as client:
        assert client.post(address, json=HELLO).status_code == 401
        wrong = {"Authorization": "Bearer wtb_no"}
        assert client.post(address, json=HELLO, headers=wrong).status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.post(address, json=HELLO).status_code == 200
        assert client.post(address, json=HELLO, headers={"Host": "bench.test"}).status_code == 200
        rebound = client.post(address, json=HELLO, headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["code"]) == (403, "forbidden")
        page = client.post(address, json=HELLO, headers={"Origin": "https://evil.example"})
        assert (page.status_code, page.json()["code"]) == (403, "forbidden")
        assert client.post(address, content=b"x" * 20_000_000).status_code == 413
        deep = client.post(address, content=b"[" * 1_000)
        assert deep.status_code == 422


def test_a_session_belongs_to_the_token_that_opened_it(project: EditorProject) -> None:
    one, other = project.token("operator", "one"), project.token("viewer", "other")
    accepts = {"Accept": "application/json, text/event-stream"}
    with project.over_http() as address, httpx.Client(headers=accepts) as client:
        opened = client.post(address, json=HELLO, headers={"Authorization": f"Bearer {one}"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        listing = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
        assert client.post(address, json=listing, headers={**session, "Authorization": f"Bearer {one}"}).is_success
        stolen = client.post(address, json=listing, headers={**session, "Authorization": f"Bearer {other}"})
        assert stolen.status_code == 404


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_http_the_role_of_the_token_decides(project: EditorProject, mode: str) -> None:
    project.wtb("run", "agent.py", "--input", '{"topic": "x"}', "--run-id", "first")
    token = project.token("viewer")

    async def story() -> None:
        with project.over_http() as address:
            async with project.remote_editor(address, token, mode=mode) as editor:
                assert (await editor.call("show_run", run="first"))["status"] == "completed"
                refusal = "'editor' has the role viewer, but this needs operator; ask an admin for a token"
                assert refusal in await editor.refused("plan_rollback", run="first", to="plan")
                assert refusal in await editor.refused("rollback", run="first", to="plan")
                assert refusal in await editor.refused("start_run", workflow="agent", input={"topic": "y"})
                assert editor.questions == []

    told(story)
    assert project.world() == ["+about x"]


def test_what_cannot_be_served_is_refused_in_a_sentence(shell: Shell) -> None:
    for words, sentence in [
        (("--port", "1"), "--host and --port go with --http"),
        (("--url", "memory://"), "memory:// has nothing to show"),
        (("--project", "absent"), "--project absent: No such file or directory; name the folder of your project"),
        (("--http", "--host", "0.0.0.0"), "other machines can reach 0.0.0.0, so the server needs TLS"),
        (("--http", "--port", "0"), "none is valid: wtb token create editor --role operator"),
    ]:
        refused = shell.wtb("mcp", *words, code=2)
        assert sentence in refused.stderr
        assert refused.stdout == ""


def test_the_users_code_cannot_read_what_the_editor_says(project: EditorProject) -> None:
    code = (project.folder / "agent.py").read_text()
    (project.folder / "agent.py").write_text(
        code.replace('print("planning")', "import sys; assert sys.stdin.read() == ''")
    )

    async def story() -> None:
        async with project.editor("agent.py:flow") as editor:
            run = (await editor.call("start_run", workflow="agent", input={"topic": "x"}))["run"]
            assert run["status"] == "completed"

    told(story)
