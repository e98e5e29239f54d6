"""A workspace against a plain model: whatever is done to the files, every earlier commit comes back exactly."""

import shutil
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.workspaces import Description, described, workspaces_in
from wtb.domain.files import FileCommitId
from wtb.infrastructure.files.scanner import SMALL_BYTES

NAMES = st.sampled_from(["a", "b", "a-b", "a.b", "ü", "\udcff", " "])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.binary(max_size=5), st.sampled_from([b"x" * SMALL_BYTES, b"y" * (SMALL_BYTES + 1), b"z" * 70_000])
)
FILE_MODES = st.sampled_from([0o400, 0o600, 0o644, 0o755, 0o777])
FOLDER_MODES = st.sampled_from([0o500, 0o700, 0o755])
TARGETS = st.sampled_from(["a", "..", "/", "../../outside", "\udcff", "a/b"])


class WorkspaceMachine(RuleBasedStateMachine):
    """The model is a description of what lies in the folder; commits map to descriptions."""

    commits: Bundle[FileCommitId] = Bundle("commits")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(mkdtemp(prefix="wtb-machine-"))
        self.folder = self.home / "work"
        self.folder.mkdir()
        (self.home / "outside").mkdir()
        self.workspaces = workspaces_in(self.home / "home")
        self.model: Description = {}
        self.known: dict[FileCommitId, Description] = {}
        self.base: FileCommitId | None = None

    def _clear(self, path: str) -> None:
        """Make way: the model, and the folder, lose what lies at a path or is a file on the way to it."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            place = "/".join(parts[:depth])
            if depth == len(parts) or len(self.model.get(place, ("folder",))) > 1:
                self._remove(place)
            if depth < len(parts):
                self._make_folder(place)

    def _make_folder(self, place: str) -> None:
        if place not in self.model:
            (self.folder / place).mkdir()
            (self.folder / place).chmod(0o755)
            self.model[place] = (0o755,)

    def _remove(self, place: str) -> None:
        if place in self.model:
            if len(self.model[place]) > 1:
                (self.folder / place).unlink()
            else:
                shutil.rmtree(self.folder / place)
        gone = [path for path in self.model if path == place or path.startswith(f"{place}/")]
        for path in gone:
            del self.model[path]

    @rule(path=PATHS, content=CONTENTS, mode=FILE_MODES)
    def write(self, path: str, content: bytes, mode: int) -> None:
        self._clear(path)
        (self.folder / path).write_bytes(content)
        (self.folder / path).chmod(mode)
        self.model[path] = (mode, content)

    @rule(path=PATHS, content=st.binary(min_size=1, max_size=5))
    def change_in_place(self, path: str, content: bytes) -> None:
        old = self.model.get(path, ())
        if len(old) > 1 and old[0] != "->":
            with (self.folder / path).open("r+b") as file:
                file.write(content)
            self.model[path] = (old[0], content + old[1][len(content) :])

    @rule(path=PATHS, to=TARGETS)
    def link(self, path: str, to: str) -> None:
        self._clear(path)
        (self.folder / path).symlink_to(to)
        self.model[path] = ("->", to)

    @rule(path=PATHS, mode=FOLDER_MODES)
    def make_folder(self, path: str, mode: int) -> None:
        self._clear(path)
        self._make_folder(path)
        (self.folder / path).chmod(mode)
        self.model[path] = (mode,)

    @rule(path=PATHS)
    def delete(self, path: str) -> None:
        self._remove(path)

    @rule(path=PATHS, mode=FILE_MODES)
    def change_mode(self, path: str, mode: int) -> None:
        old = self.model.get(path, ("->",))
        if old[0] != "->":
            mode |= 0o500 if len(old) == 1 else 0
            (self.folder / path).chmod(mode)
            self.model[path] = (mode, *old[1:])

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        if old not in self.model or f"{new}/".startswith(f"{old}/") or f"{old}/".startswith(f"{new}/"):
            return
        self._clear(new)
        if old in self.model:
            (self.folder / old).rename(self.folder / new)
            moved = [path for path in self.model if path == old or path.startswith(f"{old}/")]
            self.model |= {new + path[len(old) :]: self.model.pop(path) for path in moved}

    @rule(target=commits)
    def snapshot(self) -> FileCommitId:
        self.base = self.workspaces.snapshot(self.folder, self.base)
        assert self.known.setdefault(self.base, dict(self.model)) == self.model
        return self.base

    @rule(target=commits)
    def snapshot_from_nothing(self) -> FileCommitId:
        commit_id = self.workspaces.snapshot(self.folder)
        assert self.known.setdefault(commit_id, dict(self.model)) == self.model
        return commit_id

    @rule(commit_id=commits)
    def restore(self, commit_id: FileCommitId) -> None:
        self.workspaces.restore(self.folder, commit_id)
        self.model = dict(self.known[commit_id])
        self.base = commit_id

    @rule()
    def start_another_process(self) -> None:
        self.workspaces = workspaces_in(self.home / "home", self.workspaces._storage)

    @rule(commit_id=commits)
    def export(self, commit_id: FileCommitId) -> None:
        target = Path(mkdtemp(dir=self.home))
        self.workspaces.export(commit_id, target)
        assert described(target) == self.known[commit_id]

    @invariant()
    def the_folder_is_as_the_model_says(self) -> None:
        assert described(self.folder) == self.model
        assert not list((self.home / "outside").iterdir())

    def teardown(self) -> None:
        shutil.rmtree(self.home)


def test_a_workspace_is_what_its_commits_say() -> None:
    """Again and again instead of all at once, for a soak: hypothesis remembers every choice of a run."""
    for _ in range(max(1, settings().max_examples // 100)):
        run_state_machine_as_test(WorkspaceMachine, settings=settings(max_examples=60))
