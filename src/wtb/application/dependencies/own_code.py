"""Tells the user's own code from that of Python, installed packages and WTB, and names files."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_BYTES = "bytes:"
"""The prefix of file names that are written in hexadecimal."""

NOTEBOOK = "notebook"
"""The place of code that has no file of its own."""

_ROOT_MARKS = ((".git", "pyproject.toml"), (".wtb",))
"""What the root of a project contains; the first marks that are found anywhere above decide.

A `.wtb` appears wherever somebody types a command, so it counts only in a project that has nothing else.
"""
_WTB = Path(__file__).resolve().parents[2]


def is_own_module(name: str) -> bool:
    """Whether a module is the user's. One without a file may be a notebook, or a package without `__init__.py`."""
    held = held_by(sys.modules.get(name))
    file = held.get("__file__")
    if isinstance(file, str):
        return is_own_file(file)
    folders = list(held.get("__path__", ()))
    if folders:
        return is_own_file(f"{folders[0]}/__init__.py")
    return name == "__main__" or name.partition(".")[0] not in sys.stdlib_module_names


def held_by(module: Any) -> dict[str, Any]:
    """Return the contents of a module without `getattr`, which would make a lazy module load things."""
    return vars(module) if issubclass(type(module), ModuleType) else {}


@functools.cache
def is_own_file(file: str) -> bool:
    """Whether code with this file name is the user's; code made at run time (`<string>`) is not."""
    if file.startswith("<"):
        return file.startswith("<ipython")
    path = Path(file).resolve()
    return not path.is_relative_to(_WTB) and not is_installed(str(path))


def is_installed(path: str) -> bool:
    """Whether a path is in Python's own folders or in those of installed packages."""
    return path.startswith(_installed(tuple(sys.path)))


@functools.cache
def is_wtb_file(file: str) -> bool:
    """Whether code with this file name is WTB's."""
    return not file.startswith("<") and Path(file).resolve().is_relative_to(_WTB)


@functools.cache
def _installed(search_path: tuple[str, ...]) -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_paths()[name] for name in names]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    # A virtual environment may build on another one, whose packages are then on the path.
    folders += [folder for folder in search_path if Path(folder).name in {"site-packages", "dist-packages"}]
    # For a virtual environment, the standard library is with the interpreter that created it.
    folders.append(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}))
    return tuple({f"{Path(folder).resolve()}/" for folder in folders})


def project_root() -> Path:
    """Return the folder to which file names are relative, so that they are the same in a clone elsewhere."""
    return _root_of(Path.cwd())


@functools.cache
def _root_of(here: Path) -> Path:
    here = here.resolve()
    for marks in _ROOT_MARKS:
        for folder in (here, *here.parents):
            if any((folder / mark).exists() for mark in marks):
                return folder
    return here


def place(path: str | Path) -> str:
    """Return the name of a file, relative to the project's root if it is inside."""
    found = Path(path)
    root = project_root()
    name = found.relative_to(root).as_posix() if found.is_relative_to(root) else found.as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:  # the name is not UTF-8, and a database would refuse it
        return f"{_BYTES}{os.fsencode(name).hex()}"
    return name


def path_of(name: str) -> Path:
    """Return the file that `place` named."""
    known = os.fsdecode(bytes.fromhex(name.removeprefix(_BYTES))) if name.startswith(_BYTES) else name
    return project_root() / known


def reader_of(code: CodeType) -> str:
    """Return the name of a function as a reader, the same in every process."""
    return f"{file_of(code)}:{code.co_qualname}"


@functools.cache
def _known_place(file: str) -> str:
    path = Path(file).resolve()
    return place(path) if path.is_file() else NOTEBOOK


def file_of(code: CodeType) -> str:
    """Return the name of the file that code was written in."""
    return _known_place(code.co_filename)
