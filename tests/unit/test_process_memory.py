"""The memory of a process and of everything that it started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wtb.infrastructure.runners.process_family import family, kill_family, memory_above

PAGE = os.sysconf("SC_PAGE_SIZE")


def process(proc: Path, pid: int, *, pages: int, shared_kb: int | None, children: str = "") -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    (proc / str(pid) / "statm").write_text(f"{pages * 2} {pages} 0 0 0 0 0\n")
    if shared_kb is not None:
        (proc / str(pid) / "smaps_rollup").write_text(f"00-ff ---p [rollup]\nRss: 1 kB\nPss: {shared_kb} kB\n")


def test_children_and_their_children_count_and_shared_pages_count_once(tmp_path: Path) -> None:
    process(tmp_path, 10, pages=1_000, shared_kb=2_000, children="11 ")
    process(tmp_path, 11, pages=1_000, shared_kb=1_000, children="12 ")
    process(tmp_path, 12, pages=1_000, shared_kb=1_000)
    assert family(10, tmp_path) == [10, 11, 12]
    assert memory_above(10, 3_000 * PAGE, tmp_path) is None, "even counted three times it is not more"
    assert memory_above(10, 4_096_000, tmp_path) is None, "they share pages"
    assert memory_above(10, 4_095_999, tmp_path) == 4_096_000


def test_a_process_that_has_ended_or_hides_its_pages_breaks_nothing(tmp_path: Path) -> None:
    process(tmp_path, 10, pages=1_000, shared_kb=None, children="99")
    assert memory_above(10, 5, tmp_path) == 1_000 * PAGE
    assert memory_above(77, 5, tmp_path) is None


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux shows the memory of processes")
def test_a_real_child_in_a_session_of_its_own_is_seen_and_killed() -> None:
    script = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert family(parent.pid) == [parent.pid, child]
        assert memory_above(parent.pid, 1) is not None
        kill_family(parent.pid)
        assert parent.wait() == -9
    until = time.monotonic() + 30
    while _is_running(child):
        assert time.monotonic() < until, "the child outlives its parent"
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
