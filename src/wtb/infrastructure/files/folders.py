"""LocalFolders: folders of this machine, scanned with a stat index and restored by renames."""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock

from wtb.domain.errors import WorkspaceError
from wtb.domain.files import EntryKind, FileTree, TreeDelta, diff
from wtb.domain.ports import ObjectStore, ScannedFolder, SurveyedFolder
from wtb.infrastructure.files.confined import ConfinedFolder
from wtb.infrastructure.files.ignore import IGNORE_FILE, MAX_BYTES, IgnoreRules, NoRules, rules_of
from wtb.infrastructure.files.index import StatIndex, is_usable, is_worth_saving, load_index, save_index
from wtb.infrastructure.files.os_errors import reported_as
from wtb.infrastructure.files.scanner import HashingSink, Scanner, StoringSink, rules_in
from wtb.infrastructure.files.staging import HALF_DONE, ContentSource, Read, clear, stage
from wtb.infrastructure.files.store import LocalFolderStore, replaced
from wtb.infrastructure.files.swap import Swap


class LocalFolders:
    """Folders as trees; `indexes` is the place of their stat indexes, outside all the folders.

    A folder of the store is opened from the store's root, never through a link, and must be the one that the store
    made. Any other folder was named by a person, so links on the path to it are followed, but none inside it.
    """

    def __init__(self, objects: ObjectStore, indexes: Path, store: LocalFolderStore | None = None) -> None:
        self._objects = objects
        self._indexes = IndexCache(indexes)
        self._store = store

    def _opened(self, root: Path) -> ConfinedFolder:
        is_in_store = self._store is not None and self._store.holds(root)
        return ConfinedFolder(self._store.open(root) if self._store is not None and is_in_store else root)

    def scan(self, folder: Path, base: FileTree) -> ScannedFolder:
        root = folder.absolute()
        sink = StoringSink(self._objects)
        known = self._indexes.get(root)
        with reported_as(WorkspaceError, f"the workspace {root} cannot be read"), self._opened(root) as confined:
            if confined.mode_at(HALF_DONE) is not None:
                raise WorkspaceError(f"a restore of {root} was interrupted; restore it again before anything else")
            # Files in the index but not in the base may never have been stored: read them again.
            known = known.without(diff(base, known.tree).put)
            index = Scanner(root, confined, known, rules_in(confined), sink).run()
        self._objects.sync()
        self._indexes.put(root, index)
        delta = diff(base, index.tree)
        wanted = {entry.digest for entry in delta.put.values()}
        return ScannedFolder(index.tree, delta, {key: sink.contents[key] for key in sink.contents.keys() & wanted})

    def restore(self, folder: Path, tree: FileTree, read: Read) -> TreeDelta:
        with self.staged(folder, tree, read) as swap:
            return swap()

    @contextmanager
    def staged(self, folder: Path, tree: FileTree, read: Read) -> Iterator[Callable[[], TreeDelta]]:
        root = folder.absolute()
        source = ContentSource(self._objects, read)
        reporting = partial(reported_as, WorkspaceError, f"{root} cannot be restored")
        with ExitStack() as stack:
            with reporting():
                confined = stack.enter_context(self._opened(root))
                clear(confined)
                delta = diff(self._looked_at(root, confined, _rules_of(tree, source)), tree)
                stack.callback(clear, confined)
                staged = stage(confined, delta, source) if delta else {}

            def swap() -> TreeDelta:
                with reporting():
                    self._check_place(root, confined)
                    if delta:
                        Swap(confined, tree, delta, staged).run()
                        self._check_place(root, confined)
                    confined.remove_all(HALF_DONE)
                return delta

            yield swap

    def _check_place(self, root: Path, confined: ConfinedFolder) -> None:
        """Refuse if another folder has replaced this one: the restored files would not be there."""
        try:
            found = root.stat()
        except FileNotFoundError:
            raise replaced(root) from None
        if (found.st_dev, found.st_ino) != confined.identity():
            raise replaced(root)

    def survey(self, folder: Path, *, known_as: Path | None = None) -> SurveyedFolder:
        root = folder.absolute()
        known = self._indexes.get(root if known_as is None else known_as.absolute())
        with reported_as(WorkspaceError, f"the workspace {root} cannot be read"), self._opened(root) as confined:
            scanner = Scanner(root, confined, known, rules_in(confined), HashingSink())
            index = scanner.run()
            changed_ns = max(confined.changed_ns(), scanner.looked_at_ns, index.changed_ns())
        if known_as is None:
            self._indexes.put(root, index)
        return SurveyedFolder(index.tree, tuple(sorted(scanner.left_out)), changed_ns)

    def check_restorable(self, tree: FileTree, read: Read, checked: set[bytes]) -> None:
        files = [entry for entry in tree.values() if entry.kind is EntryKind.FILE and entry.digest not in checked]
        ContentSource(self._objects, read).check(files)
        checked.update(entry.digest for entry in files)

    def is_half_restored(self, folder: Path) -> bool:
        try:
            with self._opened(folder.absolute()) as confined:
                return confined.mode_at(HALF_DONE) is not None
        except (OSError, WorkspaceError):
            return False  # the folder has none of our files

    def list_damaged_indexes(self) -> tuple[Path, ...]:
        return self._indexes.list_damaged()

    def index_of(self, folder: Path) -> Path:
        return self._indexes.path(folder.absolute())

    def drop_index(self, index: Path) -> None:
        self._indexes.forget(index)
        with reported_as(WorkspaceError, f"the stat index {index} cannot be removed"):
            index.unlink(missing_ok=True)

    def _looked_at(self, root: Path, confined: ConfinedFolder, rules: IgnoreRules) -> FileTree:
        """Return the current files by the ignore rules of the tree to restore; all other files must match the tree."""
        index = Scanner(root, confined, self._indexes.get(root), rules, HashingSink(), any_depth=True).run()
        self._indexes.put(root, index)
        return index.tree


