"""What a batch notices: kinds of change × ways to depend, by editing real files and planning in a new process."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.shell import WTB, environment
from tests.ways_to_depend import SEEN, Way, app

VARIABLES = {"VARIABLE_ONE": "one"}


class Project:
    """A folder with a program in it, and `wtb` as a process of its own in that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wtb(self, *arguments: str, code: int = 0, variables: Mapping[str, str] | None = None) -> str:
        # Two edits within a second would leave Python with the code that it compiled before.
        known = {**environment(), **VARIABLES, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
        done = subprocess.run(
            [*WTB, *arguments], cwd=self.folder, env=known, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def plan(self, file: str = "app.py", variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.wtb("batch", "plan", file, "--json", variables=variables))
        return found

    def copy(self, folder: Path) -> Project:
        shutil.copytree(self.folder, folder)
        return Project(folder)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A workflow with a node for each way to depend, which was run once."""
    project = Project(tmp_path_factory.mktemp("seen"))
    for way in SEEN:
        way.write(project.folder)
    (project.folder / "app.py").write_text(app(SEEN))
    project.wtb("batch", "run", "app.py")
    return project


GROUPS = 8
"""So many plans are made; each is of a copy in which every so-manieth way is edited. A plan takes a process."""


class Plans:
    """The plans of edited copies of a project, made when they are first asked for."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self._made: dict[int, dict[str, Any]] = {}

    def of(self, way: Way) -> dict[str, Any]:
        """Return the plan of the copy in which a way is edited, among others."""
        group = SEEN.index(way) % GROUPS
        if group not in self._made:
            copy = self._project.copy(self._folder / str(group))
            variables: dict[str, str] = {}
            for each in SEEN[group::GROUPS]:
                each.edit(copy.folder)
                variables |= each.environment
            self._made[group] = copy.plan(variables=variables)
        return self._made[group]


@pytest.fixture(scope="module")
def plans(seen: Project, tmp_path_factory: pytest.TempPathFactory) -> Plans:
    return Plans(seen, tmp_path_factory.mktemp("edited"))


@pytest.mark.parametrize("way", SEEN, ids=lambda way: way.name)
def test_a_change_is_noticed_and_named(plans: Plans, way: Way) -> None:
    assert plans.of(way)["changes"].get(way.name) == way.expected


def test_nothing_else_is_said_to_have_changed(plans: Plans) -> None:
    for first in SEEN[:GROUPS]:
        plan = plans.of(first)
        edited = {way.name for way in SEEN[SEEN.index(first) :: GROUPS]}
        edited |= {"variables_copied"} if any(way.environment for way in SEEN[SEEN.index(first) :: GROUPS]) else set()
        assert set(plan["changes"]) == edited
        assert plan["jobs"] == {"total": 2, "kept": 0, "score_only": 0, "run": 2}


# Edits that change nothing

STILL = """
import os
import functools
import wtb
import still_parts
from still_parts import helper

flow = wtb.Workflow("still")
PROMPT = "a"


class Counter:
    def __init__(self):
        self.calls = 0
        self.seen = {}

    @functools.cached_property
    def index(self):
        return ["a"]

    def search(self, q):
        self.calls += 1
        self.seen[q] = True
        return q + self.index[0]


counter = Counter()


@functools.cache
def prompt():
    return open("still.txt").read()


@flow.node(start=True)
def first(state):
    return {"first": helper(counter.search(state["q"])) + prompt()}


@flow.node()
def second(state):
    return {"second": PROMPT + still_parts.NAME + os.environ.get("READ", "")}


@flow.variant("second", "long")
def second_long(state):
    return {"second": "long"}


flow.edge("first", "second")
flow.edge("second", wtb.END)


def right(context):
    return 1.0


CASES = [{"id": "1", "input": {"q": "q1"}}, {"id": "2", "input": {"q": "q2"}}]
batch = wtb.BatchTest(flow, cases=CASES, evaluators=[right])
"""
STILL_PARTS = """
NAME = "name"


def helper(q):
    return q.upper()


def unrelated(q):
    return q.lower()
"""


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("still"))
    files = {"still.py": STILL, "still_parts.py": STILL_PARTS, "still.txt": "p", "other.py": "X = 1\n", "other.txt": ""}
    for name, text in files.items():
        (project.folder / name).write_text(text)
    project.wtb("batch", "run", "still.py")
    return project


def comments(text: str) -> str:
    return "# A comment\n" + text.replace("):\n", "):  # why\n")


def formatting(text: str) -> str:
    return text.replace(", ", ",").replace(" = ", "=").replace('"q"', "'q'").replace("\n\n\n", "\n\n\n\n\n")


def reordered_imports(text: str) -> str:
    return text.replace("import os\nimport functools\n", "import functools\nimport os\n")


def moved_function(text: str) -> str:
    function = text[text.index("@functools.cache\n") : text.index("@flow.node(start=True)")]
    return text.replace(function, "").replace("class Counter", function + "class Counter")


def unused_global(text: str) -> str:
    return text.replace('PROMPT = "a"', 'PROMPT = "a"\nUNUSED = {"b": 1}\n\ndef unused(): return UNUSED')


def unused_import(text: str) -> str:
    return text.replace("import functools", "import functools\nimport json, collections")


def module_docstring(text: str) -> str:
    return '"""What this is about."""\n' + text


def script(text: str) -> str:
    return text + "\nif __name__ == '__main__':\n    print(batch)\n"


EDITS_OF_THE_FILE = [
    comments,
    formatting,
    reordered_imports,
    moved_function,
    unused_global,
    unused_import,
    module_docstring,
    script,
]


def edited(project: Project, name: str, *edits: Callable[[str], str]) -> None:
    path = project.folder / name
    text = path.read_text()
    for edit in edits:
        new = edit(text)
        assert new != text, edit.__name__
        text = new
    path.write_text(text)


KEPT = {"total": 4, "kept": 4, "score_only": 0, "run": 0}


@pytest.mark.parametrize("edit", EDITS_OF_THE_FILE, ids=lambda edit: edit.__name__)
def test_an_edit_that_changes_nothing_runs_nothing(still: Project, tmp_path: Path, edit: Callable[[str], str]) -> None:
    project = still.copy(tmp_path / "copy")
    edited(project, "still.py", edit)
    plan = project.plan("still.py")
    assert (plan["changes"], plan["jobs"]) == ({}, KEPT)


def test_edits_elsewhere_run_nothing(still: Project, tmp_path: Path) -> None:
    project = still.copy(tmp_path / "a clone in another folder")
    edited(project, "other.py", lambda text: text + "Y = 2\n")
    edited(project, "other.txt", lambda text: text + "more")
    edited(project, "still_parts.py", lambda text: text.replace("lower", "title"), comments)
    (project.folder / "new.py").write_text("Z = 1\n")
    (project.folder / "still.txt").touch()
    (project.folder / "still.py").touch()
    plan = project.plan("still.py", variables={"NEVER_READ": "1", "SHLVL": "7"})
    assert (plan["changes"], plan["jobs"], plan["coarse"]) == ({}, KEPT, {})
    assert plan["changing"] == [f"`counter.{name}` in still.py" for name in ("calls", "index", "seen")]


def test_another_variant_and_another_case_are_run_and_the_rest_is_kept(still: Project, tmp_path: Path) -> None:
    project = still.copy(tmp_path / "copy")
    variant = "\n@flow.variant('second', 'short')\ndef short(state):\n    return {'second': 's'}\n\nCASES = ["
    edited(project, "still.py", lambda text: text.replace("\nCASES = [", variant))
    edited(project, "still.py", lambda text: text.replace("CASES = [", 'CASES = [{"id": "3", "input": {"q": "q3"}}, '))
    plan = project.plan("still.py")
    assert (plan["changes"], plan["jobs"]) == ({}, {"total": 9, "kept": 4, "score_only": 0, "run": 5})


def test_an_edited_variant_leaves_the_other_combinations_and_nodes_before_it(still: Project, tmp_path: Path) -> None:
    project = still.copy(tmp_path / "copy")
    edited(project, "still.py", lambda text: text.replace('"second": "long"', '"second": "longer"'))
    plan = project.plan("still.py")
    assert plan["changes"] == {"second@long": ["`second_long` in still.py"]}
    assert plan["jobs"] == {"total": 4, "kept": 2, "score_only": 0, "run": 2}
    assert plan["node_runs"] == {"kept": 4, "shared": 2, "executed": 2}


def test_an_edited_evaluator_scores_again_and_runs_nothing(still: Project, tmp_path: Path) -> None:
    project = still.copy(tmp_path / "copy")
    edited(project, "still.py", lambda text: text.replace("return 1.0", "return 0.5"))
    plan = project.plan("still.py")
    assert (plan["changes"], plan["jobs"]) == ({}, {"total": 4, "kept": 0, "score_only": 4, "run": 0})
