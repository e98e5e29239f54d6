"""Snapshots and restores of workspaces, killed at every step."""

import subprocess
import sys
from pathlib import Path


def test_a_kill_at_any_step_of_a_snapshot_or_a_restore_is_made_good_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.workspace_kills", str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    snapshots, restores = map(int, done.stdout.split())
    assert snapshots > 20
    assert restores > 60
