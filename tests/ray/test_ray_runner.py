"""Batches on Ray: lost workers, a killed driver, a long job, and code that is copied to the cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import wtb
from tests.services import free_port
from tests.shell import Shell, environment
from wtb.batches import load_batch

EXAMPLE = Path(__file__).parents[2] / "examples" / "support_qa" / "batch.py"
MAILS = """
import os
import signal
import time
from pathlib import Path

import wtb

flow = wtb.Workflow("mails")


def note(state, word):
    with open(Path(state["folder"], "log"), "a") as out:
        out.write(f"{os.getpid()} {word} {state['to']}\\n")


@wtb.tool(effects="external")
def send(state):
    note(state, "sent")
    return f"sent to {state['to']}"


@flow.node(start=True)
def prepare(state):
    note(state, "prepare")
    return {"text": f"dear {state['to']}"}


def finished(state):
    return Path(state["folder"], "log").read_text().count("finished")


@flow.node()
def mail(state, ctx):
    answer = ctx.tool(send, state=dict(state))
    Path(state["folder"], f"answered {state['to']}").touch()
    go = Path(state["folder"], "go")
    if state["to"] == "deadly" or (state["to"] == "killed" and not go.exists()):
        go.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while state["to"] == "waits" and not go.exists():
        time.sleep(0.01)
    while state["to"] == "long" and finished(state) < 5:
        time.sleep(0.01)
    note(state, "finished")
    return {"answer": answer}


flow.edge("prepare", "mail")
flow.edge("mail", wtb.END)


def batch_of(*names):
    cases = [{"id": name, "input": {"to": name, "folder": os.getcwd()}} for name in names]
    return wtb.BatchTest(flow, cases=cases, evaluators=["steps"], runner="ray", workers=1)