def _rules_of(tree: FileTree, source: ContentSource) -> IgnoreRules:
    entry = tree.get(IGNORE_FILE)
    if entry is None or entry.kind is not EntryKind.FILE:
        return NoRules()
    return rules_of(source.content(entry)[:MAX_BYTES])


class IndexCache:
    """The stat indexes of the folders that this process works in, each also in a file for the next process."""

    def __init__(self, folder: Path, size: int = 64) -> None:
        self._folder = folder
        self._size = size
        self._indexes: OrderedDict[Path, StatIndex] = OrderedDict()
        self._lock = Lock()

    def get(self, root: Path) -> StatIndex:
        with self._lock:
            found = self._indexes.get(root)
        return load_index(self.path(root)) if found is None else found

    def put(self, root: Path, index: StatIndex) -> None:
        if is_worth_saving(index):
            save_index(index, self.path(root))
            index = StatIndex(index.records, index.tree, index.rules)
        with self._lock:
            self._indexes[root] = index
            self._indexes.move_to_end(root)
            if len(self._indexes) > self._size:
                self._indexes.popitem(last=False)

    def forget(self, path: Path) -> None:
        """Forget the index that a file stores; the file itself stays."""
        with self._lock:
            for root in [root for root in self._indexes if self.path(root) == path]:
                del self._indexes[root]

    def list_damaged(self) -> tuple[Path, ...]:
        """Return the unusable files, except those that another process may be writing just now."""
        if not self._folder.is_dir():
            return ()
        return tuple(path for path in sorted(self._folder.iterdir()) if not _is_new(path) and not is_usable(path))

    def path(self, root: Path) -> Path:
        """Return the file of a folder's index."""
        return self._folder / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def _is_new(path: Path) -> bool:
    """Whether a file has a temporary name, and was written within the last hour or is gone again."""
    try:
        return bool(path.suffix) and path.stat().st_mtime > time.time() - 3600
    except FileNotFoundError:
        return True
