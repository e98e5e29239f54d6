"""ProcessObserver: notes which files, folders, modules and variables the user's functions read, by an audit hook.

A read belongs to each of the user's functions that are on the stack at that moment, so that a function which keeps what
it has read is still known to depend on it. A read with none of them on the stack may concern anybody. The hook only
notes what it sees; digests are made later, when somebody asks.

What C libraries open, what child processes do, and whether a file exists are not seen.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import source_from_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from wtb.application.dependencies.own_code import (
    is_installed,
    is_own_file,
    is_wtb_file,
    place,
    project_root,
    reader_of,
)
from wtb.application.dependencies.source_digests import Signature, SourceDigests, signature_of
from wtb.application.dependencies.sources import own_file, own_path
from wtb.domain.observation import ANYBODY, EVERY_VARIABLE, WRITTEN, Observation, ObservedSource, SourceKind

_SYSTEM = ("/proc/", "/dev/", "/sys/", "/run/", "/etc/", "/usr/", "/lib/", "/var/lib/")
_IMPORTLIB = "<frozen importlib"
_ENVIRONMENT_FILES = (os.getenv.__code__.co_filename, Mapping.get.__code__.co_filename)
_CODE = (".py", ".pyc")
_SOURCE_READERS = (f"{os.sep}linecache.py", f"{os.sep}tokenize.py")


@dataclass(frozen=True, slots=True)
class _Noted:
    """What the hook saw: who read what, and its signature."""

    code: CodeType | None
    kind: SourceKind
    name: str
    signature: Signature = None


class _Notes:
    """Everything that was noted in this process since the hook was set, in order; bounded by what there is to read."""

    def __init__(self) -> None:
        self.noted: list[_Noted] = []
        self.written: set[str] = set()
        self._read: set[str] = set()
        self._met: set[tuple[Any, ...]] = set()

    def take(self, event: str, args: tuple[Any, ...]) -> None:
        """Take note of an audit event."""
        match event:
            case "open":
                self._open(args[0], args[2])
            case "os.listdir" | "os.scandir":
                self._path(SourceKind.FOLDER, "." if args[0] is None else args[0])
            case "os.rename":
                self._write(args[1])
            case "import":
                self.note(SourceKind.MODULE, str(args[0]))
            case "socket.connect":
                self.note(SourceKind.NETWORK, _address(args[1]))
            case _:
                self.note(SourceKind.PROCESS, _program(event, args))

    def _open(self, path: Any, flags: int) -> None:
        access = flags & os.O_ACCMODE
        if access != os.O_RDONLY:
            self._write(path)
        if access != os.O_WRONLY and not flags & os.O_TRUNC:
            self._path(SourceKind.FILE, path)

    def _write(self, path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike) and _is_in_a_run():
            name = os.path.abspath(os.fsdecode(path))
            if name in self._read and name not in self.written:
                self.noted.append(_Noted(None, SourceKind.FILE, name))
            self.written.add(name)

    def _path(self, kind: SourceKind, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a number that stands for an open file
        name = os.path.abspath(os.fsdecode(path))
        if name.endswith(_CODE) and kind is SourceKind.FILE:
            # `importlib.import_module` makes no event of its own. Whoever loads the workflow's file is nobody's node.
            self.note(SourceKind.MODULE, _source_path(name), by_anybody=False)
        if name not in self.written and not name.startswith(_SYSTEM):
            self._read.add(name)
            self.note(kind, name, signature_of(name))

    def note(self, kind: SourceKind, name: str, signature: Signature = None, *, by_anybody: bool = True) -> None:
        """Note that something was read, for each of the user's functions that are on the stack."""
        for code in _readers(_caller(), kind):
            key = (id(code), kind, name, signature)  # the code is kept with the note, and so is its id
            if key not in self._met and (by_anybody or code is not None):
                self._met.add(key)
                self.noted.append(_Noted(code, kind, name, signature))


_NOTES = _Notes()