killed, deadly, waiting = batch_of("killed", "fine", "good"), batch_of("deadly", "fine"), batch_of("waits")
many = batch_of("waits", "a", "b", "c")
long = batch_of("long", *(f"short{number}" for number in range(5)))
"""


@pytest.fixture
def shell(empty_folder: Path) -> Iterator[Shell]:
    yield Shell(empty_folder, mails=MAILS)
    sys.modules.pop("mails", None)


def noted(folder: Path) -> Counter[str]:
    log = folder / "log"
    return Counter(line.partition(" ")[2] for line in log.read_text().splitlines()) if log.exists() else Counter()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(result: wtb.BatchResult) -> dict[str, list[str]]:
    return {job.case_id: [attempt.end.value for attempt in job.attempts] for job in result.results}


def test_the_job_of_a_killed_worker_goes_on_and_the_job_that_waited_behind_it_lost_nothing(
    shell: Shell, ray_cluster: str
) -> None:
    with wtb.Bench() as bench:
        result = bench.batch(load_batch("mails.py:killed"))
    words = noted(shell.folder)
    for name in ("killed", "fine", "good"):
        assert (words[f"prepare {name}"], words[f"sent {name}"]) == (1, 1), "nothing is repeated"
    assert ends(result) == {"killed": ["lost", "completed"], "fine": ["completed"], "good": ["completed"]}
    ids = [attempt.ray for job in result.results for attempt in job.attempts]
    assert all(each is not None for each in ids)
    assert len({each.task for each in ids if each is not None}) == len(ids)
    assert {row["ray_actor"] for row in result.rows()} <= {each.actor for each in ids if each is not None}
    told = [each["event"] for each in shell.json("events", "--batch", "mails")]
    assert told[1:-1] == ["worker.started", "worker.lost", "worker.started", "worker.ended"]
    [row] = [row for row in shell.json("batch", "show", "mails", "--cases") if row["case"] == "killed"]
    assert row["attempts"] == 2
    assert row["ray_actor"] in {each.actor for each in ids if each is not None}


@pytest.mark.skipif("WTB_SOAK" not in os.environ, reason="three restarts take long; `make soak` runs it")
def test_a_job_that_kills_three_workers_is_a_dead_letter(shell: Shell, ray_cluster: str) -> None:
    with wtb.Bench() as bench:
        result = bench.batch(load_batch("mails.py:deadly"))
    assert ends(result) == {"deadly": ["lost", "lost", "lost"], "fine": ["completed"]}
    [dead] = result.dead_letters
    assert dead.error is not None
    assert re.search(r"lost its worker 3 times while it ran node `mail`.*unavailable", dead.error["message"])
    assert noted(shell.folder)["sent deadly"] == 1, "nothing is repeated"


def test_an_idle_worker_that_is_killed_is_started_again_and_no_job_loses_an_attempt(
    shell: Shell, ray_cluster: str
) -> None:
    with wtb.Bench() as bench, ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.batch, load_batch("mails.py:many"), workers=2)
        try:
            wait_until(lambda: noted(shell.folder)["sent waits"] == 1, "the node does not begin")
            wait_until(lambda: bench.batch_status("mails").completed == 3, "the short jobs do not end")
            os.kill(pid_that_noted(shell.folder, "finished a"), signal.SIGKILL)
            wait_until(lambda: worker_events(shell).count("worker.started") == 3, "no worker takes its place")
        finally:
            (shell.folder / "go").touch()
        assert set(map(tuple, ends(running.result()).values())) == {("completed",)}
    assert worker_events(shell).count("worker.lost") == 1


def pid_that_noted(folder: Path, words: str) -> int:
    [line] = [line for line in (folder / "log").read_text().splitlines() if line.endswith(words)]
    return int(line.split()[0])


def worker_events(shell: Shell) -> list[str]:
    return [each["event"] for each in shell.json("events", "--batch", "mails") if each["event"].startswith("worker.")]


def test_a_job_behind_a_long_one_goes_to_a_worker_that_is_free(shell: Shell, ray_cluster: str) -> None:
    with wtb.Bench() as bench:
        result = bench.batch(load_batch("mails.py:long"), workers=2)
    assert result.status == "completed"
    assert sum(noted(shell.folder).values()) == 6 * 3


def test_workers_end_with_a_killed_driver_and_the_same_command_goes_on_with_code_that_is_copied_to_the_cluster(
    shell: Shell, ray_cluster: str
) -> None:
    (shell.folder / "wtb.toml").write_text('judge_key = "my-secret-key"\n')
    command = ("batch", "run", "mails.py:waiting", "--ray-address", ray_cluster)
    driver = shell.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until((shell.folder / "answered waits").exists, "the node does not begin")
        _check_worker(shell, int((shell.folder / "log").read_text().split()[0]))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    worker = int((shell.folder / "log").read_text().split()[0])
    wait_until(lambda: not is_running(worker), "the worker outlives its driver")
    (shell.folder / "go").touch()
    shell.wtb(*command)
    assert noted(shell.folder) == Counter({"prepare waits": 1, "sent waits": 1, "finished waits": 1})


def _check_worker(shell: Shell, worker: int) -> None:
    shown = Path(f"/proc/{worker}/cmdline").read_bytes() + Path(f"/proc/{worker}/environ").read_bytes()
    assert b"secret" not in shown
    assert Path(f"/proc/{worker}/cwd").readlink() != shell.folder, "it works in a copy"


def test_a_worker_refuses_a_value_that_differs_between_processes_and_names_it(shell: Shell, ray_cluster: str) -> None:
    source = MAILS.replace("dear {", "{BEGAN} dear {").replace("flow = wtb", "BEGAN = time.time()\nflow = wtb", 1)
    (shell.folder / "mails.py").write_text(source)
    with wtb.Bench() as bench, pytest.raises(wtb.InvalidInput, match="BEGAN"):
        bench.batch(load_batch("mails.py:waiting"))
    assert noted(shell.folder) == Counter()


def test_the_support_example_has_the_same_results_on_all_runners(shell: Shell, ray_cluster: str) -> None:
    with wtb.Bench() as bench:
        report = bench.parity(load_batch(str(EXAMPLE)), sample=1, variants="one_at_a_time")
    assert list(report.batches) == ["threads", "processes", "ray"]
    assert report.jobs > 1
    assert report.differences == ()


@pytest.fixture
def started_by_ray(tmp_path: Path) -> Iterator[int]:
    """A cluster as `ray start` starts it, which does not listen on 127.0.0.1 only; its port."""
    port, folder = free_port(), tempfile.mkdtemp(prefix="ray", dir="/tmp")  # Ray's sockets need a short path
    where = (
        "--head",
        "--block",
        f"--port={port}",
        f"--temp-dir={folder}",
        "--min-worker-port=0",
        "--max-worker-port=0",
    )
    size = ("--num-cpus=1", f"--object-store-memory={80 * 1024**2}", "--include-dashboard=false")
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *size],
        env={**environment(), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with head:
        try:
            assert head.stdout is not None
            assert any("Ray runtime started" in line for line in head.stdout), "Ray does not start"
            yield port
        finally:
            os.killpg(head.pid, signal.SIGKILL)  # SIGTERM takes half a minute
    shutil.rmtree(folder, ignore_errors=True)


JOIN = """
import sys
from pathlib import Path
from wtb.infrastructure.runners.ray_cluster import RayCluster

