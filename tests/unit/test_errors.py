"""Errors: the tree drawn at the top of the module is the real one, and messages say what to do."""

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from wtb.domain import errors
from wtb.domain.errors import (
    AlreadyExists,
    BranchNotFound,
    CheckpointNotFound,
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    InvalidWorkflow,
    LeaseLost,
    NodeRunNotFound,
    NotFound,
    StateNotSerialisable,
    StorageError,
    WorkflowNotFound,
    WTBError,
)


def _drawn_tree() -> dict[str, str | None]:
    """Read the drawing: each error with the one that it hangs from."""
    path: list[str] = []
    parents: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+)(  |$)", line)
        if found:
            depth = len(found[1]) // 4
            parents[found[2]] = path[depth - 1] if depth else None
            path[depth:] = [found[2]]
    return parents


def _real_tree(root: type[WTBError], parent: str | None = None) -> Iterator[tuple[str, str | None]]:
    yield root.__name__, parent
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _real_tree(child, root.__name__)


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert _drawn_tree() == dict(_real_tree(WTBError))


def test_every_error_has_a_docstring() -> None:
    for name, _ in _real_tree(WTBError):
        assert getattr(errors, name).__doc__, name


@pytest.mark.parametrize(
    ("kind", "noun"),
    [
        (NotFound, "item"),
        (WorkflowNotFound, "workflow"),
        (ExecutionNotFound, "run"),
        (BranchNotFound, "branch"),
        (NodeRunNotFound, "node run"),
        (CheckpointNotFound, "checkpoint"),
    ],
)
def test_what_was_not_found_is_named_with_the_place_of_the_search(kind: type[NotFound], noun: str) -> None:
    error = kind("a-b", "run r1")
    assert str(error).startswith(f"no {noun} 'a-b' in run r1")
    assert error.key == "a-b"
    assert isinstance(error, LookupError)


def test_a_missing_run_says_which_command_lists_the_others() -> None:
    assert str(ExecutionNotFound("x")) == "no run 'x'; `wtb ls` lists the runs of this store"


def test_an_invalid_workflow_lists_all_its_faults() -> None:
    error = InvalidWorkflow("flow", ["one", "two"])
    assert error.faults == ("one", "two")
    assert str(error) == "workflow 'flow' cannot run:\n  - one\n  - two"
    assert isinstance(error, ValueError)


def test_a_value_that_cannot_be_stored_is_named_by_its_path() -> None:
    error = StateNotSerialisable("state.agent.callback", "function")
    assert (error.path, str(error)) == ("state.agent.callback", "state.agent.callback: function")


def test_who_catches_a_conflict_catches_those_who_were_first() -> None:
    assert issubclass(AlreadyExists, Conflict)
    assert issubclass(LeaseLost, Conflict)
    assert not issubclass(Conflict, InvalidInput | StorageError)


@pytest.mark.parametrize(
    "error",
    [
        CheckpointNotFound("abc", "run r"),
        InvalidWorkflow("flow", ["one"]),
        StateNotSerialisable("state.a", "function"),
        Conflict("somebody"),
        LeaseLost("gone"),
        StorageError("full"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_crosses_from_one_process_to_another_unchanged(error: WTBError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301  what multiprocessing and Ray do to errors
    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("library", "code", "advice"),
    [
        ("langgraph", "import wtb.langgraph", "workflow-test-bench[langgraph]"),
        ("psycopg", "import wtb; wtb.Bench('postgresql://localhost/none')", "workflow-test-bench[postgres]"),
    ],
)
def test_without_an_extra_it_is_an_import_error_that_names_the_extra(library: str, code: str, advice: str) -> None:
    absent = f"import sys; sys.modules[{library!r}] = None; "
    caught = f"try:\n    {code}\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", f"{absent}\n{caught}"], capture_output=True, text=True, check=True)
    assert f"pip install '{advice}'" in done.stdout