class ProcessObserver:
    """Reads the notes of this process. There is one hook a process, set by whoever starts first; it stays."""

    def __init__(self, *, store: Path | None = None, is_secret: Callable[[str], bool] = lambda name: False) -> None:
        self._store = "" if store is None else f"{store.resolve()}{os.sep}"
        self._is_secret = is_secret
        self._lock = threading.Lock()
        self._next = 0
        self._seen: list[Observation] = []
        self._digests = SourceDigests(is_secret)

    def start(self) -> None:
        """Start to record, for the rest of the life of the process."""
        _set_hook()

    def count(self) -> int:
        """Return how many observations there are."""
        if self._next < len(_NOTES.noted):
            with self._lock:
                while self._next < len(_NOTES.noted):
                    observation = self._observation(_NOTES.noted[self._next])
                    self._next += 1
                    if observation is not None:
                        self._seen.append(observation)
        return len(self._seen)

    def seen(self, since: int = 0) -> Sequence[Observation]:
        """Return what was read, from a number on, in the order in which it was noted."""
        return self._seen[since : self.count()]

    def digest(self, source: ObservedSource) -> str:
        """Return the digest of a source as it is now."""
        return self._digests.now(source)

    def _observation(self, noted: _Noted) -> Observation | None:
        source = self._source(noted)
        if source is None:
            return None
        if noted.kind is SourceKind.FILE and noted.name in _NOTES.written:
            # The run itself wrote it after reading it: what it holds now says nothing about the next run.
            return Observation(ANYBODY, source, WRITTEN)
        reader = ANYBODY if noted.code is None else reader_of(noted.code)
        is_file = noted.kind is SourceKind.FILE
        digest = self._digests.of_file(noted.name, noted.signature) if is_file else self._digests.now(source)
        return Observation(reader, source, digest)

    def _source(self, noted: _Noted) -> ObservedSource | None:
        match noted.kind:
            case SourceKind.FILE | SourceKind.FOLDER:
                return ObservedSource(noted.kind, place(noted.name)) if self._is_input(noted) else None
            case SourceKind.MODULE:
                is_path = noted.name.endswith(_CODE)
                file = own_path(noted.name) if is_path else own_file(noted.name)
                return None if file is None else ObservedSource(noted.kind, place(file))
            case SourceKind.VARIABLE if noted.name != EVERY_VARIABLE and self._is_secret(noted.name):
                return None
            case _:
                return ObservedSource(noted.kind, noted.name) if _is_storable(noted.name) else None

    def _is_input(self, noted: _Noted) -> bool:
        """Whether a file may be an input: not one of Python, its packages or WTB, a temporary one, or a device."""
        path = noted.name
        if "\0" in path or is_installed(path) or f"{os.sep}__pycache__{os.sep}" in path:
            return False
        if self._store and f"{path}{os.sep}".startswith(self._store):
            return False
        if path.startswith(_temporary()) and not f"{path}{os.sep}".startswith(f"{project_root()}{os.sep}"):
            return False
        if noted.kind is SourceKind.FOLDER or noted.signature is None:
            return True
        with suppress(OSError):
            return stat.S_ISREG(os.stat(path).st_mode)
        return True


def _is_storable(name: str) -> bool:
    """Whether a database can hold a name: no variable that exists has another one."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name


def _source_path(path: str) -> str:
    """Return the file that compiled code was made of."""
    if path.endswith(".pyc"):
        with suppress(ValueError):
            return source_from_cache(path)
    return path


def _temporary() -> str:
    return f"{os.path.realpath(tempfile.gettempdir())}{os.sep}"


def _address(address: Any) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return os.fsdecode(address) if isinstance(address, str | bytes) else "a socket"


def _program(event: str, args: tuple[Any, ...]) -> str:
    program = args[0] if args and isinstance(args[0], str | bytes | os.PathLike) else event
    return Path(os.fsdecode(program).split()[0]).name if program else event


def _is_in_a_run() -> bool:
    """Whether WTB is at work, or a thread that a node may have begun; else a program edits its own files."""
    if threading.current_thread() is not threading.main_thread():
        return True
    frame = _caller()
    while frame is not None:
        if _kind(frame.f_code.co_filename) == _WTB:
            return True
        frame = frame.f_back
    return False


def _caller() -> FrameType | None:
    """Return the frame that caused an event."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == _THIS_FILE:
        frame = frame.f_back
    return frame


