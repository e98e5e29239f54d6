"""What a batch notices: kinds of change × ways to depend, by editing real files and planning in a new process."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.shell import WTB, environment, run_wtb
from tests.ways_to_depend import COARSE, GRAPH, GRAPH_EDITS, SEEN, WORKFLOW_EDITS, WORKFLOW_FILES, Way, app

VARIABLES = {"VARIABLE_ONE": "one"}


class Project:
    """A folder with a program in it, and `wtb` as a process of its own in that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wtb(self, *arguments: str, code: int = 0, variables: Mapping[str, str] | None = None) -> str:
        """Run a command; return what it printed."""
        return self.run(*arguments, code=code, variables=variables).stdout

    def run(
        self, *arguments: str, code: int = 0, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; return all that came of it."""
        # Two edits within a second would leave Python with the code that it compiled before.
        known = {**environment(), **VARIABLES, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
        done = run_wtb(*arguments, folder=self.folder, variables=known)
        assert done.returncode == code, done.stdout + done.stderr
        return done

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


GROUPS = 4
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


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A workflow with functions beside its nodes, and nodes that look up what nobody can follow."""
    project = Project(tmp_path_factory.mktemp("workflow"))
    for name, text in WORKFLOW_FILES.items():
        (project.folder / name).write_text(text)
    project.wtb("batch", "run", "workflow.py")
    return project


@pytest.mark.parametrize("edit", WORKFLOW_EDITS)
def test_what_belongs_to_no_node_is_noticed_and_what_cannot_be_followed_runs_again(
    workflow: Project, tmp_path: Path, edit: str
) -> None:
    file, function, expected = WORKFLOW_EDITS[edit]
    project = workflow.copy(tmp_path / "copy")
    text = (project.folder / file).read_text()
    at = text.index(function)
    (project.folder / file).write_text(text[:at] + text[at:].replace("one", "two", 1))
    plan = project.plan("workflow.py")
    assert {node: words for node, words in plan["changes"].items() if node not in COARSE - set(expected)} == expected
    assert plan["changes"].keys() >= COARSE - {"by_getattr"}
    assert set(plan["coarse"]) == COARSE
    assert plan["jobs"]["run"] == 1


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A graph of LangGraph with chains, a model, a tool and a graph inside."""
    project = Project(tmp_path_factory.mktemp("graph"))
    (project.folder / "graph.py").write_text(GRAPH)
    project.wtb("batch", "run", "graph.py")
    return project


@pytest.mark.parametrize("edits", GRAPH_EDITS, ids=", ".join)
def test_changes_of_runnables_models_tools_and_graphs_are_noticed(
    graph: Project, tmp_path: Path, edits: Mapping[str, Mapping[str, list[str]]]
) -> None:
    project = graph.copy(tmp_path / "copy")
    text = (project.folder / "graph.py").read_text()
    for edit in edits:
        assert edit in text
        text = text.replace(edit, edit.replace("one", "two"))
    (project.folder / "graph.py").write_text(text)
    found = project.plan("graph.py")["changes"]
    assert found == {node: words for expected in edits.values() for node, words in expected.items()}


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


# Whole stories: the command again, and what the gate says

STORY = """
import os
import time
import wtb

flow = wtb.Workflow("story")


class Retriever:
    def __init__(self, k):
        self.k = k
        self.calls = 0

    def search(self, q):
        self.calls += 1
        return q + self.k + "method"


retriever = Retriever("attribute")


@flow.node(start=True)
def retrieve(state):
    with open("log", "a") as log:
        log.write("retrieve\\n")
    while os.path.exists("stuck") and state["q"] == "q7":
        time.sleep(0.01)
    return {"docs": retriever.search(state["q"]) + open("prompt.txt").read() + os.environ.get("MODEL", "model")}


@flow.node(cache=False)
def answer(state):
    return {"answer": state["docs"]}


flow.edge("retrieve", "answer")
flow.edge("answer", wtb.END)


def right(context):
    return context.state["answer"].endswith("attributemethodprompt" + os.environ.get("RIGHT", "model"))


right_cases = [{"id": str(n), "input": {"q": f"q{n}"}} for n in range(8)]
batch = wtb.BatchTest(flow, cases=right_cases, evaluators=[right])
"""


@pytest.fixture(scope="module")
def ran_story(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("story"))
    (project.folder / "story.py").write_text(STORY)
    (project.folder / "prompt.txt").write_text("prompt")
    project.wtb("batch", "run", "story.py")
    project.wtb("baseline", "set", "before", "story")
    return project


@pytest.fixture
def story(ran_story: Project, tmp_path: Path) -> Project:
    return ran_story.copy(tmp_path / "copy")


def mean(project: Project, *arguments: str, variables: Mapping[str, str] | None = None) -> float:
    """Run the batch, and return the mean score."""
    told = json.loads(project.wtb("batch", "run", "story.py", "--json", *arguments, variables=variables))
    return float(told["matrix"][0]["metrics"]["right"]["mean"])


REGRESSION = 4
STORIES: dict[str, tuple[str, Mapping[str, str]]] = {
    '+ "method"': ("story.py", {}),
    'Retriever("attribute")': ("story.py", {}),
    "prompt": ("prompt.txt", {}),
    "$MODEL": ("", {"MODEL": "large"}),
}


@pytest.mark.parametrize("change", STORIES)
def test_after_a_change_the_scores_are_new_and_the_gate_sees_them(story: Project, change: str) -> None:
    file, variables = STORIES[change]
    if file:
        edited(story, file, lambda text: text.replace(change, change.replace("t", "T").replace("ReT", "Ret")))
    assert mean(story, "--name", "another", variables=variables) == 0.0, "another batch shares nothing that is stale"
    assert mean(story, variables=variables) == 0.0
    gate = story.wtb("gate", "story", "--baseline", "before", "--metric", "right", code=REGRESSION)
    assert "REGRESSION" in gate.upper()


def test_what_has_not_changed_is_kept_also_for_a_node_that_is_never_shared(story: Project) -> None:
    assert mean(story) == 1.0
    assert mean(story, "--name", "another") == 1.0
    assert (story.folder / "log").read_text().count("retrieve") == 8


def test_a_file_that_an_evaluator_reads_makes_new_scores_and_runs_nothing(story: Project) -> None:
    assert mean(story, variables={"RIGHT": "large"}) == 0.0
    assert (story.folder / "log").read_text().count("retrieve") == 8


def test_a_killed_batch_goes_on_with_the_code_as_it_is_now(ran_story: Project, tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name in ("story.py", "prompt.txt"):
        shutil.copy(ran_story.folder / name, tmp_path / name)
    (tmp_path / "stuck").touch()
    process = subprocess.Popen(
        [*WTB, "batch", "run", "story.py", "--workers", "1"],
        cwd=tmp_path,
        env={**environment(), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "jobs" in process.stderr.readline(), "a job has ended"
    process.kill()
    process.communicate()
    (tmp_path / "stuck").unlink()
    edited(project, "story.py", lambda text: text.replace('+ "method"', '+ "another"'))
    assert mean(project) == 0.0


def test_a_resumed_run_is_warned_of_by_the_same_rule(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "story.py").write_text(STORY)
    (tmp_path / "prompt.txt").write_text("prompt")
    project.wtb("run", "story.py:flow", "--set", "q=q", "--break-before", "answer", "--run-id", "paused")
    edited(project, "story.py", lambda text: text.replace('+ "method"', '+ "another"'))
    done = project.run("resume", "paused")
    assert "node `retrieve` has changed: `Retriever.search` in story.py" in done.stderr


def test_two_batches_of_one_process_notice_a_file_that_was_edited_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt.txt").write_text("one")
    flow = wtb.Workflow("edited")
    flow.add_node("read", lambda state: {"text": Path("prompt.txt").read_text()}, start=True)
    flow.edge("read", wtb.END)
    test = wtb.BatchTest(flow, cases=[{"id": "1", "input": {}, "expected": "two"}], evaluators=[wtb.ExactMatch("text")])
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        assert bench.batch(test).matrix[0].summaries["exact_match"].mean == 0.0
        assert bench.batch(test).sharing["executed"] == 0
        (tmp_path / "prompt.txt").write_text("two")
        assert bench.batch(test).matrix[0].summaries["exact_match"].mean == 1.0


class Counting:
    """Counts and keeps what it was asked, as many clients do."""

    def __init__(self) -> None:
        self.calls = 0
        self.kept: dict[str, str] = {}

    @functools.cached_property
    def index(self) -> list[str]:
        return ["a"]

    def ask(self, question: str) -> str:
        self.calls += 1
        return self.kept.setdefault(question, question + self.index[0])


def test_counters_and_caches_do_not_make_a_process_run_everything_again(tmp_path: Path) -> None:
    client = Counting()
    flow = wtb.Workflow("counting")
    flow.add_node("ask", lambda state: {"text": client.ask(state["q"])}, start=True)
    flow.edge("ask", wtb.END)
    test = wtb.BatchTest(flow, cases=[{"id": "1", "input": {"q": "q"}}], evaluators=[wtb.Steps()])
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        assert [bench.batch(test).sharing["executed"] for _ in range(3)] == [1, 0, 0]
        left_out = bench.plan(test).changing
    assert {name.partition("`")[2].partition("`")[0] for name in left_out} == {
        "client.calls",
        "client.index",
        "client.kept",
    }


PARTLY_SHARED = """
import wtb

flow = wtb.Workflow("partly")


@flow.node(start=True)
def first(state):
    return {"first": state["n"]}


@flow.node()
def second(state):
    with open("data.txt") as data:
        return {"second": data.read()}


flow.edge("first", "second")
cases = [{"id": str(n), "input": {"n": n}} for n in range(6)]
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"], workers=1)
"""


def test_jobs_that_took_over_results_from_before_an_edit_are_kept_after_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "app.py").write_text(PARTLY_SHARED)
    for content in ("one", "two"):
        (tmp_path / "data.txt").write_text(content)
        project.wtb("batch", "run", "app.py")
        assert project.plan()["jobs"]["kept"] == 6
    (tmp_path / "data.txt").write_text("three")
    plan = project.plan()
    assert plan["jobs"]["run"] == 6
    assert plan["node_runs"] == {"kept": 0, "shared": 6, "executed": 6}
    assert plan["changes"] == {"second": ["data.txt"]}
