"""`wtb environment-server`: who may use it, how many environments it keeps, and what ends with a client or a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

import wtb
from tests.integration import environment_nodes as nodes
from wtb.bench import Bench
from wtb.cli.commands.environment_server import environment_server
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentAway, EnvironmentFailed, InvalidInput
from wtb.domain.workflow import RetryPolicy
from wtb.flow import Workflow
from wtb.infrastructure.environments import grpc as grpc_client
from wtb.infrastructure.environments.grpc import GrpcEnvironment
from wtb.infrastructure.environments.grpc_messages import SERVICE, packed, unpacked
from wtb.infrastructure.environments.grpc_server import EnvironmentServer, ServerOptions

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(*, listen: str = "127.0.0.1:0", **options: Any) -> Iterator[tuple[EnvironmentServer, str]]:
    server = EnvironmentServer(ServerOptions(listen=listen, **options))
    try:
        yield server, f"127.0.0.1:{server.start()}"
    finally:
        server.close()


def flow_of(function: Callable[..., Any], environment: EnvironmentConfig, **options: Any) -> Workflow:
    flow = Workflow("served")
    flow.add_node("work", function, start=True, environment=environment, **options)
    return flow


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_client_without_the_token_is_refused(tmp_path: Path) -> None:
    with serving(token="right-token") as (_, address):
        for token in (None, wtb.Secret("wrong-token")):
            config = EnvironmentConfig(kind="grpc", address=address, token=token)
            with pytest.raises(EnvironmentFailed, match="the token is wrong or missing"):
                GrpcEnvironment(config, tmp_path)


def test_a_call_without_the_token_is_refused_before_its_message_is_read() -> None:
    with serving(token="right-token") as (_, address), grpc.insecure_channel(address) as channel:
        for call in ("Create", "Clean", "Status"):
            ask = channel.unary_unary(f"/{SERVICE}/{call}")
            with pytest.raises(grpc.RpcError) as refused:
                ask(b"\xff" * 1000)  # no message at all
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert channel.unary_unary(f"/{SERVICE}/Health", packed, unpacked)({})["status"] == "serving"


def test_an_idle_environment_is_not_used_after_its_server_was_restarted() -> None:
    with Bench("memory://") as bench:
        with serving() as (_, address):
            flow = flow_of(nodes.add, EnvironmentConfig(kind="grpc", address=address))
            assert bench.run(flow, {"a": 1, "b": 2}).status == "completed"
        with serving(listen=address):
            until(lambda: _answers(address))
            assert bench.run(flow, {"a": 3, "b": 4}).state["sum"] == 7


def _answers(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            return bool(channel.unary_unary(f"/{SERVICE}/Health", packed, unpacked)({}, timeout=5))
        except grpc.RpcError:
            return False


def test_an_environment_that_cannot_be_created_leaves_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for config in (
        EnvironmentConfig(kind="grpc", address="gpu.example.org:7878"),
        EnvironmentConfig(kind="grpc", address="127.0.0.1:1", certificate="/no/such/file"),
        EnvironmentConfig(kind="grpc", address="127.0.0.1:1"),
    ):
        with pytest.raises(EnvironmentFailed):
            GrpcEnvironment(config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serving() as (_, address), Bench("memory://") as bench:
        config = EnvironmentConfig(kind="grpc", address=address)
        assert bench.run(flow_of(nodes.write_files, config), {}).status == "completed"
        assert bench.run(flow_of(nodes.killed, config), {}).status == "failed"
    assert [each.name for each in tmp_path.iterdir() if "scratch" in each.name] == []


def test_the_token_is_a_secret_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(token="right-token") as (_, address):
        GrpcEnvironment(
            EnvironmentConfig(kind="grpc", address=address, token=wtb.Secret("right-token")), tmp_path
        ).close()
        monkeypatch.setenv("WTB_ENVIRONMENT_TOKEN", "right-token")
        GrpcEnvironment(EnvironmentConfig(kind="grpc", address=address), tmp_path).close()


def test_nothing_about_the_token_is_stored() -> None:
    config = EnvironmentConfig(kind="grpc", address="host:1", token=wtb.Secret("right-token"))
    assert "right-token" not in str(flow_of(nodes.add, config).to_dict())
    assert "right-token" not in repr(config)


def test_nothing_is_sent_unencrypted_to_another_machine(tmp_path: Path) -> None:
    config = EnvironmentConfig(kind="grpc", address="gpu.example.org:7878")
    with pytest.raises(EnvironmentFailed, match="unencrypted; give the server's certificate"):
        GrpcEnvironment(config, tmp_path)


def test_a_connection_can_be_encrypted(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with serving(certificate=certificate, key=key) as (_, address), Bench("memory://") as bench:
        config = EnvironmentConfig(kind="grpc", address=address, certificate=str(certificate))
        assert bench.run(flow_of(nodes.add, config), {"a": 1, "b": 2}).state["sum"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"listen": "0.0.0.0:1"}, "can be reached from other machines"),
        ({"listen": "0.0.0.0:1", "token": "t"}, "give a token and a TLS certificate"),
        ({"certificate": Path("cert.pem")}, "TLS needs both a certificate and its key"),
        ({"listen": "127.0.0.1:70000"}, "is no address to listen on: write HOST:PORT"),
        ({"listen": "7878"}, "is no address to listen on: write HOST:PORT"),
        ({"token": "two\nlines"}, "the token cannot be sent: it may only have printable ASCII"),
    ],
)
def test_a_server_that_others_could_misuse_does_not_start(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ServerOptions(**options).check()


def test_a_token_that_cannot_be_sent_is_refused_by_the_client_too(tmp_path: Path) -> None:
    config = EnvironmentConfig(kind="grpc", address="127.0.0.1:1", token=wtb.Secret("schlüssel"))
    with pytest.raises(EnvironmentFailed, match=r"the token for 127\.0\.0\.1:1 cannot be sent: it may only have"):
        GrpcEnvironment(config, tmp_path)


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("not a certificate")
    with pytest.raises(InvalidInput, match=r"cert\.pem are no certificate and its key, in PEM"):
        EnvironmentServer(ServerOptions(certificate=tmp_path / "cert.pem", key=tmp_path / "cert.pem"))


def test_a_token_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe\x00")
    found = CliRunner().invoke(environment_server, ["--token-file", str(tmp_path / "token")])
    assert isinstance(found.exception, InvalidInput)


def test_a_server_keeps_a_bounded_number_of_environments(tmp_path: Path) -> None:
    with serving(most=1) as (_, address):
        config = EnvironmentConfig(kind="grpc", address=address)
        first = GrpcEnvironment(config, tmp_path)
        with pytest.raises(EnvironmentFailed, match="it has 1 environments, as many as it may"):
            GrpcEnvironment(config, tmp_path)
        first.close()
        GrpcEnvironment(config, tmp_path).close()


def test_nodes_wait_for_a_server_that_is_full() -> None:
    with serving(most=1) as (_, address), Bench("memory://") as bench:
        flow = flow_of(nodes.add, EnvironmentConfig(kind="grpc", address=address))
        cases = [{"id": str(number), "input": {"a": number, "b": 1}} for number in range(6)]
        result = bench.batch(flow, cases=cases, evaluators=["steps"], workers=3)
        assert result.status == "completed", [job.error for job in result.results if job.error]


def test_nodes_with_different_environments_take_turns_on_a_server_with_room_for_one() -> None:
    with serving(most=1) as (_, address), Bench("memory://") as bench:
        flow = Workflow("turns")
        for name in ("first", "second"):
            config = EnvironmentConfig(kind="grpc", address=address, variables={"MODE": name})
            flow.add_node(name, nodes.show_variables, start=name == "first", environment=config)
        flow.edge("first", "second")
        run = bench.run(flow, {})
        assert run.status == "completed"
        assert run.state["variables"]["MODE"] == "second"


def test_an_idle_environment_gives_its_room_on_a_server_to_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.application.runs.environments._IDLE_S", 0.2)
    with serving(most=1) as (server, address), Bench("memory://") as one, Bench("memory://") as other:
        asking = flow_of(nodes.ask, EnvironmentConfig(kind="grpc", address=address))
        paused = one.run(asking, {})
        assert paused.status == "paused"
        adding = flow_of(nodes.add, EnvironmentConfig(kind="grpc", address=address))
        assert other.run(adding, {"a": 1, "b": 2}).state["sum"] == 3
        until(lambda: server.count() == 0)
        assert paused.resume(answer="yes").state["said"] == "yes"


def test_an_environment_goes_to_the_client_that_has_waited_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.infrastructure.environments.grpc_server._TURN_S", 0.0)
    monkeypatch.setattr("wtb.infrastructure.environments.waiting_clients._ASKS_AGAIN_WITHIN_S", 600.0)
    with serving(most=1) as (_, address):

        def environment_of(client: str) -> GrpcEnvironment:
            monkeypatch.setattr(grpc_client, "_CLIENT", client)
            return GrpcEnvironment(EnvironmentConfig(kind="grpc", address=address), tmp_path)

        first = environment_of("a")
        first.clean()  # nobody waits
        for client in "abc":
            with pytest.raises(EnvironmentAway):
                environment_of(client)
        with pytest.raises(EnvironmentAway, match="others wait for the room of"):
            first.clean()
        first.close()
        for client in "ac":
            with pytest.raises(EnvironmentAway):
                environment_of(client)
        environment_of("b").close()
        with pytest.raises(EnvironmentAway):
            environment_of("a")
        environment_of("c").close()
        environment_of("a").close()


def test_a_node_waits_for_a_server_that_is_just_starting() -> None:
    with serving() as (_, address):
        pass
    flow = flow_of(nodes.add, EnvironmentConfig(kind="grpc", address=address))
    with Bench("memory://") as bench, ThreadPoolExecutor(1) as pool:
        run = pool.submit(bench.run, flow, {"a": 1, "b": 2})
        time.sleep(0.3)
        assert not run.done()
        with serving(listen=address):
            assert run.result().status == "completed"


def test_an_address_where_nobody_listens_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"the environment server at 127\.0\.0\.1:1 failed"):
        GrpcEnvironment(EnvironmentConfig(kind="grpc", address="127.0.0.1:1"), tmp_path)


def test_a_state_that_is_too_large_for_a_message_fails_the_node_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_client, "OPTIONS", [("grpc.max_send_message_length", 100_000)])
    with serving() as (_, address), Bench("memory://") as bench:
        flow = flow_of(nodes.add, EnvironmentConfig(kind="grpc", address=address))
        run = bench.run(flow, {"a": 1, "b": 2, "large": "x" * 200_000})
        assert run.execution.failure is not None
        assert "are too large for one message" in run.execution.failure.message
        assert "put large data into files of the workspace" in run.execution.failure.message
        assert bench.run(flow, {"a": 1, "b": 2}).status == "completed"


def test_files_travel_both_ways() -> None:
    with serving() as (_, address), Bench("memory://") as bench:
        flow = Workflow("files")
        flow.add_node("here", nodes.write_files, start=True)
        flow.add_node("there", nodes.change_files, environment=EnvironmentConfig(kind="grpc", address=address))
        flow.edge("here", "there")
        served = bench.run(flow, {})
        same = Workflow("files")
        same.add_node("here", nodes.write_files, start=True)
        same.add_node("there", nodes.change_files)
        same.edge("here", "there")
        expected = bench.run(same, {})
        assert served.status == "completed"
        assert served.state["seen"] == expected.state["seen"]
        assert served.files() == expected.files()


_CLIENT = """
import sys
import wtb
from tests.integration import environment_nodes as nodes

