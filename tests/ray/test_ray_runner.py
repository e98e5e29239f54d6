"""Batches on Ray: lost workers, a killed driver, a long job, and code that is copied to the cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wtb
from tests.shell import Shell
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
    until = time.monotonic() + 60
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


@pytest.mark.skipif("WTB_SOAK" not in os.environ, reason="three restarts take long; `make soak` runs it")
def test_a_job_that_kills_three_workers_is_a_dead_letter(shell: Shell, ray_cluster: str) -> None:
    with wtb.Bench() as bench:
        result = bench.batch(load_batch("mails.py:deadly"))
    assert ends(result) == {"deadly": ["lost", "lost", "lost"], "fine": ["completed"]}
    [dead] = result.dead_letters
    assert dead.error is not None
    assert re.search(r"lost its worker 3 times while it ran node `mail`.*unavailable", dead.error["message"])
    assert noted(shell.folder)["sent deadly"] == 1, "nothing is repeated"


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
        wait_until(lambda: noted(shell.folder)["sent waits"] == 1, "the node does not begin")
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


def test_a_store_in_memory_is_refused(shell: Shell) -> None:
    with wtb.Bench("memory://") as bench, pytest.raises(wtb.InvalidInput, match="memory:// is not one"):
        bench.batch(load_batch("mails.py:waiting"))
