"""Whoever has the conversation of docs/editors.md gets the answers and the questions that it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.api.editor_project import EditorProject, told
from tests.shell import environment

PAGE = (Path(__file__).parents[2] / "docs" / "editors.md").read_text()
TALK = PAGE[PAGE.index("## A conversation") : PAGE.index("## The tools")]


def _blocks(kind: str, text: str = TALK) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _is_part(shown: Any, found: Any) -> bool:
    """Whether everything that the page shows is in an answer."""
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(key in found and _is_part(shown[key], found[key]) for key in shown)
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(_is_part, shown, found))
    return bool(shown == found)


def test_the_conversation_happens_as_the_page_shows_it(empty_folder: Path) -> None:
    (code,), (commands,) = _blocks("py"), _blocks("bash")
    file = empty_folder / "shop.py"
    file.write_text(code)
    script = f'wtb() {{ {sys.executable} -m wtb "$@"; }}\n{commands}'
    done = subprocess.run(
        ["bash", "-c", script], cwd=empty_folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    parts = re.split(r"The assistant calls `(\w+) (\{.*?\})`", TALK)[1:]
    calls = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    assert len(calls) == 6

    async def story() -> None:
        async with EditorProject(folder=empty_folder).editor("shop.py") as editor:
            for tool, arguments, rest in calls:
                if tool == "rollback":
                    file.write_text(code)
                asked = len(editor.questions)
                answer = await editor.call(tool, **json.loads(arguments))
                (shown,) = _blocks("json", rest)
                assert _is_part(json.loads(shown), answer), (tool, answer)
                assert [f"{question}\n" for question in editor.questions[asked:]] == _blocks("text", rest)

    told(story)


def test_the_page_names_every_tool_and_its_settings_are_json(empty_folder: Path) -> None:
    for text in _blocks("json", PAGE[: PAGE.index("## A conversation")]):
        (servers,) = json.loads(text).values()
        assert servers["wtb"]["command"] == "wtb"
        assert servers["wtb"]["args"][0] == "mcp"
    table = PAGE[PAGE.index("## The tools") : PAGE.index("## Where the work is done")]

    async def story() -> None:
        async with EditorProject(folder=empty_folder).editor("--project", os.fspath(empty_folder)) as editor:
            tools = {tool.name for tool in (await editor.client.list_tools()).tools}
        assert set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", table)) == tools

    told(story)
