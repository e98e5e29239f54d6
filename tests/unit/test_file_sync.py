"""FileSync: what the other side of a link may do to a folder, and what it may not."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from wtb.domain.errors import UnsafePath
from wtb.infrastructure.environments.file_sync import FileSync

CONTENT = b"a key that nobody else may read"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


def blob(content: bytes) -> list[dict[str, Any]]:
    digest = hashlib.sha256(content).hexdigest()
    return [{"blob": digest, "data": ""}, {"blob": digest, "data": b64encode(content).decode()}]


def test_a_link_in_the_place_of_a_folder_opens_no_file_behind_it(tmp_path: Path, folder: Path) -> None:
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "key").write_bytes(CONTENT)
    sent: list[Any] = []
    sync = FileSync(sent.append, tmp_path / "scratch")
    sync.folder = folder
    for message in (
        *blob(CONTENT),
        {"files": {"a": ["folder"], "a/key": ["file", DIGEST, "384"]}},
        {"files": {"a": ["link", str(outside)]}},
        {"need": [DIGEST], "number": 1},
    ):
        sync.incoming(message, lambda: folder)
    assert sent == [{"given": 1}]


@pytest.mark.parametrize("path", ["../key", "/etc/key", "a/../../key", "a/key"])
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, folder: Path, path: str) -> None:
    (folder / "a").symlink_to(tmp_path)
    sync = FileSync(lambda message: None, tmp_path / "scratch")
    for message in blob(CONTENT):
        sync.incoming(message, lambda: folder)
    with pytest.raises(UnsafePath):
        sync.incoming({"files": {path: ["file", DIGEST, "384"]}}, lambda: folder)
