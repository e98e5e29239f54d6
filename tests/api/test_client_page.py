"""The examples of docs/client.md run as they stand, one after the other, against a server of the quick start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.api.served_address import served_address
from wtb.settings import Settings

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_page_run_as_they_stand(server_settings: Settings, empty_folder: Path) -> None:
    (quick_start, *_) = _blocks(ROOT / "README.md", "python")
    with served_address(empty_folder, server_settings, "support.py", quick_start) as served, served.up():
        program = "\n".join(_blocks(ROOT / "docs" / "client.md", "py")).replace("http://127.0.0.1:8383", served.url)
        (served.folder / "program.py").write_text(program)
        own = {**os.environ, "WTB_TOKEN": served.token}
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=served.folder,
            env=own,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr


def _blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
