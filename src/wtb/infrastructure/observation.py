"""ProcessObserver: records the files, folders, modules and variables that the user's functions read, by an audit hook.

A read belongs to every function of the user that is on the stack at that moment, so that a function that caches what it
read is still known to depend on it. A read without such a function on the stack may concern any node. The hook only
notes reads; digests are computed later, when they are needed.

It does not see files that C libraries open, the work of child processes, or checks whether a file exists.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from wtb.application.runs.about_calls import is_about_a_call
from wtb.domain.observation import ANYBODY, EVERY_VARIABLE, WRITTEN, Observation, ObservedSource, SourceKind

_SYSTEM = (
    "/proc/",
    "/sys/",
    "/dev/",
    "/lib/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/share/",
    "/etc/ssl/",
    "/etc/pki/",
)
"""Folders of the kernel, and of packages of the operating system, which count as installed."""
_SHARED_MEMORY = "/dev/shm/"
_IMPORTLIB = "<frozen importlib"
_ENVIRONMENT_FILES = (os.getenv.__code__.co_filename, Mapping.get.__code__.co_filename)
_CODE = (".py", ".pyc")
_SOURCE_READERS = (f"{os.sep}linecache.py", f"{os.sep}tokenize.py")


def is_system_file(name: str) -> bool:
    """Whether a file belongs to the operating system, so that reading it is not noted."""
    return name.startswith(_SYSTEM) and not name.startswith(_SHARED_MEMORY)


@dataclass(frozen=True, slots=True)
class _Noted:
    """One read that the hook saw: the reader, the source and its signature."""

    code: CodeType | None
    kind: SourceKind
    name: str
    signature: Signature = None


class _Notes:
    """All notes of this process since the hook was set, in order; a repeated read is noted once."""

    def __init__(self) -> None:
        self.noted: list[_Noted] = []
        self.written: set[str] = set()
        self._read: set[str] = set()
        self._met: set[tuple[Any, ...]] = set()

    def take(self, event: str, args: tuple[Any, ...]) -> None:
        """Note an audit event."""
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
            return  # a file descriptor
        name = os.path.abspath(os.fsdecode(path))
        if name.endswith(_CODE) and kind is SourceKind.FILE:
            # `importlib.import_module` causes no audit event. The code that loads the workflow's file is not a node.
            self.note(SourceKind.MODULE, _source_path(name), by_anybody=False)
        if name not in self.written and not is_system_file(name):
            self._read.add(name)
            self.note(kind, name, signature_of(name))

    def note(self, kind: SourceKind, name: str, signature: Signature = None, *, by_anybody: bool = True) -> None:
        """Note a read for each function of the user on the stack."""
        for code in _readers(_caller(), kind):
            key = (id(code), kind, name, signature)  # the note keeps the code alive, so its id stays unique
            if key not in self._met and (by_anybody or code is not None):
                self._met.add(key)
                self.noted.append(_Noted(code, kind, name, signature))


_NOTES = _Notes()


class ProcessObserver:
    """Reads the notes of this process. A process has one hook, set by the first observer that starts; it stays."""

    def __init__(self, *, store: Path | None = None, is_secret: Callable[[str], bool] = lambda name: False) -> None:
        self._store = "" if store is None else f"{store.resolve()}{os.sep}"
        self._is_secret = is_secret
        self._lock = threading.Lock()
        self._next = 0
        self._seen: list[Observation] = []
        self._digests = SourceDigests(is_secret)

    def start(self) -> None:
        """Start to record, until the process ends."""
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
        """Return the observations from a number on, in the order in which they were noted."""
        return self._seen[since : self.count()]

    def add(self, observations: Iterable[Observation]) -> None:
        """Add those observations of another process that are not there yet."""
        self.count()
        with self._lock:
            known = set(self._seen)
            self._seen += [each for each in observations if each not in known]

    def digest(self, source: ObservedSource) -> str:
        """Return the digest of a source as it is now."""
        return self._digests.now(source)

    def _observation(self, noted: _Noted) -> Observation | None:
        source = self._source(noted)
        if source is None:
            return None
        if noted.kind is SourceKind.FILE and noted.name in _NOTES.written:
            # The run itself wrote it after reading it: its content now says nothing about the next run.
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
        """Whether a file may be an input: not a file of Python, its packages or WTB, a temporary file, or a device."""
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
    """Whether a database can store a name; every existing variable has such a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name


