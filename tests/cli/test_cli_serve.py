"""`wtb serve` and `wtb token`, as typed: signing in, one server a file, refusals that say what to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.shell import Shell, environment

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def shell(empty_folder: Path) -> Shell:
    return Shell(empty_folder)


@contextmanager
def serving(shell: Shell, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start a server, and return its process, its address and the link that it prints."""
    process = shell.start("serve", "--port", "0", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        first, second, third = (process.stdout.readline() for _ in range(3))
        found = re.fullmatch(r"Serving \S+ at (http://\S+)\. Ctrl-C stops the server\.\n", first)
        assert found, (first, process.stderr.read() if process.stderr and not first else "")
        assert third == "The link works once, within five minutes; `wtb serve --link` prints another.\n"
        assert process.stdout.readline().endswith("wtb serve agent.py\n")  # no workflow is named
        yield process, found[1], second.removeprefix("Sign in: ").strip()
    finally:
        process.kill()
        process.communicate()


def test_a_browser_signs_in_with_the_link_and_ctrl_c_ends_the_server(shell: Shell) -> None:
    with serving(shell) as (process, address, link), httpx.Client() as browser:
        assert link.startswith(f"{address}/sign-in/")
        assert browser.get(link).status_code == 200
        assert browser.get(f"{address}/api/v1/session").json()["role"] == "admin"
        assert httpx.get(link).status_code == 401
        other = shell.wtb("serve", "--link")
        assert other.stderr == "This link works once, within five minutes.\n"
        assert httpx.get(other.stdout.strip()).status_code == 200
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
        assert (process.returncode, said, errors) == (0, "Stopped.\n", "")
    assert "no server runs for this folder; `wtb serve` starts one" in shell.wtb("serve", "--link", code=1).stderr


def test_one_sqlite_file_has_one_server_and_a_killed_one_is_in_nobodys_way(shell: Shell) -> None:
    with serving(shell) as (process, address, _):
        second = shell.wtb("serve", "--port", "0", code=1).stderr
        assert f"another server at {address} (process {process.pid}) serves this database" in second
        linked = shell.folder / "same.db"
        linked.symlink_to(shell.folder / ".wtb" / "wtb.db")
        assert "another server" in shell.wtb("serve", "--port", "0", "--url", f"sqlite:///{linked}", code=1).stderr
        process.kill()
        process.wait()
        with serving(shell) as (_, _, link):
            assert httpx.get(link).status_code == 200
            mode = (shell.folder / ".wtb" / "wtb.db-server").stat().st_mode
            assert mode & 0o077 == 0


def test_sigterm_ends_a_server_as_ctrl_c_does(shell: Shell) -> None:
    with serving(shell) as (process, _, _):
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == ("Stopped.\n", "")


def test_a_token_of_the_command_line_is_taken_and_refused_within_a_second_of_its_end(shell: Shell) -> None:
    with serving(shell) as (_, address, _):
        made = shell.wtb("token", "create", "ci", "--role", "viewer", "--expires", "30d")
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert "It is not shown again" in made.stderr
        assert httpx.get(f"{address}/api/v1/session", headers=headers).json()["name"] == "ci"
        assert httpx.get(f"{address}/api/v1/tokens", headers=headers).status_code == 403
        shell.wtb("token", "revoke", "ci")
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if httpx.get(f"{address}/api/v1/session", headers=headers).status_code == 401:
                return
        pytest.fail("the revoked token is still taken")


def test_another_address_needs_tls_and_a_token(shell: Shell, tmp_path: Path) -> None:
    refused = shell.wtb("serve", "--host", "0.0.0.0", code=2).stderr
    assert "other machines can reach 0.0.0.0, so the server needs TLS" in refused
    (shell.folder / "wtb.toml").write_text('[server]\ntrusted_proxy = "10.0.0.5"\n')
    refused = shell.wtb("serve", "--host", "0.0.0.0", "--port", "0", code=2).stderr
    assert "none is valid: wtb token create NAME --role admin" in refused
    assert "none is valid" in shell.wtb("serve", "--port", "0", code=2).stderr  # a proxy opens this machine to others
    (shell.folder / "wtb.toml").write_text('[server]\ncertificate = "missing.pem"\n')
    assert "needs both settings" in shell.wtb("serve", code=2).stderr
    (shell.folder / "wtb.toml").write_text('[server]\ncertificate = "missing.pem"\ncertificate_key = "missing.key"\n')
    assert "missing.pem and its key missing.key cannot be used" in shell.wtb("serve", code=2).stderr
    (shell.folder / "wtb.toml").write_text('[server]\ntrusted_proxy = "the proxy"\n')
    assert "such as 10.0.0.5" in shell.wtb("serve", code=2).stderr


def test_a_server_of_others_takes_tokens_and_no_links(shell: Shell) -> None:
    (shell.folder / "wtb.toml").write_text('[server]\ntrusted_proxy = "127.0.0.1"\nallowed_hosts = ["bench.example"]\n')
    token = shell.wtb("token", "create", "ci", "--role", "viewer").stdout.strip()
    process = shell.start("serve", "--port", "0", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].removesuffix(". Ctrl-C stops the server.\n")
        assert process.stdout.readline() == "Callers sign in with a token, which `wtb token create` makes.\n"
        headers = {"Host": "bench.example", "Authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/api/v1/session", headers=headers).status_code == 200
        assert "takes tokens, not links" in shell.wtb("serve", "--link", code=2).stderr
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with serving(shell) as (_, address, _):
        other = shell.folder / "other"
        other.mkdir()
        port = address.rpartition(":")[2]
        assert (
            f"another program listens on port {port} of 127.0.0.1"
            in Shell(other).wtb("serve", "--port", port, code=2).stderr
        )


def test_a_file_that_is_not_there_is_named(shell: Shell) -> None:
    refused = shell.wtb("serve", "--port", "0", "no_such.py:flow", code=2).stderr
    assert refused == "wtb: there is no file no_such.py, so 'no_such.py:flow' cannot be served\n"


def test_memory_cannot_be_served(shell: Shell) -> None:
    assert "memory:// cannot be served" in shell.wtb("serve", "--url", "memory://", code=2).stderr


def test_a_database_that_is_not_embedded_is_not_upgraded_by_itself(shell: Shell) -> None:
    refused = shell.wtb("serve", "--port", "0", "--url", "sqlite:///bench.db", code=1).stderr
    assert "run `wtb db upgrade`" in refused


def test_without_the_libraries_wtb_says_what_to_install(shell: Shell) -> None:
    hidden = shell.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['fastapi'] = None\n")
    variables = {**environment(), "PYTHONPATH": os.pathsep.join([str(hidden), *sys.path[1:]])}
    done = subprocess.run(
        [sys.executable, "-m", "wtb", "serve"],
        cwd=shell.folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'workflow-test-bench[server]'" in done.stderr


def test_several_servers_share_postgres_and_each_has_its_file(shell: Shell, postgres_url: str) -> None:
    refused = shell.wtb("serve", "--port", "0", "--url", postgres_url, code=1).stderr
    assert "has no wtb tables yet; run `wtb db upgrade`" in refused
    shell.wtb("db", "upgrade", "--url", postgres_url)
    database = ("--url", postgres_url)
    with serving(shell, *database) as (first, _, link), serving(shell, *database) as (_, address, _):
        assert httpx.get(link.replace(link.partition("/sign-in/")[0], address)).status_code == 200
        first.kill()
        first.wait()
        other = shell.wtb("serve", "--link", *database).stdout.strip()
        assert other.startswith(address)
        assert httpx.get(other).status_code == 200


def test_tokens_are_listed_without_their_secrets(shell: Shell) -> None:
    assert shell.wtb("token", "ls").stdout.startswith("There is no token yet")
    made = shell.json("token", "create", "ci", "--role", "operator", "--expires", "12h")
    assert made["token"].startswith("wtb_")
    assert (made["role"], made["status"]) == ("operator", "valid")
    assert shell.json("token", "revoke", "ci")["status"] == "revoked"
    listed = shell.wtb("token", "ls")
    assert "revoked" in listed.stdout
    assert made["token"] not in listed.stdout
    assert (
        "give a number with m, h, d or w"
        in shell.wtb("token", "create", "b", "--role", "viewer", "--expires", "1y", code=2).stderr
    )
    assert "no token 'nobody'" in shell.wtb("token", "revoke", "nobody", code=1).stderr
