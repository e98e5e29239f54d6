"""Load workflows and batches from `file.py:flow`, `module:flow` or `flow.json`, and find where they came from."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from wtb.application.dependencies.loaded_modules import LoadedModules
from wtb.application.dependencies.own_code import is_own_module
from wtb.domain.errors import InvalidInput
from wtb.flow import Workflow, resolve_function
from wtb.infrastructure.json_text import read_json

_SITE = "/site-packages/"
_OWN_FOLDERS = (f"{Path(os.__file__).parent}/", f"{Path(__file__).parent}/")
"""Where the modules of Python and of WTB are."""

_LIBRARIES = frozenset(
    {
        "_pytest",
        "alembic",
        "hypothesis",
        "langchain",
        "langchain_core",
        "langgraph",
        "langsmith",
        "matplotlib",
        "numpy",
        "openai",
        "pandas",
        "playwright",
        "psycopg",
        "pydantic",
        "pydantic_settings",
        "pygments",
        "pytest",
        "rich",
        "scipy",
        "sqlalchemy",
        "torch",
        "transformers",
        "wtb",
    }
)
"""Large packages that hold no workflow of a user."""


def load_workflow(reference: str) -> Workflow:
    """Load `file.py[:flow]`, `module:flow` or `flow.json`; the workflow remembers its source."""
    if reference.endswith(".json"):
        return _load_json(Path(reference))
    found, place, name = load_named(reference, is_workflow, "workflow", "flow")
    flow = as_workflow(found)
    flow.source = f"{place}:{name}"
    return flow


def load_function(reference: str) -> Callable[..., Any]:
    """Load the function that `module:function` refers to."""
    with _loading():
        return resolve_function(reference)


def _load_json(path: Path) -> Workflow:
    data = _read_json(path)
    look_in(path.resolve().parent)
    with _loading():
        flow = Workflow.from_dict(data)
    flow.source = str(path.resolve())
    return flow


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is not a workflow as JSON: {error}") from error
    data = read_json(text, str(path))
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{path} is not a workflow as JSON: it holds a {type(data).__name__}")
    return data


def load_named(reference: str, fits: Callable[[object], bool], noun: str, usual: str) -> tuple[Any, str, str]:
    """Load the object that `file.py[:name]` or `module:name` refers to; return it with its place and its name there."""
    place, _, given = reference.rpartition(":")
    place, name = (place, given) if place else (reference, usual)
    is_file = place.endswith(".py")
    with _loading():
        module = _module_at(Path(place), name) if is_file else _imported(place)
    found = getattr(module, name, None)
    if not fits(found) and place == reference:
        name = _only_name(module, fits) or name
        found = getattr(module, name, None)
    if not fits(found):
        if inspect.isfunction(found):
            raise InvalidInput(f"{name!r} in {place} is a function: let {usual} = {name}(…) there, and name that")
        names = [key for key, value in vars(module).items() if fits(value)]
        hint = f"it has {', '.join(names)}" if names else "it defines none"
        raise InvalidInput(f"{place} has no {noun} called {name!r}; {hint}")
    return found, str(Path(place).resolve()) if is_file else place, name


def _only_name(module: ModuleType, fits: Callable[[object], bool]) -> str | None:
    """Return the name of the only object that fits; None if there are several, or none.

    A graph counts once, although the builder that compiled it is there too.
    """
    found = {name: value for name, value in vars(module).items() if fits(value)}
    builders = {id(getattr(value, "builder", None)) for value in found.values()}
    names = {id(value): name for name, value in reversed(found.items()) if id(value) not in builders}
    return next(iter(names.values())) if len(names) == 1 else None


def _module_at(path: Path, wanted: str) -> ModuleType:
    """Import a file under its own name, with its folder on the path, as if it had been run."""
    try:
        is_there = path.is_file()
    except OSError as error:  # a name that is too long, or a folder that may not be read
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    if not is_there:
        raise InvalidInput(f"there is no file {path}")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    if known is not None and not is_own_module(name):
        raise InvalidInput(
            f"{path} would take the place of the module {name!r}, which this process uses; give the file another name"
        )
    look_in(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(path.resolve(), error)
        advice = _package_advice(path.resolve(), wanted) if "relative import" in str(error) else ""
        raise InvalidInput(
            f"{path} cannot be imported: {type(error).__name__} in line {line}: {error}{advice}"
        ) from error
    return module


def _package_advice(path: Path, name: str) -> str:
    """Say how to name a file that is part of a package: as a module, from the folder that holds the package."""
    parts, folder = [path.parent.name, path.stem], path.parent.parent
    while (folder / "__init__.py").is_file():
        parts, folder = [folder.name, *parts], folder.parent
    return f"; it is part of a package: name it {'.'.join(parts)}:{name}, in the folder {folder}"


def _line_in(path: Path, error: BaseException) -> int | None:
    """Return the last line of the file on the way to an error, which may have happened in code that the file calls."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(path)]
    return (own or frames)[-1].lineno


