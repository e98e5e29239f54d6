"""ScratchFolder: it goes when it is closed, and after its process was killed with the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wtb.infrastructure.environments.scratch_folder import ScratchFolder

_LEAVE = """
import sys, tempfile, time
from wtb.infrastructure.environments.scratch_folder import ScratchFolder

tempfile.tempdir = sys.argv[1]
(ScratchFolder().path / "file").touch()
print("made", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_closed_folder_is_gone_with_its_files(tmp_path: Path) -> None:
    scratch = ScratchFolder()
    (scratch.path / "file").touch()
    scratch.close()
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_stays() -> None:
    used = ScratchFolder()
    ScratchFolder().close()
    assert used.path.is_dir()
    used.close()


def test_the_folder_of_a_killed_process_goes_with_the_next_one(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _LEAVE, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"made\n"
    ScratchFolder().close()
    assert len(list(tmp_path.rglob("file"))) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    ScratchFolder().close()
    assert list(tmp_path.iterdir()) == []
