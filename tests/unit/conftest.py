"""What the unit tests of settings, bootstrap and the command line share."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without any WTB_* variable of the machine that the tests run on."""
    for name in [name for name in os.environ if name.startswith("WTB_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