print(RayCluster(1, sys.argv[1], Path.cwd()).ray.cluster_resources()["CPU"])
"""


def test_a_cluster_of_ray_start_is_reached_under_the_local_address(started_by_ray: int, empty_folder: Path) -> None:
    command = [sys.executable, "-c", JOIN, f"127.0.0.1:{started_by_ray}"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout == "1.0\n", done.stderr


ENDED = f"{JOIN}\nimport os, signal\n\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGTERM)\n"


def test_a_process_that_is_told_to_end_prints_no_stack_of_ray(ray_cluster: str, empty_folder: Path) -> None:
    command = [sys.executable, "-c", ENDED, ray_cluster]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


PRINTED = f"""
{JOIN}
import ray

@ray.remote
def say():
    print("said elsewhere", flush=True)

ray.get(say.remote())
for line in iter(input, "seen"):
    pass
"""


def test_in_a_pipe_the_lines_of_workers_have_no_colours(ray_cluster: str, empty_folder: Path) -> None:
    command = [sys.executable, "-u", "-c", PRINTED, ray_cluster]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        found = next(line for line in program.stdout if "said elsewhere" in line)
        program.stdin.write("seen\n")
    assert re.fullmatch(r"\(say pid=\d+\) said elsewhere\n", found)


def test_a_store_in_memory_is_refused(shell: Shell) -> None:
    with wtb.Bench("memory://") as bench, pytest.raises(wtb.InvalidInput, match="memory:// is not one"):
        bench.batch(load_batch("mails.py:waiting"))


def test_a_resource_that_no_machine_has_is_named(
    shell: Shell, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.infrastructure.runners.ray._PLACED_WITHIN_S", 0.1)
    with (
        wtb.Bench() as bench,
        pytest.raises(wtb.WTBError, match=r"needs CPU 1.*tpu 2, and no machine has tpu 2") as found,
    ):
        bench.batch(load_batch("mails.py:waiting"), resources={"custom": {"tpu": 2}})
    assert "the most is tpu 0" in str(found.value)


SCRIPT = """
import dataclasses
import wtb

GREETING = "dear"


@wtb.serialisable
@dataclasses.dataclass
class Letter:
    to: str


def greeted(name):
    return f"{GREETING} {name}"


flow = wtb.Workflow("letters")
flow.add_node("write", lambda state: {"text": greeted(state["to"]), "letter": Letter(state["to"])}, start=True)
flow.add_node("sign", lambda state: {"signed": state["letter"].to})
flow.edge("write", "sign")


@wtb.evaluator(worst=0, best=1)
def is_greeted(context):
    return context.state["text"] == greeted(context.state["signed"])


if __name__ == "__main__":
    cases = [{"id": name, "input": {"to": name}} for name in ("ann", "bob")]
    with wtb.Bench() as bench:
        for runner in ("ray", "threads"):
            result = bench.batch(flow, cases=cases, evaluators=[is_greeted], runner=runner, workers=1)
            print(result.status, [job.scores["is_greeted"] for job in result.results], result.sharing["executed"])
"""


def test_code_of_the_running_script_travels_to_ray_and_never_into_the_store(shell: Shell, ray_cluster: str) -> None:
    (shell.folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        env={**environment(), "RAY_ADDRESS": ray_cluster},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["completed [1.0, 1.0] 4", "completed [1.0, 1.0] 0"], done.stderr
    stored = b"".join(file.read_bytes() for file in (shell.folder / ".wtb").rglob("*") if file.is_file())
    assert b"cloudpickle" not in stored


def test_ctrl_c_finishes_what_was_sent_to_a_worker_and_the_same_command_goes_on(shell: Shell, ray_cluster: str) -> None:
    command = ("batch", "run", "mails.py:many", "--ray-address", ray_cluster)
    driver = shell.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: noted(shell.folder)["sent waits"] == 1, "the node does not begin")
    driver.send_signal(signal.SIGINT)
    assert driver.stderr is not None
    while "Ctrl-C again ends this process" not in (line := driver.stderr.readline()):
        assert line
    (shell.folder / "go").touch()
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert "left to run: run the same command again to continue." in out
    begun = noted(shell.folder)
    assert 1 <= begun["finished waits"] + begun["finished a"] + begun["finished b"] + begun["finished c"] < 4
    shell.wtb(*command)
    assert set(noted(shell.folder).values()) == {1}
    assert sum(noted(shell.folder).values()) == 4 * 3
