"""Workspace files against git, in one run.

Both work on the same tree, turn by turn, medians unless said otherwise. At NORMAL nothing is flushed, which is git's
own way with loose objects; at FULL both flush what they store (`core.fsync=all`, in git's quicker batch mode). WTB is
measured inside a running process, as an engine uses it, and once as a new process would start (no caches, only the
stat index on disk); git starts a process for each command, which is how it is used.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.report import Figure, Part, measure, timed
from wtb.application.workspaces import Workspaces
from wtb.bootstrap import bootstrap
from wtb.domain.files import FileCommitId
from wtb.settings import Settings

FILES, CHANGED, MANY = 2_000, 10, 100_000
FILE_BYTES = 25_000
ROUNDS = 15
FLUSHED = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=batch")


def fill(folder: Path, count: int, size: int) -> None:
    """Write files of about this size, 40 in a folder, with contents that do not compress."""
    chance = random.Random(1)
    for number in range(count):
        path = folder / f"folder{number // 40}" / f"file{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(size // 50, 2 * size)))


def change(folder: Path, count: int, size: int, round_number: int) -> None:
    """Change ten files, other ones each round."""
    chance = random.Random(round_number)
    for number in chance.sample(range(count), CHANGED):
        path = folder / f"folder{number // 40}" / f"file{number}.bin"
        path.write_bytes(chance.randbytes(size))


class Git:
    """A repository of its own, as git makes it by default, without background work."""

    def __init__(self, folder: Path, *, flushed: bool) -> None:
        self._folder = folder
        self._options = FLUSHED if flushed else ()
        self.run("init", "-q")
        for name, value in (("user.name", "x"), ("user.email", "x@x"), ("gc.auto", "0"), ("maintenance.auto", "false")):
            self.run("config", name, value)

    def run(self, *arguments: str) -> str:
        """Run one command."""
        command = ["git", *self._options, *arguments]
        return subprocess.run(command, cwd=self._folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> None:
        """Add everything and commit it."""
        self.run("add", "-A")
        self.run("commit", "-q", "-m", "step")

    def head(self) -> str:
        """Return the commit that is checked out."""
        return self.run("rev-parse", "HEAD")


class Ours:
    """The same folder's content as WTB keeps it."""

    def __init__(self, folder: Path, home: Path, *, flushed: bool) -> None:
        self.folder = folder
        self._settings = Settings(folder=home, sqlite_synchronous="FULL" if flushed else "NORMAL")
        self.services = bootstrap(self._settings)
        self.head: FileCommitId | None = None

    @property
    def workspaces(self) -> Workspaces:
        return self.services.workspaces

    def commit(self) -> None:
        """Snapshot the folder on top of the last snapshot."""
        self.head = self.workspaces.snapshot(self.folder, self.head)

    def forget(self) -> None:
        """Lose everything that only memory holds, as between two processes."""
        self.services.close()
        self.services = bootstrap(self._settings)

    def stored_bytes(self) -> int:
        """Return the bytes of all commits, small contents and objects."""
        with closing(sqlite3.connect(self._settings.folder / "wtb.db")) as database:
            commits = database.execute("SELECT sum(length(payload)) FROM wtb_file_commits").fetchone()[0]
            blobs = database.execute("SELECT sum(length(data)) FROM wtb_blobs").fetchone()[0]
        objects = sum(path.stat().st_size for path in (self._settings.folder / "objects").rglob("*") if path.is_file())
        return int(commits or 0) + int(blobs or 0) + objects


@contextmanager
def pair(*, flushed: bool, count: int = FILES, size: int = FILE_BYTES) -> Iterator[tuple[Ours, Git]]:
    """Two equal folders, one under WTB and one under git, nothing stored yet."""
    home = Path(tempfile.mkdtemp(prefix="wtb-bench-"))
    try:
        for name in ("ours", "git"):
            fill(home / name, count, size)
        os.sync()
        ours = Ours(home / "ours", home / "store", flushed=flushed)
        yield ours, Git(home / "git", flushed=flushed)
        ours.services.close()
    finally:
        shutil.rmtree(home)


def in_turn(first: Callable[[], object], second: Callable[[], object], *, swapped: bool) -> tuple[float, float]:
    """Time both, the second one first in every other round."""
    if swapped:
        after, before = timed(second), timed(first)
        return before, after
    return timed(first), timed(second)


