"""Every Python example in the README and the documentation runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest
import yaml

import wtb
from tests.shell import environment, run_script, run_wtb

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {TUTORIAL})]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1)
]
MODULES = {
    "support": next(each for each in EXAMPLES if each.id == "README.md-1"),
    "bot": next(each for each in EXAMPLES if each.id == "langgraph-graphs.md-1"),
}
"""What other examples import: the workflow of the quick start, and the graph that somebody has already."""
SCRIPTED_CHAT = ROOT / "examples" / "first_agent" / "scripted_chat.py"
CI_FILES = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL | re.MULTILINE)
QUICK_START = str(MODULES["support"].values[0])


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_the_documentation_is_built_and_no_link_or_anchor_is_broken(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    for name, example in MODULES.items():
        if f"from {name} import" in code:
            (tmp_path / f"{name}.py").write_text(str(example.values[0]))
    if "from scripted_chat import" in code:
        (tmp_path / SCRIPTED_CHAT.name).write_text(SCRIPTED_CHAT.read_text())
    done = run_script(script)
    assert done.returncode == 0, done.stderr


def test_snippets_for_libraries_that_are_not_installed_are_python_at_least() -> None:
    fence = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
    snippets = {page.name: code for page in PAGES for code in fence.findall(page.read_text())}
    assert "asyncio.md" in snippets
    for name, code in snippets.items():
        compile(code, name, "exec")


def test_the_commands_of_the_quick_start_work(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (commands,) = re.findall(r"^```\n(wtb run.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "support.py").write_text(QUICK_START)
    assert "Invoices are under Account" in typed(commands.splitlines(), tmp_path)


def test_whoever_follows_the_tutorial_sees_what_it_shows(tmp_path: Path) -> None:
    """Files are saved, replaced lines are replaced, commands are run, and each line of output that is shown comes."""
    block = r"(?:Save this as `(?P<file>[^`]+)`:)?\n\n```(?P<kind>\w+)\n(?P<body>.*?)^```"
    for part in re.finditer(block, TUTORIAL.read_text(), re.DOTALL | re.MULTILINE):
        body = part["body"]
        if part["file"] is not None:
            (tmp_path / part["file"]).write_text(body)
        elif part["kind"] == "python":
            lines = (tmp_path / "batch.py").read_text().splitlines(keepends=True)
            changed = [body if line.startswith("    billing =") else line for line in lines]
            (tmp_path / "batch.py").write_text("".join(changed))
        elif "pip install" not in body:
            _follow(body, tmp_path)


def typed(commands: Sequence[str], folder: Path, *, codes: Collection[int] = (0,)) -> str:
    """Run commands of `wtb` one after the other, and return what they print; `echo $?` is the last exit code."""
    said, code = "", 0
    for command in commands:
        if command == "echo $?":
            said += f"{code}\n"
            continue
        name, *arguments = shlex.split(command, comments=True)
        assert name == "wtb", f"this is not a command of wtb: {command}"
        done = run_wtb(*arguments, folder=folder, variables=environment())
        code = done.returncode
        assert code in codes, done.stderr
        said += done.stdout + done.stderr
    return said


def _follow(console: str, folder: Path) -> None:
    commands = [line[2:] for line in console.splitlines() if line.startswith("$ ")]
    said = typed(commands, folder, codes=(0, 3, 4))
    for line in console.splitlines():
        assert line.startswith("$ ") or line in said, f"{line!r} is not in the output of\n{commands}\n{said}"


def saved(page: str, folder: Path) -> None:
    """Save the files that a page tells its reader to save."""
    text = (ROOT / "docs" / page).read_text()
    for file, body in re.findall(r"Save this as `([^`]+)`:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(body)


def output_of_pytest(folder: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False).stdout


def test_the_tests_on_the_page_about_pytest_pass_until_the_workflow_becomes_worse(tmp_path: Path) -> None:
    saved("pytest.md", tmp_path)
    (tmp_path / "support.py").write_text(QUICK_START)
    assert "6 passed, 1 skipped" in output_of_pytest(tmp_path)
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        bench.set_baseline("main", "topics")
    (tmp_path / "support.py").write_text(re.sub('"topic": .*}', '"topic": "sales"}', QUICK_START, count=1))
    said = output_of_pytest(tmp_path)
    assert "worse on Where is my invoice?" in said
    assert "FAILED test_quality.py::test_topics_have_not_become_worse" in said


def of_github(event: str) -> str:
    (job,) = yaml.safe_load(CI_FILES[0])["jobs"].values()
    steps = [step for step in job["steps"] if "run" in step and "pip install" not in step["run"]]
    wanted = [step for step in steps if step.get("if", "").split("== ")[-1].strip("'") in ("", event)]
    assert len(wanted) == 3
    return "\n".join(step["run"] for step in wanted)


def of_gitlab(event: str) -> str:
    source = "merge_request_event" if event == "pull_request" else "push"
    branch = "main" if event == "push" else ""
    variables = f"CI_PIPELINE_SOURCE={source} CI_COMMIT_BRANCH={branch} CI_DEFAULT_BRANCH=main\n"
    return variables + "\n".join(yaml.safe_load(CI_FILES[1])["quality"]["script"])


@pytest.mark.parametrize("commands", [of_github, of_gitlab])
def test_the_files_on_the_page_about_ci_fail_a_branch_that_is_worse(
    commands: Callable[[str], str], tmp_path: Path
) -> None:
    tutorial = re.findall(r"`([a-z.]+)`:\n\n```\w+\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    for file, body in tutorial:
        (tmp_path / file).write_text(body)
    triage = (tmp_path / "triage.py").read_text()
    codes = {}
    for event, code in (("push", triage), ("pull_request", re.sub('"(billing|support)"', '"sales"', triage))):
        (tmp_path / "triage.py").write_text(code)
        script = f'set -e\nwtb() {{ {sys.executable} -m wtb "$@"; }}\nGITHUB_STEP_SUMMARY=summary.md\n{commands(event)}'
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        codes[event] = done.returncode
    assert codes == {"push": 0, "pull_request": 4}
    assert (tmp_path / "report.html").exists()


def test_the_files_that_the_page_on_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = {each for each in re.findall(r"`([a-z_/]+(?:\.py|/))`", text) if each not in ("src/wtb/", "api/")}
    known = [*(ROOT / "src" / "wtb").rglob("*")]
    places = {f"{path.relative_to(ROOT / 'src' / 'wtb')}{'/' * path.is_dir()}" for path in known}
    assert len(named) > 30
    assert {each for each in named if not any(f"/{place}".endswith(f"/{each}") for place in places)} == set()


def test_the_classes_and_functions_on_the_path_of_a_step_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    pairs = re.findall(r"`([a-z_/]+\.py)`\s+`([A-Za-z_.]+)`", text)
    assert len(pairs) >= 10
    for file, name in pairs:
        source = (ROOT / "src" / "wtb" / file).read_text()
        assert all(re.search(rf"(class|def) {part}\b", source) for part in name.split(".")), f"{name} in {file}"