flow = wtb.Workflow("client")
config = wtb.EnvironmentConfig(kind="grpc", address=sys.argv[1])
flow.add_node("work", nodes.start_children, start=True, environment=config)
with wtb.Bench("memory://") as bench:
    bench.run(flow, {"count": 3, "folder": sys.argv[2], "hang": True})
"""


def test_what_a_killed_client_left_is_ended(tmp_path: Path) -> None:
    with serving() as (server, address):
        client = subprocess.Popen([sys.executable, "-c", _CLIENT, address, str(tmp_path)], cwd=ROOT)
        try:
            until(lambda: len(list(tmp_path.iterdir())) == 3)
            assert server.count() == 1
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
        started = [int(each.name) for each in tmp_path.iterdir()]
        until(lambda: not any(map(is_alive, started)))
        until(lambda: server.count() == 0)


def test_a_killed_server_costs_an_attempt_and_leaves_nothing_running(tmp_path: Path) -> None:
    server, address = _command_server("127.0.0.1:0")
    config = EnvironmentConfig(kind="grpc", address=address)
    again: list[subprocess.Popen[str]] = []

    def restart() -> None:
        until(lambda: len(list(tmp_path.iterdir())) == 3)
        server.send_signal(signal.SIGKILL)
        server.wait()
        again.append(_command_server(address)[0])

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        with Bench("memory://") as bench:
            flow = flow_of(nodes.start_children, config, retry=RetryPolicy(times=20, wait_s=1, backoff=1))
            run = bench.run(flow, {"count": 3, "folder": str(tmp_path), "hang": True, "hang_once": True})
    finally:
        thread.join()
        for each in again:
            each.send_signal(signal.SIGTERM)
            assert each.wait(30) == 0
            assert each.stdout is not None
            each.stdout.close()
        assert server.stdout is not None
        server.stdout.close()
    assert run.status == "completed"
    started = [int(each.name) for each in tmp_path.iterdir()]
    until(lambda: not any(map(is_alive, started)))


def _command_server(listen: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "wtb", "environment-server", "--listen", listen]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.startswith("Serving up to 4 environments on ")
    return server, line.split(" on ")[1].partition(". ")[0]


def test_a_node_that_takes_too_long_fails_even_if_its_server_is_halted(monkeypatch: pytest.MonkeyPatch) -> None:
    server, address = _command_server("127.0.0.1:0")
    config = EnvironmentConfig(kind="grpc", address=address, timeout_s=60)
    try:
        with Bench("memory://") as bench:
            assert bench.run(flow_of(nodes.add, config), {"a": 1, "b": 2}).status == "completed"
            server.send_signal(signal.SIGSTOP)
            monkeypatch.setattr(grpc_client, "_ANSWERED_WITHIN_S", 0.2)
            run = bench.run(flow_of(nodes.add, replace(config, timeout_s=0.2)), {"a": 1, "b": 2})
            assert run.status == "failed"
            assert "NodeTimeout" in str(run.error)
    finally:
        server.kill()
        server.communicate()
