"""ProcessOwners: a live process is never taken for a dead one, whatever can be seen of it from here."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wtb.infrastructure.owners import ProcessOwners

BOOT = "0badcafe"
HOST = f"{socket.gethostname()}-{BOOT}"


def proc(folder: Path, namespace: str, *, shown_pid: int | None = None, others: dict[int, str] | None = None) -> Path:
    """Make a /proc as a process in that namespace sees it."""
    (folder / "sys/kernel/random").mkdir(parents=True)
    (folder / "sys/kernel/random/boot_id").write_text(f"{BOOT}-1234\n")
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").symlink_to(f"pid:[{namespace}]")
    (folder / "self/stat").write_text(stat(shown_pid or os.getpid(), "77"))
    for pid, started in (others or {}).items():
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "stat").write_text(stat(pid, started))
    return folder


def stat(pid: int, started: str) -> str:
    return f"{pid} (a (process)) S " + "0 " * 18 + f"{started} 0 0"


FIRST_THREAD_ENDS = """
import ctypes, threading, time

threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def unused_pid() -> int:
    """Return the pid of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_a_process_of_another_pid_namespace_is_not_known_to_be_gone(tmp_path: Path) -> None:
    there, here = ProcessOwners(proc(tmp_path / "a", "4026531836")), ProcessOwners(proc(tmp_path / "b", "4026532999"))
    assert there.me() != here.me()
    assert here.is_gone(there.me()) is None
    assert there.is_gone(here.me()) is None
    assert here.is_gone(f"{HOST}:4026531836/999999999/5") is None


def test_a_process_of_this_namespace_is_seen_to_live_or_to_be_gone(tmp_path: Path, unused_pid: int) -> None:
    owners = ProcessOwners(proc(tmp_path / "proc", "4026531836", others={5: "123"}))
    assert owners.me() == f"{HOST}:4026531836/{os.getpid()}/77"
    assert owners.is_gone(owners.me()) is False
    assert owners.is_gone(f"{HOST}:4026531836/5/123") is False
    assert owners.is_gone(f"{HOST}:4026531836/5/122") is True  # the pid was given again
    assert owners.is_gone(f"{HOST}:4026531836/{unused_pid}/9") is True


def test_a_name_without_a_namespace_is_looked_up_as_before(tmp_path: Path, unused_pid: int) -> None:
    owners = ProcessOwners(proc(tmp_path / "proc", "4026531836", others={5: "123"}))
    assert owners.is_gone(f"{HOST}/5/123") is False
    assert owners.is_gone(f"{HOST}/5/122") is True
    assert owners.is_gone(f"{HOST}/{unused_pid}/9") is True
    assert owners.is_gone(f"elsewhere-{BOOT}/5/123") is None


def test_a_process_that_is_hidden_from_us_is_not_known_to_be_gone(tmp_path: Path) -> None:
    owners = ProcessOwners(proc(tmp_path / "proc", "4026531836"))  # it shows this process and no other
    assert owners.is_gone(f"{HOST}:4026531836/{os.getppid()}/9") is None
    assert owners.is_gone(f"{HOST}/{os.getppid()}/9") is None


def test_where_proc_shows_another_namespace_nobody_is_known_to_be_gone(tmp_path: Path) -> None:
    owners = ProcessOwners(proc(tmp_path / "proc", "4026531836", shown_pid=os.getpid() + 1, others={5: "123"}))
    assert ":unknown/" in owners.me()
    assert owners.is_gone(f"{HOST}:4026531836/5/1") is None
    assert owners.is_gone(f"{HOST}:unknown/5/1") is None


def test_where_no_process_is_shown_nobody_is_known_to_be_gone(tmp_path: Path) -> None:
    owners = ProcessOwners(tmp_path)
    assert owners.is_gone(f"{owners.me().partition('/')[0]}/5/1") is None


def test_the_real_proc_tells_a_living_child_from_one_that_has_ended() -> None:
    owners = ProcessOwners()
    place = owners.me().partition("/")[0]
    with subprocess.Popen(["sleep", "60"]) as child:
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        name = f"{place}/{child.pid}/{fields[19]}"
        assert owners.is_gone(name) is False
        child.kill()
        child.wait()
        assert owners.is_gone(name) is True


def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    owners = ProcessOwners()
    place = owners.me().partition("/")[0]
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS]) as child:
        stat_file = Path(f"/proc/{child.pid}/stat")
        while (fields := stat_file.read_text().rpartition(")")[2].split())[0] != "Z":
            time.sleep(0.01)
        name = f"{place}/{child.pid}/{fields[19]}"
        assert owners.is_gone(name) is False
        child.kill()
        child.wait()
        assert owners.is_gone(name) is True