def against_git(*, flushed: bool) -> list[Figure]:
    """Measure first snapshot, snapshot of ten changes, and restore of ten, with this durability."""
    name = "FULL" if flushed else "NORMAL"
    firsts: list[tuple[float, float]] = []
    steps: list[tuple[float, float]] = []
    restores: list[tuple[float, float]] = []
    cold: list[float] = []
    for attempt in range(3):
        with pair(flushed=flushed) as (ours, git):
            firsts.append(in_turn(ours.commit, git.commit, swapped=attempt % 2 == 1))
            for number in range(ROUNDS // 3):
                old = git.head(), ours.head
                for folder in (ours.folder, ours.folder.parent / "git"):
                    change(folder, FILES, FILE_BYTES, number)
                steps.append(in_turn(ours.commit, git.commit, swapped=number % 2 == 1))
                new = git.head(), ours.head
                for commit, theirs in ((old[1], old[0]), (new[1], new[0])):
                    back = in_turn(
                        lambda: ours.workspaces.restore(ours.folder, commit),  # noqa: B023  called at once
                        lambda: git.run("checkout", "-q", theirs),  # noqa: B023
                        swapped=number % 2 == 1,
                    )
                    restores.append(back)
                change(ours.folder, FILES, FILE_BYTES, number + 1000)
                ours.forget()
                cold.append(timed(ours.commit))
                ours.workspaces.restore(ours.folder, new[1])
                ours.head = new[1]
    return [
        ratio(f"first snapshot of {FILES:,} files, 50 MB, {name}", firsts, 0.5, "git add + commit"),
        ratio(f"snapshot, {CHANGED} files changed, {name}", steps, 0.6, "git add + commit", cold=cold),
        ratio(f"restore of {CHANGED} files, {name}", restores, 1.0, "git checkout"),
    ]


def ratio(
    name: str, pairs: list[tuple[float, float]], bar: float, peer: str, cold: list[float] | None = None
) -> Figure:
    """Return the figure of medians; `cold` is what the same takes in a new process."""
    ours, theirs = (median(values) * 1e3 for values in zip(*pairs, strict=True))
    raw = {"wtb_ms": ours, "git_ms": theirs} | ({"wtb_new_process_ms": median(cold) * 1e3} if cold else {})
    started = f"; as a new process {raw['wtb_new_process_ms']:.1f} ms" if cold else ""
    return Figure(
        name=name,
        value=ours / theirs,
        unit=f"× {peer}",
        bar=bar,
        detail=f"{ours:.1f} / {theirs:.1f} ms{started}",
        raw=raw,
    )


def walk(folder: str) -> int:
    """Look at every file of a folder, and do nothing else: the least that finding changes takes."""
    seen = 0
    for item in os.scandir(folder):
        item.stat(follow_symlinks=False)
        seen += walk(item.path) if item.is_dir(follow_symlinks=False) else 1
    return seen


def large_tree() -> list[Figure]:
    """Measure ten changes among 100,000 small files against a bare walk, and what they add to the store."""
    size = 500
    with pair(flushed=False, count=MANY, size=size) as (ours, git):
        first = in_turn(ours.commit, git.commit, swapped=False)
        ours.commit()
        times: list[tuple[float, float]] = []
        theirs: list[float] = []
        restores: list[float] = []
        before = ours.stored_bytes()
        for number in range(5):
            for folder in (ours.folder, ours.folder.parent / "git"):
                change(folder, MANY, size, number)
            old = ours.head
            times.append(in_turn(ours.commit, lambda: walk(os.fspath(ours.folder)), swapped=number % 2 == 1))
            theirs.append(timed(git.commit))
            restores.append(timed(lambda: ours.workspaces.restore(ours.folder, old)))  # noqa: B023
            ours.workspaces.restore(ours.folder, ours.head)
        grown = (ours.stored_bytes() - before) / 5
    step, bare = (median(values) * 1e3 for values in zip(*times, strict=True))
    peer = median(theirs) * 1e3
    detail = f"{step:.0f} / {bare:.0f} ms; git {peer:.0f} ms; first snapshot {first[0]:.1f} s, git {first[1]:.1f} s"
    raw = {"wtb_ms": step, "walk_ms": bare, "git_ms": peer, "restore_ms": median(restores) * 1e3}
    return [
        Figure(
            name=f"snapshot, {CHANGED} of {MANY:,} files changed",
            value=step / bare,
            unit="× scandir + stat",
            bar=2.5,
            detail=detail,
            raw=raw,
        ),
        Figure(
            name="stored for that, over what changed",
            value=grown / (CHANGED * size),
            unit="×",
            bar=4.0,
            detail=f"{grown:,.0f} bytes for {CHANGED * size:,}; the tree itself takes {MANY * 100 / 1e6:.0f} MB",
            raw={"grown_bytes": grown},
        ),
    ]


def main() -> None:
    """Measure everything."""
    parts: list[Part] = [
        ("against git, NORMAL", partial(against_git, flushed=False)),
        ("against git, FULL", partial(against_git, flushed=True)),
        ("100,000 files", large_tree),
    ]
    measure("Workspace files", Path("build/benchmarks/files.json"), parts)


if __name__ == "__main__":
    main()