def _readers(frame: FrameType | None, kind: SourceKind) -> list[CodeType | None]:
    """Return the user's functions on the stack; [None] when there is none of them, [] when it was not for a run.

    Reads of source code for an import or a traceback are left out, since code counts as code; so is what WTB reads, and
    what Ray reads for WTB.
    """
    if frame is None or frame.f_code.co_filename.endswith(_SOURCE_READERS):
        return []
    if kind is SourceKind.VARIABLE and _is_for_python(frame):
        return []
    found: dict[int, CodeType | None] = {}  # by id: code is hashed by all that it consists of
    is_for_a_run = has_met_wtb = False
    while frame is not None:  # of every frame of every read: what is done here is paid often
        code = frame.f_code
        owner = _KINDS.get(code.co_filename) or _kind(code.co_filename)
        if owner == _OWN:
            found[id(code)] = code
            is_for_a_run = True
        elif owner == _WTB:
            if not is_for_a_run:
                return []
            has_met_wtb = True
        elif owner == _RAY:
            if not found and not has_met_wtb:
                return []
        elif owner != _PYTHON:
            if owner == _IMPORT and not found and kind is not SourceKind.MODULE and not _is_data(frame):
                return []
            is_for_a_run = True
        frame = frame.f_back
    return list(found.values()) or [None]


def _is_for_python(frame: FrameType | None) -> bool:
    """Whether the standard library asks for a variable for its own ends, as `subprocess` does for PATH."""
    while frame is not None and frame.f_code.co_filename in _ENVIRONMENT_FILES:
        frame = frame.f_back
    return frame is None or _kind(frame.f_code.co_filename) == _PYTHON


def _is_data(frame: FrameType) -> bool:
    """Whether somebody other than an import asks a loader for a file, as `pkgutil.get_data` does."""
    asks = frame.f_back
    is_asked = frame.f_code.co_name == "get_data"
    return is_asked and asks is not None and _kind(asks.f_code.co_filename) != _IMPORT


_PYTHON, _WTB, _OWN, _LIBRARY, _IMPORT, _RAY = range(1, 7)
_KINDS: dict[str, int] = {}
_RAY_FOLDER = f"-packages{os.sep}ray{os.sep}"


def _kind(file: str) -> int:
    """Return whose code a file holds; the answer is kept, since this is asked for every frame."""
    found = _KINDS.get(file)
    if found is None:
        found = _KINDS[file] = _kind_of(file)
    return found


def _kind_of(file: str) -> int:
    if file.startswith(_IMPORTLIB):
        return _IMPORT
    if file.startswith("<") and not is_own_file(file):
        return _PYTHON
    if is_wtb_file(file):
        return _WTB
    if _RAY_FOLDER in file:
        return _RAY
    if is_own_file(file):
        return _OWN
    return _PYTHON if file.startswith(_stdlib()) and "-packages" not in file else _LIBRARY


def _stdlib() -> str:
    return f"{Path(os.__file__).parent}{os.sep}"


# One hook and one environment a process

_EVENTS = frozenset(
    (
        "open",
        "os.listdir",
        "os.scandir",
        "os.rename",
        "import",
        "socket.connect",
        "subprocess.Popen",
        "os.posix_spawn",
        "os.system",
        "os.exec",
        "os.fork",
    )
)
_inside = threading.local()


def _set_hook() -> None:
    if not isinstance(os.environ, _Environment):
        os.environ.__class__ = _Environment
        sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS and not getattr(_inside, "hook", False):
        _inside.hook = True  # what is done to take the note is not noted
        try:
            _NOTES.take(event, args)
        finally:
            _inside.hook = False


_THIS_FILE = _hook.__code__.co_filename


def _note_variable(name: str) -> None:
    if not getattr(_inside, "hook", False):
        _inside.hook = True
        try:
            _NOTES.note(SourceKind.VARIABLE, name)
        finally:
            _inside.hook = False


class _Environment(os._Environ[str]):
    """The variables of the process, which notes who is asked for by name, and that all of them are copied."""

    def __getitem__(self, key: Any) -> str:
        """Return a variable."""
        if isinstance(key, str) and not _is_copying(key):
            _note_variable(key)
        value: str = super().__getitem__(key)
        return value

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all; whoever then asks for each of them in this order copies."""
        _note_variable(EVERY_VARIABLE)
        names = list(super().__iter__())
        _inside.copying = names[::-1]
        yield from names

    def __contains__(self, key: object) -> bool:
        """Whether a variable is set; whoever asks depends on it."""
        try:
            self[key]
        except KeyError:
            return False
        return True


def _is_copying(key: str) -> bool:
    names = getattr(_inside, "copying", None)
    if names and names[-1] == key:
        names.pop()
        return True
    _inside.copying = None
    return False
