"""Every Python example in the README and the documentation runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
QUICK_START = str(MODULES["support"].values[0])


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    for name, example in MODULES.items():
        if f"from {name} import" in code:
            (tmp_path / f"{name}.py").write_text(str(example.values[0]))
    if "from scripted_chat import" in code:
        (tmp_path / SCRIPTED_CHAT.name).write_text(SCRIPTED_CHAT.read_text())
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_quick_start_work(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (commands,) = re.findall(r"^```\n(wtb run.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "support.py").write_text(QUICK_START)
    script = f'set -e\nwtb() {{ {sys.executable} -m wtb "$@"; }}\n{commands}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Invoices are under Account" in done.stdout


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


def _follow(console: str, folder: Path) -> None:
    commands = "".join(f"{line[2:]}\n" for line in console.splitlines() if line.startswith("$ "))
    script = f'exec 2>&1\nwtb() {{ {sys.executable} -m wtb "$@"; }}\n{commands}'
    said = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False).stdout
    for line in console.splitlines():
        assert line.startswith("$ ") or line in said, f"{line!r} is not in the output of\n{commands}\n{said}"


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
