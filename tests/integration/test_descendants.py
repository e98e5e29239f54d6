"""Every process that still runs is found and ended, also one whose first thread has ended."""

from __future__ import annotations

import platform
import subprocess
import sys

EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]
"""The system call that ends one thread and leaves the others."""
LIVES_ON_IN_A_THREAD = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({EXIT}, 0)
"""
ENDS_IT = f"""
import os, pathlib, subprocess, sys, time
from wtb.infrastructure.environments.descendants import end_descendants, list_descendants

process = subprocess.Popen([sys.executable, "-c", {LIVES_ON_IN_A_THREAD!r}])
while pathlib.Path(f"/proc/{{process.pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
assert process.poll() is None, "it runs"
assert list_descendants(os.getpid()) == [process.pid], "and is found"
assert end_descendants() == 1
assert process.poll() == -9, "it was killed"
assert list_descendants(os.getpid()) == []
"""


def test_a_process_that_lives_on_without_its_first_thread_is_ended() -> None:
    # In a process of its own: this one may have servers below it.
    subprocess.run([sys.executable, "-c", ENDS_IT], check=True, timeout=60)
