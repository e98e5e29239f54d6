"""Kills a process at every step that a snapshot and a restore take in the file system; run by test_workspace_crash.

Each attempt is a fork that dies by SIGKILL at its n-th step, n counting up until an attempt comes through. Audit
hooks see the steps, so the code under test needs no crash points. A process of its own, because pytest's has threads.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.workspaces import Description, described, sqlite_storage, workspaces_in, write
from wtb.application.workspaces import Workspaces
from wtb.domain.files import FileCommitId

LARGE = b"large" * 20_000

STEPS = ("open", "os.", "shutil.", "sqlite3.")


def die_at(step: int) -> None:
    """Kill this process when it takes its n-th step."""
    left = step

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event.startswith(STEPS):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def came_through(step: int, action: Callable[[], object]) -> bool:
    """Run an action in a fork that dies at this step; return whether it ended before."""
    pid = os.fork()
    if pid == 0:
        die_at(step)
        action()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), f"step {step}: the process failed by itself with {status}"
    return status == 0


class Story:
    """A workspace with two commits, in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir(parents=True)
        write(self.folder, {"same": b"1", "a": b"1", "b/x": LARGE, "c": None, "d/e/f": b"1", "g": "a", "gone": b"1"})
        (self.folder / "d/e").chmod(0o500)
        self.first, self.before = self.snapshot(None), described(self.folder)
        shutil.rmtree(self.folder / "b")
        (self.folder / "gone").unlink()
        (self.folder / "g").unlink()
        write(self.folder, {"a": LARGE + b"2", "b": b"2", "c/y/z": b"2", "d/e/f": b"2", "g/x": b"2", "new": "nowhere"})
        self.after = described(self.folder)

    def workspaces(self) -> Workspaces:
        """Return the service as a new process would have it."""
        return workspaces_in(self.home / "home", sqlite_storage(self.home / "wtb.db"))

    def snapshot(self, base_id: FileCommitId | None) -> FileCommitId:
        return self.workspaces().snapshot(self.folder, base_id)

    def restore(self, commit_id: FileCommitId) -> None:
        self.workspaces().restore(self.folder, commit_id)

    def holds(self, expected: Description) -> bool:
        return described(self.folder) == expected


def kill_restores(story: Story) -> int:
    """Kill restores; the next one, of whichever commit, gives the exact tree."""
    second = story.snapshot(story.first)
    step = 1
    while not came_through(step, lambda: story.restore(story.first)):
        target, expected = (story.first, story.before) if step % 2 else (second, story.after)
        story.restore(target)
        assert story.holds(expected), f"a restore killed at step {step} is not made good"
        story.restore(second)
        assert story.holds(story.after)
        assert story.snapshot(None) == second
        step += 1
    assert story.holds(story.before)
    return step - 1


def kill_snapshots(story: Story) -> int:
    """Kill snapshots; files and earlier commits are intact, and the next snapshot gives what it would have given."""
    expected = story.workspaces().prepare(story.folder, story.first).id
    step = 1
    while not came_through(step, lambda: story.snapshot(story.first)):
        assert story.holds(story.after), f"a snapshot killed at step {step} changed the workspace"
        step += 1
    assert story.snapshot(story.first) == expected
    story.restore(story.first)
    assert story.holds(story.before)
    story.restore(expected)
    assert story.holds(story.after)
    return step - 1


if __name__ == "__main__":
    home = Path(sys.argv[1])
    print(kill_snapshots(Story(home / "snapshots")), kill_restores(Story(home / "restores")))  # noqa: T201
