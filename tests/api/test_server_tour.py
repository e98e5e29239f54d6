"""Whoever types docs/server-tour.md sees what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.served_address import served_address
from wtb.settings import Settings

ROOT = Path(__file__).parents[2]
JQ = r"""import json, re, sys
path, *files = [each for each in sys.argv[1:] if each != "-r"]
found = [json.load(open(files[0]) if files else sys.stdin)]
for key in re.findall(r"[a-z_]+|\[[0-9]*\]", path):
    if key == "[]":
        found = [item for each in found for item in each]
    else:
        found = [each[int(key[1:-1]) if key[0] == "[" else key] for each in found]
for each in found:
    print(f"{each:g}" if isinstance(each, float) else each)
"""
"""The little of jq that the page uses."""


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_whoever_types_the_tour_sees_what_it_shows(server_settings: Settings, empty_folder: Path) -> None:
    (quick_start, *_) = _blocks("README.md", "python")
    console = "\n".join(_blocks("docs/server-tour.md", "console"))
    (program,) = _blocks("docs/server-tour.md", "py")
    with served_address(empty_folder, server_settings, "support.py", quick_start) as served, served.up():
        (served.folder / "jq.py").write_text(JQ)
        (served.folder / "program.py").write_text(program.replace("http://127.0.0.1:8383", served.url))
        commands, shown = _typed(console.replace("http://127.0.0.1:8383", served.url))
        script = f"""set -e
            wtb() {{ {sys.executable} -m wtb "$@"; }}
            jq() {{ {sys.executable} jq.py "$@"; }}
            {commands}
            {sys.executable} program.py"""
        done = subprocess.run(
            ["bash", "-c", script], cwd=served.folder, env={**os.environ}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == shown


def _typed(console: str) -> tuple[str, list[str]]:
    """Return the commands of a console, each with its further lines, which are indented; and what they print."""
    lines = console.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith(("$ ", "    "))]
    return "\n".join(commands), [line for line in lines if line and not line.startswith(("$ ", "    "))]


def _blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