def _imported(name: str) -> ModuleType:
    if not all(name.split(".")) or "/" in name or "\\" in name:  # Python would take it for a relative import
        raise InvalidInput(f"{name!r} is neither a file that ends .py or .json nor the name of a module")
    look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise InvalidInput(f"module {name!r} cannot be imported: {text}") from error


def look_in(folder: Path) -> None:
    """Put a folder on the import path: Python does this for a script it runs, but not for `wtb`."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


_is_loading = ContextVar("_is_loading", default=False)


@contextmanager
def _loading() -> Iterator[None]:
    before = _is_loading.set(True)
    try:
        yield
    finally:
        _is_loading.reset(before)


def refuse_while_loading() -> None:
    """Raise InvalidInput if a script that is only being loaded tries to run a workflow."""
    if _is_loading.get():
        raise InvalidInput(
            'this runs a workflow whenever the file is loaded; put it under `if __name__ == "__main__":`'
        )


def is_workflow(value: object) -> bool:
    """Whether something is a workflow or a LangGraph graph; if a graph cannot run, that is reported later."""
    graphs = sys.modules.get("langgraph.graph.state")
    return isinstance(value, Workflow) or (graphs is not None and isinstance(value, graphs.StateGraph | graphs.Pregel))


def as_workflow(flow: Any) -> Workflow:
    """Return a workflow, made from a LangGraph graph if it is one; raise InvalidInput for anything else."""
    if isinstance(flow, Workflow):
        return flow
    if type(flow).__module__.partition(".")[0] == "langgraph":
        from wtb.langgraph import workflow

        return workflow(flow)
    if inspect.isfunction(flow):
        raise InvalidInput("a function is not a workflow; call it, if it makes one")
    kind = type(flow).__name__
    raise InvalidInput(f"an object of type {kind} is not a workflow; give a wtb.Workflow or a LangGraph StateGraph")


def source_of(flow: Workflow) -> str | None:
    """Return where a workflow can be loaded again: its source, or the module that holds it, or else its graph, by name.

    The workflow comes first: it may have variants, and its graph has none.
    """
    return flow.source or place_of(flow) or (None if flow.origin is None else place_of(flow.origin))


def place_of(thing: object) -> str | None:
    """Return the module that holds a thing by name, and that name: `package.module:name`."""
    wanted = {id(thing)}
    # Every new run asks this, and thousands of modules may be loaded: compare ids without a Python loop.
    found = [held for held in _MODULES.now() if not wanted.isdisjoint(map(id, list(held.values())))]
    if not found:
        return None
    # Prefer the module that defines the workflow to a script that imports it: loading it is cheaper.
    main = vars(sys.modules["__main__"])
    held = next((held for held in found if held is not main), main)
    name = next(name for name, value in list(held.items()) if value is thing)
    return f"{_module_place(held)}:{name}"


def _module_place(held: Mapping[str, Any]) -> str:
    """Return the name of the module with these contents, or its file if Python runs it as a script."""
    return str(Path(held["__file__"]).resolve()) if held["__name__"] == "__main__" else str(held["__name__"])


def _may_hold_workflows(file: str) -> bool:
    """Whether to search the module of this file: most modules are libraries, and searching takes time."""
    if file.endswith("__main__.py"):
        return False
    _, found, inside = file.rpartition(_SITE)
    if found:
        return inside.partition("/")[0] not in _LIBRARIES
    return not file.startswith(_OWN_FOLDERS)


_MODULES = LoadedModules(_may_hold_workflows)