def _source_path(path: str) -> str:
    """Return the source file of compiled code."""
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
    """Whether WTB is at work, or a node may have started this thread; otherwise a program edits its own files."""
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
    """Return the user's functions on the stack; [None] if there are none, [] if the read was not for a run.

    Reads of source code for an import or a traceback are left out, because code is tracked as code; so are the reads of
    WTB itself, and of Ray for WTB. `confirm` and `reverse` of a tool look whether a call has happened: only what other
    functions read for them counts, because these may keep it.
    """
    if frame is None or frame.f_code.co_filename.endswith(_SOURCE_READERS):
        return []
    if kind is SourceKind.VARIABLE and _is_for_python(frame):
        return []
    found: dict[int, CodeType | None] = {}  # by id: hashing code would hash all its parts
    is_for_a_run = has_met_wtb = is_of_ray = False
    while frame is not None:  # keep this cheap: it runs for every frame of every read
        code = frame.f_code
        owner = _KINDS.get(code.co_filename) or _kind(code.co_filename)
        if owner == _OWN:
            found[id(code)] = code
            is_for_a_run = True
        elif owner == _WTB:
            if is_about_a_call(code):
                return list(found.values())[:-1]
            if not is_for_a_run:
                return []
            has_met_wtb = True
        elif owner == _RAY:
            is_of_ray = is_of_ray or not (found or has_met_wtb)
        elif owner != _PYTHON:
            if owner == _IMPORT and not found and kind is not SourceKind.MODULE and not _is_data(frame):
                return []
            is_for_a_run = True
        frame = frame.f_back
    return list(found.values()) or ([] if is_of_ray else [None])


def _is_for_python(frame: FrameType | None) -> bool:
    """Whether the standard library reads a variable for its own use, as `subprocess` reads PATH."""
    while frame is not None and frame.f_code.co_filename in _ENVIRONMENT_FILES:
        frame = frame.f_back
    return frame is None or _kind(frame.f_code.co_filename) == _PYTHON


def _is_data(frame: FrameType) -> bool:
    """Whether a loader reads a file for something other than an import, as for `pkgutil.get_data`."""
    asks = frame.f_back
    is_asked = frame.f_code.co_name == "get_data"
    return is_asked and asks is not None and _kind(asks.f_code.co_filename) != _IMPORT


_PYTHON, _WTB, _OWN, _LIBRARY, _IMPORT, _RAY = range(1, 7)
_KINDS: dict[str, int] = {}
_RAY_FOLDER = f"-packages{os.sep}ray{os.sep}"


def _kind(file: str) -> int:
    """Return whose code a file holds; the answer is cached, because every frame asks for it."""
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


# One hook and one environment per process

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
        _inside.hook = True  # the hook's own reads are not noted
        try:
            _NOTES.take(event, args)
        finally:
            _inside.hook = False


_THIS_FILE = _hook.__code__.co_filename


@contextmanager
def unobserved() -> Iterator[None]:
    """Note nothing that this thread reads meanwhile: a library does WTB's own work, not a node's."""
    before, _inside.hook = getattr(_inside, "hook", False), True
    try:
        yield
    finally:
        _inside.hook = before


def stay_unobserved() -> None:
    """Note nothing that this thread reads from now on."""
    _inside.hook = True


def _note_variable(name: str) -> None:
    if not getattr(_inside, "hook", False):
        _inside.hook = True
        try:
            _NOTES.note(SourceKind.VARIABLE, name)
        finally:
            _inside.hook = False


class _Environment(os._Environ[str]):
    """The variables of the process; it notes variables that are read by name, and copies of the whole environment."""

    def __getitem__(self, key: Any) -> str:
        """Return a variable."""
        if isinstance(key, str) and not _is_copying(key):
            _note_variable(key)
        value: str = super().__getitem__(key)
        return value

    def __iter__(self) -> Iterator[str]:
        """Yield all names; a caller that then reads each of them in this order makes a copy."""
        _note_variable(EVERY_VARIABLE)
        names = list(super().__iter__())
        _inside.copying = names[::-1]
        yield from names

    def __contains__(self, key: object) -> bool:
        """Whether a variable is set; the caller depends on the answer."""
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
